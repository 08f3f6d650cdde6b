"""Rounds of the practice CI: what a refresh, a quarantine, another attempt and a merge change, and what logs tell."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from forging import REPO, World, copied

from runbook_lib.practice.ci import plan

RECIPES = "tests/test_utils/recipes"
MEMORY, FLAKY = "moe/gpt3_moe_mcore_tp2_ep4_memory", "mimo/mimo_vlm_tp1"
LABEL = "Run functional tests"


@pytest.fixture
def world(seeded: Path, tmp_path: Path) -> Iterator[World]:
    with copied(seeded, tmp_path) as made:
        yield made


def failed(world: World, run: int) -> set[str]:
    """The functional tests, and other jobs, that did not pass."""
    names = {it["name"] for it in world.jobs(run) if it["conclusion"] not in ("success", "skipped", None)}
    return {name.removesuffix(" - latest") for name in names} - {"Nemo_CICD_Test"}


def ran(world: World, run: int) -> set[str]:
    return {it["name"].removesuffix(" - latest") for it in world.jobs(run) if it["conclusion"] != "skipped"}


def ended(world: World, *labels: str) -> int:
    """A bump's run that has ended."""
    _, run = world.authorized(*(labels or (LABEL,)))
    world.clock.now += 60
    return run


def again(world: World) -> int:
    """A run of what the checkout holds now, when it has ended."""
    world.comment(10, f"/ok to test {world.push()}")
    world.clock.now += 60
    return int(world.runs()[0]["id"])


def unpacked(world: World, run: int, test: str) -> dict[str, str]:
    """The members of the artifact of a test on H100."""
    found = []
    for it in world.get(f"{REPO}/actions/runs/{run}/artifacts?per_page=100")["artifacts"]:
        if it["name"].startswith(f"logs-{test.rpartition('/')[2]}-"):
            data = world.call("GET", it["archive_download_url"], follow_redirects=True).content
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                found.append({name: archive.read(name).decode() for name in archive.namelist()})
    return next(it for it in found if not any("gb200" in name for name in it))


def log(world: World, run: int, name: str) -> str:
    job = next(it["id"] for it in world.jobs(run) if it["name"].startswith(name) and it["conclusion"] != "skipped")
    return world.call("GET", f"{REPO}/actions/jobs/{job}/logs", follow_redirects=True).text


def quarantine(world: World, file: str, case: str) -> None:
    recipe = world.checkout / RECIPES / file
    before, found, after = recipe.read_text().partition(f"[{case}]")
    assert found
    recipe.write_text(before + found + after.replace("[mr, mr-github]", "[mr-broken, mr-github-broken]", 1))


def refresh(world: World, run: int) -> None:
    """Commit what the failed jobs of a run have measured."""
    for it in world.get(f"{REPO}/actions/runs/{run}/artifacts?per_page=100")["artifacts"]:
        data = world.call("GET", it["archive_download_url"], follow_redirects=True).content
        case = it["name"].removeprefix("logs-").partition(f"-{run}-")[0]
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    (folder,) = (world.checkout / plan.TEST_CASES).glob(f"*/{case}")
                    (folder / name).write_bytes(archive.read(name))


# -- rounds ------------------------------------------------------------------------------------------------------


def test_from_a_red_run_to_a_green_one(world: World) -> None:
    first = ended(world)
    assert failed(world, first) == set(plan.FATES)
    refresh(world, first)
    second = again(world)
    assert failed(world, second) == {"gpt/gpt3_mcore_te_tp4_pp1_long", MEMORY, FLAKY}
    quarantine(world, "h100/gpt.yaml", "gpt3_mcore_te_tp4_pp1_long")
    quarantine(world, "h100/moe.yaml", MEMORY.rpartition("/")[2])
    third = again(world)
    assert failed(world, third) == {FLAKY}
    assert ran(world, second) - ran(world, third) == {"gpt/gpt3_mcore_te_tp4_pp1_long", MEMORY}
    world.post(f"{REPO}/actions/runs/{third}/rerun-failed-jobs", None)
    world.clock.now += 60
    assert world.run(third)["conclusion"] == "success"


def test_a_new_push_stops_the_round(world: World) -> None:
    _, run = world.authorized(LABEL)
    world.clock.now += 13
    quarantine(world, "h100/hybrid.yaml", "hybrid_mr_tp2_cp2")
    world.push()
    assert world.run(run)["conclusion"] == "cancelled"
    for name in ("gpt/gpt3_mcore_te_tp4_pp1_long", MEMORY):  # what had not happened yet is in no log
        assert log(world, run, name).splitlines()[-1].endswith("##[error]The operation was canceled.")
        assert "maximum execution time" not in log(world, run, name)
        members = unpacked(world, run, name)
        assert not [path for path, text in members.items() if path.endswith(".json") or "OutOfMemory" in text]
    assert "hybrid/hybrid_mr_tp2_cp2" not in ran(world, again(world))


# -- main --------------------------------------------------------------------------------------------------------


def test_tests_that_also_fail_on_main(world: World) -> None:
    (run,) = world.runs(branch="main")
    assert (run["event"], run["status"], run["conclusion"]) == ("workflow_dispatch", "completed", "failure")
    assert run["head_sha"] == world.git("rev-parse", "origin/main")
    assert run["actor"]["login"] == "github-actions[bot]"
    assert failed(world, run["id"]) == set(plan.FAIL_ON_MAIN_TOO) == {MEMORY}
    assert "gpt/gpt3_mcore_te_tp1_pp1" in ran(world, run["id"])
    assert "push" not in {run["event"] for run in world.runs(branch="main")}
    assert world.runs(branch="main", event="workflow_dispatch", head_sha=run["head_sha"], status="failure") == [run]
    assert any("OutOfMemoryError" in text for text in unpacked(world, run["id"], MEMORY).values())


@pytest.mark.parametrize("refreshed", [False, True])
def test_after_the_merge_ci_tests_the_base(world: World, refreshed: bool) -> None:
    run = ended(world)
    if refreshed:
        refresh(world, run)
        again(world)
    tip = world.forge.merge(10)
    newest = world.runs(branch="main")[0]
    assert (newest["head_sha"], newest["status"]) == (tip, "in_progress")
    world.clock.now += 60
    drifted = {name for name, cause in plan.FATES.items() if cause in ("drift", "regression")}
    expected = set(plan.FATES) - (drifted if refreshed else set())
    assert failed(world, newest["id"]) == expected
    assert len(world.runs(branch="main")) == 2
