"""Step 4 on a practice repository: CI is let go once a commit, with the right labels, and its run is followed."""

from collections.abc import Callable
from typing import Any

import pytest
from bumping import BRANCH, CONTRIBUTOR, World, git

from runbook_lib.bump.run_ci import CiFacts, RunCi
from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.pins.bump import Bump
from runbook_lib.practice.forge import PracticeForge
from runbook_lib.world import bump_branch
from runbook_lib.world.ports import World as Outside


def run_ci(world: World, token: str = "practice-token", *, wait: bool = False, **parameters: Any) -> dict[str, Any]:
    """Step 4, as its notebook runs it; the clock moves on while it waits.  Returns what the record was given."""
    world.run(RunCi(wait), token=token, **parameters)
    return dict(world.said("inputs"))


def commands(world: World) -> list[tuple[str, str]]:
    """Every command to copy-pr-bot, with its author."""
    comments = world.github().comments(10)
    return [(it.author, it.body) for it in comments if it.body.startswith("/ok")]


def waiting(world: World) -> str:
    said = world.said("waiting")
    return str(said[-1]["sentence"]) if said else ""


def test_ci_is_authorized_once_per_commit(opened: World) -> None:
    given = run_ci(opened)
    assert commands(opened) == [("release-engineer", f"/ok to test {opened.head()}")]
    assert opened.effects() == ["comment"]
    assert waiting(opened).startswith("waiting for CI run ")
    assert given["head_commit"] == opened.head()
    assert given["merge_commit"] == git(opened.remote, "rev-parse", "refs/pull/10/merge")
    assert given["base_commit"] == git(opened.remote, "rev-parse", "main")
    run_ci(opened)
    assert opened.effects() == []
    assert len(commands(opened)) == 1


def test_what_drift_costs_is_told_before_ci_starts(opened: World, capsys: pytest.CaptureFixture[str]) -> None:
    run_ci(opened, mode="preview")
    assert "Drift costs up to three attempts" in capsys.readouterr().out
    assert commands(opened) == []


@pytest.mark.parametrize("mode", ["preview", "local"])
def test_nothing_is_written_without_publish(opened: World, mode: str) -> None:
    before = opened.state()
    run_ci(opened, mode=mode)
    assert opened.state() == before
    said = opened.said("done" if mode == "preview" else "waiting")
    assert f"authorize CI for {opened.head()[:10]}" in said[0]["sentence"]


def without_label(opened: World) -> None:
    opened.github().remove_label(10, "Run functional tests")
    opened.github().add_label(10, "Run tests")


def not_pushed(opened: World) -> None:
    git(opened.checkout.path, "switch", "-q", BRANCH)
    git(opened.checkout.path, "commit", "-q", "--allow-empty", "-m", "more")


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        (without_label, "waiting for the labels of #10: CI must not start without them"),
        (not_pushed, f"waiting for a push: {BRANCH} is at "),
        (
            lambda opened: opened.commit_on("main", "docker/.ngc_version.dev", "nvcr.io/nvidia/pytorch:26.03-py3\n"),
            "waiting for a person: #10 conflicts with main",
        ),
        (
            lambda opened: opened.forge.close(10),
            f"waiting for the pull request: no pull request is open for {BRANCH}",
        ),
    ],
)
def test_ci_waits_for_what_is_in_its_way(opened: World, prepare: Callable[[World], object], expected: str) -> None:
    prepare(opened)
    run_ci(opened)
    assert commands(opened) == []
    assert waiting(opened).startswith(expected)


def test_a_run_that_started_by_itself_needs_no_comment(opened: World) -> None:
    opened.forge.start_run(10)
    assert run_ci(opened)["run_id"]
    assert commands(opened) == []
    assert opened.checks()["CI may test the head commit"] == "passed"


# -- copy-pr-bot ------------------------------------------------------------------------------------------------------


def test_a_refused_deployment_gets_another_commit(opened: World) -> None:
    opened.forge.refuse_deployment()
    first = opened.head()
    found = run_ci(opened)
    assert found["run_state"] == "refused"
    assert "an empty commit" in opened.said("waiting")[0]["next"]
    run_ci(opened)
    assert opened.effects() == ["commit", "push", "comment"]
    assert [body for _, body in commands(opened)] == [f"/ok to test {first}", f"/ok to test {opened.head()}"]
    assert git(opened.remote, "log", "-1", "--format=%P", BRANCH) == first
    assert git(opened.remote, "diff", first, BRANCH) == ""
    assert "Signed-off-by: Ada Tester" in git(opened.remote, "log", "-1", "--format=%B", BRANCH)
    run_ci(opened)
    assert opened.effects() == []


def test_a_refused_deployment_is_seen_without_a_comment(opened: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bump_branch, "is_refused", lambda *_: False)
    opened.forge.refuse_deployment()
    run_ci(opened)
    opened.now[0] += 100
    run_ci(opened)
    assert opened.effects() == ["commit", "push", "comment"]


