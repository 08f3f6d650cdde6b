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
from runbook_lib.compute.slurm.follow import GONE, Follower, earlier_attempts, follow, submit
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


def begun(slurm: Slurm, base: Path) -> int:
    """Submit a test that runs on both nodes, and wait until it does; its job."""
    (planned,) = plan(base, {"a": WAITS}, nodes=2)
    logs = [planned.entries[0].folder / "assets/logs/1" / rank for rank in "01"]
    return run(slurm, base, until=lambda _: all(it.exists() for it in logs))["a"].entry.job or 0


@needs_slurm
def test_a_test_that_is_put_back_into_the_queue_waits_again(real: Cluster, slurm: Slurm, tmp_path: Path) -> None:
    job = begun(slurm, tmp_path)
    real.ask("scontrol", "requeue", f"{job}_0")
    again = run(slurm, tmp_path, until=lambda tests: tests[0].restarts == 1 and tests[0].state == "PENDING")
    assert again["a"].word == "waiting"
    slurm.cancel([(job, None)])
    assert run(slurm, tmp_path)["a"].state == "CANCELLED"


#: Leaves values that would fail, and waits; the second time it ends well.
TWICE = """\
if [ -z "${SLURM_RESTART_COUNT:-}" ]; then
    echo "ValueError: of the first attempt" >&2; echo cut >"$LOGS/../../golden.json"; touch "$LOGS/$NODE_RANK"; sleep 60
fi
echo "of the second" >&2
"""


@needs_slurm
def test_the_last_attempt_of_a_preempted_and_of_a_requeued_test_counts(tmp_path: Path) -> None:
    with cluster(urgent=True) as made:
        slurm = Slurm({**os.environ, **made.environment})
        (planned,) = plan(tmp_path, {"preempted": TWICE, "requeued": TWICE}, nodes=2)
        logs = [it.folder / "assets/logs/1" / rank for it in planned.entries for rank in "01"]
        job = run(slurm, tmp_path, until=lambda _: all(it.exists() for it in logs))["requeued"].entry.job
        made.ask("scontrol", "requeue", f"{job}_1")
        made.ask("sbatch", "-p", "urgent", "-N2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 1")
        found = run(slurm, tmp_path)
        assert {case: (it.state, it.restarts) for case, it in found.items()} == {
            "preempted": ("COMPLETED", 1), "requeued": ("COMPLETED", 1),
        }  # fmt: skip
    for case, why in (("preempted", " (preempted)"), ("requeued", "")):
        entry = found[case].entry
        assert "of the second" in (entry.folder / "node-0.err.log").read_text()
        assert "first" not in "".join(it.read_text() for it in entry.folder.rglob("*.log"))
        assert not (entry.folder / "assets/golden.json").exists()
        (before,) = entry.earlier
        assert "of the first attempt" in (before / "node-1.err.log").read_text()
        (told,) = earlier_attempts(entry)
        assert f"after attempt 1{why}." in told
        assert told.endswith(f"see {before}")


@needs_slurm
def test_a_lost_node(tmp_path: Path) -> None:
    with cluster(lost_after=3) as real:
        slurm = Slurm({**os.environ, **real.environment})
        job = begun(slurm, tmp_path)
        real.ask("scontrol", "update", f"jobid={job}_0", "Requeue=0")
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
