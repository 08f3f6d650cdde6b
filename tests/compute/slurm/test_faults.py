"""A real Slurm that fails: its controller away, a node lost, and what has ended forgotten."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import Cluster, cluster
from slurm_runs import nap, plan, run

from runbook_lib.compute.slurm import rounds
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.follow import GONE, Follower, follow, submit
from runbook_lib.errors import Unreachable

needs_slurm = pytest.mark.component("slurm")
SBIN = os.environ["PATH"] + ":/usr/sbin"


@pytest.fixture(scope="module")
def real() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture
def slurm(real: Cluster) -> Slurm:
    return Slurm({**os.environ, **real.environment})


@needs_slurm
def test_a_controller_that_is_away_for_a_while(real: Cluster, slurm: Slurm, tmp_path: Path) -> None:
    plan(tmp_path, {"a": "sleep 1"})
    plan(tmp_path, {"b": "true"})
    submit(slurm, rounds.read(tmp_path)[0])
    real.end("slurmctld")
    said: list[str] = []

    def sleep(_: float) -> None:
        if len(said) >= 1 and "slurmctld" not in real.running:
            real.start_controller()
        time.sleep(0.2)

    with pytest.raises(Unreachable, match="controller cannot be reached"):
        slurm.queue()
    done = []
    for array in rounds.read(tmp_path):
        done.append(submit(slurm, array, sleep=sleep, say=lambda text: said.append(str(text))))
    assert len({it.job for it in done}) == 2
    assert "Trying again" in said[0]
    entries = rounds.newest(done).values()
    tests = follow(Follower(slurm, entries), wait=True, sleep=sleep, say=lambda text: said.append(str(text)))
    assert [it.state for it in tests] == ["COMPLETED", "COMPLETED"]


WAITS = 'touch "$LOGS/$NODE_RANK"; sleep 60'


def begun(slurm: Slurm, base: Path) -> None:
    """Submit a test that runs on both nodes, and wait until it does."""
    (planned,) = plan(base, {"a": WAITS}, nodes=2)
    logs = [planned.entries[0].folder / "assets/logs/1" / rank for rank in "01"]
    run(slurm, base, until=lambda _: all(it.exists() for it in logs))


@needs_slurm
def test_a_preempted_test_is_not_started_again(tmp_path: Path) -> None:
    with cluster(urgent=True) as made:
        slurm = Slurm({**os.environ, **made.environment})
        begun(slurm, tmp_path)
        made.ask("sbatch", "-p", "urgent", "-N2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 1")
        assert run(slurm, tmp_path)["a"].state == "PREEMPTED"
        assert run(slurm, tmp_path)["a"].state == "PREEMPTED"  # and it is known after a restart


@needs_slurm
def test_a_lost_node(tmp_path: Path) -> None:
    with cluster(lost_after=3) as real:
        slurm = Slurm({**os.environ, **real.environment})
        begun(slurm, tmp_path)
        real.end("node2", signal.SIGKILL)
        found = run(slurm, tmp_path)
        assert (found["a"].state, found["a"].word) == ("NODE_FAIL", "node failed")
        assert run(slurm, tmp_path)["a"].state == "NODE_FAIL"  # and it is known after a restart


@needs_slurm
def test_a_controller_that_forgets_finished_jobs_immediately(tmp_path: Path) -> None:
    with cluster(age=2) as short:
        slurm = Slurm({**os.environ, **short.environment})
        plan(tmp_path, {"a": "true", "b": "sleep 60", "c": "kill -9 $PPID"})
        run(slurm, tmp_path, until=lambda tests: tests[1].state == "RUNNING" and tests[0].over)
        (done,) = rounds.read(tmp_path)
        slurm.cancel([(done.job or 0, 1)])
        forgotten(slurm)
        found = run(slurm, tmp_path)
        assert found["a"].state == "COMPLETED"
        assert found["b"].state == "CANCELLED"  # Slurm wrote so into its log
        assert found["c"].state in ("FAILED", GONE)


def forgotten(slurm: Slurm) -> None:
    """Wait until the controller has forgotten all jobs."""
    limit = time.monotonic() + 120
    while slurm.queue():
        assert time.monotonic() < limit
        nap(0)
