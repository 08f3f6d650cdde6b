"""Runs in a process of their own, which a form follows."""

import os
import subprocess
from pathlib import Path

import pytest
import small_runbooks as small
from waiting import wait_until

from runbook_lib.errors import RunbookError
from runbook_lib.notebook import child
from runbook_lib.notebook.child import FollowedRun, Run
from runbook_lib.record.run_file import fingerprint
from runbook_lib.record.store import verify

TAG = "26.04-py3"
SLOW = "print('begun', flush=True)\ntime.sleep(600)"
END = "begin.end_run(step)"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of a form in JupyterLab, in a checkout."""
    more = {"RUNBOOK_AUDIT": str(tmp_path / "audit"), "JPY_SESSION_NAME": "/x/lab.ipynb"}
    for name, value in small.environ(**more).items():
        monkeypatch.setenv(name, value)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(notebook: Path, mode: str = "local", shown: str = "") -> FollowedRun:
    folder = notebook.parent / "audit/o-r/main" / f"dev-{TAG}"
    return child.start(notebook, {"tag": TAG, "repo": ".", "mode": mode}, folder, shown=shown)


def finished(run: FollowedRun) -> Run | None:
    wait_until(lambda: run.has_ended(None))
    return run.read()


PLANS = """
import pathlib
assert "JPY_SESSION_NAME" not in os.environ  # it does not take itself for a notebook in JupyterLab
step.would(pathlib.Path("plan").read_text())
pathlib.Path("log").open("a").write("looked " if mode == "preview" else "applied ")
step.conclude("done", Outcome("Fine."))
"""


@pytest.mark.slow
def test_applies_only_the_plan_that_was_shown(place: Path) -> None:
    (place / "plan").write_text("change 2 lines")
    step = small.notebook(place / "01-a.ipynb", PLANS, END)
    launched = start(step, "preview")
    preview = finished(launched)
    assert preview is not None
    assert (preview["state"], preview["outcome"]["sentence"]) == ("previewed", "Fine.")
    for plan, log in (("change 9 lines", "looked "), ("change 2 lines", "looked applied ")):
        (place / "log").write_text("")
        (place / "plan").write_text(plan)
        applied = start(step, shown=fingerprint(preview))
        run = finished(applied)
        assert (place / "log").read_text() == log
        assert (run is None) is (plan != "change 2 lines")
        assert len(list((place / "audit").rglob("run.json"))) == 1 + (run is not None)
        assert run is not None or applied.failure().endswith("Preview again.")
    assert verify(place / "audit")[0] == []


@pytest.mark.slow
def test_a_run_outlives_its_starter_until_it_is_cancelled(place: Path) -> None:
    launched = start(small.notebook(place / "01-a.ipynb", SLOW, END))
    wait_until(lambda: launched.last_line() == "begun")
    found = child.find_run(place / f"audit/o-r/main/dev-{TAG}")
    assert found is not None
    run = found.read()
    assert run is not None
    process = run["engine"]["pid"]
    assert os.getsid(process) == process != os.getsid(0)
    found.cancel()
    ended = finished(launched)
    found.cancel()  # once more: it is gone
    assert ended is not None
    assert (ended["state"], found.has_ended(found.read())) == ("interrupted", True)
    assert child.find_run(place / f"audit/o-r/main/dev-{TAG}") is None
    launched.close()


@pytest.mark.slow
def test_a_run_that_opens_no_record_says_why(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = start(small.notebook(place / "01-a.ipynb", SLOW))
    launched.cancel()
    assert finished(launched) is None
    assert "nothing was done" in launched.failure()
    launched.close()
    launched = child.start(small.notebook(place / "01-a.ipynb"), {"tog": TAG}, place)
    assert finished(launched) is None
    assert "has no parameter 'tog' (did you mean tag?)" in launched.failure()
    launched.close()
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(RunbookError, match="could not be started"):
        start(place / "01-a.ipynb")
