"""Headless runs in a process of their own."""

import os
import signal
from pathlib import Path

import pytest
import small_runbooks as small
from background_runs import SLOW, TAG, prepare, run_of, start, until

from runbook_lib.errors import RunbookError
from runbook_lib.record.verify import verify
from runbook_lib.runner import background


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepare(tmp_path, monkeypatch)


PLANS = """
step.would(pathlib.Path("plan").read_text())
pathlib.Path("log").open("a").write("applied " if {apply} else "looked ")
step.done("Fine.")
"""


@pytest.mark.slow
def test_applies_only_the_plan_that_was_shown(place: Path) -> None:
    (place / "plan").write_text("change 2 lines")
    step = small.notebook(place / "01-a.ipynb", "import pathlib" + PLANS.format(apply="mode != 'preview'"))
    preview = start(step, apply=False)
    preview.close()
    shown = run_of(place, preview).fingerprint
    for plan, state, log in (("change 9 lines", "failed", "looked "), ("change 2 lines", "done", "looked applied ")):
        (place / "log").write_text("")
        (place / "plan").write_text(plan)
        applied = background.start(step, {"tag": TAG, "repo": ".", "mode": "local"}, shown=shown)
        applied.close()
        run = run_of(place, applied)
        assert (run.state, (place / "log").read_text(), run.steps) == (state, log, ())
        assert ("Preview again" in run.sentence) == (state == "failed")
    assert verify(place / "audit")[0] == []


def test_a_run_cancelled_before_its_record_leaves_nothing(place: Path) -> None:
    launched = start(small.notebook(place / "01-a.ipynb", SLOW))
    launched.cancel()
    launched.close()
    assert launched.is_cancelled
    assert not (place / "audit").exists()


def test_cancels_a_run_of_another_process(place: Path) -> None:
    launched = start(small.notebook(place / "01-a.ipynb", SLOW))
    until(lambda: "begun" in launched.progress())
    (run,) = background.active_runs(place / "audit")
    background.cancel(run)
    until(lambda: launched.has_exited)
    background.cancel(run)  # once more: it is gone
    assert run_of(place, launched).state == "interrupted"
    launched.close()


def test_a_run_outlives_the_process_that_started_it(place: Path) -> None:
    launched = start(small.notebook(place / "01-a.ipynb", SLOW))
    until(lambda: "begun" in launched.progress())
    assert os.getsid(launched.process["pid"]) == launched.process["pid"] != os.getsid(0)
    os.kill(launched.process["pid"], signal.SIGINT)
    until(lambda: launched.has_exited)
    launched.close()


def test_reports_that_no_process_can_be_started(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(RunbookError, match="could not be started"):
        start(place / "01-a.ipynb")
