"""Megatron-Bridge: a test is quarantined by moving its launch script, and only if the bump is not the cause."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bumping import BRANCH, World
from bumping import decided as decisions
from clones import commit, git

from runbook_lib.bump.run_ci import RunCi, push_round
from runbook_lib.errors import Refused
from runbook_lib.failures import decide, quarantines
from runbook_lib.failures.decide import Triage, open_jobs
from runbook_lib.failures.evidence import Failure
from runbook_lib.failures.failed_jobs import BaseResult, DiagnosedJob
from runbook_lib.failures.step import BrokenTests
from runbook_lib.failures.tracking_issue import review_date
from runbook_lib.golden.bisect_offer import ImageSearches
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM
from runbook_lib.text import edits
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.commits import create_commit, tree_with

FOLDER = "tests/functional_tests/launch_scripts/gb200"
ACTIVE, FLAKY = f"{FOLDER}/active/L0_Launch_a.sh", f"{FOLDER}/flaky/L0_Launch_a.sh"
JOB = "gb200_L0_Launch_a"
TEXT = "#!/bin/bash\n# CI_TIMEOUT=30\necho a\n"
FAILING = BaseResult("failing", "already failing on main")


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    folder = commit(tmp_path / "bridge", {ACTIVE: TEXT, f"{FOLDER}/flaky/.gitkeep": ""})
    git(folder, "update-index", "--chmod=+x", ACTIVE)
    git(folder, "commit", "-qm", "executable")
    return Checkout.open(folder)


def failed(checkout: Checkout, *, kind: Any = "program error", on_base: BaseResult = FAILING, **told: str) -> Triage:
    """The failures of a CI run in which this job failed, and another one."""
    head = git(checkout.path, "rev-parse", "HEAD").strip()
    bump = Bump.parse(tag="26.04-py3", repository=MEGATRON_BRIDGE, decisions=decisions(**told))
    branch: Any = SimpleNamespace(checkout=checkout, start=head, fork=head, bump=bump)
    forge: Any = SimpleNamespace(
        repository="o/r", me=lambda: "me", list_issues=lambda *_: (), search_issues=lambda _: (),
        last_author=lambda *_: "", issue=lambda number: SimpleNamespace(is_open=True),
    )  # fmt: skip
    run: Any = SimpleNamespace(
        branch=branch, bump=bump, source=SimpleNamespace(name="CI run 1", gitlab=False), number=1, attempt=1, url="",
        tested=head, pull_request=SimpleNamespace(github=forge, pull=None),
    )  # fmt: skip
    job, lint = Failure(JOB, "", kind, "It fails."), Failure("Lint", "", "lint", "")
    jobs = (DiagnosedJob(job, on_base=on_base), DiagnosedJob(lint))
    return Triage(run, jobs, (JOB, "Lint"), files=quarantines.GatingFiles({ACTIVE: TEXT}))


def test_a_script_moves_with_its_mode_and_its_reason_and_back(checkout: Checkout) -> None:
    found = failed(checkout, broken=f"{JOB}: it hangs")
    change = decide.decide(found, ImageSearches()).change
    (edit,) = change.edits_with(dict.fromkeys(change.issues, 7))
    comment = f"# Broken: it hangs — see issue #7, review by {review_date()}.\n"
    assert (edit.source, edit.path, edit.after) == (ACTIVE, FLAKY, TEXT.replace("\n", f"\n{comment}", 1))
    assert open_jobs(found, change.edits) == (("Lint",), ())
    assert f"rename from {ACTIVE}\n" in edits.diff([edit])
    start = found.run.branch.start
    made = create_commit(checkout, tree_with(checkout, start, [edit]), [start], "move")
    assert git(checkout.path, "ls-tree", made, FLAKY, ACTIVE).split()[0] == "100755"
    branch: Any = SimpleNamespace(**{**vars(found.run.branch), "start": made})
    (listed,) = quarantines.quarantined_since_fork(branch, made)
    assert (listed.test, listed.issue, listed.reason) == (JOB, 7, "it hangs")
    # A re-enabled script is the former one again, byte for byte.
    back: Any = replace(found, run=SimpleNamespace(**{**vars(found.run), "branch": branch}))
    branch.bump = replace(branch.bump, decisions=decisions(reenable=JOB))
    (edit,) = decide.decide(back, ImageSearches()).change.edits
    assert (edit.source, edit.path, edit.after) == (FLAKY, ACTIVE, TEXT)


@pytest.mark.parametrize(
    ("kind", "state", "asked"),
    [
        ("hang", "failing", [JOB]),
        ("flaky infrastructure", "unknown", [JOB]),
        ("hang", "new", []),
        ("hang", "unknown", []),
    ],
)
def test_only_what_the_bump_did_not_break_may_move(checkout: Checkout, kind: str, state: Any, asked: list[str]) -> None:
    result = BaseResult(state, state)
    found = failed(checkout, kind=kind, on_base=result)
    assert list(decide.open_tests(decide.decide(found, ImageSearches()))) == asked
    assert JOB in (*open_jobs(found)[0], *open_jobs(found)[1])
    named = failed(checkout, kind=kind, on_base=result, broken=f"{JOB}: it hangs")
    if asked:
        assert decide.decide(named, ImageSearches()).change.edits
    else:
        with pytest.raises(Refused, match="quarantines a test only if it also fails on main"):
            decide.decide(named, ImageSearches())


def test_a_job_without_a_script_is_refused(checkout: Checkout) -> None:
    with pytest.raises(Refused, match=r"h100/active/nosuch\.sh and .* do not exist"):
        decide.decide(failed(checkout, broken="nosuch: x"), ImageSearches())


def test_a_red_run_moves_the_script_of_a_job_that_other_changes_break_too(world: World) -> None:
    """Practice with the tests of Megatron-Bridge: its job ``linting`` has a launch script."""
    bridge = replace(MEGATRON_LM, name=MEGATRON_BRIDGE.name, tests=MEGATRON_BRIDGE.tests)
    active, flaky = MEGATRON_BRIDGE.tests.scripts.paths("linting")
    world.commit_on("main", active, TEXT)
    world.forge.break_jobs("linting")
    for name in ("one", "two"):  # what merged has passed the queue, so two other changes must fail
        git(world.remote, "branch", name, "main")
        head = world.commit_on(name, f"{name}.txt", name)
        pull = world.github().open_pull(name, f"practice:{name}", "main", "")
        world.github().comment(pull.number, f"/ok to test {head}")
    world.now[0] += 1000
    git(world.checkout.path, "pull", "-q", "origin", "main")
    world.open_pr(repository=bridge)
    world.run(RunCi(), repository=bridge)
    world.now[0] += 1000
    world.run(BrokenTests(), push_round, repository=bridge)
    assert world.said("decisions")[0]["subject"] == "linting"
    assert world.outcome().startswith("waiting for a person: 1 failed job to decide (linting)")
    decided = "linting: it fails on main too"
    world.run(BrokenTests(), push_round, repository=bridge, broken=decided)
    assert [effect for effect in world.effects() if effect != "edit"] == [
        "issue", "commit", "pull request", "push", "comment",
    ]  # fmt: skip
    number = world.github().list_issues()[-1].number
    moved = git(world.remote, "show", "--format=", "--no-renames", "--name-status", BRANCH).split()
    assert moved == ["D", active, "A", flaky]
    assert f"it fails on main too — see issue #{number}, review by" in git(world.remote, "show", f"{BRANCH}:{flaky}")
    body = world.github().pulls(head=f"practice:{BRANCH}")[0].body
    assert f"### Quarantined tests\n\n- `linting` on `h100`: it fails on main too (tracked by #{number})" in body
    world.now[0] += 1000  # the job fails again, and gates no longer
    world.run(BrokenTests(), push_round, repository=bridge, broken=decided)
    assert "push" not in world.effects()
    assert not world.outcome().startswith("waiting for a person")
