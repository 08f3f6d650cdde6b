"""A matrix of tests on a real Slurm of two nodes: submitted, continued, diagnosed, judged, cancelled."""

import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import executing as run
import pytest
import slurm_repository
from clones import commit
from slurm_cluster import Cluster
from slurm_runs import CountingSlurm
from stand_ins import stand_in
from waiting import wait_until

from runbook_lib.bump.run import carry_out
from runbook_lib.compute.slurm import jobs
from runbook_lib.compute.slurm.client import OVER
from runbook_lib.compute.slurm.outcome import MatrixOutcome, conclude
from runbook_lib.compute.slurm.site import Session, Site
from runbook_lib.compute.slurm.step import SlurmFacts, SlurmVerify, read_facts
from runbook_lib.errors import Refused
from runbook_lib.pins.bump import Bump
from runbook_lib.record.recorder import Recorder
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.ports import World as Outside

ROOT = Path(__file__).resolve().parents[2]
TAG = "26.04-py3"
needs_slurm = pytest.mark.component("slurm")


class World:
    """A checkout, a folder for results and the commands of Slurm; jobs share the nodes."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.checkout = Checkout.open(slurm_repository.create(folder / "checkout"))
        (folder / "image.sqsh").touch()
        image, options = str(folder / "image.sqsh"), ("--oversubscribe",)
        self.site = Site(str(folder / "results"), image, options=options)
        self.env, self.slurm = env, CountingSlurm({**os.environ, **env})
        self.steps = 0

    def plan(
        self, *, apply: bool = True, tag: str = TAG, tests: str = "bump", jobs: str = "", **site: Any
    ) -> SlurmFacts:
        branch = BumpBranch.find(self.checkout, Bump.parse(tag=tag, mode="local" if apply else "preview"))
        return read_facts(branch, replace(self.site, **site), tests, jobs, self.slurm)

    def go(
        self, facts: SlurmFacts, *, wait: bool = False, cancel: bool = False
    ) -> tuple[dict[str, MatrixOutcome], dict[str, Any]]:
        """Carry out the step; return the outcomes by test, and what the record has."""
        self.steps += 1
        folder, shown = self.folder / f"record-{self.steps}", list[Any]()
        folder.mkdir()
        record = Recorder("slurm-verify", facts.branch.bump, folder)
        plan = SlurmVerify("", jobs="cancel" if cancel else "", wait=wait).plan(facts, facts.branch.bump)
        services = SimpleNamespace(sleep=lambda _: time.sleep(0.2))
        outside = Outside(self.checkout, None, record, services)  # type: ignore[arg-type]
        carry_out(record, plan, outside, shown.append)
        self.shown = "".join(view.text for view in shown if hasattr(view, "text"))
        submitted = jobs.poll(facts.slurm, facts.submitted()) if facts.tests else ()
        return {job.entry.test.case: conclude(job) for job in submitted}, record.run

    def cancel(self, tests: str) -> tuple[dict[str, MatrixOutcome], dict[str, Any]]:
        return self.go(self.plan(tests=tests, jobs="cancel"), cancel=True, wait=True)


def cases(plan: SlurmFacts) -> list[str]:
    return [job.entry.test.case for job in plan.new]


Submitted = tuple[World, dict[str, MatrixOutcome], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def submitted(real: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Submitted:
    """A matrix that is submitted before the other tests here run, because one of its tests reaches its time limit."""
    world = World(tmp_path_factory.mktemp("matrix"), real.environment)
    world.site = replace(world.site, options=("--signal=USR1@1", "--oversubscribe"))
    return (world, *world.go(world.plan()))


@pytest.fixture
def world(real: Cluster, submitted: Submitted, tmp_path: Path) -> World:
    return World(tmp_path, real.environment)


@pytest.fixture
def alone(tmp_path: Path) -> World:
    """A world without a cluster, whose Slurm accepts any batch file."""
    for name in ("sbatch", "srun"):
        stand_in(tmp_path, name, "echo --container-image")
    return World(tmp_path, {"PATH": f"{tmp_path}:/usr/bin:/bin"})


# -- before anything is submitted ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lacks", ["results", "image"])
def test_without_an_image_or_a_folder_for_results_nothing_is_planned(alone: World, lacks: str) -> None:
    plan = alone.plan(**{lacks: ""})
    assert "set results and image" in plan.show().text
    outcomes, told = alone.go(plan)
    assert (outcomes, told["effects"], told["checks"], alone.slurm.calls) == ({}, [], [], [])


def test_what_the_repository_and_the_machine_lack_is_a_warning(alone: World) -> None:
    (warning,) = alone.plan().warnings
    assert f"bump/main/dev-{TAG} does not exist" in warning
    assert alone.plan(tag="").warnings == ()
    alone.checkout.git("branch", f"bump/main/dev-{TAG}")
    assert alone.plan().warnings == ()
    missing = alone.plan(image="/no/a.sqsh", mounts=["/no/data:/data", "/tmp:/x"]).warnings
    assert [warning.split()[0] for warning in missing] == ["/no/a.sqsh", "/no/data"]


def test_results_with_one_image_are_none_of_another(alone: World) -> None:
    assert len({alone.plan(image=image).folder for image in ("/a.sqsh", "/b.sqsh")}) == 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"jobs": "good"}, "'good' is not failed, all or cancel"),
        ({"tests": "wide"}, "WORLD_SIZE is 4.*least-gpus"),
    ],
)
def test_a_request_that_names_nothing_to_run_is_refused(alone: World, given: dict[str, Any], says: str) -> None:
    with pytest.raises(Refused, match=says):
        alone.plan(**given)


@needs_slurm
@pytest.mark.parametrize(("tag", "apply"), [(TAG, False), ("", True)])
def test_a_preview_writes_and_submits_nothing(world: World, tag: str, apply: bool) -> None:
    plan = world.plan(tag=tag, apply=apply)
    assert "runbook-gpt-good-dev-dgx_h100-" in plan.show().text
    assert "srun --ntasks" in plan.show().text
    _, told = world.go(plan)
    assert told["effects"] == []
    assert not (world.folder / "results").exists()
    assert not {"sbatch", "scancel"} & {*world.slurm.calls}
    assert ["7 tests" in planned["sentence"] for planned in told["planned"]] == [True] * bool(tag)


@needs_slurm
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"session": Session(partition="gone")}, "invalid partition specified: gone"),
        ({"least_gpus": 64}, "node configuration is not available"),
    ],
)
def test_what_the_cluster_rejects_is_refused_before_anything_is_submitted(
    world: World, change: dict[str, Any], named: str
) -> None:
    for apply in (True, False):
        with pytest.raises(Refused, match=named):
            world.plan(apply=apply, **change)
    assert "sbatch" not in world.slurm.calls


def test_a_cluster_without_pyxis_is_refused(alone: World) -> None:
    stand_in(alone.folder, "srun", "")
    with pytest.raises(Refused, match="Pyxis is not installed"):
        alone.plan()


@needs_slurm
def test_tests_that_cannot_run_here_are_left_out_and_the_others_are_planned(world: World) -> None:
    recipes = "tests/test_utils/recipes/h100"
    text = (world.checkout.path / recipes / "gpt.yaml").read_text()
    rows = "products:\n- test_case: [good]\n  products:\n  - {environment: [dev], scope: [mr-github]}\n"
    big = text.partition("products:\n")[0].replace("gpus: 2", "gpus: 64") + rows
    texts = {
        "big": big.replace("model: gpt", "model: bert"), "twice": text.partition("products:\n")[0] + rows,
        "data": big.replace("set -e", "ls /mnt/artifacts").replace("model: gpt", "model: t5"),
    }  # fmt: skip
    commit(world.checkout.path, {f"{recipes}/{name}.yaml": text for name, text in texts.items()})
    plan = world.plan()
    assert cases(plan) == list(slurm_repository.CASES)
    obstacles = {str(entry.test): entry.obstacle for entry in plan.tests if entry.obstacle}
    for name, expected in {
        "bert/good": "configuration is not available", "t5/good": "/mnt/artifacts", "gpt/wide": "least-gpus",
    }.items():  # fmt: skip
        assert expected in obstacles.pop(f"{name}@dgx_h100 (dev)")
    assert obstacles == {}
    _, told = world.go(world.plan(apply=False))
    assert any("Omitted: gpt/wide@dgx_h100 (dev). WORLD_SIZE" in sentence for sentence in told["warnings"])
    assert "wide" in cases(world.plan(least_gpus=4))


# -- on the cluster ------------------------------------------------------------------------------------------------


@needs_slurm
def test_ended_tests_can_be_submitted_once_more(world: World) -> None:
    world.go(world.plan(tests="hang,good"))
    outcomes, told = world.cancel("hang,good,drift")
    assert outcomes["hang"].job.word == "cancelled"
    assert [effect["kind"] for effect in told["effects"]] == ["cancel"]
    outcomes, told = world.cancel("hang,good,drift")  # submits nothing
    assert (outcomes.keys(), told["effects"]) == ({"hang", "good"}, [])
    outcomes, told = world.go(world.plan(tests="good", jobs="all"), wait=True)
    assert len(told["effects"]) == 1
    assert (outcomes["good"].word, outcomes["good"].job.folder.name) == ("passed", "2")
    assert cases(world.plan(tests="good,hang", jobs="failed")) == ["hang"]
    with pytest.raises(Refused, match=r"invalid partition specified: nosuch.* name only them in tests"):
        world.plan(tests="good,drift", session=Session(partition="nosuch"))


@needs_slurm
def test_a_job_that_a_killed_run_planned_is_submitted_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr("runbook_lib.compute.slurm.jobs._submit", killed)
        with pytest.raises(KeyboardInterrupt):
            world.go(world.plan(tests="good"))
    assert list((world.folder / "results").rglob("job.sbatch"))
    outcomes, told = world.go(world.plan(tests="good", apply=False))
    assert (outcomes, len(told["planned"])) == ({}, 1)
    first, second = world.plan(tests="good,drift"), world.plan(tests="good")
    for plan in (first, second):  # two runs with the same plan
        outcomes, told = world.go(plan, wait=True)
    assert (outcomes["good"].word, outcomes["good"].job.folder.name) == ("passed", "1")
    assert (told["effects"], world.slurm.calls.count("sbatch")) == ([], 2)


@needs_slurm
def test_a_running_test_is_not_submitted_again_and_all_attempts_are_cancelled(world: World) -> None:
    world.go(world.plan(tests="hang"))
    for again in ("", "failed", "all"):
        assert world.plan(tests="hang", jobs=again).new == ()
    (note,) = (world.folder / "results").rglob("job")
    wait_until(lambda: list((world.folder / "results").rglob("started")))  # else it would be written after this
    for marker in (note, note.with_name("started")):  # as if the run was killed before it wrote the ID
        marker.unlink()
    (note.parents[1] / "2").mkdir()  # a newer attempt, which was not submitted
    assert [job.folder.name for job in world.plan(tests="hang").new] == ["1"]
    outcomes, told = world.cancel("hang")
    assert (outcomes["hang"].job.word, len(told["effects"])) == ("cancelled", 1)
    assert note.exists()
    assert world.slurm.calls.count("sbatch") == 1
    names = {job.name for job in world.plan(tests="hang").attempts()}
    wait_until(lambda: all(queued.state in OVER for queued in world.slurm.queue() if queued.name in names))


@needs_slurm
def test_containers_get_the_planned_commit(world: World) -> None:
    plan = world.plan(tests="good")
    (world.checkout.path / "train.py").write_text("changed since\n")
    outcomes, _ = world.go(plan, wait=True)
    assert outcomes["good"].word == "passed"


# -- the notebook --------------------------------------------------------------------------------------------------


@needs_slurm
def test_the_notebook_continues_when_it_is_started_again(
    real: Cluster, world: World, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/Megatron-LM")
    for name, value in real.environment.items():
        monkeypatch.setenv(name, value)
    site = world.folder / "site.yaml"
    site.write_text(f"results: {world.folder}/results\nimage: /image.sqsh\noptions: [--oversubscribe]\n")
    parameters = {"tag": TAG, "repo": str(world.checkout.path), "site": str(site)}
    parameters["tests"] = "good,oom"

    def execute(**options: object) -> tuple[str, str, list[dict[str, Any]]]:
        result = run.execute(ROOT / "runbooks/slurm-verify.ipynb", {**parameters, **options})
        return result.state, result.summary, result.run["effects"]

    preview = execute()
    assert (preview[0], preview[2]) == ("previewed", [])
    assert "would submit 2 tests to Slurm: " in preview[1]
    state, _, effects = execute(mode="local")
    assert (state, [effect["kind"] for effect in effects]) == ("waiting", ["slurm job"] * 2)
    ids = {int(path.read_text()) for path in (world.folder / "results").rglob("job")}
    assert {effect["after"] for effect in effects} == ids
    state, summary, effects = execute(mode="local", wait=True)
    assert (state, effects) == ("waiting", [])
    assert "1 passed, 1 failed" in summary
    tables = [path.read_text() for path in archive.rglob("slurm-tests.csv")]
    assert ["gpt/oom" in text for text in tables if "out of memory" in text] == [True]


# -- the whole matrix ------------------------------------------------------------------------------------------------


@needs_slurm
def test_a_matrix_is_diagnosed_and_judged_after_a_restart(submitted: Submitted) -> None:
    world, first, told = submitted
    assert len(told["effects"]) == 7
    assert told["outcome"]["sentence"].startswith("7 tests on Slurm:")
    # As after the kernel was lost: a new plan is made from the files in the folder for results.
    plan = world.plan()
    assert plan.new == ()
    outcomes, told = world.go(plan, wait=True)
    assert told["effects"] == []
    assert world.slurm.calls.count("sbatch") == 7
    assert first.keys() == outcomes.keys()

    failures = {name: outcome.failure for name, outcome in outcomes.items() if outcome.failure}
    assert {name: outcome.word for name, outcome in outcomes.items()} == {
        "good": "passed", "drift": "drifted", "oom": "failed", "missing": "failed", "nccl": "failed",
        "hang": "failed", "silent": "failed",
    }  # fmt: skip
    assert {name: failure.kind for name, failure in failures.items()} == {
        "drift": "golden drift", "oom": "out of memory", "missing": "import error", "nccl": "program error",
        "hang": "hang", "silent": "unknown",
    }  # fmt: skip
    assert "Rank 3" in failures["oom"].cause
    sizes = {
        "peak": "77.98 GiB", "parallelism": "TP 2, CP 1, PP 1, DP 2", "micro batch size": "4", "seq length": "1024",
    }  # fmt: skip
    assert sizes.items() <= failures["oom"].details.items()
    assert "transformer_engine_that_is_not_there" in failures["missing"].cause
    assert "Rank 2" in failures["nccl"].cause  # the time-outs are its consequence
    assert "ValueError: the data of rank 2" in failures["nccl"].cause
    assert "Watchdog caught" not in "".join(failures["nccl"].evidence)
    assert "last iteration is 2" in failures["hang"].cause
    assert outcomes["hang"].job.word == "timeout"
    assert "stderr.log" in failures["hang"].details["stacks"]
    logs = (outcomes["hang"].job.folder / "assets/logs/1").rglob("stderr.log")
    stacks = [path.read_text() for path in logs]
    assert len(stacks) == 4
    assert all("most recent call first" in text and "train.py" in text for text in stacks)
    verdicts = [(judgement.verdict, bool(judgement.measures)) for judgement in outcomes["drift"].judgements]
    assert verdicts == [("refresh", True)]
    assert [judgement.verdict for judgement in outcomes["good"].judgements] == ["unchanged"]
    assert "1 passed, 1 drifted, 5 failed" in told["outcome"]["sentence"]
    assert outcomes["silent"].missing == ("golden_values_dev_dgx_h100.json",)
    assert "gpt/oom" in world.shown
