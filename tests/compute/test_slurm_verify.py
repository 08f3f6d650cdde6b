"""A matrix of tests on a real Slurm of two nodes: submitted, continued, diagnosed, judged, cancelled."""

import json
import os
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import executing as run
import pytest
import slurm_repository
from slurm_cluster import Cluster, cluster
from slurm_runs import CountingSlurm

from runbook_lib.bump.run import carry_out
from runbook_lib.compute.slurm.client import OVER
from runbook_lib.compute.slurm.outcome import MatrixOutcome
from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.slurm.site import Site
from runbook_lib.compute.slurm_verify.facts import SlurmFacts, read_facts
from runbook_lib.compute.slurm_verify.step import SlurmVerify, read_outcomes
from runbook_lib.errors import Refused
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.bump import Bump
from runbook_lib.record.recorder import Recorder
from runbook_lib.world import bump_branch
from runbook_lib.world.outside import World as Outside

ROOT = Path(__file__).resolve().parents[2]
TAG = "26.04-py3"
needs_slurm = pytest.mark.component("slurm")


class World:
    """A checkout, a folder for results and the commands of Slurm."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.checkout = Checkout.open(slurm_repository.create(folder / "checkout"))
        self.site = Site(str(self.checkout.path), str(folder / "results"), shared=True)
        self.env, self.slurm = env, CountingSlurm({**os.environ, **env})
        self.steps = 0

    def plan(
        self, *, apply: bool = True, tag: str = TAG, site: Site | None = None, tests: str = "bump", jobs: str = ""
    ) -> SlurmFacts:
        branch = bump_branch.find(self.checkout, Bump.parse(tag=tag, mode="local" if apply else "preview"))
        return read_facts(branch, site or self.site, tests, jobs, self.slurm)

    def go(
        self, facts: SlurmFacts, *, wait: bool = False, cancel: bool = False
    ) -> tuple[dict[str, MatrixOutcome], list[dict[str, Any]]]:
        """Carry out the step; return the outcomes by test, and the entries of the record."""
        self.steps += 1
        folder, shown = self.folder / f"record-{self.steps}", list[Any]()
        folder.mkdir()
        record = Recorder("slurm-verify", facts.branch.bump, "o/n", folder)
        plan = SlurmVerify("", jobs="cancel" if cancel else "", wait=wait).plan(facts, facts.branch.bump)
        outside = Outside(self.checkout, None, record, sleep=lambda _: time.sleep(0.2))
        carry_out(record, plan, outside, shown.append)
        lines = (folder / "contributions.jsonl").read_text().splitlines()
        self.shown = "".join(view.text for view in shown if hasattr(view, "text"))
        outcomes = {outcome.now.job.test.case: outcome for outcome in read_outcomes(facts)} if facts.tests else {}
        return outcomes, [json.loads(line) for line in lines]


def of(kind: str, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["kind"] == kind]


def sentences(kind: str, entries: list[dict[str, Any]]) -> list[str]:
    return [entry["sentence"] for entry in of(kind, entries)]


def cases(plan: SlurmFacts) -> list[str]:
    return [job.test.case for job, _ in plan.new]


@pytest.fixture(scope="module")
def real() -> Iterator[Cluster]:
    with cluster() as started:
        yield started


Submitted = tuple[World, dict[str, MatrixOutcome], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def submitted(real: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Submitted:
    """A matrix that is submitted before the other tests here run, because one of its tests reaches its time limit."""
    world = World(tmp_path_factory.mktemp("matrix"), real.environment)
    world.site = replace(world.site, options=("--signal=USR1@1",))
    return (world, *world.go(world.plan()))


@pytest.fixture
def world(real: Cluster, submitted: Submitted, tmp_path: Path) -> World:
    return World(tmp_path, real.environment)


@pytest.fixture
def alone(tmp_path: Path) -> World:
    """A world without a cluster."""
    return World(tmp_path, {"PATH": str(tmp_path)})


# -- nothing to do -----------------------------------------------------------------------------------------------


def test_without_a_folder_for_results_nothing_is_planned(alone: World) -> None:
    plan = alone.plan(site=replace(alone.site, results=""))
    assert "results folder" in plan.show().text
    outcomes, entries = alone.go(plan)
    assert outcomes == {}
    assert of("effect", entries) == []
    assert of("check", entries) == []
    assert alone.slurm.calls == []


@needs_slurm
@pytest.mark.parametrize(("tag", "apply"), [(TAG, False), ("", True), ("", False)])
def test_a_preview_writes_and_submits_nothing(world: World, tag: str, apply: bool) -> None:
    plan = world.plan(tag=tag, apply=apply)
    assert "runbook-gpt-good-dev-dgx_h100-" in plan.show().text
    assert "srun --ntasks" in plan.show().text
    _, entries = world.go(plan)
    assert of("effect", entries) == []
    assert not (world.folder / "results").exists()
    assert not {"sbatch", "scancel"} & {*world.slurm.calls}
    assert ["7 tests" in planned["sentence"] for planned in of("planned", entries)] == [True] * bool(tag)


# -- problems before submitting --------------------------------------------------------------------------------------


def blocked_tests(plan: SlurmFacts) -> list[SelectedTest]:
    return [entry for entry in plan.tests if entry.obstacle]


@needs_slurm
def test_a_test_that_cannot_run_is_left_out_and_reported(world: World) -> None:
    plan = world.plan()
    assert cases(plan) == list(slurm_repository.CASES)
    (blocked,) = blocked_tests(plan)
    assert "WORLD_SIZE is 4" in blocked.obstacle
    assert "least-gpus" in blocked.obstacle
    assert "wide" in plan.show().text
    _, entries = world.go(world.plan(apply=False))
    assert any(f"gpt/wide@dgx_h100 (dev). {blocked.obstacle}" in sentence for sentence in sentences("warning", entries))
    all_blocked = replace(plan, tests=tuple(replace(entry, obstacle="So.") for entry in plan.tests))
    names = "gpt/good@dgx_h100 (dev), gpt/drift@dgx_h100 (dev), gpt/oom@dgx_h100 (dev) and 5 more"
    assert names in all_blocked.show().text
    assert blocked_tests(world.plan(site=replace(world.site, least_gpus=4))) == []
    all_gpus = world.plan(site=replace(world.site, least_gpus=8))  # as many as the nodes of this cluster have
    assert "#SBATCH --exclusive" not in plan.show().text
    assert "#SBATCH --exclusive" in all_gpus.show().text


@needs_slurm
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"partition": "gone"}, "invalid partition specified: gone"),
        ({"least_gpus": 64}, "node configuration is not available"),
        ({"options": ("--reservation=gone",)}, "reservation is invalid"),
        ({"image": "/a.sqsh"}, "Pyxis"),
    ],
)
def test_problems_with_the_cluster_are_reported_before_anything_is_submitted(
    world: World, change: dict[str, Any], named: str
) -> None:
    plan = world.plan(site=replace(world.site, **change))
    assert any(named in problem for problem in plan.problems), plan.problems
    assert named in plan.show().text
    with pytest.raises(Refused):
        world.go(plan)
    assert "sbatch" not in world.slurm.calls
    _, entries = world.go(world.plan(site=replace(world.site, **change), apply=False))
    assert of("planned", entries) == []
    assert any(named in sentence for sentence in sentences("warning", entries))
    assert named in sentences("done", entries)[-1]


def test_a_script_that_needs_a_container_is_a_problem_without_an_image(alone: World) -> None:
    recipe = alone.checkout.path / "tests/test_utils/recipes/h100/gpt.yaml"
    recipe.write_text(recipe.read_text().replace("set -e", "cd /opt/megatron-lm"))
    alone.checkout.git("commit", "-q", "-a", "-m", "two")
    problem = alone.plan().problems[0]
    assert "/opt/megatron-lm" in problem
    plans = [alone.plan(site=replace(alone.site, image=image)) for image in ("/a.sqsh", "/b.sqsh")]
    assert len({plan.folder for plan in plans}) == 2  # results with one image are none of the other


def test_a_work_tree_that_is_not_at_the_commit_is_reported(alone: World) -> None:
    alone.checkout.git("branch", f"bump/main/dev-{TAG}")
    assert alone.plan().warnings == ()
    (alone.checkout.path / "train.py").write_text("changed\n")
    assert "uncommitted" in alone.plan().warnings[0]


def test_a_bump_that_has_no_commit_yet_is_reported(alone: World) -> None:
    (warning,) = alone.plan().warnings
    assert f"bump/main/dev-{TAG} does not exist" in warning
    assert alone.plan(tag="").warnings == ()


def test_an_unknown_test_is_refused(alone: World) -> None:
    with pytest.raises(Refused, match="did you mean good"):
        alone.plan(tests="god")
    with pytest.raises(Refused, match="jobs names oom"):
        alone.plan(tests="good", jobs="oom")


@needs_slurm
def test_one_test_that_cannot_run_here_is_left_out_and_the_others_are_planned(world: World) -> None:
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
    assert [f"{job.test.model}/{job.test.case}" for job, _ in plan.new] == ["gpt/good"]
    assert plan.problems == ()
    obstacles = {entry.test.model: entry.obstacle for entry in blocked_tests(plan)}
    assert "configuration is not available" in obstacles["bert"]
    assert "/opt/megatron-lm" in obstacles["t5"]
    assert "the same name" in obstacles["gpt"]


# -- on the cluster ------------------------------------------------------------------------------------------------


@needs_slurm
def test_a_cancelled_test_can_be_submitted_once_more(world: World) -> None:
    world.go(world.plan(tests="hang,good"))
    outcomes, entries = world.go(world.plan(tests="hang,good"), cancel=True, wait=True)
    assert outcomes["hang"].now.word == "cancelled"
    assert [effect["effect"] for effect in of("effect", entries)] == ["cancel"]
    outcomes, entries = world.go(world.plan(tests="hang,good,drift"), cancel=True)  # submits nothing
    assert (outcomes.keys(), of("effect", entries)) == ({"hang", "good"}, [])
    plan = world.plan(tests="good,hang", jobs="good")
    assert cases(plan) == ["good"]
    outcomes, entries = world.go(plan)
    assert len(of("effect", entries)) == 1
    outcomes, _ = world.go(world.plan(tests="good"), wait=True)
    assert (outcomes["good"].word, outcomes["good"].now.job.folder.name) == ("passed", "2")
    assert cases(world.plan(tests="good,hang", jobs="failed")) == ["hang"]


@needs_slurm
def test_an_earlier_result_does_not_hide_that_nothing_can_be_submitted(world: World) -> None:
    world.go(world.plan(tests="good"), wait=True)
    nowhere = replace(world.site, partition="nosuch")
    outcomes, entries = world.go(world.plan(tests="good,drift", site=nowhere, apply=False))
    assert outcomes["good"].word == "passed"
    (sentence,) = sentences("done", entries)
    assert sentence.startswith("Preview: 1 test on Slurm: 1 passed")
    assert "invalid partition specified: nosuch" in sentence
    (check,) = of("check", entries)
    assert (check["status"], "nosuch" in check["detail"]) == ("waiting", True)
    _, entries = world.go(world.plan(tests="good,drift", apply=False))
    assert "Preview: would submit 1 test to Slurm" in sentences("done", entries)[0]
    _, entries = world.go(world.plan(tests="good", site=nowhere))  # nothing is left to submit
    assert len(of("done", entries)) == 1


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
    outcomes, entries = world.go(world.plan(tests="good", apply=False))
    assert (outcomes, len(of("planned", entries))) == ({}, 1)
    outcomes, entries = world.go(world.plan(tests="good"), wait=True)
    assert (outcomes["good"].word, outcomes["good"].now.job.folder.name) == ("passed", "1")
    assert (len(of("effect", entries)), world.slurm.calls.count("sbatch")) == (1, 1)


@needs_slurm
def test_a_job_whose_id_was_not_written_is_cancelled_too(world: World) -> None:
    world.go(world.plan(tests="hang"))
    (note,) = (world.folder / "results").rglob("job")
    wait_for(lambda: list((world.folder / "results").rglob("started")))  # else it would be written after this
    for marker in (note, note.with_name("started")):
        marker.unlink()
    outcomes, entries = world.go(world.plan(tests="hang"), cancel=True, wait=True)
    assert outcomes["hang"].now.word == "cancelled"
    assert len(of("effect", entries)) == 1
    assert note.exists()
    assert world.slurm.calls.count("sbatch") == 1


@needs_slurm
def test_a_running_test_is_not_submitted_again_and_all_attempts_are_cancelled(world: World) -> None:
    world.go(world.plan(tests="hang"))
    with pytest.raises(Refused, match=r"gpt/hang.* \(job \d+\)"):
        world.plan(tests="hang", jobs="hang")
    assert world.plan(tests="hang", jobs="failed").new == ()
    (note,) = (world.folder / "results").rglob("job")
    (note.parents[1] / "2").mkdir()  # a newer attempt, which was not submitted
    assert [job.folder.name for job, _ in world.plan(tests="hang").new] == ["2"]
    world.go(world.plan(tests="hang"), cancel=True)
    names = {job.name for job in world.plan(tests="hang").attempts()}
    wait_for(lambda: all(queued.state in OVER for queued in world.slurm.queue() if queued.name in names))


def wait_for(is_true: Callable[[], object]) -> None:
    """Wait until something happens, two minutes at most."""
    limit = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < limit
        time.sleep(0.1)


@needs_slurm
def test_containers_get_the_planned_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    srun = world.folder / "bin/srun"  # a cluster with Pyxis, whose containers do nothing
    srun.parent.mkdir()
    srun.write_text(
        '#!/bin/sh\n[ "$1" = --help ] && echo "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]"\nexit 0\n'
    )
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
    world.slurm = CountingSlurm({**os.environ, **world.env})
    plan = world.plan(tests="good", site=replace(world.site, image="/a.sqsh"))
    (world.checkout.path / "train.py").write_text("changed since\n")
    outcomes, _ = world.go(plan, wait=True)
    folder = outcomes["good"].now.job.folder
    tree = folder.parents[1] / "tree.tar"
    assert f"tar -C /opt/megatron-lm --no-same-owner -xf {tree}\n" in (folder / "task.sh").read_text()
    with tarfile.open(tree) as packed:
        member = packed.extractfile("train.py")
        assert member is not None
        assert b"changed since" not in member.read()


@needs_slurm
def test_two_runs_with_the_same_plan_submit_a_test_once(world: World) -> None:
    first, second = world.plan(tests="good,drift"), world.plan(tests="good")
    for plan in (first, second):
        world.go(plan)
    assert world.slurm.calls.count("sbatch") == 2


# -- the notebook --------------------------------------------------------------------------------------------------


@needs_slurm
def test_the_notebook_continues_when_it_is_started_again(
    real: Cluster, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNBOOK_AUDIT", str(world.folder / "audit"))
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/Megatron-LM")
    monkeypatch.setenv("SLURM_CONF", real.environment["SLURM_CONF"])
    site = world.folder / "site.yaml"
    site.write_text(f"results: {world.folder}/results\nshared: true\n")
    parameters = {"tag": TAG, "repo": str(world.checkout.path), "site": str(site)}
    parameters["tests"] = "good,oom"

    def execute(**options: object) -> tuple[str, str, list[dict[str, Any]]]:
        result = run.execute(ROOT / "runbooks/slurm-verify.ipynb", {**parameters, **options})
        assert result.record is not None, result.summary
        predicate = json.loads((result.record / "run.json").read_text())
        return result.state, result.summary, predicate["effects"]

    preview = execute()
    assert (preview[0], preview[2]) == ("previewed", [])
    assert "would submit 2 tests to Slurm: " in preview[1]
    state, _, effects = execute(mode="local")
    assert (state, [effect["effect"] for effect in effects]) == ("waiting", ["slurm job"] * 2)
    ids = {int(path.read_text()) for path in (world.folder / "results").rglob("job")}
    assert {effect["after"] for effect in effects} == ids
    state, summary, effects = execute(mode="local", wait=True)
    assert (state, effects) == ("waiting", [])
    assert "1 passed, 1 failed" in summary
    tables = [path.read_text() for path in (world.folder / "audit").rglob("slurm-tests.csv")]
    assert ["gpt/oom" in text for text in tables if "out of memory" in text] == [True]


# -- the whole matrix ------------------------------------------------------------------------------------------------


@needs_slurm
def test_a_matrix_is_diagnosed_and_judged_after_a_restart(submitted: Submitted) -> None:
    world, first, entries = submitted
    assert len(of("effect", entries)) == 7
    assert sentences("waiting", entries)[-1].startswith("7 tests on Slurm:")
    # As after the kernel was lost: a new plan is made from the files in the folder for results.
    plan = world.plan()
    assert plan.new == ()
    outcomes, entries = world.go(plan, wait=True)
    assert of("effect", entries) == []
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
    assert outcomes["hang"].now.word == "time limit"
    assert "stderr.log" in failures["hang"].details["stacks"]
    logs = (outcomes["hang"].now.job.folder / "assets/logs/1").rglob("stderr.log")
    stacks = [path.read_text() for path in logs]
    assert len(stacks) == 4
    assert all("most recent call first" in text and "train.py" in text for text in stacks)
    verdicts = [(judgement.verdict, bool(judgement.measures)) for judgement in outcomes["drift"].judgements]
    assert verdicts == [("refresh", True)]
    assert [judgement.verdict for judgement in outcomes["good"].judgements] == ["unchanged"]
    assert "1 passed, 1 drifted, 5 failed" in sentences("waiting", entries)[-1]
    assert outcomes["silent"].missing == ("golden_values_dev_dgx_h100.json",)
    assert "gpt/oom" in world.shown
