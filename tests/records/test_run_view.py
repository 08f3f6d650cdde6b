"""Views of runs, while they are running and afterwards."""

from pathlib import Path

import pytest
import small_runbooks as small
from background_runs import TAG, folder, prepare, run_of, start, until

from runbook_lib.records import run_view
from runbook_lib.runner import background


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepare(tmp_path, monkeypatch)


def test_follows_a_run_to_its_end(place: Path) -> None:
    step = small.notebook(
        place / "01-a.ipynb",
        "step.would('change 2 lines'); step.decide('broken', 'x', 'why'); step.diff('--- a\\n+++ a\\n')",
        "print(os.environ.get('JPY_SESSION_NAME')); step.done('Fine.')\n'the <b>plan</b>'",
        "'the <b>result</b>'  # tag: done",
    )
    launched = start(step, apply=False)
    until(lambda: launched.has_exited)
    run = run_of(place, launched)
    assert (run.notebook, run.state, run.sentence) == ("01-a", "previewed", "Fine.")
    assert run.parameters["tag"] == TAG
    assert run.planned == ({"sentence": "change 2 lines", "publish": False},)
    assert [it["subject"] for it in run.decisions] == ["x"]
    assert run.diffs == ("--- a\n+++ a\n",)
    assert launched.progress().splitlines()[-1] == "None"  # it does not take itself for a notebook in JupyterLab
    assert "plan" in run.plan_html()
    assert "result" not in run.plan_html()
    assert run_view.newest(folder(place))["01-a"] == run
    assert run_view.find_run(folder(place), record=run.folder.name) == run
    launched.close()
    reused = {**launched.process, "started": launched.process["started"] + 60}
    assert run_view.find_run(folder(place), process=reused) is None  # another process that got the same number


def test_finds_no_run_without_a_record(place: Path) -> None:
    assert run_view.find_run(place / "nothing", record="x") is None
    assert run_view.newest(place / "nothing") == {}
    launched = background.start(small.notebook(place / "01-a.ipynb"), {"tog": TAG})
    until(lambda: launched.has_exited)
    assert "has no parameter 'tog'. Did you mean tag?" in launched.progress()
    launched.close()
