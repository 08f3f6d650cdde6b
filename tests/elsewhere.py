"""Small repositories of the shape of Megatron-Bridge and ml-containers, and one with pins of its own: our content."""

PYTORCH, TORCH_EXTRAS = "nvcr.io/nvidia/pytorch", "ghcr.io/coreweave/ml-containers/torch-extras"
OLD_TORCH = "17ad6db-nccl-cuda12.9.1-ubuntu22.04-nccl2.29.2-1-torch2.10.0-vision0.25.0-audio2.10.0-abi1"
NEW_TORCH = "bc8c66e-nccl-cuda13.2.1-ubuntu24.04-nccl2.30.4-1-torch2.11.0-vision0.26.0-audio2.11.0-abi1"
CICD, MEGATRON_YML = ".github/workflows/cicd-main.yml", ".github/workflows/megatron.yml"


def bridge(tag: str = "26.02-py3", passed: str = "25.09-py3", argument: str = "FROM_IMAGE_NAME") -> dict[str, str]:
    """CI passes ``argument`` to a Dockerfile that declares BASE_IMAGE."""
    return {
        "docker/Dockerfile.ci": f"ARG BASE_IMAGE={PYTORCH}:{tag}\nFROM ${{BASE_IMAGE}} AS bridge\nARG WITH_EXTRAS=no\n",
        CICD: f"""\
name: CICD NeMo
jobs:
  build:
    steps:
      - uses: docker/build-push-action@v5
        with:
          file: ./docker/Dockerfile.ci
          build-args: |
            {argument}={PYTORCH}:{passed}
            WITH_EXTRAS=${{{{ env.WITH_EXTRAS }}}}
""",
        ".github/workflows/install-test.yml": f"""\
jobs:
  # commented:
  #   container:
  #     image: {PYTORCH}:25.01-py3
  pytorch:
    container:
      image: {PYTORCH}:25.05-py3
""",
        "docker/README.md": f"docker build \\\n  --build-arg NEMO_FW_BASE_IMAGE={PYTORCH}:26.01-py3 \\\n  .\n",
        "README.md": "A bridge.\n",
    }


def ml_containers(tag: str = OLD_TORCH) -> dict[str, str]:
    """The base image is the default of an expression."""
    return {
        MEGATRON_YML: f"""\
on: [workflow_dispatch]
jobs:
  build:
    uses: ./.github/workflows/build.yml
    with:
      folder: megatron
      build-args: |
        BASE_IMAGE=${{{{ inputs.base-image || '{TORCH_EXTRAS}:{tag}'}}}}
        COMMIT=${{{{ inputs.commit || 'main'}}}}
""",
        "megatron/Dockerfile": "ARG BASE_IMAGE\nFROM $BASE_IMAGE\n",
        "README.md": "Containers.\n",
    }


PINS_FILE = f"""\
# yaml-language-server: $schema=../runbook_lib/pins/base-image-pins.schema.json
version: 1
image: {PYTORCH}
title: "build: base image {{tag}}"
labels: [needs review]
platforms: [amd64]
pins:
  - path: Dockerfile
    find: {{regex: '^FROM (?P<image>nvcr\\.io/nvidia/pytorch:\\S+)'}}
  - path: .gitlab-ci.yml
    find: {{yaml: build.variables.BASE_IMAGE}}
  - path: .github/workflows/ci.yml
    find: {{yaml: jobs.test.steps.1.with.image}}
  - path: image.txt
    find: {{file: whole}}
    kind: informational
  - path: results/README.md
    find: {{build-arg: BASE}}
    kind: frozen
    count: 2
"""


def own(tag: str = "26.02-py3") -> dict[str, str]:
    """A repository with a pins file."""
    image = f"{PYTORCH}:{tag}"
    return {
        ".base-image-pins.yaml": PINS_FILE,
        "Dockerfile": f"# ours\nFROM {image} AS base\nFROM base\n",
        ".gitlab-ci.yml": f"build:\n  variables:\n    BASE_IMAGE: '{image}'  # both lanes\n",
        ".github/workflows/ci.yml": (
            f'jobs:\n  test:\n    steps:\n      - run: make\n      - uses: ./x\n        with: {{image: "{image}"}}\n'
        ),
        "image.txt": f"{PYTORCH}:25.11-py3\n",
        "results/README.md": f"--build-arg BASE={PYTORCH}:25.01-py3\n--build-arg=BASE={PYTORCH}:25.02-py3\n",
    }
