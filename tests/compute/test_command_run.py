"""The run of a command: what is shown, logged and explained, and how it ends."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from stand_ins import stand_in

from runbook_lib.compute.command_run import explain
from runbook_lib.compute.command_run import run_step as run
from runbook_lib.compute.tasks import WorkStep
from runbook_lib.errors import RunbookError


def step(*words: str) -> WorkStep:
    return WorkStep("Step", words, "host", "Why.")


STALE = "error: The lockfile at `uv.lock` needs to be updated, but `--locked` was provided."
BUILDAH = f"""\
[1/2] STEP 1/2: FROM nvcr.io/nvidia/pytorch:26.04-py3 AS helper
Unable to find lockfile at `uv.lock`, but `--locked` was provided.
[2/2] STEP 4/5: RUN echo one &&     uv sync --locked
one
{STALE}
subprocess exited with status 2
Error: building at STEP "RUN echo one &&     uv sync --locked": exit status 2
"""
DOCKER = f"""\
#1 [internal] load build definition from Dockerfile.ci.dev
#4 [helper 1/2] FROM nvcr.io/nvidia/pytorch:26.04-py3@sha256:00
#7 [main 3/4] RUN echo one &&     uv sync --locked
#7 0.500 {STALE}
#7 ERROR: process "/bin/sh -c echo one" did not complete successfully: exit code: 2
------
 > [main 3/4] RUN echo one &&     uv sync --locked:
0.500 {STALE}
------
ERROR: failed to solve: process "/bin/sh -c echo one" did not complete successfully: exit code: 2
"""
BUILD = step("docker", "build", ".")


@pytest.mark.parametrize(
    ("text", "says", "signs"),
    [
        ("", "The step “Step” failed with exit status 1. Its last line is: nothing.", []),
        (BUILDAH, "at RUN echo one &&     uv sync --locked.", ["uv reports that the lockfile is missing or"]),
        (DOCKER, "at [main 3/4] RUN echo one &&     uv sync --locked.", ["uv reports that the lockfile is missing"]),
        ("STEP 1/2: FROM a\nmanifest unknown\n", "exit status 1.", ["The registry has no such image."]),
        ("#2 ERROR: unauthorized: no\n", "exit status 1.", ["The registry requires a login."]),
        (BUILDAH.replace(STALE, "x"), "uv sync --locked. Its last line is: Error: building at STEP", []),
    ],
)
def test_the_failing_instruction_of_a_build_is_named(text: str, says: str, signs: list[str]) -> None:
    failure = explain(BUILD, 1, tuple(text.splitlines()))
    assert says in failure.detail
    assert ("Its last line is" in failure.detail) == (not signs)
    assert all(sign in failure.detail for sign in signs)


def test_of_a_build_the_instructions_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "docker", f"printf '\\033[1m'\ncat <<'END'\n{DOCKER}END\nkill -9 $$")
    output: list[str] = []
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    failure = run(BUILD, tmp_path, tmp_path / "log", output.append)
    assert output[1:] == DOCKER.splitlines()[1:3]
    assert failure.detail.startswith("The step “Step” was ended by SIGKILL at [main 3/4] RUN")
    assert STALE in (tmp_path / "log").read_text()


def test_a_missing_program_or_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunbookError, match="enroot is not installed here"):
        run(step("enroot", "import"), tmp_path, tmp_path / "log")
    (tmp_path / "log").mkdir()
    with pytest.raises(RunbookError, match="could not be written"):
        run(step("sleep", "600"), tmp_path, tmp_path / "log")


def test_secrets_are_neither_shown_nor_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output: list[str] = []
    monkeypatch.setenv("MY_TOKEN", "abcdefgh12345678")
    run(step("sh", "-c", "echo $MY_TOKEN"), tmp_path, tmp_path / "log", output.append)
    assert "abcdefgh12345678" not in (tmp_path / "log").read_text() + " ".join(output)


def test_an_interrupted_step_ends_with_its_children(tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        if line == "begun":
            raise KeyboardInterrupt

    command = step("sh", "-c", "sleep 60 & echo $! > pid; echo begun; wait")
    with pytest.raises(KeyboardInterrupt):
        run(command, tmp_path, tmp_path / "log", interrupt)
    assert ends(int((tmp_path / "pid").read_text()))


def test_a_step_is_ended_with_a_run_that_is_killed(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from runbook_lib.compute.command_run import run_step
from runbook_lib.compute.tasks import WorkStep
here = Path({str(tmp_path)!r})
words = ("sh", "-c", "echo $$ >pid; exec sleep 300")
run_step(WorkStep("Wait", words, "host", "Why."), here, here / "log")
"""
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen([sys.executable, "-c", code], cwd=root) as runner:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert runner.poll() is None
            time.sleep(0.05)
        runner.kill()
    assert ends(int((tmp_path / "pid").read_text()))


def ends(process: int) -> bool:
    with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        psutil.Process(process).wait(60)
    return not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
def test_a_step_ends_although_a_child_holds_its_output(tmp_path: Path) -> None:
    output: list[str] = []
    command = step("sh", "-c", "sleep 300 & echo $! >pid; echo begun")
    failure = run(command, tmp_path, tmp_path / "log", output.append)
    assert (failure.status, "begun" in output) == ("passed", True)
    assert ends(int((tmp_path / "pid").read_text()))


@pytest.mark.slow
def test_a_long_output_is_shown_in_part(tmp_path: Path) -> None:
    output: list[str] = []
    command = step("sh", "-c", "seq 100000; printf '%09000d\\n' 1; echo last")
    assert run(command, tmp_path, tmp_path / "log", output.append).status == "passed"
    assert output[1:3] == ["1", "2"]
    assert output[-1] == "last"
    assert "[… 97972 more lines, in the log]" in output
    assert sum(map(len, output)) < 100_000
    assert "\n50000\n" in (tmp_path / "log").read_text()
    run(step("sh", "-c", "yes '' | head -c 1000000"), tmp_path, tmp_path / "empty", output.append)
    assert (tmp_path / "empty").stat().st_size < 300_000
