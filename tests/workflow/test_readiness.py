"""The end of a bump: its outcome, its plan and its links."""

from pathlib import Path
from typing import Any

import pytest

from runbook_lib.bump import Bump
from runbook_lib.pins import repositories
from runbook_lib.records import step_record
from runbook_lib.records.statement import collect
from runbook_lib.runner.execute import StepResult
from runbook_lib.workflow import readiness
from runbook_lib.workflow.readiness import Readiness, Requirement

OLD, NEW = "https://gitlab/p/-/pipelines/1", "https://gitlab/p/-/pipelines/2"
PIPELINE = "a green pipeline on GitLab"


def finish(folder: Path, state: Readiness, *results: StepResult, apply: bool = True, hold: str = "") -> dict[str, Any]:
    """Return the record's fields after the end of a bump with these results."""
    bump = Bump.parse(tag="26.04-py3", apply=apply, repository=repositories.MEGATRON_LM)
    step = step_record.StepRecord("bump", bump, "o/r", folder)
    readiness.finish(step, results, state, wait=True, hold=hold)
    return dict(collect(step_record.contributions(folder)).fields)


@pytest.mark.parametrize(("url", "expected"), [(NEW, NEW), ("", None)], ids=["a new pipeline", "none yet"])
def test_the_linked_pipeline_is_that_of_the_checked_commit(tmp_path: Path, url: str, expected: str | None) -> None:
    result = StepResult(
        "05-golden-values", "done", "Done.", links={"pull request": "https://p", "GitLab pipeline": OLD}
    )
    state = Readiness((Requirement(PIPELINE, bool(url), "Pipeline.", url=url),))
    links = finish(tmp_path, state, result)["links"]
    assert (links["pull request"], links.get("GitLab pipeline")) == ("https://p", expected)


def test_the_preview_of_a_waiting_bump_shows_its_plan(tmp_path: Path) -> None:
    danger = "accept gpt/a/x.json, a divergence (diverges: right)"
    results = [
        StepResult("04-run-ci", "waiting", "waiting for a person: CI failed"),
        StepResult("05-golden-values", "previewed", "Preview.", planned=({"sentence": danger, "publish": False},)),
    ]
    preview = Readiness(problem="Readiness is checked only with apply.")
    outcome = finish(tmp_path, preview, *results, apply=False, hold="the image: too large")["outcome"]
    assert danger in outcome["sentence"]
    assert "“do not merge”: the image: too large" in outcome["sentence"]
    assert "CI failed" in outcome["sentence"]
