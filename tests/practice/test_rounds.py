"""The practice CI in rounds: what an image, labels, a refresh, a quarantine and a merge change, and what logs tell."""

import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from forging import World, copied

from runbook_lib.clients.github.models import WorkflowJob
from runbook_lib.practice.ci import plan

RECIPES = "tests/test_utils/recipes"
HANG, MEMORY, FLAKY = (
    "gpt/gpt3_mcore_te_tp4_pp1_long", "moe/gpt3_moe_mcore_tp2_ep4_memory", "mimo/mimo_vlm_tp1",
)  # fmt: skip
LABEL = "Run functional tests"
ENDS = {
    ("gpt/gpt3_mcore_te_tp1_pp1", "h100"): "failure",
    ("gpt/gpt3_mcore_te_tp1_pp1", "gb200"): "failure",
    ("gpt/gpt3_mcore_te_tp2_pp2_resume", "h100"): "success",
    (HANG, "h100"): "cancelled",
    ("moe/gpt3_moe_mcore_te_ep8", "h100"): "failure",
    ("moe/gpt3_moe_mcore_te_ep8", "gb200"): "failure",
    (MEMORY, "h100"): "failure",
    ("hybrid/hybrid_mr_tp2_cp2", "h100"): "failure",
    (FLAKY, "h100"): "failure",
    ("gpt/gpt_dynamic_inference_tp1_583m", "h100"): "success",
}


@pytest.fixture
def world(seeded: Path, tmp_path: Path) -> Iterator[World]:
    with copied(seeded, tmp_path) as made:
        yield made


def ends(world: World, run: int) -> dict[tuple[str, str], str]:
    """Test and platform → conclusion of the functional jobs."""
    return {
        (job.name.removesuffix(" - latest"), "gb200" if "use2" in job.runners[0] else "h100"): job.conclusion
        for job in world.forge.jobs(run)
        if re.fullmatch(r"(gpt|moe|hybrid|mimo)/.* - latest", job.name)
    }


def failed(world: World, run: int) -> set[str]:
    return {test for (test, _), conclusion in ends(world, run).items() if conclusion not in ("success", "skipped", "")}


def again(world: World) -> int:
    """A run of what the checkout holds now, when it has ended."""
    world.forge.comment(10, f"/ok to test {world.push()}")
    world.now += 60
    return newest(world)


def newest(world: World) -> int:
    return world.forge.runs(branch="pull-request/10")[0].id


def ended(world: World, *labels: str) -> int:
    """A bump's run that has ended."""
    run = world.tested(*(labels or (LABEL,)))
    world.now += 60
    return run


def uploads(world: World, run: int) -> Iterator[tuple[str, dict[str, bytes]]]:
    """The test case and the files of each artifact."""
    for upload in world.forge.artifacts(run):
        data = world.forge.artifact(upload.id).open(None)  # type: ignore[arg-type]  # nothing is on the web
        with zipfile.ZipFile(io.BytesIO(data.part(0, data.size))) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        yield upload.name.removeprefix("logs-").partition(f"-{run}-")[0], files


def log(world: World, job: WorkflowJob) -> str:
    file = world.forge.log(job.id).open(None)  # type: ignore[arg-type]
    return file.part(0, file.size).decode()


def quarantine(world: World, file: str, case: str) -> None:
    recipe = world.checkout / RECIPES / file
    before, found, after = recipe.read_text().partition(f"[{case}]")
    assert found
    recipe.write_text(before + found + after.replace("[mr, mr-github]", "[mr-broken, mr-github-broken]", 1))


def refresh(world: World, run: int) -> None:
    """Commit what the jobs of a run have measured."""
    for case, files in uploads(world, run):
        for name, content in files.items():
            if name.endswith(".json"):
                (folder,) = (world.checkout / plan.TEST_CASES).glob(f"*/{case}")
                (folder / name).write_bytes(content)


