"""Megatron-Bridge: a test is quarantined by moving its launch script, and only if the bump is not the cause."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bumping import decided as decisions
from clones import commit, git

from runbook_lib.errors import Refused
from runbook_lib.failures import quarantines
from runbook_lib.failures.base_branch import BaseResult
from runbook_lib.failures.broken_tests import decide, quarantine
from runbook_lib.failures.broken_tests.failures import Triage, open_jobs
from runbook_lib.failures.broken_tests.issue import review_date
from runbook_lib.failures.failed_jobs import DiagnosedJob
from runbook_lib.failures.failure import Failure
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.commit_changes import expected_changes, tree_changes
from runbook_lib.git.commits import create_commit, tree_with
from runbook_lib.golden.bisect_offer import ImageSearches
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import MEGATRON_BRIDGE
from runbook_lib.text import edits

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
    found = failed(checkout, broken=f"{JOB}: it hangs, see #7")
    change = decide.decide(found, ImageSearches()).change
    (edit,) = change.edits
    comment = f"# Broken: it hangs — see issue #7, review by {review_date()}.\n"
    assert (edit.source, edit.path, edit.after) == (ACTIVE, FLAKY, TEXT.replace("\n", f"\n{comment}", 1))
    assert open_jobs(found, change.edits) == (("Lint",), ())
    assert f"rename from {ACTIVE}\n" in edits.diff([edit])
    start = found.run.branch.start
    made = create_commit(checkout, tree_with(checkout, start, [edit]), [start], "move")
    assert tree_changes(checkout, start, made) == expected_changes(checkout, start, [edit])
    assert git(checkout.path, "ls-tree", made, FLAKY, ACTIVE).split()[0] == "100755"
    branch: Any = SimpleNamespace(**{**vars(found.run.branch), "start": made})
    (listed,) = quarantines.quarantined_since_fork(branch)
    assert (listed["test"], listed["issue"], listed["reason"]) == (JOB, 7, "it hangs")
    told = f"### Quarantined tests\n\n- `{JOB}` on `gb200`: it hangs (tracked by #7)"
    assert told in quarantine.text([listed], found)
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
    assert list(decide.open_tests(found, decide.decide(found, ImageSearches()))) == asked
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
