"""The plan of a build, from the pins of a checkout."""

import pytest
from layouts import DEV, DOCKERFILE, DOCKERFILE_LTS, GITLAB, image, layout

from runbook_lib.compute import build_plan
from runbook_lib.compute.build_plan import BuildRequest, plan
from runbook_lib.compute.engine import Engine, unfit
from runbook_lib.errors import CannotTell, Refused, RunbookError
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
    assert (made.command.dockerfile, made.command.target, made.command.context) == (dockerfile, "main", ".")
    assert (made.base, made.source) == (image(tag), source)
    given = {"FROM_IMAGE_NAME": image(tag)} | ({"IMAGE_TYPE": image_type} if typed else {})
    assert dict(made.command.arguments) == given
    assert made.command.tag == ("megatron-lm:local" if image_type == "dev" else "megatron-lm:local-lts")
    assert made.warnings == ()


def test_the_argument_list_of_each_engine():
    made = plan(megatron(4), MEGATRON_LM)
    shared = (
        "--platform=linux/amd64", "--file=docker/Dockerfile.ci.dev", "--target=main",
        f"--build-arg=FROM_IMAGE_NAME={image('26.02-py3')}", "--build-arg=IMAGE_TYPE=dev",
    )  # fmt: skip
    end = ("--tag=megatron-lm:local", ".")
    assert made.command.words(Engine("docker")) == ("docker", "build", "--progress=plain", *shared, *end)
    for name in ("podman", "buildah"):
        own = (name, "build", "--format=docker", "--layers", "--force-rm")
        assert made.command.words(Engine(name)) == (*own, *shared, *end)


@pytest.mark.parametrize(
    ("machine", "tag"), [("x86_64", "26.01-py3"), ("AMD64", "26.01-py3"), ("aarch64", "26.02-py3")]
)
def test_the_row_of_the_machines_platform_is_used(machine, tag):
    texts = megatron(3) | {DEV: None}
    texts[GITLAB] = texts[GITLAB].replace("26.02", "26.01", 1)
    made = plan(texts, MEGATRON_LM, "dev", machine)
    assert (made.base, made.warnings) == (image(tag), ())
    assert made.command.platform == ("linux/arm64" if machine == "aarch64" else "linux/amd64")


def test_a_machine_without_base_images_is_refused():
    with pytest.raises(CannotTell, match=r"'riscv64', but base images exist only for amd64 .* and arm64"):
        plan(megatron(4), MEGATRON_LM, "dev", "riscv64")


def test_pins_that_differ_are_named_and_the_first_is_built():
    texts = megatron(4) | {DEV: image("26.03-py3")}
    made = plan(texts, MEGATRON_LM)
    assert made.base == image("26.03-py3")
    assert made.warnings == (
        f"The pins differ: this builds 26.03-py3, from {DEV}:1, not "
        ".gitlab/stages/01.build.yml:30 (26.02-py3), docker/Dockerfile.ci.dev:3 (26.02-py3).",
    )


def test_the_folders_that_the_target_copies_are_known():
    copied = "COPY assets/ /opt/data/\nCOPY --from=x a/ /b/\nCOPY $A/ *.txt a.txt ../b/ /c/\n"
    texts = megatron(4) | {DOCKERFILE: megatron(4)[DOCKERFILE].replace("FROM main AS jet", f"{copied}FROM main AS jet")}
    assert list(plan(texts, MEGATRON_LM).folders) == ["assets"]
    assert plan(megatron(4), MEGATRON_LM).folders == {}


def test_the_stage_with_an_internal_secret_is_refused():
    with pytest.raises(Refused, match=r"^The stage jet of docker/Dockerfile\.ci\.dev needs .* with --target: main\."):
        plan(megatron(4), MEGATRON_LM, request=BuildRequest(target="jet"))


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (BuildRequest({"IMAGE_TYP": "dev"}), r"ci\.dev declares no ARG IMAGE_TYP \(did you mean IMAGE_TYPE\?\)"),
        (BuildRequest({"XYZ": "1"}), r"declares no ARG XYZ, so .* It declares FROM_IMAGE_NAME, IMAGE_TYPE,"),
        (BuildRequest(target="mian"), r"has no stage 'mian' \(did you mean main\?\); it has main, jet\."),
        (BuildRequest(dockerfile="docker/Dockerfile.ci"), r"docker/Dockerfile\.ci, which does not exist"),
    ],
)  # fmt: skip
def test_names_missing_from_the_dockerfile_are_refused(wanted, says):
    with pytest.raises(RunbookError, match=says):
        plan(megatron(4), MEGATRON_LM, request=wanted)


