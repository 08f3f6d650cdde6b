"""What a ready bump leaves to people, and what nobody has tested or refreshed."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from bumping import World, bump_to

from runbook_lib.bump import gitlab_tests, people
from runbook_lib.golden.coverage import golden_files
from runbook_lib.text.recipes.file_names import FOLDER
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.github.ci_status import CiStatus
from runbook_lib.world.github.models import WorkflowJob, WorkflowRun

NOW = datetime(2026, 11, 27, tzinfo=UTC)


def test_other_pull_requests_that_the_merge_concerns_are_named() -> None:
    def pull(number: int, head: str) -> Any:
        return SimpleNamespace(number=number, head_ref=head, base_ref="main", url=f"https://x/{number}")

    opened = {
        "pull-request/7": [pull(8, "next")],
        "main": [pull(7, "bump/x"), pull(9, "bump-ci-container-1"), pull(10, "y")],
    }
    files = {7: ("a", "uv.lock"), 9: ("uv.lock",)}
    forge: Any = SimpleNamespace(pulls=lambda base: opened[base], files=files.__getitem__)
    told = list(people._around(forge, opened["main"][0]))
    assert ["#8" in told[0], "#9 changes uv.lock" in told[1], len(told)] == [True, True, 2]


def run(number: int, branch: str, status: str = "completed") -> WorkflowRun:
    return WorkflowRun(number, "", "CI", "a" * 40, branch, status, "success", 1, NOW)


def job(name: str, conclusion: str = "success") -> WorkflowJob:
    return WorkflowJob(1, "", name, "completed", conclusion, None, None)


QUEUED = run(2, "gh-readonly-queue/main/pr-6-abc")
DOCUMENTS = run(5, "gh-readonly-queue/main/pr-5-abc")


@pytest.mark.parametrize(
    ("runs", "jobs", "words"),
    [
        (
            [QUEUED],
            ["unit", "gb200", "gpt/x - latest", "gpt/y - latest"],
            "before it, and gb200, gpt/y - latest (as in CI run 2 of 2026-11-27",
        ),
        ([DOCUMENTS, QUEUED], ["unit", "gb200"], "before it, and gb200 (as in CI run 2"),
        ([DOCUMENTS], [], "is unknown"),
        ([QUEUED], ["unit"], "no other job (CI run 2 of 2026-11-27 there had none)"),
        ([run(3, QUEUED.head_branch, "in_progress"), run(4, "gh-readonly-queue/dev/pr-6-abc")], [], "is unknown"),
    ],
)
def test_what_only_the_merge_queue_will_test_is_named(runs: list[WorkflowRun], jobs: list[str], words: str) -> None:
    forge: Any = SimpleNamespace(
        runs=lambda **_: runs, jobs=lambda number: (job("lint"),) if number == DOCUMENTS.id else tuple(map(job, jobs))
    )
    tested = (job("unit"), job("gb200", "skipped"))
    status = CiStatus("passed", run(1, "pull-request/7"), tested, "")
    pull: Any = SimpleNamespace(base_ref="main")
    (told,) = people._queue(forge, pull, "CI", status, {"gpt/x"})
    assert words in told


def test_golden_values_that_nobody_has_refreshed_have_the_command_that_would(world: World) -> None:
    def told() -> list[str]:
        branch = BumpBranch.find(world.checkout, bump_to())
        return list(gitlab_tests.unrefreshed(branch, branch.fork, branch.start))

    world.open_pr()
    (before,) = told()
    assert "golden files (2 on dgx_h100) of GitLab's scope nightly" in before
    assert "internal-ci.ipynb -r tag 26.04-py3 -r tests nightly" in before
    assert "05-golden-values.ipynb -r tag 26.04-py3 -r source gitlab" in before
    files, rows = gitlab_tests.golden_tests(world.checkout, "main")
    named = [file for row in rows if "nightly" in [scope.value for scope in row.scopes] for file in golden_files(row)]
    nightly = next(file for file in named if file in files)
    world.commit_on("bump/main/dev-26.04-py3", f"{FOLDER}/{nightly}", "{}\n")
    (after,) = told()
    assert "1 golden file (1 on dgx_h100)" in after
