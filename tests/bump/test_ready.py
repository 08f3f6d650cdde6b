"""The end of a bump: outcome, plan and links."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bumping import allowed

from runbook_lib.bump import ready
from runbook_lib.bump.ready import ReadyFacts, RecordedStep, Requirement, State
from runbook_lib.bump.run import carry_out
from runbook_lib.checks import Evidence, Next
from runbook_lib.failures import quarantines
from runbook_lib.failures.quarantines import LeftOut
from runbook_lib.pins.bump import Bump
from runbook_lib.record.recorder import Recorder
from runbook_lib.world.github.models import WorkflowJob

OLD, NEW = "https://gitlab/p/-/pipelines/1", "https://gitlab/p/-/pipelines/2"


def step(name: str, state: str, sentence: str, **fields: Any) -> RecordedStep:
    empty: dict[str, Any] = {"planned": [], "decisions": [], "warnings": [], "links": {}}
    return {"name": name, "state": state, "outcome": {"sentence": sentence, "next": {}}, **empty, **fields}


def finish(folder: Path, found: ReadyFacts, *steps: RecordedStep, apply: bool = True) -> dict[str, Any]:
    """Return the record's fields after the end of a bump with these steps."""
    exceptions = allowed(" ".join(decision for each in found.requirements for decision in each.decisions))
    bump = Bump.parse(tag="26.04-py3", mode="local" if apply else "preview", decisions=exceptions)
    record = Recorder("bump", bump, folder)
    for each in steps:
        record.begin_step(each["name"])
        record.keep(Evidence(links=each["links"]))
    record.begin_step(ready.NAME)
    world: Any = SimpleNamespace(round=None)
    carry_out(record, ready.plan(replace(found, steps=steps), bump), world, lambda _: None)
    return record.run


@pytest.mark.parametrize(("url", "expected"), [(NEW, NEW), ("", None)], ids=["a new pipeline", "none yet"])
def test_the_linked_pipeline_is_that_of_the_checked_commit(tmp_path: Path, url: str, expected: str | None) -> None:
    links = {"pull request": "https://p", "GitLab pipeline": OLD}
    found = ReadyFacts((Requirement("second ci", "met" if url else "missing", "Pipeline.", url=url),))
    fields = finish(tmp_path, found, step("05-golden-values", "done", "Done.", links=links))
    assert (fields["links"]["pull request"], fields["links"].get("GitLab pipeline")) == ("https://p", expected)


def test_the_preview_of_a_waiting_bump_shows_its_plan(tmp_path: Path) -> None:
    danger = "accept gpt/a/x.json, a divergence (diverges: right)"
    steps = [
        step("04-run-ci", "waiting", "waiting for a person: CI failed"),
        step("05-golden-values", "previewed", "Preview.", planned=[{"sentence": danger, "publish": False}]),
    ]
    outcome = finish(tmp_path, ReadyFacts(problem="A preview does not look."), *steps, apply=False)["outcome"]
    assert danger in outcome["sentence"]
    assert "CI failed" in outcome["sentence"]


@pytest.mark.parametrize(
    ("state", "decisions", "expected"),
    [("met", (), True), ("missing", (), False), ("unknown", (), False), ("unknown", ("second-ci-unseen",), True)],
)
def test_a_bump_is_ready_if_no_requirement_is_missing_or_unknown(
    tmp_path: Path, state: State, decisions: tuple[str, ...], expected: bool
) -> None:
    found = ReadyFacts((Requirement("second ci", state, "Seen.", decisions=decisions),))
    fields = finish(tmp_path, found, step("07-sync-check", "done", "Done."))
    assert fields["outcome"]["sentence"].startswith("Ready to merge") is expected
    assert fields["inputs"]["requirements"][0]["state"] == state


@pytest.mark.parametrize(
    ("question", "state"), [("", "met"), ("reenable", "met"), ("broken", "met"), ("accept", "missing")]
)
def test_an_open_question_about_values_is_no_branch_without_open_decisions(
    tmp_path: Path, question: str, state: str
) -> None:
    asked = [{"question": question, "subject": "gpt/a/x.json"}] if question else []
    found = ReadyFacts((Requirement("values", "met", "None is held back."),))
    fields = finish(tmp_path, found, step("05-golden-values", "waiting", "Waiting.", decisions=asked))
    assert fields["inputs"]["requirements"][0]["state"] == state
    assert ("gpt/a/x.json" in fields["outcome"]["sentence"]) == (state == "missing")


@pytest.mark.parametrize(
    ("runner", "state"), [("x-gpu-x8-h100", "missing"), ("x-gpu-x4-gb200", "met"), ("", "missing")]
)
def test_a_red_job_is_excused_only_on_the_platform_where_its_test_may_fail(
    monkeypatch: pytest.MonkeyPatch, runner: str, state: State
) -> None:
    soft = LeftOut("gpt/a", "dgx_a100, dgx_gb200", soft=True)
    monkeypatch.setattr(quarantines, "quarantined_since_fork", lambda *_: [soft])
    job = WorkflowJob(1, "", "gpt/a - latest", "completed", "failure", None, None, runners=(runner,))
    ci = SimpleNamespace(state="failed", jobs=(job,), text="It failed.", run=None, is_over=True, next=Next())
    pull = SimpleNamespace(head_sha="a" * 40, base_ref="main")
    head: Any = SimpleNamespace(ci=ci, pull=pull, state=SimpleNamespace(comments=(), behind=0), branch=None)
    assert [each.state for each in ready._check_ci(head) if each.kind == "ci"] == [state]
