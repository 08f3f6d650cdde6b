"""A real Slurm that fails: its controller away, a node lost, and what has ended forgotten."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import Cluster, cluster
from slurm_runs import Planned, nap, plan, run, submit

from runbook_lib.compute.slurm import jobs
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.jobs import GONE
from runbook_lib.errors import Unreachable

needs_slurm = pytest.mark.component("slurm")


@pytest.fixture(scope="module")
def real() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture
def slurm(real: Cluster) -> Slurm:
    return Slurm({**os.environ, **real.environment})


@needs_slurm
def test_a_controller_that_is_away_for_a_while(
    real: Cluster, slurm: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = plan(tmp_path, {"a": "sleep 1", "b": "true"})
    started = list(submit(slurm, planned[:1]))
    real.end("slurmctld")

    def sleep(_: float) -> None:
        if "slurmctld" not in real.running:
            real.start_controller()
        time.sleep(0.2)

    with pytest.raises(Unreachable, match="controller cannot be reached"):
        slurm.queue()
    started += submit(slurm, planned[1:], sleep=sleep)
    assert len({job.id for job in started}) == 2
    assert "Trying again" in capsys.readouterr().out
    tests = jobs.follow(slurm, started, wait=True, sleep=sleep)
    assert [test.state for test in tests] == ["COMPLETED", "COMPLETED"]


def begun(slurm: Slurm, base: Path) -> Planned:
    """Submit a test that runs on both nodes, and wait until it does."""
    planned = plan(base, {"a": 'touch "$LOGS/$NODE_RANK"; sleep 60'}, nodes=2)
    logs = [planned[0][0].folder / "assets/logs/1" / rank for rank in "01"]
    run(slurm, planned, until=lambda _: all(log.exists() for log in logs))
    return planned


@needs_slurm
def test_a_preempted_test_is_not_started_again(tmp_path: Path) -> None:
    with cluster(urgent=True) as made:
        slurm = Slurm({**os.environ, **made.environment})
        planned = begun(slurm, tmp_path)
        made.ask("sbatch", "-p", "urgent", "-N2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 1")
        for _ in range(2):  # it is known after a restart too
            assert run(slurm, planned)["a"].state == "PREEMPTED"


@needs_slurm
def test_a_lost_node(tmp_path: Path) -> None:
    with cluster(lost_after=3) as real:
        slurm = Slurm({**os.environ, **real.environment})
        planned = begun(slurm, tmp_path)
        real.end("node2", signal.SIGKILL)
        for _ in range(2):
            found = run(slurm, planned)
            assert (found["a"].state, found["a"].word) == ("NODE_FAIL", "node fail")


@needs_slurm
def test_a_controller_that_forgets_finished_jobs_immediately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "SILENCE", 3.0)
    with cluster(age=2) as short:
        slurm = Slurm({**os.environ, **short.environment})
        planned = plan(tmp_path, {"a": "true", "b": "sleep 60", "c": "kill -9 $PPID"})
        found = run(slurm, planned, until=lambda tests: tests[1].state == "RUNNING" and tests[0].over)
        slurm.cancel([found["b"].id or 0])
        limit = time.monotonic() + 120
        while slurm.queue():
            assert time.monotonic() < limit
            nap(0)
        found = run(slurm, planned)
        assert found["a"].state == "COMPLETED"
        assert found["b"].state == "CANCELLED"  # Slurm wrote so into its log
        assert found["c"].state in ("FAILED", GONE)
