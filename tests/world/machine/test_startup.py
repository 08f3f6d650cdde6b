"""Runs as nohup starts them."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runbooks import command, environ, notebook, records

from runbook_lib.record import run_file

pytestmark = pytest.mark.slow

#: Starts a command with a signal ignored, whose number is its first argument.
INHERITING = """
import os, signal, sys
signal.signal(int(sys.argv[1]), signal.SIG_IGN)
os.execvp(sys.argv[2], sys.argv[2:])
"""
#: Goes on until the test lets it.
WAITING = """\
open("started", "w").close()
while not os.path.exists("go on"):
    time.sleep(0.02)"""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A notebook that waits for a file beside it."""
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "audit"))
    return notebook(
        tmp_path / "runbooks/01-a.ipynb", WAITING, "step.conclude('done', Outcome('Fine.'))", "recording.end(step)"
    )


def start(path: Path, ignored: signal.Signals) -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", INHERITING, str(int(ignored)), *command(path, "-p", "tag", "26.04-py3")]
    process = subprocess.Popen(
        words, cwd=path.parent, env=environ(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    until(lambda: (path.parent / "started").exists() or process.poll() is not None)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_run_under_nohup_continues(waiting: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = start(waiting, number)
    process.send_signal(number)
    (waiting.parent / "go on").touch()
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert [run_file.read(folder)["state"] for folder in records(tmp_path / "audit")] == ["done"]
