"""The notebook of the internal pipeline, run headlessly in practice: dry run, confirmation, following."""

import json
from pathlib import Path
from typing import Any

import executing as run
import pytest
from bumping import git
from executing import Ran

from runbook_lib.decisions import Decision
from runbook_lib.practice import PracticeWorld, open_world
from runbook_lib.record import decisions
from runbook_lib.record.verify import verify

RUNBOOKS = Path(__file__).resolve().parents[3] / "runbooks"
TAG, TO = "26.04-py3", "pull-request/bump/main/dev-26.04-py3"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PracticeWorld:
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "audit"))
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", str(tmp_path / "world"))
    return open_world()


def execute(name: str, **parameters: object) -> Ran:
    return run.execute(RUNBOOKS / f"{name}.ipynb", {"tag": TAG, **parameters})


def predicate(result: Ran) -> dict[str, Any]:
    assert result.record is not None
    return json.loads((result.record / "run.json").read_text())  # type: ignore[no-any-return]


def branches(world: PracticeWorld) -> str:
    return git(world.home / "gitlab.git", "for-each-ref", "--format=%(refname:short) %(objectname)")


def pipelines(world: PracticeWorld) -> list[str]:
    started = world.home / "gitlab.git/started-pipelines.json"
    return list(json.loads(started.read_text())) if started.exists() else []


@pytest.mark.slow
def test_from_the_dry_run_to_a_pin_that_builds(world: PracticeWorld, tmp_path: Path) -> None:
    before = branches(world)
    assert execute("03-open-pr", mode="publish").state == "done"
    unconfirmed = execute("internal-ci", mode="publish")
    assert unconfirmed.state == "waiting"
    assert (branches(world), pipelines(world)) == (before, [])

    file = tmp_path / "decisions.yaml"
    decisions.add(file, [Decision("allow", "internal-ci", "the dry run is right")])
    confirmed = execute("internal-ci", mode="publish", decisions=str(file), wait=True)
    assert confirmed.state == "done", confirmed.summary
    assert "nvcr.io/nvidia/pytorch:26.04-py3 for amd64" in confirmed.summary
    effects = [(entry["effect"], entry["target"], entry["before"]) for entry in predicate(confirmed)["effects"]]
    assert effects == [("push", f"gitlab {TO}", None), ("pipeline", TO, None)]
    assert "GitLab pipeline" in str(predicate(confirmed)["links"])
    head = git(world.checkout, "rev-parse", "bump/main/dev-26.04-py3")
    assert set(branches(world).splitlines()) - set(before.splitlines()) == {f"{TO} {head}"}
    assert confirmed.record is not None
    assert "test:pre_build_image" in (confirmed.record / "build-jobs.csv").read_text()

    repeated = execute("internal-ci", mode="publish", decisions=str(file))
    assert (repeated.state, predicate(repeated)["effects"], pipelines(world)) == ("done", [], [head])
    assert verify(tmp_path / "audit")[0] == []