def test_arguments_of_every_build_need_no_declaration():
    made = plan(megatron(4), MEGATRON_LM, request=BuildRequest({"HTTPS_PROXY": "http://p"}))
    assert dict(made.command.arguments)["HTTPS_PROXY"] == "http://p"


def test_a_checkout_without_pins():
    with pytest.raises(CannotTell, match=r"^NVIDIA/Megatron-LM has no pin of type lts to build from\. \.gitlab"):
        plan({}, MEGATRON_LM, "lts")


def test_a_request_is_followed():
    made = plan(megatron(4), MEGATRON_LM, request=BuildRequest({"FROM_IMAGE_NAME": "me/mine:1"}, tag="a:b"))
    assert (made.base, made.source, made.command.tag) == ("me/mine:1", "your own argument", "a:b")


def test_megatron_bridge_alone():
    made = plan(BRIDGE, MEGATRON_BRIDGE)
    assert made.command.words(Engine("docker"))[3:] == (
        "--platform=linux/amd64", "--file=docker/Dockerfile.ci", "--target=megatron_bridge",
        f"--build-arg=BASE_IMAGE={image('26.06-py3')}", "--tag=megatron-bridge:local", ".",
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
    assert (made.command.dockerfile, made.command.target, made.command.tag) == ("build/Dockerfile", "", "mine:local")
    assert dict(made.command.arguments) == {"BASE": image("26.02-py3")}
    assert "--target=" not in " ".join(made.command.words(Engine("podman")))


def test_a_declared_repository_with_several_dockerfiles_or_none():
    second = "  - path: other/Dockerfile\n    find: {arg: FROM_IMAGE}\n"
    own = pins_file.parse(PINS + second, "me/mine")
    texts = {
        "build/Dockerfile": f"ARG BASE={image('26.02-py3')}\nFROM $BASE\n",
        "other/Dockerfile": f"ARG FROM_IMAGE={image('26.03-py3')}\nFROM $FROM_IMAGE\n",
    }
    with pytest.raises(CannotTell, match=r"build/Dockerfile, other/Dockerfile\. Name one of them with"):
        plan(texts, own)
    made = plan(texts, own, request=BuildRequest(dockerfile="other/Dockerfile"))
    assert dict(made.command.arguments) == {"FROM_IMAGE": image("26.03-py3")}
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
    assert (made.base, made.command.context) == (reference, "megatron")


@pytest.mark.parametrize(
    ("engine", "fits"),
    [
        (Engine("buildah", (1, 28, 2)), False), (Engine("buildah", (1, 33)), True), 
        (Engine("podman", (4, 3, 1)), False),
        (Engine("podman", (5, 4)), True), (Engine("docker", (20, 10, 5)), False), (Engine("docker", (28,)), True),
        (Engine("buildah"), True),
    ],
)  # fmt: skip
def test_engines_that_cannot_read_here_documents(engine, fits):
    made = plan(megatron(4), MEGATRON_LM)
    assert made.heredocs
    assert (unfit(made, engine) == "") is fits
    if not fits:
        assert f"and {engine} cannot read them; {engine.name} " in unfit(made, engine)
    plain = plan(BRIDGE, MEGATRON_BRIDGE)
    assert unfit(plain, engine) == ""


def test_the_paths_of_each_repository():
    assert {DEV, DOCKERFILE_LTS, DOCKERFILE} <= set(build_plan.paths(MEGATRON_LM))
    assert "docker/Dockerfile.ci" in build_plan.paths(MEGATRON_BRIDGE)
