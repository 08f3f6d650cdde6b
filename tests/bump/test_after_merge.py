"""What is left after the merge: in a practice repository whose forge merges and starts both CIs on the base."""

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import gitlab_project
import pytest
from bumping import REPOSITORY, World, after_ci, bump_to, git
from IPython.display import display

from runbook_lib.bump import after_merge
from runbook_lib.bump.after_merge import MergeFacts
from runbook_lib.bump.run import carry_out
from runbook_lib.world.github.ci_status import WORKFLOW
from runbook_lib.world.github.models import WorkflowRun
from runbook_lib.world.ports import World as Outside

RECIPE = "tests/test_utils/recipes/h100/gpt.yaml"


def look(world: World, *, token: bool = True, **parameters: Any) -> MergeFacts:
    """Run step 8 as its notebook does, and return what it found."""
    bump = bump_to(mode="preview", **parameters)
    record = world.step(bump)
    outside = Outside(world.checkout, world.github() if token else None, record)
    found = after_merge.look(outside, bump)
    carry_out(record, after_merge.plan(found, bump), outside, display)
    record.raise_if_failed()
    return found


def outcome(world: World) -> tuple[str, str, str]:
    (kind,) = [kind for kind in ("done", "waiting") if world.said(kind)]
    (said,) = world.said(kind)
    return kind, said["sentence"], said["next"].rpartition("runbooks/")[2].partition(".")[0]


@pytest.fixture
def merged(world: World) -> World:
    """A bump that CI tested, and that was merged just now."""
    after_ci(world)
    world.forge.merge(10)
    return world


def test_without_a_tag_branches_and_quarantines_are_shown(world: World) -> None:
    before = world.state()
    found = look(world, tag="")
    assert (found.merged, found.runs) == ("", ())
    assert {row["branch"]: row["state"] for row in found.branches} == {"dev": "out of sync", "core_r0.1.0": "in sync"}
    assert [test.row.test for test in found.quarantines.tests] == ["gpt/gpt3_mcore_te_tp8_pp1_fp8"]
    assert outcome(world)[0] == "done"
    assert (world.state(), world.effects()) == (before, [])


def test_before_the_merge_the_sync_check_is_next(world: World) -> None:
    world.open_pr()
    found = look(world)
    assert (found.merged, found.runs) == ("", ())
    kind, sentence, following = outcome(world)
    assert (kind, following, "main does not name 26.04-py3 yet" in sentence) == ("done", "07-sync-check", True)


def test_a_running_ci_on_the_base_is_waited_for_and_then_reported(merged: World) -> None:
    before = merged.state()
    found = look(merged)
    assert found.merged == git(merged.remote, "rev-parse", "main")
    assert [run.status for run in found.runs] == ["waiting", "skipped"]
    assert outcome(merged)[0] == "waiting"
    assert "GITLAB_URL" in found.runs[1].detail
    merged.now[0] += 1000
    found = look(merged)
    assert found.runs[0].status == "failed"  # what fails there fails for people to look at, not this step
    kind, sentence, following = outcome(merged)
    assert kind == "done"
    assert "CI of main on GitHub: failed; CI of main on GitLab: skipped" in sentence
    assert following == "investigate-ci"
    assert set(merged.checks().values()) == {"skipped"}
    assert merged.effects() == []
    assert merged.state()[3:] == before[3:]


