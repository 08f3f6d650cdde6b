"""The plan of a build, from the pins of a checkout."""

import pytest
from layouts import DEV, DOCKERFILE, DOCKERFILE_LTS, GITLAB, image, layout

from runbook_lib.compute import build_plan
from runbook_lib.compute.build_plan import plan
from runbook_lib.errors import CannotTell
from runbook_lib.pins import pins_file
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, ML_CONTAINERS

JET = "FROM main AS jet\nARG JET_VERSION\nRUN --mount=type=secret,id=JET_URLS true\n"
BASED = "ARG BASE_IMAGE={}\nFROM ${{BASE_IMAGE}} AS megatron_bridge\nARG DEEPEP=True\n"
BRIDGE = {"docker/Dockerfile.ci": BASED.format(image("26.06-py3"))}


def megatron(number: int) -> dict[str, str | None]:
    """A layout whose Dockerfiles have the stages, and the ARG, of their time."""
    texts = layout(number)
    for path in (DOCKERFILE, DOCKERFILE_LTS):
        if (text := texts.get(path)) is not None:
            typed = "ARG IMAGE_TYPE=dev\n" if number > 1 and path == DOCKERFILE else ""
            texts[path] = text + typed + JET
    return texts


@pytest.mark.parametrize(
    ("number", "image_type", "dockerfile", "tag", "source", "typed"),
    [
        (1, "dev", DOCKERFILE, "26.02-py3", ".gitlab/stages/01.build.yml:24", False),
        (1, "lts", DOCKERFILE_LTS, "25.09-py3", ".gitlab/stages/01.build.yml:21", False),
        (2, "dev", DOCKERFILE, "26.02-py3", f"{DEV}:1", True),
        (2, "lts", DOCKERFILE, "25.09-py3", "docker/.ngc_version.lts:1", True),
        (3, "dev", DOCKERFILE, "26.02-py3", f"{DEV}:1", True),
        (3, "lts", DOCKERFILE, "25.09-py3", "docker/.ngc_version.lts:1", True),
        (4, "dev", DOCKERFILE, "26.02-py3", f"{DEV}:1", True),
        (4, "lts", DOCKERFILE_LTS, "25.09-py3", "docker/.ngc_version.lts:1", False),
    ],
)
def test_megatron_lm_is_built_from_its_pin_in_every_layout(number, image_type, dockerfile, tag, source, typed):
    made = plan(megatron(number), MEGATRON_LM, image_type)
    assert (str(made.base), made.source, made.warnings) == (image(tag), source, ())
    assert made.tag == ("megatron-lm:local" if image_type == "dev" else "megatron-lm:local-lts")
    assert made.command("docker") == (
        "docker", "build", "--progress=plain", "--platform=linux/amd64", f"--file={dockerfile}", "--target=main",
        f"--build-arg=FROM_IMAGE_NAME={image(tag)}", *([f"--build-arg=IMAGE_TYPE={image_type}"] if typed else []),
        f"--tag={made.tag}", ".",
    )  # fmt: skip


def test_the_options_of_each_engine_and_of_the_user():
    made = plan(megatron(4), MEGATRON_LM, options=("--build-arg", "NCCL_VERSION=2.30"))
    for name in ("podman", "buildah"):
        command = made.command(name)
        assert command[:5] == (name, "build", "--format=docker", "--layers", "--force-rm")
        assert command[-4:] == ("--tag=megatron-lm:local", "--build-arg", "NCCL_VERSION=2.30", ".")


@pytest.mark.parametrize(
    ("machine", "tag"), [("x86_64", "26.01-py3"), ("AMD64", "26.01-py3"), ("aarch64", "26.02-py3")]
)
def test_the_row_of_the_machines_platform_is_used(machine, tag):
    texts = megatron(3) | {DEV: None}
    texts[GITLAB] = texts[GITLAB].replace("26.02", "26.01", 1)
    made = plan(texts, MEGATRON_LM, "dev", machine)
    assert (str(made.base), made.warnings) == (image(tag), ())
    assert made.architecture == ("arm64" if machine == "aarch64" else "amd64")


def test_a_machine_without_base_images_is_refused():
    with pytest.raises(CannotTell, match=r"'riscv64', but base images exist only for amd64 .* and arm64"):
        plan(megatron(4), MEGATRON_LM, "dev", "riscv64")


