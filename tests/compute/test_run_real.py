"""Images really built, by buildah, from bases of a registry on this machine."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from building import ENGINE, Place, claims, place, start_registry

from runbook_lib.clients.registry.client import OciRegistry
from runbook_lib.compute import engine as engines
from runbook_lib.compute import smoke
from runbook_lib.compute.engine import BuildCommand, BuildPlan
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images.compare import versions
from runbook_lib.images.reference import ImageRef

pytestmark = [pytest.mark.component("registry"), pytest.mark.component("container")]

BASE = "nvcr.io/nvidia/pytorch:26.04-py3"
FILE = """\
ARG FROM_IMAGE_NAME
FROM ${FROM_IMAGE_NAME} AS helper
RUN echo made > /made
FROM ${FROM_IMAGE_NAME} AS main
ARG WORDS=none
COPY --from=helper /made /made
RUN cat /made && echo ${WORDS}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("engine")
    process, url = start_registry(folder, folder / "registry")
    try:
        made = place(folder, url)
        made.publish("26.04-py3", claims("26.04"))
        made.publish("26.05-py3", claims("26.05"), architecture="arm64")
        made.publish("26.06-py3", claims("26.06"), architecture="arm64", index=True)
        yield made
    finally:
        process.terminate()
        process.wait(60)


def plan(root: Path, text: str, **more: object) -> BuildPlan:
    (root / "Dockerfile").write_text(text)
    command = BuildCommand(
        "Dockerfile", "main", (("FROM_IMAGE_NAME", BASE),), f"x:{root.name.lower()}", "linux/amd64"
    )  # fmt: skip
    given = {name: more.pop(name) for name in vars(command).keys() & more.keys()}
    made = BuildPlan("x", replace(command, **given), BASE, "pin:1")  # type: ignore[arg-type]
    return replace(made, **more)  # type: ignore[arg-type]


def build(
    built: Place, root: Path, text: str, env: dict[str, str] | None = None, **more: object
) -> engines.BuildResult:
    made = plan(root, text, **more)
    return engines.build(made, ENGINE, root, root / "build.log", lambda _: None, {**built.env, **(env or {})})


def tagged(built: Place, root: Path) -> str:
    return engines.image_id(ENGINE, f"x:{root.name.lower()}", built.env)


def test_the_engine_is_found(built: Place) -> None:
    found = engines.find("buildah", built.env)
    assert found.name == "buildah"
    assert found.version >= (1, 20)


def test_a_build_ends_with_an_image_under_its_tag_and_its_log(built: Place, tmp_path: Path) -> None:
    assert tagged(built, tmp_path) == ""
    said: list[str] = []
    made = plan(tmp_path, FILE, arguments=(("FROM_IMAGE_NAME", BASE), ("WORDS", "spoken words")))
    done = engines.build(made, ENGINE, tmp_path, tmp_path / "build.log", said.append, built.env)
    assert done.failure is None
    assert done.image.startswith("sha256:")
    assert done.image == tagged(built, tmp_path)
    assert said[0] == f"[1/2] STEP 1/2: FROM {BASE} AS helper"
    assert len(said) == done.steps == 6
    log = (tmp_path / "build.log").read_text()
    assert "spoken words" in log.splitlines()
    again = engines.build(made, ENGINE, tmp_path, tmp_path / "build.log", said.append, built.env)
    assert again.image == done.image  # nothing was built anew
    assert "Using cache" in (tmp_path / "build.log").read_text()
    assert built.buildah("containers", "-q") == ""


def test_the_smoke_check_runs_in_the_image_and_agrees_with_the_registry(built: Place, tmp_path: Path) -> None:
    done = build(built, tmp_path, FILE)
    said = engines.inside(ENGINE, done.image, smoke.COMMAND, 30, built.env)
    with OciRegistry.connect(ImageRef.parse(BASE), built.env) as registry:
        image = registry.image("26.04-py3")
    assert image is not None
    found = smoke.judge(versions(image.platforms["amd64"]), said)
    assert {it.name: it.verdict for it in found} == dict.fromkeys(
        ("Python", "PyTorch", "CUDA", "cuDNN", "NCCL", "Transformer Engine"), "as claimed"
    )
    assert built.buildah("containers", "-q") == ""


def test_a_program_that_fails_in_the_image_is_reported(built: Place, tmp_path: Path) -> None:
    done = build(built, tmp_path, FILE)
    with pytest.raises(CannotTell, match=r"sh could not be run in sha256:.* with buildah.*I cannot"):
        engines.inside(ENGINE, done.image, ["sh", "-c", "echo I cannot >&2; exit 3"], 30, built.env)
    with pytest.raises(CannotTell, match="No container of localhost/none:1 could be created with buildah"):
        engines.inside(ENGINE, "localhost/none:1", ["sh"], 30, built.env)
    assert built.buildah("containers", "-q") == ""


