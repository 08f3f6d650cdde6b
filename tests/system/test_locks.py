"""Locks that say who holds them."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.system import locks
from runbook_lib.system.locks import locked

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import sys
from pathlib import Path
from runbook_lib.system.locks import locked
with locked(Path(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(locks, "LIMIT", 0.05)
    monkeypatch.setattr(locks, "REPORT_AFTER", 0.0)
    monkeypatch.setattr(locks, "time", Clock())
    return tmp_path / "lock"


class Clock:
    """A clock that only sleeping moves, so that a limit is reached at once, and after the same number of looks."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


@contextmanager
def held(file: Path, doing: str) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLD, str(file), doing]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.communicate("\n")


def refusal(file: Path, say: Callable[[str], object] = print) -> str:
    with pytest.raises(RunbookError) as caught, locked(file, "bump 26.04-py3", say):
        pass
    return str(caught.value)


@pytest.mark.parametrize("doing", ["", "bump 26.04-py3"])
def test_free_lock_is_acquired_and_its_note_removed(file: Path, doing: str) -> None:
    for _ in range(2):
        with locked(file, doing):
            assert (json.loads(file.read_text())["doing"] if doing else file.read_text()) == doing
        assert file.read_text() == ""


def test_error_names_the_holder_and_the_fix(file: Path) -> None:
    said: list[str] = []
    with held(file, "bump 26.04-py3 with wait=True, which may take hours") as process:
        told = refusal(file, said.append)
    for part in (
        f"{file} has been locked by process {process.pid} (",
        "which may take hours, since 2",
        f"`kill {process.pid}`",
    ):
        assert part in told
    assert [text.startswith(f"Waiting for process {process.pid} (") for text in said] == [True]


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who holds a lock")
def test_holder_without_a_note_is_named_by_the_system(file: Path) -> None:
    with held(file, "") as process:
        assert f"has been locked by process {process.pid} (" in refusal(file)


def test_lock_of_a_dead_process_is_free(file: Path) -> None:
    with held(file, "bump 26.04-py3") as process:
        process.send_signal(signal.SIGKILL)
    assert str(process.pid) in file.read_text()
    with locked(file):
        pass


def _written(file: Path, pid: int, host: str) -> None:
    process = {"pid": pid, "started": 1.0, "host": host}
    file.write_text(json.dumps({"process": process, "user": "ada", "since": "2026-11-21T12:00:00Z", "doing": "bump"}))


def test_note_with_a_reused_process_id_locks_nothing(file: Path) -> None:
    _written(file, os.getppid(), socket.gethostname())
    with locked(file, "bump 26.04-py3"):
        assert json.loads(file.read_text())["process"]["pid"] == os.getpid()


def test_lock_of_another_machine_is_never_broken(file: Path) -> None:
    _written(file, 77, "elsewhere")
    before = file.read_bytes()
    told = refusal(file)
    assert "has been locked by process 77 on elsewhere (ada, bump, since 2026-11-21 12:00 UTC)" in told
    assert f"remove {file} and run the same command again" in told
    assert file.read_bytes() == before
    file.unlink()
    with locked(file):
        pass


@pytest.mark.parametrize("content", ["x" * 5000, "{}", "[1]", '{"process": 7}', "\x00"])
def test_other_content_of_the_file_locks_nothing(file: Path, content: str) -> None:
    file.write_text(content)
    with locked(file, "bump 26.04-py3"):
        pass
    assert file.read_text() == ""


def test_symbolic_link_is_refused(tmp_path: Path, file: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    file.symlink_to(victim)
    with (
        pytest.raises(RunbookError, match=r"could not be written. It is a link or a pipe"),
        locked(file, "bump"),
    ):
        pass
    assert victim.read_text() == "mine"