def test_gitlab_is_queried_if_it_is_configured(merged: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tip = git(merged.remote, "rev-parse", "main")
    with gitlab_project.served({"pipelines": [gitlab_project.pipeline(7, tip, "running")]}, REPOSITORY) as project:
        project.configure(monkeypatch)
        assert [it.status for it in look(merged).runs] == ["waiting", "waiting"]
        merged.now[0] += 1000
        project.replies["pipelines"] = [gitlab_project.pipeline(7, tip, "success")]
        found = look(merged)
        assert found.runs[1].status == "passed"
        assert found.runs[1].detail.startswith(f"Pipeline 7 of {found.merged[:10]}")
        monkeypatch.setenv("GITLAB_TOKEN", "wrong")
        assert (look(merged).runs[1].status, outcome(merged)[0]) == ("skipped", "done")


def test_a_run_that_may_have_tested_documents_only_is_no_verdict_on_the_merge() -> None:
    def runs(head_sha: str) -> list[WorkflowRun]:
        conclusion, branch = "failure" if head_sha == "merge" else "success", "gh-readonly-queue/main/pr-1-x"
        return [WorkflowRun(1, "", WORKFLOW, head_sha, branch, "completed", conclusion, 1, datetime(2026, 4, 1))]

    forge: Any = SimpleNamespace(runs=runs, jobs=lambda _: ())
    assert after_merge.github_run(bump_to(), forge, ["later", "merge"]).status == "failed"
    assert after_merge.github_run(bump_to(), forge, ["later", "older"]).status == "passed"


def test_a_run_of_a_later_commit_counts_as_it_holds_the_merge(merged: World) -> None:
    first = look(merged)
    merged.commit_on("main", ".gitlab/stages/02.yml", "a: 1\n")
    merged.commit_on("main", ".gitlab/stages/02.yml", "a: 2\n")
    found = look(merged)
    assert found.merged == first.merged != found.branch.base_commit
    assert found.runs[0].evidence.links
    asked = after_merge.commits_since(found.branch, found.merged)
    assert asked == git(merged.remote, "rev-list", "--first-parent", f"{first.merged}~1..main").split()
    assert len(asked) == 3


def test_golden_values_that_nobody_refreshed_are_named(merged: World) -> None:
    found = look(merged, token=False)
    assert [it.status for it in found.runs] == ["skipped", "skipped"]
    (nightly,) = [note for note in found.notes if "GitLab's scope nightly" in note]
    assert "internal-ci.ipynb -r tag 26.04-py3 -r tests nightly" in nightly


def test_branches_on_the_old_image_have_the_command_that_bumps_them(merged: World) -> None:
    found = look(merged)
    assert {row["branch"]: (row["state"], row["next"]) for row in found.branches}["dev"] == (
        "older", "environment/run papermill runbooks/bump.ipynb -r tag 26.04-py3 -r base dev",
    )  # fmt: skip
    assert "main" not in {row["branch"] for row in found.branches}


def test_a_branch_without_pins_is_left_out(world: World) -> None:
    other = world.home / "other"
    world.commit_on("dev", "x", "x")
    git(other, "switch", "-q", "--orphan", "core_r0.0.1")
    git(other, "commit", "-q", "--allow-empty", "-m", "old")
    git(other, "push", "-q", "origin", "core_r0.0.1")
    git(world.checkout.path, "fetch", "-q")
    found = look(world, tag="")
    assert {str(row["branch"]) for row in found.branches} == {"dev", "core_r0.1.0"}


def quarantine(world: World, comment: str) -> None:
    text = (world.checkout.path / RECIPE).read_text()
    here = next(line for line in text.splitlines() if "mr-broken" in line)
    world.commit_on("main", RECIPE, text.replace(here, f"        scope: [mr-broken] # {comment}"))


def test_open_quarantines_with_the_state_of_their_issues(world: World) -> None:
    issue = world.github().file_issue("It hangs", "…")
    quarantine(world, f"hangs, see #{issue.number}")

    def shown() -> str:
        (test,) = look(world, tag="").quarantines.tests
        return test.tracker

    assert shown() == f"#{issue.number} open"
    world.forge.close(issue.number)
    assert shown() == f"#{issue.number} closed"
    quarantine(world, "see #99999")
    assert shown().startswith("#99999 cannot be read")


def test_only_gitlab_runs_the_lts_image(merged: World) -> None:
    found = look(merged, image_type="lts")
    assert found.merged == ""
    assert str(found.branches[0]["next"]).endswith("-r image_type lts")