def test_pins_that_differ_are_named_and_the_first_is_built():
    texts = megatron(4) | {DEV: image("26.03-py3")}
    made = plan(texts, MEGATRON_LM)
    assert str(made.base) == image("26.03-py3")
    assert made.warnings == (
        f"The pins differ: this builds 26.03-py3, from {DEV}:1, not "
        ".gitlab/stages/01.build.yml:30 (26.02-py3), docker/Dockerfile.ci.dev:3 (26.02-py3).",
    )


def test_the_folders_that_the_target_copies_are_known():
    copied = "COPY assets/ /opt/data/\n"
    texts = megatron(4) | {DOCKERFILE: megatron(4)[DOCKERFILE].replace("FROM main AS jet", f"{copied}FROM main AS jet")}
    assert list(plan(texts, MEGATRON_LM).folders) == ["assets"]
    assert plan(megatron(4), MEGATRON_LM).folders == {}


def test_a_checkout_without_pins():
    with pytest.raises(CannotTell, match=r"^NVIDIA/Megatron-LM has no pin of type lts to build from\. \.gitlab"):
        plan({DOCKERFILE_LTS: "FROM x"}, MEGATRON_LM, "lts")
    with pytest.raises(CannotTell, match=r"docker/Dockerfile\.ci\.lts, which does not exist in this checkout"):
        plan({}, MEGATRON_LM, "lts")


def test_megatron_bridge_alone():
    made = plan(BRIDGE, MEGATRON_BRIDGE)
    assert made.options == (
        "--platform=linux/amd64", "--file=docker/Dockerfile.ci", "--target=megatron_bridge",
        f"--build-arg=BASE_IMAGE={image('26.06-py3')}", "--tag=megatron-bridge:local",
    )  # fmt: skip


PINS = """\
version: 1
image: nvcr.io/nvidia/pytorch
pins:
  - path: build/Dockerfile
    find: {arg: BASE}
"""


def test_a_declared_repository_is_built_from_what_it_declares():
    own = pins_file.parse(PINS, "me/Mine")
    texts = {"build/Dockerfile": f"ARG BASE={image('26.02-py3')}\nFROM $BASE\nFROM scratch\n"}
    made = plan(texts, own)
    base = f"--build-arg=BASE={image('26.02-py3')}"
    assert made.options == ("--platform=linux/amd64", "--file=build/Dockerfile", base, "--tag=mine:local")


def test_a_declared_repository_with_several_dockerfiles_or_none():
    second = "  - path: other/Dockerfile\n    find: {arg: FROM_IMAGE}\n"
    own = pins_file.parse(PINS + second, "me/mine")
    texts = {
        "build/Dockerfile": f"ARG BASE={image('26.02-py3')}\nFROM $BASE\n",
        "other/Dockerfile": f"ARG FROM_IMAGE={image('26.03-py3')}\nFROM $FROM_IMAGE\n",
    }
    with pytest.raises(CannotTell, match=r"build/Dockerfile, other/Dockerfile\. Name one of them with"):
        plan(texts, own)
    made = plan(texts, own, options=("--file", "other/Dockerfile"))
    assert f"--build-arg=FROM_IMAGE={image('26.03-py3')}" in made.options
    whole = pins_file.parse(PINS.replace("{arg: BASE}", "{file: whole}"), "me/mine")
    with pytest.raises(CannotTell, match=r"none\. Declare one with `find: \{arg: …\}` in the pins file"):
        plan({"build/Dockerfile": image("26.02-py3")}, whole)


def test_ml_containers_is_built_in_its_folder():
    reference = (
        "ghcr.io/coreweave/ml-containers/torch-extras:17ad6db-nccl-cuda12.9.1-ubuntu22.04-nccl2.29.2-1-torch2.10.0"
    )
    reference += "-vision0.25.0-audio2.10.0-abi1"
    texts = {
        ".github/workflows/megatron.yml": f"a:\n  with:\n    build-args: |\n      BASE_IMAGE={reference}\n",
        "megatron/Dockerfile": "ARG BASE_IMAGE\nFROM $BASE_IMAGE\nARG COMMIT\n",
    }
    made = plan(texts, ML_CONTAINERS)
    assert (str(made.base), made.context) == (reference, "megatron")


def test_the_paths_of_each_repository():
    assert {DEV, DOCKERFILE_LTS, DOCKERFILE} <= set(build_plan.paths(MEGATRON_LM))
    assert "docker/Dockerfile.ci" in build_plan.paths(MEGATRON_BRIDGE)
