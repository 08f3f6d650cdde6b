"""Files of the shape of Megatron-LM's in each of its four layouts, with content of our own."""

GITLAB = ".gitlab/stages/01.build.yml"
DEV, LTS = "docker/.ngc_version.dev", "docker/.ngc_version.lts"
DOCKERFILE, DOCKERFILE_LTS = "docker/Dockerfile.ci.dev", "docker/Dockerfile.ci.lts"
LINTING, NEMO = "docker/Dockerfile.linting", "docker/Dockerfile.ci.nemo"
INSTALL_TEST, INSTALL_GUIDE = ".github/workflows/install-test.yml", "docs/get-started/install.md"
NCCL, PROJECT = "docker/common/install_nccl.sh", "pyproject.toml"


def image(tag: str) -> str:
    """The reference of the base image with a tag."""
    return f"nvcr.io/nvidia/pytorch:{tag}"


def row(name: str, tag: str, *, file: str, image_type: str = "", platform: str = "") -> str:
    """A row of the matrix."""
    keys = {"IMAGE": name, "FILE": file, "IMAGE_TYPE": image_type, "BASE_IMAGE": image(tag), "PLATFORM": platform}
    return "      - " + "\n        ".join(f"{key}: {value}" for key, value in keys.items() if value) + "\n"


def rows(layout: int, dev: str, lts: str) -> str:
    """The rows of both types in a layout."""
    platforms = ("amd64", "arm64") if layout >= 3 else ("",)
    lts_file = "Dockerfile.ci.lts" if layout in (1, 4) else "Dockerfile.ci.dev"
    dev_type, lts_type = "dev" if layout >= 2 else "", "lts" if layout in (2, 3) else ""
    return "".join(
        [row("CI_MCORE_LTS_IMAGE", lts, file=lts_file, image_type=lts_type, platform=p) for p in platforms]
        + [row("CI_MCORE_DEV_IMAGE", dev, file="Dockerfile.ci.dev", image_type=dev_type, platform=p) for p in platforms]
    )


def matrix(rows: str, *, job: str = "test:pre_build_image") -> str:
    """The build stage, with the rows and with what stands beside them and is nobody's pin."""
    return f"""\
.build_rules:
  rules:
    - if: $BUILD == "no"
      when: never

.build_image:
  extends: [.build_rules]
  variables:
    TLS: "/certs"   # quoted as it was
  script:
    - !reference [.prepare, script]
    - |
      echo "BASE_IMAGE: {image("20.01-py3")}"

{job}:
  extends: [.build_image]
  parallel:
    matrix:
{rows}      - IMAGE: UTILITY_IMAGE
        FILE: Dockerfile.linting
        BASE_IMAGE: python:3.10

test:build_extra_image:
  extends: [.build_image]
  variables:
    IMAGE: CI_EXTRA_IMAGE
    BASE_IMAGE: nvcr.io/nvidian/extra:nightly

test:build_image:
  needs: [{job}]
  parallel:
    matrix:
      - IMAGE: CI_MCORE_LTS_IMAGE
      - IMAGE: CI_MCORE_DEV_IMAGE
      - IMAGE: UTILITY_IMAGE
"""


def dockerfile(tag: str = "", more: str = "") -> str:
    """A Dockerfile with or without a default for its base."""
    default = f"={image(tag)}" if tag else ""
    return f"# syntax=docker/dockerfile:1\n\nARG FROM_IMAGE_NAME{default}\nFROM ${{FROM_IMAGE_NAME}} AS main\n{more}"


def layout(number: int, dev: str = "26.02-py3", lts: str = "25.09-py3") -> dict[str, str | None]:
    """Every file of a layout; those that it does not have are absent."""
    default = dev if number == 4 else ""
    texts: dict[str, str | None] = {
        GITLAB: matrix(rows(number, dev, lts)),
        DOCKERFILE: dockerfile(default, more='RUN <<"EOF"\n    ARG FROM_IMAGE_NAME=none\nEOF\n'),
        LINTING: dockerfile(default),
        NEMO: dockerfile(default),
        INSTALL_TEST: f"jobs:\n  one:\n    container:\n      image: {image(dev)}\n",
        INSTALL_GUIDE: f"Run\n\n```\ndocker run \\\n  {image(dev)}\n```\n",
    }
    if number in (1, 4):
        texts[DOCKERFILE_LTS] = dockerfile()
    if number >= 2:
        texts |= {DEV: image(dev), LTS: image(lts)}  # without a final newline
    if number == 4:
        texts[DEV] = f"{image(dev)}\n"
    return texts
