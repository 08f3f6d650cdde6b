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
from small_runbooks import bump, command, environ, notebook, outputs, records

from runbook_lib.record import run_file
from runbook_lib.record.verify import verify
from runbook_lib.records import status as records_status
from runbook_lib.runner import execute, sequence
from runbook_lib.runner import notebook as executed
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


@pytest.mark.parametrize(
    ("number", "status", "state"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "interrupted"), (signal.SIGKILL, -9, "running")],
)
def test_a_stopped_launcher_leaves_no_kernel_and_a_record_with_its_state(
    tmp_path: Path, audit: Path, number: int, status: int, state: str
) -> None:
    folder = tmp_path / "runbooks"
    notebook(folder / "01-a.ipynb", "print('so far')", SLEEP)
    notebook(folder / "02-b.ipynb", "step.done('never')")
    process = start(bump(folder, "01-a", "02-b"), "-p", "tag", "26.04-py3")
    until((folder / "begun").exists)
    alive = kernels(process.pid)
    assert len(alive) == 2
    process.send_signal(number)
    out, err = process.communicate(timeout=200)
    assert process.returncode == status, out + err
    assert "Traceback" not in out + err
    until(lambda: not any(map(_is_kernel, alive)))
    assert [run_file.read(path)["state"] for path in records(audit)] == [state, state]
    assert "so far\n" in outputs(records(audit)[1] / "executed.ipynb")
    assert verify(audit)[0] == []
    if state == "running":  # the next command closes them
        assert [one.state for one in records_status.status(audit)] == ["interrupted"]
        notebook(folder / "03-c.ipynb", "step.done('C is done.')")
        execute.execute(folder / "03-c.ipynb", {"tag": "26.04-py3"})
        assert [run_file.read(path)["state"] for path in records(audit)] == ["interrupted", "interrupted", "done"]
        assert all((path / "report.html").is_file() for path in records(audit))
        assert verify(audit)[0] == []
        forget_temporary_files()


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


def test_closes_the_records_of_a_killed_kernel(tmp_path: Path, audit: Path) -> None:
    folder = tmp_path / "runbooks"
    notebook(folder / "01-a.ipynb", SLEEP)
    process = start(bump(folder, "01-a"))
    until((folder / "begun").exists)
    (outer,) = (child for child in psutil.Process(process.pid).children() if _is_kernel(child))
    outer.kill()
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "The kernel that ran bump died" in out
    assert [run_file.read(path)["state"] for path in records(audit)] == ["interrupted", "interrupted"]
    assert verify(audit)[0] == []
    forget_temporary_files()  # those of the kernel's own kernel


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


@pytest.mark.parametrize("deaf", [False, True])
def test_writes_nothing_to_the_closed_record_of_an_interrupted_step(
    tmp_path: Path, audit: Path, monkeypatch: pytest.MonkeyPatch, deaf: bool
) -> None:
    redacted, interrupt, interrupted = executed.redacted, Kernel.interrupt, threading.Event()

    def slowly(*given: Any) -> dict[str, Any]:
        if "so far" in str(given[0]) and not deaf:
            press_ctrl_c()
            assert interrupted.wait(120)
            time.sleep(1)  # time for a record to be closed that does not wait for this
        return redacted(*given)

    def noticed(kernel: Kernel, grace: float) -> None:
        interrupted.set()
        interrupt(kernel, grace)

    monkeypatch.setattr(Kernel, "interrupt", noticed)
    monkeypatch.setattr(executed, "redacted", slowly)
    monkeypatch.setattr(sequence, "GRACE", 0.3)
    writing = "while True:\n  try: step.warn(str(time.monotonic())); open('begun', 'w').close(); time.sleep(0.01)\n"
    cells = [f"{writing}  except BaseException: pass"] if deaf else ["print('so ' + 'far')", "step.done('never')"]
    folder = notebook(tmp_path / "01-a.ipynb", *cells).parent
    monkeypatch.chdir(folder)
    if deaf:
        threading.Thread(target=lambda: (until((folder / "begun").exists), press_ctrl_c())).start()
    with pytest.raises(KeyboardInterrupt):
        sequence.run_notebooks(["01-a"])
    time.sleep(1)  # time for something to be written too late
    assert verify(audit)[0] == []
    (record,) = records(audit)
    assert run_file.read(record)["state"] == "interrupted"
    assert deaf or outputs(record / "executed.ipynb") == ["so far\n"]


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
