"""Runs that are interrupted or killed: no kernel stays, and the record says what happened."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_runbooks import command, environ, notebook

from runbook_lib.runner import execute
from runbook_lib.runner.kernel import Kernel, KernelDied

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "audit"))
    return tmp_path / "audit"


@pytest.fixture(autouse=True)
def _nothing_stays_behind(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test ends without a kernel and without a temporary file."""
    place = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    assert list(place.iterdir()) == []
    assert not [child for child in psutil.Process().children(recursive=True) if _is_kernel(child)]


def _is_kernel(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and "kernel_main.py" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def until(condition: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


def start(path: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(path, *arguments), env=environ(), cwd=path.parent, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def forget_temporary_files() -> None:
    """Remove what a killed process cannot."""
    for folder in Path(os.environ["TMPDIR"]).iterdir():
        shutil.rmtree(folder)


def kernels(launcher: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(launcher).children(recursive=True) if _is_kernel(child)]


SLEEP = "open('begun', 'w').close()\ntime.sleep(600)"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere such a kernel ends only once its cell does")
def test_a_blocked_kernel_ends_with_its_launcher(tmp_path: Path) -> None:
    # PyDLL keeps the interpreter's lock: no other thread of the kernel runs, so nothing in it can look for its parent.
    deaf = "import ctypes; open('begun', 'w').close(); ctypes.PyDLL(None).sleep(600)"
    path = notebook(tmp_path / "runbooks" / "01-a.ipynb", deaf)
    process = start(path)
    until((path.parent / "begun").exists)
    (kernel,) = kernels(process.pid)
    process.kill()
    process.communicate()
    try:
        until(lambda: not _is_kernel(kernel), 60)
    finally:
        if _is_kernel(kernel):
            kernel.kill()
    forget_temporary_files()


def test_a_cell_that_exceeds_its_limit_ends_its_processes(tmp_path: Path, audit: Path) -> None:
    began = "from runbook_lib.system.subprocess_lines import run_logged; from pathlib import Path; here = Path.cwd()"
    build = "run_logged(['sh', '-c', 'echo $$ >group; sleep 300; true'], here, here / 'log', print, os.environ)"
    path = notebook(tmp_path / "01-a.ipynb", began, build)
    result = execute.execute(path, {}, cell_timeout=4)
    assert (result.state, "was stopped" in result.summary) == ("failed", True)
    group = int((tmp_path / "group").read_text())
    until(lambda: not [it for it in psutil.process_iter() if _in_group(it, group)])


def press_ctrl_c() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _in_group(process: psutil.Process, group: int) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and os.getpgid(process.pid) == group
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False


#: A hook of every new Python: sleeps when the kernel imports libzmq, long before it can run cells.
SLEEPING = """
import sys, time

class Starting:
    def find_spec(self, name, path=None, target=None):
        if name == "zmq" and any(word.endswith("kernel_main.py") for word in sys.orig_argv):
            time.sleep(600)

sys.meta_path.insert(0, Starting())
"""


def test_a_kernel_that_does_not_start_is_given_up_after_its_limit(tmp_path: Path) -> None:
    """Also when more requests were sent than libzmq queues, which takes a kernel that is slow for a minute."""
    (tmp_path / "sitecustomize.py").write_text(SLEEPING)
    began = time.monotonic()
    with (
        Kernel({**os.environ, "PYTHONPATH": str(tmp_path)}, tmp_path, 55) as kernel,
        pytest.raises(KernelDied, match="55 seconds"),
    ):
        kernel.begin({}, tmp_path)
    assert time.monotonic() - began < 120
