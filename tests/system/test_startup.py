"""Runs, and these tests themselves, as nohup, CI agents and careless parents start them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runbooks import ROOT, command, environ, notebook, outputs, records

from runbook_lib.records.chain import read_predicate
from runbook_lib.records.verify import verify

pytestmark = pytest.mark.slow

#: Starts a command with signals ignored or blocked; its arguments are their numbers, comma-separated.
INHERITING = """
import os, signal, sys
ignored, blocked = ([int(number) for number in text.split(",") if number] for text in sys.argv[1:3])
for number in ignored:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
os.execvp(sys.argv[3], sys.argv[3:])
"""
EVERY = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD, signal.SIGUSR1, signal.SIGALRM)
#: Goes on until the test lets it; what it runs must not see its end as a success.
WAITING = """\
import subprocess
failed = subprocess.run(["false"]).returncode
print("failed with", failed)
open("started", "w").close()
while not os.path.exists("go on"):
    time.sleep(0.02)"""


def inheriting(*words: str, ignored: tuple[int, ...] = (), blocked: tuple[int, ...] = ()) -> list[str]:
    """Return the command that starts another with these signals ignored or blocked."""
    numbers = [",".join(str(int(number)) for number in numbers) for numbers in (ignored, blocked)]
    return [sys.executable, "-c", INHERITING, *numbers, *words]


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
    return notebook(tmp_path / "runbooks/01-a.ipynb", WAITING, "step.done('Fine.')")


def start(path: Path, ignored: tuple[int, ...] = (), blocked: tuple[int, ...] = ()) -> "subprocess.Popen[str]":
    words = inheriting(*command(path, "-p", "tag", "26.04-py3"), ignored=ignored, blocked=blocked)
    process = subprocess.Popen(
        words, cwd=path.parent, env=environ(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    until(lambda: (path.parent / "started").exists() or process.poll() is not None)
    return process


@pytest.mark.parametrize(
    ("ignored", "blocked"), [((signal.SIGINT, signal.SIGTERM), ()), ((), (signal.SIGTERM,)), (EVERY, EVERY)]
)
def test_a_run_is_cancelled_by_sigterm_whatever_it_inherits(
    waiting: Path, tmp_path: Path, ignored: tuple[int, ...], blocked: tuple[int, ...]
) -> None:
    process = start(waiting, ignored, blocked)
    process.terminate()
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 143, told
    assert [read_predicate(folder)["state"] for folder in records(tmp_path / "audit")] == ["cancelled"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_run_under_nohup_continues(waiting: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = start(waiting, ignored=(number,))
    process.send_signal(number)
    (waiting.parent / "go on").touch()
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert [read_predicate(folder)["state"] for folder in records(tmp_path / "audit")] == ["done"]


def test_a_failed_command_is_not_a_success_if_sigchld_was_ignored(waiting: Path) -> None:
    (waiting.parent / "go on").touch()
    process = start(waiting, ignored=(signal.SIGCHLD,))
    assert "failed with 1\n" in process.communicate(timeout=60)[0]


def test_a_cell_is_stopped_for_its_limit_in_a_run_that_ignores_ctrl_c(tmp_path: Path) -> None:
    cell = "try: time.sleep(300)\nexcept KeyboardInterrupt: open('interrupted', 'w').close(); raise"
    path = notebook(tmp_path / "01-a.ipynb", cell)
    limited = inheriting(*command(path, "--execution-timeout", "2"), ignored=EVERY, blocked=EVERY)
    done = subprocess.run(
        limited, cwd=tmp_path, env=environ(RUNBOOK_AUDIT=str(tmp_path / "audit")), capture_output=True
    )
    assert done.returncode == 1
    assert (tmp_path / "interrupted").exists()


CLOSED = ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize(("arguments", "status"), [(("check", "nowhere"), 2), (("practice", "reset"), 0)])
def test_a_command_answers_by_its_status_where_a_stream_is_closed(
    tmp_path: Path, closed: str, arguments: tuple[str, ...], status: int
) -> None:
    env = environ(RUNBOOK_PRACTICE_HOME=str(tmp_path / "practice"))
    runbook = [sys.executable, "-P", "-m", "runbook_lib", *arguments]
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", *runbook]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr


@pytest.mark.parametrize("closed", CLOSED)
def test_a_run_keeps_its_record_where_a_stream_is_closed(tmp_path: Path, closed: str) -> None:
    """What is printed never lands in a file that took the stream's number."""
    path = notebook(tmp_path / "01-a.ipynb", "print('hello')\nos.system('echo from a child')\nstep.done('Fine.')")
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", *command(path, "-p", "tag", "26.04-py3")]
    env = environ(RUNBOOK_AUDIT=str(tmp_path / "audit"))
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    (record,) = records(tmp_path / "audit")
    assert read_predicate(record)["state"] == "done"
    assert "hello\n" in "".join(outputs(record / "executed.ipynb"))
    assert verify(tmp_path / "audit")[0] == []


#: Of each file that needs signals one test: of the processes that it starts, and of itself.
SAMPLE = [
    "tests/runner/test_killed.py::test_does_not_close_the_record_of_a_live_process",
    "tests/runner/test_killed.py::test_writes_nothing_to_the_closed_record_of_an_interrupted_step[False]",
    "tests/runner/test_background.py::test_a_run_outlives_the_process_that_started_it",
    "tests/practice/test_world.py::test_the_command_serves_until_ctrl_c",
    "tests/runner/test_papermill.py::test_a_second_interruption_still_closes_the_record",
]
#: What a person, a CI service or another Python may have set.
FOREIGN = {
    "COLUMNS": "20", "NO_COLOR": "1", "FORCE_COLOR": "1", "LC_ALL": "C", "LANGUAGE": "de", "TZ": "Asia/Kathmandu",
    "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "error", "GIT_DIR": "/nowhere",
    "CUDA_VERSION": "1.0", "SLURM_JOB_ID": "7", "UV_OFFLINE": "1", "MPLBACKEND": "none", "DOCKER_CONFIG": "/nowhere",
}  # fmt: skip


def test_the_tests_do_not_depend_on_how_they_are_started(tmp_path: Path) -> None:
    place = tmp_path / "a folder"
    place.mkdir()
    kept = {name: value for name, value in os.environ.items() if name == "PATH"}
    words = inheriting(
        sys.executable, "-m", "pytest", "-n1", "-q", "-p", "no:cacheprovider", *SAMPLE, ignored=EVERY, blocked=EVERY
    )
    done = subprocess.run(
        ["sh", "-c", 'umask 077; ulimit -n 256; exec "$@" <&-', "sh", *words], cwd=ROOT, capture_output=True, text=True,
        env=kept | FOREIGN | {"TMPDIR": str(place)}, start_new_session=True,
    )  # fmt: skip
    assert (done.returncode, f"{len(SAMPLE)} passed" in done.stdout) == (0, True), done.stdout + done.stderr
