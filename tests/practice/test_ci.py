"""The practice CI as pure functions: which jobs, when, and what they measure."""

from dataclasses import replace
from pathlib import Path

import pytest

from runbook_lib.git.blobs import read_blobs
from runbook_lib.practice import content
from runbook_lib.practice.ci import plan
from runbook_lib.practice.git import BareRepository
from runbook_lib.recipes import rows
from runbook_lib.recipes.ci_selection import select_tests

TREE = content.main()
RECIPES = {path: text for path, text in TREE.items() if path.startswith(rows.FOLDER)}
GOLDEN = {path: text for path, text in TREE.items() if path.startswith(plan.TEST_CASES) and path.endswith(".json")}
FUNCTIONAL = frozenset({"Run functional tests"})
OLD, NEW = "nvcr.io/nvidia/pytorch:26.02-py3", "nvcr.io/nvidia/pytorch:26.04-py3"
BUMP = plan.Situation(FUNCTIONAL, True, 20.0, NEW, OLD, RECIPES, GOLDEN, GOLDEN)


# -- which tests ----------------------------------------------------------------------------------------------------


def test_the_real_recipes(megatron_lm: Path) -> None:
    """The numbers that were counted in the repository at that commit."""
    commit = "d98e8a64ddf34856e74b24714e3bedb2f5a39553"
    git = megatron_lm / ".git"
    repository = BareRepository(git if git.is_dir() else megatron_lm)
    found, problems = rows.read_all(repository.texts(commit, rows.FOLDER))
    assert not problems
    counts = {}
    for scope in ("mr-github-slim", "mr-github"):
        counts[scope] = [len(plan.select(found, [scope], platform)) for platform in ("dgx_h100", "dgx_gb200")]
    assert (sum(counts["mr-github-slim"]), counts["mr-github"]) == (12, [77, 31])


def test_name_and_labels_are_those_of_the_real_workflow(megatron_lm: Path) -> None:
    blob = read_blobs(megatron_lm, [("d98e8a64ddf3", plan.WORKFLOW_PATH)])["d98e8a64ddf3", plan.WORKFLOW_PATH]
    assert blob is not None
    assert f"name: {plan.WORKFLOW}\n" in blob[1]
    for event in ("push", "merge_group", "schedule", "workflow_dispatch"):
        for labels in (set(), FUNCTIONAL, {"Run tests"}, {"container::lts"}, {"Run MBridge tests", "bug"}):
            assert select_tests(labels, event) == select_tests(labels, event, workflow=blob[1]), (event, labels)


# -- what becomes of them -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "last", "skipped"),
    [
        (replace(BUMP, conflict=True), "configure", "cicd-wait-in-queue"),
        (replace(BUMP, refused=True), "cicd-wait-in-queue", "cicd-container-build / Build CI container"),
        (replace(BUMP, broken=frozenset({"linting"})), "linting", "cicd-wait-in-queue"),
        (
            replace(BUMP, broken=frozenset({"cicd-container-build"})),
            "cicd-container-build / Build CI container",
            "${{ matrix.bucket }} - latest",
        ),
        (
            replace(BUMP, broken=frozenset({"tests/unit_tests/models/"})),
            "tests/unit_tests/models/ - latest",
            "${{ matrix.model }}/${{ matrix.test_case }} - latest",
        ),
    ],
)
def test_parts_that_need_a_failed_job_are_skipped(at: plan.Situation, last: str, skipped: str) -> None:
    planned = plan.plan(at)
    assert [job.name for job in planned if job.conclusion == "failure"] == [last, "Nemo_CICD_Test"]
    assert skipped in {job.name for job in planned if job.conclusion == "skipped"}
    assert not [job.name for job in planned if job.kind == "functional" and job.test_case]
    assert len({(job.name, job.platform) for job in planned}) == len(planned)
    assert plan.retry(planned, 60.0)[-1].conclusion == "failure"
