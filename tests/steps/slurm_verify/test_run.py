"""A matrix of tests on a real Slurm of two nodes: each diagnosed, its golden values judged; restarted; cancelled."""

import json
import os
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import slurm_repository
from slurm_cluster import Cluster, cluster

from runbook_lib.bump import Bump
from runbook_lib.errors import Refused, RunbookError, Unreachable
from runbook_lib.git.checkout import Checkout
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner import execute as run
from runbook_lib.slurm.client import Slurm
from runbook_lib.slurm.outcome import MatrixOutcome
from runbook_lib.slurm.site import Site
from runbook_lib.slurm.states import ArrayElement, elements
from runbook_lib.steps.slurm_verify import plan as slurm_plan
from runbook_lib.steps.slurm_verify import run as slurm_verify
from runbook_lib.steps.slurm_verify.plan import Plan
from runbook_lib.workflow import bump_branch

ROOT = Path(__file__).resolve().parents[3]
TAG = "26.04-py3"
needs_slurm = pytest.mark.component("slurm")


class World:
    """A checkout, a folder for results and the commands of Slurm."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.checkout = Checkout.open(slurm_repository.create(folder / "checkout"))
        self.site = Site(str(self.checkout.path), str(folder / "results"), shared=True)
        self.env, self.slurm = env, Slurm({**os.environ, **env})
        self.steps = 0

    def plan(self, *, apply: bool = True, tag: str = TAG, site: Site | None = None, **asked: str) -> Plan:
        bump = Bump.parse(tag=tag, apply=apply)
        branch = bump_branch.find(self.checkout, bump)
        return slurm_plan.make(branch, site or self.site, slurm=self.slurm, **{"platform": "dgx_h100", **asked})

    def step(self, plan: Plan) -> StepRecord:
        self.steps += 1
        folder = self.folder / f"record-{self.steps}"
        folder.mkdir()
        return StepRecord("slurm-verify", plan.branch.bump, "o/n", folder)

    def go(self, plan: Plan, **how: bool) -> tuple[dict[str, MatrixOutcome], list[dict[str, Any]]]:
        """Carry out, follow and verify: the outcomes by test, and what the record holds."""
        step = self.step(plan)
        done = slurm_verify.carry_out(step, plan, cancel=how.get("cancel", False), say=lambda _: None)
        found = slurm_verify.follow(step, done, sleep=lambda _: time.sleep(0.2), say=lambda _: None, **how)
        slurm_verify.verify(step, done, found)
        assert step.folder is not None
        lines = (step.folder / "contributions.jsonl").read_text().splitlines()
        self.shown = found.show().text
        return {it.now.entry.test.case: it for it in found.outcomes}, [json.loads(it) for it in lines]


def of(kind: str, told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [it for it in told if it["kind"] == kind]


@pytest.fixture(scope="module")
def real() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


Begun = tuple[World, dict[str, MatrixOutcome], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def begun(real: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Begun:
    """A matrix that is submitted before the other tests here, since one of its tests runs into its time limit."""
    world = World(tmp_path_factory.mktemp("matrix"), real.environment)
    return (world, *world.go(world.plan()))


@pytest.fixture
def world(real: Cluster, begun: Begun, tmp_path: Path) -> World:
    return World(tmp_path, real.environment)


@pytest.fixture
def alone(tmp_path: Path) -> World:
    """Without a cluster."""
    return World(tmp_path, {"PATH": str(tmp_path)})


# -- nothing to do -----------------------------------------------------------------------------------------------


def test_without_a_folder_for_results_nothing_is_planned(alone: World) -> None:
    plan = alone.plan(site=replace(alone.site, results=""))
    assert plan.show().text.startswith("No folder for results was given")
    found, told = alone.go(plan)
    assert found == {}
    assert of("effect", told) == []
    assert {it["status"] for it in of("check", told)} == {"skipped"}
    assert alone.slurm.calls.total() == 0


@needs_slurm
@pytest.mark.parametrize(("tag", "apply"), [(TAG, False), ("", True), ("", False)])
def test_a_preview_writes_and_submits_nothing(world: World, tag: str, apply: bool) -> None:
    plan = world.plan(tag=tag, apply=apply)
    assert "runbook-0-2x2-" in plan.show().text
    assert "srun --ntasks" in plan.files().text
    _, told = world.go(plan)
    assert of("effect", told) == []
    assert not (world.folder / "results").exists()
    assert not {"sbatch", "scancel"} & world.slurm.calls.keys()
    assert [it["sentence"][:26] for it in of("planned", told)] == ["submit 7 tests to Slurm as"] * bool(tag)


# -- found before submitting --------------------------------------------------------------------------------------


@needs_slurm
def test_a_test_that_cannot_run_is_left_out_and_told(world: World) -> None:
    plan = world.plan()
    assert [it.test.case for it in plan.fresh] == list(slurm_repository.CASES)
    (held,) = plan.held
    assert held.obstacle.startswith("WORLD_SIZE is 4, which is no multiple of 8 (TP 8")
    assert "see least-gpus" in held.obstacle
    assert "wide" in plan.show().text
    _, told = world.go(world.plan(apply=False))
    assert any(
        it["sentence"].startswith("Left out: gpt/wide@dgx_h100 (dev). WORLD_SIZE is 4") for it in of("warning", told)
    )
    every = replace(plan, chosen=tuple(replace(it, obstacle="So.") for it in plan.chosen))
    assert every.left_out == (
        ("gpt/good@dgx_h100 (dev), gpt/drift@dgx_h100 (dev), gpt/oom@dgx_h100 (dev) and 5 more", "So."),
    )
    assert world.plan(site=replace(world.site, least_gpus=4)).held == ()
    whole = world.plan(site=replace(world.site, least_gpus=8))  # all that the nodes of this cluster have
    assert ["#SBATCH --exclusive" in it.files().text for it in (plan, whole)] == [False, True]


@needs_slurm
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"partitions": {"": "gone"}}, "The cluster has no partition gone for you. It has: batch."),
        ({"least_gpus": 64}, "The nodes of batch have 8 GPUs, and gpt/good@dgx_h100 (dev) needs 64."),
        ({"image": "a b"}, "contains white space"),
        ({"image": "/a.sqsh"}, "Pyxis is not installed"),
        ({"options": ("--nodes=9",)}, "--nodes follows from the recipe"),
    ],
)
def test_what_the_cluster_lacks_is_told_before_anything_is_submitted(
    world: World, change: dict[str, Any], says: str
) -> None:
    plan = world.plan(site=replace(world.site, **change))
    assert any(says in it for it in plan.problems), plan.problems
    assert says in plan.show().text
    with pytest.raises(Refused):
        world.go(plan)
    assert not world.slurm.calls["sbatch"]
    _, told = world.go(world.plan(site=replace(world.site, **change), apply=False))
    assert of("planned", told) == []
    assert any(says in it["sentence"] for it in of("warning", told))
    assert all(it["detail"].startswith("Apply would be refused.") and says in it["detail"] for it in of("check", told))


@needs_slurm
def test_data_that_the_container_will_not_have_is_told(world: World) -> None:
    recipe = world.checkout.path / "tests/test_utils/recipes/h100/gpt.yaml"
    recipe.write_text(recipe.read_text().replace("set -e", "ls /mnt/artifacts"))
    world.checkout.git("commit", "-q", "-a", "-m", "two")
    site = replace(world.site, image="/a.sqsh")
    assert world.plan(site=site).problems[0].startswith("The test reads /mnt/artifacts, and nothing is mounted there.")
    plan = world.plan(site=replace(site, mounts=((str(world.folder), "/mnt/artifacts"),)))
    assert not any("/mnt/artifacts" in it for it in plan.problems)


@needs_slurm
def test_a_missing_environment_and_a_path_of_one_machine_are_told(world: World) -> None:
    (world.checkout.path / ".venv").rmdir()
    plan = world.plan(site=replace(world.site, results="/dev/shm/runbook", shared=False))
    assert any(it.endswith("Run `uv sync` there once, or name an image.") for it in plan.problems)
    assert any(it.startswith("/dev/shm/runbook is on /dev/shm (tmpfs)") for it in plan.problems)


def test_a_script_that_needs_a_container_is_told_without_an_image(alone: World) -> None:
    recipe = alone.checkout.path / "tests/test_utils/recipes/h100/gpt.yaml"
    recipe.write_text(recipe.read_text().replace("set -e", "cd /opt/megatron-lm"))
    alone.checkout.git("commit", "-q", "-a", "-m", "two")
    problem, _ = alone.plan().problems
    assert problem.endswith("Name the image that was built.")
    plans = [alone.plan(site=replace(alone.site, image=image)) for image in ("/a.sqsh", "/b.sqsh")]
    assert len({it.base for it in plans}) == 2  # what one image did says nothing of the other


def test_a_work_tree_that_is_not_at_the_commit_is_told(alone: World) -> None:
    alone.checkout.git("branch", f"bump/main/dev-{TAG}")
    assert alone.plan().warnings == ()
    (alone.checkout.path / "train.py").write_text("changed\n")
    assert "with what is uncommitted there" in alone.plan().warnings[0]


def test_a_bump_that_has_no_commit_yet_is_told(alone: World) -> None:
    (told,) = alone.plan().warnings
    assert told.startswith(
        f"The branch bump/main/dev-{TAG} does not exist yet: the tests and golden values are those of"
    )
    assert alone.plan(tag="").warnings == ()


def test_a_machine_without_slurm_is_told(alone: World) -> None:
    assert "sinfo is not installed" in " ".join(alone.plan().problems)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"tests": "nightly"}, "No recipe has the scope or the test 'nightly'"),
        ({"tests": "god"}, "Did you mean good"),
        ({"platform": "dgx_gb200"}, "bump runs on dgx_h100 (dev), and not on dgx_gb200 (dev)"),
        ({"tests": "good", "again": "oom"}, "again names oom, which is no test that is chosen here"),
    ],
)
def test_what_does_not_exist_is_refused(alone: World, asked: dict[str, str], says: str) -> None:
    with pytest.raises(Refused) as error:
        alone.plan(**asked)
    assert says in str(error.value)


@needs_slurm
def test_one_test_that_cannot_run_here_is_held_and_the_others_go_on(world: World) -> None:
    folder = world.checkout.path / "tests/test_utils/recipes/h100"
    text = (folder / "gpt.yaml").read_text()
    rows = "products:\n- test_case: [good]\n  products:\n  - {environment: [dev], scope: [mr-github]}\n"
    big = text.partition("products:\n")[0].replace("gpus: 2", "gpus: 64") + rows
    (folder / "big.yaml").write_text(big.replace("model: gpt", "model: bert"))
    (folder / "inside.yaml").write_text(big.replace("set -e", "cd /opt/megatron-lm").replace("model: gpt", "model: t5"))
    (folder / "twice.yaml").write_text(text.partition("products:\n")[0] + rows)
    world.checkout.git("add", "-A")
    world.checkout.git("commit", "-q", "-m", "two")
    plan = world.plan(tests="good")
    assert [f"{it.test.model}/{it.test.case}" for it in plan.fresh] == ["gpt/good"]
    assert plan.problems == ()
    assert {it.test.model: it.obstacle.partition(",")[0] for it in plan.held} == {
        "bert": "The nodes of batch have 8 GPUs",
        "t5": "The test's script works in /opt/megatron-lm",
        "gpt": "A row before it has the same name.",
    }


@needs_slurm
def test_more_calls_than_a_matrix_should_take_are_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runbook_lib.steps.slurm_verify.plan.CALLS", 0)
    assert "so much that 1 arrays are needed, each a call of sbatch." in " ".join(world.plan(tests="good").warnings)


@needs_slurm
def test_an_image_and_mounts_that_are_not_there_are_told(world: World) -> None:
    site = replace(world.site, image="/no/such.sqsh", mounts=(("/no/data", "/data"), (str(world.folder), "/x")))
    for shared in (False, True):
        plan = world.plan(site=replace(site, shared=shared))
        told = plan.warnings if shared else plan.problems
        assert [it.split()[0] for it in told if "does not exist on this machine" in it] == ["/no/such.sqsh", "/no/data"]


# -- on the cluster ------------------------------------------------------------------------------------------------


@needs_slurm
def test_cancel_and_then_again(world: World) -> None:
    world.go(world.plan(tests="hang,good"))
    found, told = world.go(world.plan(tests="hang,good"), cancel=True, wait=True)
    assert found["hang"].failure is not None
    assert found["hang"].failure.cause.startswith("The job was cancelled")
    (effect,) = of("effect", told)
    assert "on Slurm" in effect["target"]
    found, told = world.go(world.plan(tests="hang,good,drift"), cancel=True)  # ends, and submits nothing
    assert (found.keys(), of("effect", told)) == ({"hang", "good"}, [])
    plan = world.plan(tests="good,hang", again="good")
    assert [it.test.case for it in plan.fresh] == ["good"]
    found, told = world.go(plan)
    assert len(of("effect", told)) == 1
    again, _ = world.go(world.plan(tests="good"), wait=True)
    assert (again["good"].word, again["good"].now.entry.round) == ("passed", 2)
    assert [it.test.case for it in world.plan(tests="good,hang", again="failed").fresh] == ["hang"]


@needs_slurm
def test_what_a_killed_run_had_planned_is_submitted_by_the_next(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    plan = world.plan(tests="good")
    with monkeypatch.context() as context:
        context.setattr("runbook_lib.slurm.follow.submit", killed)
        with pytest.raises(KeyboardInterrupt):
            world.go(plan)
    preview, told = world.go(world.plan(tests="good", apply=False))
    assert preview == {}
    assert len(of("planned", told)) == 1
    found, told = world.go(world.plan(tests="good"), wait=True)
    assert found["good"].word == "passed"
    assert (len(of("effect", told)), world.slurm.calls["sbatch"]) == (1, 1)


@needs_slurm
def test_what_slurm_refuses_is_rendered_anew_from_what_is_given_next(world: World) -> None:
    # Nothing knows before sbatch that this quality of service does not exist.
    with pytest.raises(Refused, match="sbatch"):
        world.go(world.plan(tests="good", site=replace(world.site, options=("--reservation=gone",))))
    plan = world.plan(tests="good")
    assert [it.test.case for it in plan.fresh] == ["good"]
    assert "--reservation" not in plan.files().text
    assert "#SBATCH --nodes=2" in plan.files().text
    found, _ = world.go(plan, wait=True)
    assert (found["good"].word, found["good"].now.entry.round) == ("passed", 1)


@needs_slurm
def test_what_was_submitted_and_not_noted_is_ended_too(world: World) -> None:
    world.go(world.plan(tests="hang"))
    (note,) = (world.folder / "results").rglob("job")
    note.unlink()
    limit = time.monotonic() + 120
    while not (begun := list((world.folder / "results").rglob("started"))):  # else it would come after this
        assert time.monotonic() < limit
        time.sleep(0.1)
    for started in begun:
        started.unlink()
    found, told = world.go(world.plan(tests="hang"), cancel=True, wait=True)
    assert found["hang"].now.word == "cancelled"
    assert len(of("effect", told)) == 1
    assert note.exists()
    assert world.slurm.calls["sbatch"] == 1


@needs_slurm
def test_what_still_runs_is_not_submitted_again_and_all_rounds_are_ended(world: World) -> None:
    world.go(world.plan(tests="hang"))
    with pytest.raises(Refused, match=r"again names what is not over: gpt/hang.* \(job \d+_0\)\. Wait for its end"):
        world.plan(tests="hang", again="hang")
    assert world.plan(tests="hang", again="failed").fresh == ()
    (listed,) = (world.folder / "results").rglob("matrix.json")
    round_two = listed.parents[1] / "2"
    round_two.mkdir()
    # A newer round, of which nothing was submitted.
    (round_two / "matrix.json").write_text(listed.read_text().replace("runbook-0", "runbook-1"))
    world.go(world.plan(tests="hang"), cancel=True)
    assert all(it.over for it in ended(world))


def ended(world: World) -> list[ArrayElement]:
    """What Slurm has of this world's arrays, once it had the time to end them."""
    names = {it.parent.name for it in (world.folder / "results").rglob("array.sbatch")}
    limit = time.monotonic() + 120
    while True:
        mine = [it for it in world.slurm.queue() if it.name in names]
        if all(it.over for it in mine) or time.monotonic() > limit:
            return mine
        time.sleep(0.1)


