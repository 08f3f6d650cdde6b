"""Searches carried out: by a command, killed and continued, in containers of a real Slurm; never a run twice."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import slurm_repository
from slurm_cluster import Cluster, cluster

from runbook_lib.bisect.search import Conclusion
from runbook_lib.bump import Bump
from runbook_lib.containers.engine import Engine
from runbook_lib.containers.work.machine import Machine
from runbook_lib.errors import CannotTell
from runbook_lib.git.checkout import Checkout
from runbook_lib.practice.registry.server import RegistryServer
from runbook_lib.records.step_record import StepRecord
from runbook_lib.slurm.site import Site
from runbook_lib.steps.bisect_image import run as bisect
from runbook_lib.steps.bisect_image.ledger import RunLedger
from runbook_lib.steps.bisect_image.plan import BisectPlan, plan_search
from runbook_lib.steps.bisect_image.report import BisectResult, percent
from runbook_lib.steps.bisect_image.request import parse
from runbook_lib.workflow import bump_branch

#: A test that counts its starts, and is as good as its image: NCCL of 26.05 breaks it.
TEST = """\
echo "$1 $2" >>'{folder}/starts'
{reports}
case "$1/$2" in 26.05*/*nccl=*) echo 4.1 ;; 26.05*|26.06*) echo 2.5 ;; *) echo 4.0 ;; esac
"""
REPORTS = 'IFS=,; for part in $2; do echo "runbook-overlay: ${part%%=*} ${part#*=}"; done'


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    server = RegistryServer()
    monkeypatch.setenv("RUNBOOK_REGISTRY", server.url)
    monkeypatch.setenv("RUNBOOK_CACHE", str(tmp_path / "cache"))
    yield
    server.close()


@pytest.mark.usefixtures("registry")
class World:
    """A checkout, a test and the folder of results."""

    def __init__(self, folder: Path, test: str = TEST, reports: str = REPORTS) -> None:
        self.folder, self.records = folder, 0
        self.checkout = Checkout.open(slurm_repository.create(folder / "checkout"))
        (folder / "test.sh").write_text(test.replace("{folder}", str(folder)).replace("{reports}", reports))

    def plan(self, *, apply: bool = True, site: Site | None = None, **changes: str) -> BisectPlan:
        bump = Bump.parse(tag="26.06-py3", apply=apply)
        given = {
            "good": "26.01-py3", "bad": "", "test": "", "command": f"bash {self.folder}/test.sh {{tag}} {{restored}}",
            "metric": "value higher", "where": "command", "image": "", "budget": "40", "minutes": "1",
        }  # fmt: skip
        request = parse(bump, **{**given, **changes})  # type: ignore[arg-type]
        options = {"slurm": "nodes=1 gpus=2", "gpus": "0"}
        branch = bump_branch.find(self.checkout, bump)
        return plan_search(branch, request, results=str(self.folder / "results"), site=site, **options)

    def go(self, plan: BisectPlan) -> tuple[BisectResult, list[dict[str, Any]]]:
        self.records += 1
        folder = self.folder / f"record-{self.records}"
        folder.mkdir()
        step = StepRecord("bisect-image", plan.branch.bump, "o/n", folder)
        result = bisect.carry_out(step, plan, say=lambda _: None)
        bisect.verify(step, result)
        lines = (folder / "contributions.jsonl").read_text().splitlines()
        return result, [json.loads(line) for line in lines]

    @property
    def starts(self) -> list[str]:
        path = self.folder / "starts"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def world(registry: None, tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_preview_writes_and_runs_nothing(world: World) -> None:
    plan = world.plan(apply=False)
    text = plan.show().text
    assert "26.03-py3" in text
    assert "40" in text
    assert "test.sh 26.06-py3" in text
    _, entries = world.go(plan)
    assert not (world.folder / "results").exists()
    assert [entry for entry in entries if entry["kind"] == "effect"] == []


def test_a_search_names_the_component_and_is_not_repeated(world: World) -> None:
    result, entries = world.go(world.plan())
    assert result.conclusion is not None
    assert (result.conclusion.verdict, result.conclusion.culprits) == ("culprit", ("nccl",))
    assert result.conclusion.step == ("26.04-py3", "26.05-py3")
    assert len(world.starts) == len(result.runs) <= 40
    assert {entry["status"] for entry in entries if entry["kind"] == "check"} == {"passed"}
    assert "Probability: 99." in result.sentence
    assert "PyTorch" in " ".join(result.suspects)
    assert "nvidia-nccl-cu13==2.29.7" in result.fix().text
    assert "26.05-py3" in result.issue()
    assert result.plot().text
    again, entries = world.go(world.plan(budget="60"))
    assert again.sentence == result.sentence
    assert len(world.starts) == len(result.runs)
    assert [entry for entry in entries if entry["kind"] == "effect"] == []


def test_an_overlay_that_is_not_verified_is_a_suspect_and_never_good(registry: None, tmp_path: Path) -> None:
    reports = "case $2 in nccl=*) echo runbook-overlay: nccl 2.30.3 ;; *) " + REPORTS + " ;; esac"
    result, _ = World(tmp_path, reports=reports).go(World(tmp_path / "b", reports=reports).plan())
    assert result.conclusion is not None
    assert result.conclusion.culprits == ()
    assert "nccl" in " ".join(result.suspects)


@pytest.mark.parametrize("ends", ["exit 3", "echo nothing"])
def test_runs_without_a_value_are_paid_and_end_the_search(registry: None, tmp_path: Path, ends: str) -> None:
    world = World(tmp_path, test=f"echo x >>'{{folder}}/starts'\n{ends}\n")
    result, _ = world.go(world.plan())
    assert result.conclusion is not None
    assert result.conclusion.verdict == "undecided"
    assert 3 <= len(world.starts) <= 6


@pytest.mark.parametrize("budget", ["4", "9", "17"])
def test_a_budget_is_never_exceeded(registry: None, tmp_path: Path, budget: str) -> None:
    world = World(tmp_path)
    result, _ = world.go(world.plan(budget=budget))
    assert len(world.starts) <= int(budget)
    assert result.conclusion is not None


def test_gpu_hours_are_a_limit_too(world: World) -> None:
    result, _ = world.go(world.plan(budget="40 runs, 1 GPU hours"))
    assert isinstance(result.conclusion, Conclusion)  # no GPU is used
    plan = world.plan(budget="40 runs, 1 GPU hours", command="bash /nonexistent {tag}")
    plan = BisectPlan(**{**vars(plan), "gpus": 80})
    answer = plan.advance()
    assert isinstance(answer, Conclusion)
    assert "GPU hours" in answer.reason


def test_every_prefix_of_the_ledger_continues_identically(world: World) -> None:
    world.go(world.plan())
    plan = world.plan()
    lines = plan.ledger.path.read_text().splitlines(keepends=True)
    kinds = [json.loads(line)["kind"] for line in lines]
    for length in range(1, len(lines)):
        plan.ledger.path.write_text("".join(lines[:length]))
        ledger = RunLedger(plan.folder)
        following = json.loads(lines[length])
        if kinds[length] == "submit":
            answer = BisectPlan(**{**vars(plan), "ledger": ledger}).advance()
            assert (answer.tag, list(answer.restored)) == (following["tag"], following["restored"])  # type: ignore[union-attr]
        elif kinds[length] == "end":
            assert ledger.pending is not None
            assert ledger.pending.number == following["number"]


def test_a_damaged_ledger_stops_the_search(world: World) -> None:
    plan = world.plan()
    plan.folder.mkdir(parents=True)
    plan.ledger.path.write_text('{"kind": "submit"}\n')
    with pytest.raises(CannotTell, match="restore it"):
        world.plan()


@pytest.mark.parametrize(("probability", "text"), [(0.998, "99.8 %"), (0.99999, "99.9 %"), (1.0, "99.9 %")])
def test_a_probability_is_never_shown_as_certainty(probability: float, text: str) -> None:
    assert percent(probability) == text


_CHILD = """\
import sys
from pathlib import Path
sys.path[:0] = [{tests!r}, {here!r}]
from test_run import World
world = World.__new__(World)
world.folder, world.records = Path({folder!r}), int(sys.argv[1])
from runbook_lib.git.checkout import Checkout
world.checkout = Checkout.open(world.folder / "checkout")
result, _ = world.go(world.plan())
print(result.sentence)
"""


@pytest.mark.slow
def test_killed_at_random_moments_no_run_is_paid_twice(registry: None, tmp_path: Path) -> None:
    calm = World(tmp_path / "calm")
    expected = calm.go(calm.plan())[0].sentence
    world = World(tmp_path / "killed", test=TEST.replace("case", "sleep 0.05; case", 1))
    here = Path(__file__).parent
    text = _CHILD.format(tests=str(here.parents[1]), here=str(here), folder=str(world.folder))
    generator, killed = random.Random(7), 0
    for attempt in range(1, 120):
        child = subprocess.Popen(
            [sys.executable, "-c", text, str(1000 * attempt)], env=dict(os.environ), stdout=subprocess.PIPE, text=True
        )
        try:
            out, _ = child.communicate(timeout=0.9 + generator.random() * 0.7 if killed < 50 else 120)
            if child.returncode == 0 and killed >= 10:
                break
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.communicate()
            killed += 1
    assert out.strip() == expected
    ledger = RunLedger(world.plan().folder)
    assert len(world.starts) == len(ledger.runs)
    assert all(run.outcome == "value" for run in ledger.runs.values())


# -- Slurm -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Iterator[Cluster]:
    with cluster() as started:
        yield started


#: Runs the last words, and gives the test the name of its image.
APPTAINER = """\
#!/bin/bash
for word; do case $word in docker://*) export IMAGE=$word ;; esac; done
while [ "$1" != bash ]; do shift; done
exec "$@"
"""
#: The image's Python: pip installs a library, and each reports the old version.
PYTHON = """\
#!/bin/bash
case "$*" in
*"-m pip"*) while [ "$1" != --target ]; do shift; done; mkdir -p "$2/x/lib" && touch "$2/x/lib/libx.so" ;;
*ncclGetVersion*) echo 2.29.7 ;;
*cublasGetProperty*) echo 13.3.0 ;;
*cudnnGetVersion*) echo 9.21.0 ;;
*transformer_engine*) echo 2.14.0 ;;
esac
"""


@pytest.mark.slow
@pytest.mark.component("slurm")
def test_on_slurm_each_run_is_one_job(
    registry: None, real: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"apptainer": APPTAINER, "python3": PYTHON}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for name, value in real.environment.items():
        monkeypatch.setenv(name, value)
    site = Site(str(world.checkout.path), str(tmp_path / "results"), shared=True, runtime="apptainer")
    command = (
        f"echo $SLURM_JOB_ID >>{tmp_path}/jobs; "
        "case $IMAGE$LD_LIBRARY_PATH in *26.0[56]*nccl-*) ;; *26.0[56]*) exit 1 ;; esac"
    )
    changes = {"where": "slurm", "command": command, "metric": "exit", "image": "registry.example/a:{tag}"}
    plan = world.plan(site=site, budget="30", **changes)
    result, _ = world.go(plan)
    jobs = (tmp_path / "jobs").read_text().split()
    assert len(jobs) == len(set(jobs)) == sum(run.outcome == "value" for run in result.runs)
    assert result.conclusion is not None
    assert result.conclusion.culprits == ("nccl",)
    assert [run.outcome for run in result.runs if run.point.restored == ("cudnn",)] == ["invalid"]
    assert {run.node for run in result.runs if run.outcome == "value"} != {""}
    # A submission whose end was not written is found again by its job's name, and not submitted twice.
    lines = plan.ledger.path.read_text().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if '"kind": "submit"' in line)
    plan.ledger.path.write_text("".join(lines[: last + 1]))
    for file in plan.folder.glob(f"runs/{len(result.runs)}/1/*/job"):
        file.unlink()
    again, _ = world.go(world.plan(site=site, budget="30", **changes))
    assert (tmp_path / "jobs").read_text().split() == jobs
    assert again.sentence == result.sentence


#: Executes the words after the image, and knows its name.
DOCKER = """\
#!/bin/bash
while [ $# -gt 0 ]; do case $1 in bash) break ;; registry.example/*) export IMAGE=$1 ;; esac; shift; done
exec "$@"
"""


def test_a_container_of_this_machine_runs_the_command_and_verifies_overlays(
    registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"docker": DOCKER, "python3": PYTHON}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    machine = Machine(engine=Engine("docker"), uid=os.getuid(), gid=os.getgid())
    monkeypatch.setattr("runbook_lib.steps.bisect_image.plan.detect_machine", lambda: machine)
    command = "case $IMAGE$LD_LIBRARY_PATH in *26.0[56]*nccl-*) ;; *26.0[56]*) exit 1 ;; esac"
    plan = world.plan(where="local", command=command, metric="exit", image="registry.example/a:{tag}")
    assert plan.problems == ()
    assert "docker" in plan.show().text
    result, _ = world.go(plan)
    assert result.conclusion is not None
    assert result.conclusion.culprits == ("nccl",)
    assert [run.outcome for run in result.runs if run.point.restored == ("cudnn",)] == ["invalid"]
