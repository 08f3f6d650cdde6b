"""Runs that a form starts and follows: by their records, while they go on and after."""

import json
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
import small_runbooks as small

from runbook_lib.errors import RunbookError
from runbook_lib.records import archive, run_view
from runbook_lib.records.run_view import RunView
from runbook_lib.records.verify import verify
from runbook_lib.runner import background
from runbook_lib.system.clock import now, stamp

TAG = "26.04-py3"
SLOW = "print('begun', flush=True)\ntime.sleep(600)"


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in small.environ(RUNBOOK_AUDIT=str(tmp_path / "audit"), JPY_SESSION_NAME="/x/lab.ipynb").items():
        monkeypatch.setenv(name, value)
    return tmp_path


def folder(place: Path) -> Path:
    return next(iter((place / "audit").rglob("head"))).parent


def found(place: Path, launched: background.BackgroundRun) -> RunView:
    run = run_view.find_run(folder(place), process=launched.process)
    assert run is not None
    return run


def start(notebook: Path, *, apply: bool = True) -> background.BackgroundRun:
    return background.start(notebook, {"tag": TAG, "repo": ".", "wait": False, "apply": apply})


def test_a_run_is_followed_to_its_end(place: Path) -> None:
    step = small.notebook(
        place / "01-a.ipynb",
        "step.would('change 2 lines'); step.decide('broken', 'x', 'why'); step.diff('--- a\\n+++ a\\n')",
        "print(os.environ.get('JPY_SESSION_NAME')); step.done('Fine.')\n'the <b>plan</b>'",
        "forms = None  # tag: form",
        "'after the form'",
    )
    launched = start(step, apply=False)
    until(lambda: launched.has_exited)
    run = found(place, launched)
    assert (run.notebook, run.state, run.sentence) == ("01-a", "previewed", "Fine.")
    assert run.parameters["tag"] == TAG
    assert run.planned == ({"sentence": "change 2 lines", "publish": False},)
    assert [it["name"] for it in run.decisions] == ["x"]
    assert run.diffs == ("--- a\n+++ a\n",)
    assert launched.progress().splitlines()[-1] == "None"  # it does not take itself for a notebook in JupyterLab
    assert "after the form" not in run.plan_html()
    assert run_view.newest(folder(place))["01-a"] == run
    assert run_view.find_run(folder(place), record=run.folder.name) == run
    launched.close()
    reused = {**launched.process, "started": launched.process["started"] + 60}
    assert run_view.find_run(folder(place), process=reused) is None  # another process that got the same number


PLANS = """
step.would(pathlib.Path("plan").read_text())
pathlib.Path("log").open("a").write("applied " if {apply} else "looked ")
step.done("Fine.")
"""


def test_what_is_applied_is_what_was_shown(place: Path) -> None:
    (place / "plan").write_text("change 2 lines")
    step = small.notebook(place / "01-a.ipynb", "import pathlib" + PLANS.format(apply="apply"))
    preview = start(step, apply=False)
    preview.close()
    shown = found(place, preview).fingerprint
    for plan, state, log in (("change 9 lines", "failed", "looked "), ("change 2 lines", "done", "looked applied ")):
        (place / "log").write_text("")
        (place / "plan").write_text(plan)
        applied = background.start(step, {"tag": TAG, "repo": ".", "apply": True}, shown=shown)
        applied.close()
        run = found(place, applied)
        assert (run.state, (place / "log").read_text(), run.steps) == (state, log, ())
        assert ("Preview again" in run.sentence) == (state == "failed")
    assert verify(place / "audit")[0] == []


def test_the_values_stand_in_no_command_line(place: Path) -> None:
    launched = start(small.notebook(place / "01-a.ipynb", SLOW))
    until(lambda: "begun" in launched.progress())
    assert TAG not in " ".join(psutil.Process(launched.process["pid"]).cmdline())
    launched.cancel()
    launched.close()
    assert found(place, launched).parameters["tag"] == TAG