@needs_slurm
def test_tests_of_the_commit_before_are_told_and_ended(world: World) -> None:
    world.go(world.plan(tests="hang"))
    world.checkout.git("commit", "-q", "--allow-empty", "-m", "two")
    plan = world.plan(tests="good")
    assert [it.test.case for it in plan.elsewhere] == ["hang"]
    assert any(it.startswith("1 test of this bump at another commit") for it in plan.warnings)
    world.go(plan, cancel=True)
    assert world.slurm.calls["scancel"] == 1
    assert all(it.over for it in ended(world))
    assert world.plan(tests="good").elsewhere == ()


@needs_slurm
def test_failed_tests_are_those_whose_outcome_is(world: World) -> None:
    found, _ = world.go(world.plan(tests="silent,drift,good"), wait=True)
    assert {name: it.word for name, it in found.items()} == {"good": "passed", "drift": "drifted", "silent": "failed"}
    assert found["silent"].now.state == "COMPLETED"
    assert [it.test.case for it in world.plan(tests="silent,drift,good", again="failed").fresh] == ["silent"]


@needs_slurm
def test_a_training_of_ones_own(world: World) -> None:
    asked = {"train": f"train.py good {world.folder}/out", "nodes": "2", "gpus": "2"}
    os.environ["PATH"] = f"{world.checkout.path}/bin:{os.environ['PATH']}"
    world.slurm = Slurm({**os.environ, **world.env})
    found, _ = world.go(world.plan(**asked), wait=True)
    ((case, outcome),) = found.items()
    assert (case[:6], outcome.word) == ("train-", "passed")
    assert "10.5" in (world.folder / "out").read_text()
    assert world.plan(**asked).fresh == ()
    oom, _ = world.go(world.plan(**{**asked, "train": "train.py oom x"}), wait=True)
    assert [it.failure.kind for it in oom.values() if it.failure] == ["out of memory"]


