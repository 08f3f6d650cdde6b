"""Runs as nohup starts them."""

import signal
import subprocess
from pathlib import Path

import pytest
from small_runbooks import command, environ, notebook, records
from waiting import wait_until

from runbook_lib.record import run_file

pytestmark = pytest.mark.slow

#: Goes on until the test lets it.
WAITING = """\
open("started", "w").close()
while not os.path.exists("go on"):
    time.sleep(0.02)"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_run_under_nohup_continues(archive: Path, tmp_path: Path, number: signal.Signals) -> None:
    waiting = notebook(
        tmp_path / "runbooks/01-a.ipynb", WAITING, "step.conclude('done', Outcome('Fine.'))", "recording.end(step)"
    )
    process = subprocess.Popen(
        command(waiting, "-p", "tag", "26.04-py3"), cwd=waiting.parent, env=environ(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_IGN),
    )  # fmt: skip
    wait_until(lambda: (waiting.parent / "started").exists() or process.poll() is not None)
    process.send_signal(number)
    (waiting.parent / "go on").touch()
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert [run_file.read(folder)["state"] for folder in records(archive)] == ["done"]