def test_only_a_person_authorizes_somebody_elses_commits(opened: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runbook_lib.world.bump_branch.is_mine", lambda *_: False)
    run_ci(opened)
    assert opened.effects() == []
    assert "by hand" in waiting(opened)
    assert "Read every line" in opened.said("waiting")[0]["next"]


def test_a_merged_bump_is_done(opened: World) -> None:
    opened.forge.merge(10)
    run_ci(opened)
    assert "already names 26.04-py3" in opened.said("done")[0]["sentence"]


def test_a_head_that_moves_after_the_look_is_not_authorized(opened: World) -> None:
    class Late(RunCi):
        def look(self, world: Outside, bump: Bump) -> CiFacts:
            facts = super().look(world, bump)
            opened.commit_on(BRANCH, "notes", "more\n")
            return facts

    opened.run(Late())
    assert commands(opened) == []
    assert opened.head()[:10] in waiting(opened)


def test_no_more_than_a_few_commits_are_pushed(opened: World) -> None:
    for _ in range(4):
        opened.forge.refuse_deployment()
        run_ci(opened)
    assert len(commands(opened)) == 3
    assert waiting(opened) == "waiting for a maintainer: 3 commits in #10 could not be deployed"


def test_a_contributor_is_referred_to_a_maintainer(world: World) -> None:
    git(world.checkout.path, "remote", "add", "fork", str(world.fork))
    world.open_pr("contributor-token", remote="fork")
    world.github().add_label(10, "Run functional tests")
    for _ in range(2):
        run_ci(world, "contributor-token", remote="fork")
        assert "is not a member of the repository" in waiting(world)
    commit = world.github().pull(10).head_sha
    assert commands(world) == [(CONTRIBUTOR, f"/ok to test {commit}")]
    world.github().comment(10, f"/ok to test {commit}")
    run_ci(world, "contributor-token", remote="fork")
    assert waiting(world).startswith("waiting for CI run ")
    assert world.effects() == []


def test_a_strangers_command_neither_stops_ours_nor_counts(opened: World) -> None:
    texts = [f"/ok to test {opened.head()[:length]}" for length in (7, 39, 40)]
    for text in texts:
        opened.github("contributor-token").comment(10, text)
    run_ci(opened, mode="local")
    assert waiting(opened).startswith("waiting for publish")
    run_ci(opened)
    theirs = [(CONTRIBUTOR, text) for text in texts]
    assert commands(opened) == [*theirs, ("release-engineer", f"/ok to test {opened.head()}")]
    assert opened.checks()["CI may test the head commit"] == "passed"
    (check,) = [it for it in opened.said("checks") if it["name"] == "CI may test the head commit"]
    assert CONTRIBUTOR not in check["detail"]
    # What copy-pr-bot answers to a later command of theirs is no answer to ours.
    opened.github("contributor-token").comment(10, text)
    run_ci(opened)
    assert waiting(opened).startswith("waiting for CI run ")
    assert len([author for author, _ in commands(opened) if author != CONTRIBUTOR]) == 1


def test_a_maintainers_command_stops_ours(opened: World, monkeypatch: pytest.MonkeyPatch) -> None:
    maintainer = ("release-engineer", f"/ok to test {opened.head()}")
    opened.github().comment(10, maintainer[1])
    monkeypatch.setattr(PracticeForge, "me", lambda _: "somebody-else")
    run_ci(opened)
    assert commands(opened) == [maintainer]
    assert opened.checks()["CI may test the head commit"] == "passed"


# -- following ----------------------------------------------------------------------------------------------------


def test_a_preview_does_not_wait(opened: World) -> None:
    run_ci(opened)
    begun = opened.now[0]
    assert run_ci(opened, wait=True, mode="preview")["run_state"] not in ("passed", "failed")
    assert opened.now[0] == begun


def test_a_run_is_followed_to_its_end(opened: World, capsys: pytest.CaptureFixture[str]) -> None:
    begun = opened.now[0]
    found = run_ci(opened, wait=True)
    assert found["run_state"] == "failed"
    assert opened.now[0] - begun < 250
    lines = capsys.readouterr().out.splitlines()
    assert 5 < len(lines) < 60
    assert any("in the test queue" in line for line in lines)
    assert waiting(opened).startswith("waiting for a person: CI run ")
    assert "05-golden-values" in opened.said("waiting")[0]["next"]
    # The base image drifts, hangs and breaks tests: the jobs are all in the record.
    jobs = opened.github().jobs(found["run_id"])
    failed = [job for job in jobs if job.conclusion == "failure"]
    assert opened.kept("jobs.csv").count("failure") == len(failed)
    assert opened.checks()["CI passed"] == "waiting"


def test_a_lost_connection_is_retried(opened: World) -> None:
    run_ci(opened)
    opened.forge.fail("runs", Unreachable("HTTP 503"), times=3)
    assert run_ci(opened, wait=True)["run_state"] == "failed"
    opened.forge.fail("runs", Unreachable("HTTP 503"), times=99)
    with pytest.raises(Unreachable, match="HTTP 503"):
        run_ci(opened, wait=True)


def test_a_run_that_does_not_start_is_given_up(opened: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bump_branch, "choose", lambda *_: None)
    begun = opened.now[0]
    assert run_ci(opened, wait=True)["run_state"] == "none"
    assert opened.now[0] - begun < 1200
    assert waiting(opened).endswith("to start")


def test_a_run_without_the_label_is_useless(opened: World) -> None:
    opened.github().remove_label(10, "Run functional tests")
    opened.github().comment(10, f"/ok to test {opened.head()}")
    opened.now[0] += 5
    opened.github().add_label(10, "Run functional tests")
    found = run_ci(opened)
    assert found["run_state"] == "useless"
    assert "started without the label 'Run functional tests'" in waiting(opened)
    assert opened.effects() == []


def test_a_bad_token_is_reported_in_a_preview_and_stops_a_publish(opened: World) -> None:
    run_ci(opened, "expired-token", mode="preview")
    assert "expired or revoked" in opened.said("done")[0]["sentence"]
    with pytest.raises(RunbookError, match="expired or revoked"):
        run_ci(opened, "expired-token")