@needs_slurm
def test_containers_get_the_commit_as_it_was_planned(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    srun = world.folder / "bin/srun"  # a cluster with Pyxis, whose containers do nothing
    srun.parent.mkdir()
    srun.write_text(
        '#!/bin/sh\n[ "$1" = --help ] && echo "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]"\nexit 0\n'
    )
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
    world.slurm = Slurm({**os.environ, **world.env})
    plan = world.plan(tests="good", site=replace(world.site, image="/a.sqsh"))
    (world.checkout.path / "train.py").write_text("changed since\n")
    found, _ = world.go(plan, wait=True)
    tree = found["good"].now.entry.folder.parents[1] / "tree.tar"
    assert (
        f"tar -C /opt/megatron-lm --no-same-owner -xf {tree}\n"
        in (found["good"].now.entry.folder / "task.sh").read_text()
    )
    with tarfile.open(tree) as packed:
        member = packed.extractfile("train.py")
        assert member is not None
        assert b"changed since" not in member.read()


@needs_slurm
def test_a_plan_that_another_run_has_overtaken_is_refused(world: World) -> None:
    mine, other = world.plan(tests="good"), world.plan(tests="drift")
    world.go(other)
    with pytest.raises(Refused, match="Another run has submitted tests"):
        world.go(mine)


@needs_slurm
def test_a_damaged_list_is_said(world: World) -> None:
    world.go(world.plan(tests="good"))
    (listed,) = (world.folder / "results").rglob("matrix.json")
    listed.write_text(listed.read_text()[:40])
    with pytest.raises(RunbookError, match=r"matrix\.json cannot be read .* restore it"):
        world.plan(tests="good")


# -- the notebook --------------------------------------------------------------------------------------------------


@needs_slurm
def test_the_notebook_submits_is_started_again_and_goes_on(
    real: Cluster, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNBOOK_AUDIT", str(world.folder / "audit"))
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/Megatron-LM")
    monkeypatch.setenv("SLURM_CONF", real.environment["SLURM_CONF"])
    site = world.folder / "site.yaml"
    site.write_text(f"results: {world.folder}/results\nshared: true\n")
    given = {
        "tag": TAG,
        "repo": str(world.checkout.path),
        "pins": "megatron-lm",
        "site": str(site),
        "tests": "good,oom",
    }

    def execute(**more: object) -> tuple[str, str, list[dict[str, Any]]]:
        result = run.execute(ROOT / "runbooks/slurm-verify.ipynb", {**given, **more})
        assert result.record is not None, result.summary
        kept = json.loads((result.record / "run.json").read_text())["predicate"]
        return result.state, result.summary, kept["effects"]

    preview = execute()
    assert (preview[0], preview[2]) == ("previewed", [])
    assert preview[1] == "Preview: 2 tests would be submitted, in 1 array."
    state, _, effects = execute(apply=True)
    assert (state, [it["effect"] for it in effects]) == ("waiting", ["slurm job"])
    assert effects[0]["after"] == int((next((world.folder / "results").rglob("job"))).read_text())
    state, summary, effects = execute(apply=True, wait=True)
    assert (state, effects) == ("waiting", [])
    assert "2 tests on Slurm: 1 passed, 1 failed; waiting for a person to judge" in summary
    (newest,) = [it for it in (world.folder / "audit").rglob("slurm-tests.csv") if "out of memory" in it.read_text()]
    assert "gpt/oom" in newest.read_text()


# -- the whole matrix ------------------------------------------------------------------------------------------------


@needs_slurm
def test_a_matrix_is_diagnosed_and_judged_with_a_restart_in_the_middle(begun: Begun) -> None:
    world, first, told = begun
    assert len(of("effect", told)) == 1
    assert of("waiting", told)[-1]["sentence"].startswith("7 tests on Slurm:")
    # The kernel is gone; another one plans anew from what lies there.
    plan = world.plan()
    assert (plan.fresh, plan.arrays) == ((), ())
    found, told = world.go(plan, wait=True)
    assert of("effect", told) == []
    assert world.slurm.calls["sbatch"] == 1
    assert first.keys() == found.keys()

    assert {name: (it.word, it.failure.kind if it.failure else "") for name, it in found.items()} == {
        "good": ("passed", ""),
        "drift": ("drifted", "golden drift"),
        "oom": ("failed", "out of memory"),
        "missing": ("failed", "import error"),
        "nccl": ("failed", "unknown"),
        "hang": ("failed", "hang"),
        "silent": ("failed", "unknown"),
    }
    causes = {name: it.failure for name, it in found.items() if it.failure}
    assert "Rank 3 ran out of memory in forward" in causes["oom"].cause
    assert (
        causes["oom"].details | {"peak": "77.98 GiB", "parallelism": "TP 2, CP 1, PP 1, DP 2"} == causes["oom"].details
    )
    assert (causes["oom"].details["micro batch size"], causes["oom"].details["seq length"]) == ("4", "1024")
    assert "No module named 'transformer_engine_that_is_not_there'" in causes["missing"].cause
    assert (
        "Rank 2 failed with ValueError: the data of rank 2" in causes["nccl"].cause
    )  # the time-outs are its consequence
    assert "last that it did is iteration 2" in causes["hang"].cause
    assert found["hang"].now.word == "time limit"
    assert [(one.verdict, bool(one.measures)) for one in found["drift"].judgements] == [("refresh", True)]
    assert [one.verdict for one in found["good"].judgements] == ["unchanged"]
    assert "Watchdog caught" not in "".join(causes["nccl"].evidence)
    assert of("waiting", told)[-1]["sentence"].startswith("7 tests on Slurm: 1 passed, 1 drifted, 5 failed")
    assert "golden_values_dev_dgx_h100.json was not written" in str(found["silent"].row["golden values"])
    assert "gpt/oom" in world.shown


@needs_slurm
def test_a_controller_that_stays_away_is_told_with_what_to_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = world.plan(tests="good")
    with monkeypatch.context() as context:
        context.setattr(Slurm, "queue", lambda _: elements('{"errors": [{"error": "away"}], "jobs": []}', "squeue"))
        context.setattr("runbook_lib.transport.polling.MAX_LOST", 1)
        with pytest.raises(Unreachable, match=r"'away'\. Run the same command again when it answers"):
            slurm_verify.carry_out(world.step(plan), plan, say=lambda _: None)
    done = slurm_verify.carry_out(world.step(plan), world.plan(tests="good"), say=lambda _: None)
    with monkeypatch.context() as context:
        context.setattr(Slurm, "queue", lambda _: elements('{"errors": [{"error": "away"}], "jobs": []}', "squeue"))
        context.setattr("runbook_lib.transport.polling.MAX_LOST", 1)
        with pytest.raises(Unreachable, match="what was submitted goes on without it, and is taken up"):
            slurm_verify.follow(world.step(plan), done, wait=True, sleep=lambda _: None, say=lambda _: None)
