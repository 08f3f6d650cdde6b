"""Images really built, by buildah, from bases of a registry on this machine."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from building import ENGINE, Place, claims, debian_registry, place

from runbook_lib.compute import engine as engines
from runbook_lib.compute.build_plan import BuildPlan
from runbook_lib.compute.command_run import run_step
from runbook_lib.compute.tasks import WorkStep
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.model import Check

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
    with debian_registry(folder) as url:
        made = place(folder, url)
        made.publish("26.04-py3", claims("26.04"))
        made.publish("26.05-py3", claims("26.05"), architecture="arm64")
        made.publish("26.06-py3", claims("26.06"), architecture="arm64", index=True)
        with pytest.MonkeyPatch.context() as context:
            lead(context, made)
            yield made


def lead(context: pytest.MonkeyPatch, place: Place) -> None:
    """Lead engines to this place."""
    for name, value in place.env.items():
        context.setenv(name, value)


def command(root: Path, text: str, *options: str, base: str = BASE) -> WorkStep:
    (root / "Dockerfile").write_text(text)
    chosen = (f"--build-arg=FROM_IMAGE_NAME={base}", "--target=main", f"--tag={tag(root)}", *options)
    plan = BuildPlan(tag(root), base, "pin:1", "amd64", chosen)
    return WorkStep("Build", plan.command(ENGINE), "host", "Why.")


def tag(root: Path) -> str:
    return f"x:{root.name.lower()}"


def build(root: Path, text: str, *options: str, base: str = BASE, show: Callable[[str], object] = str) -> Check:
    return run_step(command(root, text, *options, base=base), root, root / "build.log", show)


def tagged(root: Path) -> str:
    return engines.image_id(ENGINE, tag(root))


def test_a_build_ends_with_an_image_under_its_tag_and_its_log(built: Place, tmp_path: Path) -> None:
    assert engines.find("buildah") == "buildah"
    assert tagged(tmp_path) == ""
    said: list[str] = []
    assert build(tmp_path, FILE, "--build-arg=WORDS=spoken words", show=said.append).status == "passed"
    image = tagged(tmp_path)
    assert image.startswith("sha256:")
    assert said[1] == f"[1/2] STEP 1/2: FROM {BASE} AS helper"
    assert len(said) == 7
    assert "spoken words" in (tmp_path / "build.log").read_text().splitlines()
    assert build(tmp_path, FILE, "--build-arg=WORDS=spoken words").status == "passed"
    assert tagged(tmp_path) == image  # nothing was built anew
    assert "Using cache" in (tmp_path / "build.log").read_text()
    assert built.buildah("containers", "-q") == ""


def test_a_program_that_fails_in_the_image_is_reported(built: Place, tmp_path: Path) -> None:
    assert build(tmp_path, FILE).status == "passed"
    with pytest.raises(CannotTell, match=r"sh could not be run in sha256:.* with buildah.*I cannot"):
        engines.inside(ENGINE, tagged(tmp_path), ["sh", "-c", "echo I cannot >&2; exit 3"], 30)
    with pytest.raises(CannotTell, match="No container of localhost/none:1 could be created with buildah"):
        engines.inside(ENGINE, "localhost/none:1", ["sh"], 30)
    assert built.buildah("containers", "-q") == ""


def test_a_failing_instruction_is_named_with_its_pitfall(built: Place, tmp_path: Path) -> None:
    failing = f"{FILE}RUN echo a && \\\n    uv sync --locked\n"
    failure = build(tmp_path, failing)
    assert tagged(tmp_path) == ""
    assert failure.status == "failed"
    assert "at RUN echo a &&" in failure.detail
    assert "Use the image built from the project's CI Dockerfile." in failure.detail
    assert "uv: not found" in failure.evidence.shown[0].text  # type: ignore[attr-defined]
    assert built.buildah("containers", "-q") == ""
    assert build(tmp_path, FILE).status == "passed"


@pytest.mark.parametrize(
    ("base", "sign"),
    [
        ("nvcr.io/nvidia/pytorch:99.01-py3", "The registry has no such image."),
        ("nvcr.io/nvidia/pytorch:26.05-py3", "A program in the image cannot be started here."),
        ("nvcr.io/nvidia/pytorch:26.06-py3", "The image is not published for this machine's processor."),
    ],
)
def test_an_unusable_base_is_reported_separately(built: Place, tmp_path: Path, base: str, sign: str) -> None:
    failure = build(tmp_path, FILE, base=base)
    assert failure.status == "failed"
    assert sign in failure.detail
    assert tagged(tmp_path) == ""


SLOW = f"{FILE}RUN echo slow > /slow && sleep 600\n"


@pytest.mark.parametrize("end", ["interrupt", "SIGTERM", "SIGKILL"])
def test_a_build_that_is_ended_leaves_no_tag_and_can_be_run_again(built: Place, tmp_path: Path, end: str) -> None:
    def say(line: str) -> None:  # the step would take longer than a test may
        if "sleep 600" in line and "STEP" in line:
            if end == "interrupt":
                raise KeyboardInterrupt
            threading.Timer(0.1, lambda: built.builds(tag(tmp_path))[0].send_signal(getattr(signal, end))).start()

    if end == "interrupt":
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path, SLOW, show=say)
    else:
        failure = build(tmp_path, SLOW, show=say)
        assert failure.status == "failed"
        assert end == "SIGTERM" or "was ended by SIGKILL" in failure.detail
    assert tagged(tmp_path) == ""
    assert built.builds(tag(tmp_path)) == []
    assert build(tmp_path, SLOW.replace("sleep 60", "sleep 0")).status == "passed"
    assert tagged(tmp_path) != ""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_reported(built: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        lead(monkeypatch, place(disk, built.registry))
        failure = build(tmp_path, f"{FILE}RUN dd if=/dev/zero of=/big bs=1M count=40\n")
        assert failure.status == "failed"
        assert "The disk is full." in failure.detail
        subprocess.run(["dd", "if=/dev/zero", f"of={disk}/fill", "bs=1M"], capture_output=True, check=False)
        with pytest.raises(RunbookError, match="The disk is full"):
            run_step(command(tmp_path, FILE), tmp_path, disk / "build.log", str)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)
