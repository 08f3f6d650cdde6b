"""The practice CI as pure functions: which jobs, when, and what they measure."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.git.blobs import read_blobs
from runbook_lib.practice import content
from runbook_lib.practice.ci import measure, plan
from runbook_lib.practice.git import BareRepository
from runbook_lib.recipes import rows
from runbook_lib.recipes.ci_selection import select_tests

TREE = content.main()
RECIPES = {path: text for path, text in TREE.items() if path.startswith(rows.FOLDER)}
GOLDEN = {path: text for path, text in TREE.items() if path.startswith(plan.TEST_CASES) and path.endswith(".json")}
FUNCTIONAL = frozenset({"Run functional tests"})
OLD, NEW = "nvcr.io/nvidia/pytorch:26.02-py3", "nvcr.io/nvidia/pytorch:26.04-py3"
BUMP = plan.Situation(FUNCTIONAL, True, 20.0, NEW, OLD, RECIPES, GOLDEN, GOLDEN)
BEFORE = replace(BUMP, image=OLD)
PLANNED = plan.plan(BUMP)


def jobs(at: plan.Situation, conclusion: str) -> set[str]:
    return {
        f"{job.name.removesuffix(' - latest')} {job.platform}" for job in plan.plan(at) if job.conclusion == conclusion
    }


# -- which tests ----------------------------------------------------------------------------------------------------


def selected(*products: str, scopes: tuple[str, ...] = ("mr-github",), platform: str = "dgx_h100") -> list[str]:
    text = "spec: {model: gpt, platforms: dgx_h100}\nproducts:\n" + "".join(f"  - {each}\n" for each in products)
    found = rows.rows("a.yaml", text)
    return [row.case for row in plan.select(found, scopes, platform)]


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        ("{test_case: [a]}", []),
        ("{test_case: [a], products: [{environment: [dev], scope: []}]}", []),
        ("{test_case: [a, b], products: [{environment: [dev], scope: [mr-github]}]}", ["a"]),
        ("{test_case: [a], products: [{environment: [lts], scope: [mr-github]}]}", []),
        ("{test_case: [a], products: [{environment: [dev], scope: [mr-github-broken]}]}", []),
        ("{test_case: [a], products: [{environment: [dev], scope: [mr-github-slim]}]}", []),
        ("{test_case: [a], products: [{environment: [dev], scope: [mr-github], platforms: [dgx_a100]}]}", []),
    ],
)
def test_selection_is_equality(product: str, expected: list[str]) -> None:
    assert selected(product) == expected


def test_the_real_recipes(megatron_lm: Path) -> None:
    """The numbers that were counted in the repository at that commit."""
    commit = "d98e8a64ddf34856e74b24714e3bedb2f5a39553"
    found, problems = rows.read_all(BareRepository(megatron_lm).texts(commit, rows.FOLDER))
    assert not problems
    counts = {}
    for scope in ("mr-github-slim", "mr-github"):
        counts[scope] = [len(plan.select(found, [scope], "dev", platform)) for platform in ("dgx_h100", "dgx_gb200")]
    assert (sum(counts["mr-github-slim"]), counts["mr-github"]) == (12, [77, 31])


def test_name_and_labels_are_those_of_the_real_workflow(megatron_lm: Path) -> None:
    blob = read_blobs(megatron_lm, [("d98e8a64ddf3", plan.WORKFLOW_PATH)])["d98e8a64ddf3", plan.WORKFLOW_PATH]
    assert blob is not None
    assert f"name: {plan.WORKFLOW}\n" in blob[1]
    for event in ("push", "merge_group", "schedule", "workflow_dispatch"):
        for labels in (set(), FUNCTIONAL, {"Run tests"}, {"container::lts"}, {"Run MBridge tests", "bug"}):
            assert select_tests(labels, event) == select_tests(labels, event, workflow=blob[1]), (event, labels)


# -- what becomes of them -------------------------------------------------------------------------------------------


def test_without_a_new_image_all_is_well() -> None:
    assert jobs(BEFORE, "failure") == {f"{name} dgx_h100" for name in plan.FAIL_ON_MAIN_TOO} | {"Nemo_CICD_Test "}
    assert {job.conclusion for job in plan.plan(replace(BEFORE, labels=frozenset()))} == {"success"}


def test_a_new_image_breaks_what_it_is_to_break() -> None:
    caused = {f"{job.model}/{job.test_case}": job.cause for job in PLANNED if job.cause}
    assert caused == plan.FATES
    assert jobs(BUMP, "cancelled") == {"gpt/gpt3_mcore_te_tp4_pp1_long dgx_h100"}
    assert PLANNED[-1].name == "Nemo_CICD_Test"
    assert PLANNED[-1].conclusion == "failure"
    assert PLANNED[-1].ends == pytest.approx(20.0)


def test_refreshed_values_pass_and_broken_ones_do_not() -> None:
    new: dict[str, str] = {}
    for job in (job for job in PLANNED if job.measures):
        new |= plan.measured(BUMP, job)
    refreshed = replace(BUMP, golden=GOLDEN | new)
    assert jobs(refreshed, "failure") == {
        "moe/gpt3_moe_mcore_tp2_ep4_memory dgx_h100", "mimo/mimo_vlm_tp1 dgx_h100", "Nemo_CICD_Test "
    }  # fmt: skip
    path = f"{plan.TEST_CASES}/gpt/gpt3_mcore_te_tp2_pp2_resume/golden_values_dev_dgx_h100_2nd.json"
    spoilt = replace(BEFORE, golden=GOLDEN | {path: GOLDEN[path].replace("10.", "11.")})
    assert "gpt/gpt3_mcore_te_tp2_pp2_resume dgx_h100" in jobs(spoilt, "failure")


@pytest.mark.parametrize("maintainer", [True, False])
def test_gb200_is_for_maintainers(maintainer: bool) -> None:
    platforms = {job.platform for job in plan.plan(replace(BEFORE, maintainer=maintainer)) if job.test_case}
    assert ("dgx_gb200" in platforms) == maintainer


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


# -- what is seen when ----------------------------------------------------------------------------------------------


@given(st.floats(0, 30), st.floats(0, 30), st.none() | st.floats(0, 30))
def test_time_only_adds(first: float, second: float, cancelled: float | None) -> None:
    early, late = sorted((first, second))
    states = {"queued": 0, "waiting": 1, "in_progress": 1, "completed": 2}
    for job in PLANNED:
        before, after = (plan.job_at(job, 1000.0, 1000.0 + now, _stop(cancelled, now)) for now in (early, late))
        if before is not None:
            assert after is not None
            assert states[before.status] <= states[after.status]
        if before is not None and before.status == "completed":
            assert before == after
    for now in (early, late):
        stop = _stop(cancelled, now)
        run = plan.run_at(PLANNED, 1000.0, 1000.0 + now, stop)
        listed = [seen for job in PLANNED if (seen := plan.job_at(job, 1000.0, 1000.0 + now, stop))]
        if run.status == "completed":
            assert {seen.status for seen in listed} == {"completed"}
        assert (run.status == "completed") == (run.conclusion is not None)
        assert plan.changed_at(PLANNED, 1000.0, 1000.0 + now) <= 1000.0 + now


def _stop(cancelled: float | None, now: float) -> float | None:
    # Nobody knows of a cancellation before it happens.
    return None if cancelled is None or cancelled > now else 1000.0 + cancelled


def test_the_second_attempt() -> None:
    second = plan.retry(PLANNED, 100.0)
    assert len(second) == len(PLANNED)
    kept = [job for job in second if job.ends < 0]
    assert {job.conclusion for job in kept} == {"success"}
    assert {job.name for job in second if job.ends >= 0 and job.conclusion == "success"} == {
        "mimo/mimo_vlm_tp1 - latest"
    }
    assert plan.run_at(second, 1000.0, 1000.0).status == "in_progress"
    assert plan.run_at(second, 1000.0, 1020.0).conclusion == "failure"


# -- what is measured -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(GOLDEN))
def test_kinds_of_change(path: str) -> None:
    old = GOLDEN[path]
    assert measure.agrees(old, measure.remeasure(old, "same", path))
    if "lm loss" not in old:
        return
    drifted, diverged = measure.remeasure(old, "drift", path), measure.remeasure(old, "regression", path)
    assert not measure.agrees(old, drifted)
    assert not measure.agrees(old, diverged)
    losses = [list(json.loads(text)["lm loss"]["values"].values()) for text in (old, drifted, diverged)]
    relative = [[abs(new / value - 1) for new, value in zip(series, losses[0], strict=True)] for series in losses]
    assert 1e-5 < max(relative[1]) < 0.01
    assert max(relative[2]) > 0.5
    assert relative[2][0] == 0
