"""Searches on a real Slurm of two nodes: one job for each run, killed notebooks, a lost node."""

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from bisect_world import PYTHON, World, kill_search
from slurm_cluster import Cluster
from waiting import wait_until

from runbook_lib.bisect.search import Conclusion
from runbook_lib.bisect.step import SearchFacts
from runbook_lib.compute.slurm.site import Session, Site

pytestmark = [pytest.mark.slow, pytest.mark.component("slurm")]


class SlurmWorld(World):
    """A search whose test notes its job and node, fails since 26.05, and does not with the old NCCL."""

    def __init__(self, folder: Path, real: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        (folder / "bin").mkdir()
        (folder / "bin/python3").write_text(PYTHON)
        (folder / "bin/python3").chmod(0o755)
        for name, value in real.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
        command = (
            f"echo $SLURM_JOB_ID $SLURM_JOB_NODELIST >>{folder}/starts; sleep 0.5; "
            "case $IMAGE$LD_LIBRARY_PATH in *26.0[56]*nccl-*) ;; *26.0[56]*) exit 1 ;; esac"
        )
        self.changes = {"test": command, "metric": "exit", "budget": "30"}

    @property
    def site(self) -> Site:
        """A cluster whose runs may take a minute, on two GPUs."""
        session = Session(1, 2, time="0:01:00")
        return replace(super().site, session=session, search_image="registry.example/a:{tag}")

    def plan_slurm(self) -> SearchFacts:
        return self.plan(**self.changes)

    def assert_complete(self) -> None:
        """Continue to the end, and compare the ledger with what was really run."""
        result, told = self.go(self.plan_slurm())
        conclusion = result.next()
        assert isinstance(conclusion, Conclusion)
        assert conclusion.culprits == ("nccl",)
        assert len(self.starts) == len(set(self.starts))
        outcomes = [run.outcome for run in result.ledger.runs]
        assert "lost" not in outcomes
        # The old cuDNN reports another version there: no test was run with it.
        assert len(self.starts) == len(outcomes) - outcomes.count("invalid")
        assert {check["status"] for check in told["checks"]} == {"passed"}


def test_each_run_is_a_job_and_a_killed_notebook_finds_its_own(
    real: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, generator = SlurmWorld(tmp_path, real, monkeypatch), random.Random(3)
    for _ in range(4):
        assert kill_search(lambda: world.go(world.plan_slurm()), generator.uniform(0.3, 1.6))
    # Killed while the test runs: it goes on, and is found by its name, even without the note of its job.
    starts = len(world.starts)
    assert kill_search(lambda: world.go(world.plan_slurm()), until=lambda: len(world.starts) > starts)
    plan = world.plan_slurm()
    for file in plan.place.folder.glob("runs/*/job"):
        file.unlink()
    world.assert_complete()
    wait_until(lambda: real.ask("squeue", "-h") == "")
    runs = world.plan_slurm().ledger.runs
    assert {run.node for run in runs} >= {line.partition(" ")[2] for line in world.starts}
    assert [run.outcome for run in runs if run.point.restored == "cudnn"] == ["invalid"]