def test_who_is_cancelled_before_having_begun_did_nothing(place: Path) -> None:
    launched = start(small.notebook(place / "01-a.ipynb", SLOW))
    launched.cancel()
    launched.close()
    assert launched.is_cancelled
    assert not (place / "audit").exists()


def test_a_run_of_another_machine_is_left_alone(place: Path) -> None:
    launched = start(small.notebook(place / "01-a.ipynb", SLOW))
    until(lambda: "begun" in launched.progress())
    (run,) = background.active_runs(place / "audit")
    with pytest.raises(RunbookError, match="machine elsewhere"):
        background.cancel({**run, "process": {**run["process"], "host": "elsewhere"}})
    assert not launched.has_exited
    launched.cancel()
    launched.close()


@pytest.mark.parametrize(("days", "found"), [(0.5, 1), (2, 0)])
def test_whether_a_run_of_another_machine_goes_on_is_believed_for_a_day(
    days: float, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {
        "state": "running", "process": {"host": "elsewhere", "pid": 1, "started": 0.0},
        "started": stamp(now() - timedelta(days=days)),
    }  # fmt: skip
    monkeypatch.setattr(archive, "bump_folders", lambda _: ["one"])
    monkeypatch.setattr(archive, "read_records", lambda _: archive.BumpRecords([run], []))
    assert len(background.active_runs(Path())) == found


def test_the_steps_of_a_bump_are_seen_while_it_goes_on(place: Path) -> None:
    small.notebook(place / "01-a.ipynb", "step.done('Fine.')")
    small.notebook(place / "02-b.ipynb", SLOW)
    launched = start(small.bump(place, "01-a", "02-b"))
    until(lambda: list((place / "audit").rglob("head")))
    until(lambda: (run := run_view.find_run(folder(place), process=launched.process)) and len(run.steps) == 2)
    run = found(place, launched)
    assert not run.is_closed
    assert [(it.notebook, it.state) for it in run.steps] == [("01-a", "done"), ("02-b", "running")]
    assert [it["notebook"]["name"] for it in background.active_runs(place / "audit")] == ["bump"]
    launched.cancel()
    until(lambda: launched.has_exited)
    run = found(place, launched)
    assert (run.state, [it.state for it in run.steps]) == ("cancelled", ["done", "cancelled"])
    assert background.active_runs(place / "audit") == []
    launched.close()


def test_a_run_that_somebody_else_started_can_be_cancelled(place: Path) -> None:
    launched = start(small.notebook(place / "01-a.ipynb", SLOW))
    until(lambda: "begun" in launched.progress())
    (run,) = background.active_runs(place / "audit")
    background.cancel(run)
    until(lambda: launched.has_exited)
    background.cancel(run)  # once more: it is gone
    assert found(place, launched).state == "cancelled"
    launched.close()


def test_it_outlives_what_started_it(place: Path) -> None:
    launched = start(small.notebook(place / "01-a.ipynb", SLOW))
    until(lambda: "begun" in launched.progress())
    assert os.getsid(launched.process["pid"]) == launched.process["pid"] != os.getsid(0)
    os.kill(launched.process["pid"], signal.SIGINT)
    until(lambda: launched.has_exited)
    launched.close()


def test_without_a_record_there_is_no_run(place: Path) -> None:
    assert run_view.find_run(place / "nothing", record="x") is None
    assert run_view.newest(place / "nothing") == {}
    launched = background.start(small.notebook(place / "01-a.ipynb"), {"tog": TAG})
    until(lambda: launched.has_exited)
    assert "has no parameter 'tog'. Did you mean tag?" in launched.progress()
    launched.close()


def test_an_environment_that_cannot_start_it_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(RunbookError, match="could not be started"):
        start(place / "01-a.ipynb")


def test_an_executed_notebook_that_is_half_written_shows_nothing(place: Path) -> None:
    launched = start(small.notebook(place / "01-a.ipynb", "step.done('Fine.')"))
    until(lambda: launched.has_exited)
    run = found(place, launched)
    for content in ("{", "{}", json.dumps({"cells": 3})):
        (run.folder / "executed.ipynb").write_text(content)
        assert run.plan_html() == ""
    launched.close()