def test_a_new_base_images_effects_on_the_tests(world: World) -> None:
    run = ended(world)
    assert ends(world, run) == ENDS
    units = [job.conclusion for job in world.forge.jobs(run) if job.name.startswith("tests/unit_tests/")]
    assert units == ["success", "success"]


def test_labels_of_the_moment_of_authorization_decide(world: World) -> None:
    run = world.tested()
    world.forge.add_label(10, LABEL)
    world.now += 60
    slim = ends(world, run)
    assert ("gpt/gpt3_mcore_te_tp1_pp1", "h100") in slim
    assert len(slim) < len(ENDS)
    world.forge.add_label(10, "Run tests")
    lightweight = ends(world, again(world))
    assert lightweight.keys() == ENDS.keys()
    assert lightweight["gpt/gpt3_mcore_te_tp1_pp1", "h100"] == "success"  # nothing was compared


def test_a_conflict_stops_at_the_first_job(world: World) -> None:
    sha = world.opened()
    world.push("other", pin="26.03-py3")
    world.controls.hub.home.set_ref("refs/heads/main", world.commit("other"))
    world.forge.comment(10, f"/ok to test {sha}")
    world.now += 60
    assert [job.name for job in world.forge.jobs(newest(world)) if job.conclusion == "failure"] == [
        "configure", "Nemo_CICD_Test",
    ]  # fmt: skip


def test_from_a_red_run_to_a_green_one(world: World) -> None:
    first = ended(world)
    assert failed(world, first) == set(plan.FATES)
    refresh(world, first)
    assert failed(world, again(world)) == {HANG, MEMORY, FLAKY}
    quarantine(world, "h100/gpt.yaml", HANG.rpartition("/")[2])
    quarantine(world, "h100/moe.yaml", MEMORY.rpartition("/")[2])
    third = again(world)
    assert failed(world, third) == {FLAKY}
    assert not {HANG, MEMORY} & {test for test, _ in ends(world, third)}
    world.forge.rerun_failed(third)
    world.now += 60
    assert world.forge.run(third).conclusion == "success"


def test_a_new_push_stops_the_round(world: World) -> None:
    run = world.tested(LABEL)
    world.now += 13
    quarantine(world, "h100/hybrid.yaml", "hybrid_mr_tp2_cp2")
    world.push()
    assert world.forge.run(run).conclusion == "cancelled"
    stopped = [job for job in world.forge.jobs(run) if job.name.startswith((HANG, MEMORY))]
    assert len(stopped) == 2
    for job in stopped:  # what had not happened yet is in no log
        assert log(world, job).splitlines()[-1].endswith("##[error]The operation was canceled.")
        assert "maximum execution time" not in log(world, job)
    for case, files in uploads(world, run):
        if case in (HANG.rpartition("/")[2], MEMORY.rpartition("/")[2]):
            assert not [name for name, text in files.items() if name.endswith(".json") or b"OutOfMemory" in text]
    assert "hybrid/hybrid_mr_tp2_cp2" not in {test for test, _ in ends(world, again(world))}


def test_tests_that_also_fail_on_main(world: World) -> None:
    (run,) = world.forge.runs(branch="main")
    assert (run.status, run.conclusion, run.head_sha) == ("completed", "failure", world.commit("main"))
    assert failed(world, run.id) == set(plan.FAIL_ON_MAIN_TOO) == {MEMORY}
    (memory,) = [files for case, files in uploads(world, run.id) if case == MEMORY.rpartition("/")[2]]
    assert any(b"OutOfMemoryError" in text for text in memory.values())


@pytest.mark.parametrize("refreshed", [False, True])
def test_after_the_merge_ci_tests_the_base(world: World, refreshed: bool) -> None:
    run = ended(world)
    if refreshed:
        refresh(world, run)
        again(world)
    world.controls.merge(10)
    newest = world.forge.runs(branch="main")[0]
    world.now += 60
    drifted = {name for name, cause in plan.FATES.items() if cause in ("drift", "regression")}
    assert failed(world, newest.id) == set(plan.FATES) - (drifted if refreshed else set())
    assert len(world.forge.runs(branch="main")) == 2