def test_a_failing_instruction_is_named_with_its_pitfall(built: Place, tmp_path: Path) -> None:
    failing = f"{FILE}RUN echo a && \\\n    uv sync --locked\n"
    done = build(built, tmp_path, failing)
    assert (done.image, tagged(built, tmp_path)) == ("", "")
    assert done.failure is not None
    assert done.failure.sentence.startswith("The build failed with exit status 127 at ")
    assert "RUN echo a &&" in done.failure.sentence
    assert [it.fix for it in done.failure.pitfalls] == ["Use the image built from the project's CI Dockerfile."]
    assert "uv: not found" in "\n".join(done.failure.lines)
    assert built.buildah("containers", "-q") == ""
    (tmp_path / "Dockerfile").write_text(FILE)
    assert build(built, tmp_path, FILE).failure is None


@pytest.mark.parametrize(
    ("base", "sign"),
    [
        ("nvcr.io/nvidia/pytorch:99.01-py3", "The registry has no such image."),
        ("nvcr.io/nvidia/pytorch:26.05-py3", "A program in the image cannot be started here."),
        ("nvcr.io/nvidia/pytorch:26.06-py3", "The image is not published for this machine's processor."),
    ],
)
def test_an_unusable_base_is_reported_separately(built: Place, tmp_path: Path, base: str, sign: str) -> None:
    done = build(built, tmp_path, FILE, arguments=(("FROM_IMAGE_NAME", base),))
    assert done.failure is not None
    assert sign in [it.sign for it in done.failure.pitfalls], done.failure
    assert tagged(built, tmp_path) == ""


SLOW = f"{FILE}RUN echo slow > /slow && sleep 600\n"


def slow_build(built: Place, root: Path, end: str) -> "engines.BuildResult | BaseException":
    """A build that is ended in its last step, by ``end``."""

    def say(step: str) -> None:
        if "sleep 600" in step:
            if end == "interrupt":
                raise KeyboardInterrupt
            threading.Timer(0.1, lambda: engine_of(built, root).send_signal(getattr(signal, end))).start()

    try:
        return engines.build(plan(root, SLOW), ENGINE, root, root / "build.log", say, built.env)
    except KeyboardInterrupt as error:
        return error


def engine_of(built: Place, root: Path) -> psutil.Process:
    return built.builds(f"x:{root.name.lower()}")[0]


@pytest.mark.parametrize("end", ["interrupt", "SIGTERM", "SIGKILL"])
def test_a_build_that_is_ended_leaves_no_tag_and_can_be_run_again(built: Place, tmp_path: Path, end: str) -> None:
    ended = slow_build(built, tmp_path, end)  # the step would take longer than a test may
    assert tagged(built, tmp_path) == ""
    assert built.builds(f"x:{tmp_path.name.lower()}") == []
    if end == "interrupt":
        assert isinstance(ended, KeyboardInterrupt)
    else:
        assert isinstance(ended, engines.BuildResult)
        assert ended.failure is not None
        assert "sleep 60" in ended.failure.sentence
    if end == "SIGKILL":
        assert ended.failure.sentence.startswith("The build was ended by SIGKILL at ")  # type: ignore[union-attr]
    again = build(built, tmp_path, SLOW.replace("sleep 60", "sleep 0"))
    assert again.failure is None
    assert again.image == tagged(built, tmp_path)


def test_an_image_that_was_tagged_before_stays_where_its_new_build_fails(built: Place, tmp_path: Path) -> None:
    before = build(built, tmp_path, FILE).image
    assert build(built, tmp_path, f"{FILE}RUN false\n").failure is not None
    assert tagged(built, tmp_path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_reported(built: Place, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        small = place(disk, built.registry)
        done = build(small, tmp_path, f"{FILE}RUN dd if=/dev/zero of=/big bs=1M count=40\n")
        assert done.failure is not None
        assert "The disk is full." in [it.sign for it in done.failure.pitfalls], done.failure
        subprocess.run(["dd", "if=/dev/zero", f"of={disk}/fill", "bs=1M"], capture_output=True, check=False)
        with pytest.raises(RunbookError, match="The disk is full"):
            engines.build(plan(tmp_path, FILE), ENGINE, tmp_path, disk / "build.log", lambda _: None, built.env)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)
