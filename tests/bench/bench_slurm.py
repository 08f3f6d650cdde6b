"""What a matrix of tests costs Slurm: calls of sbatch, and queries of the scheduler a poll, counted on a real cluster.

    environment/run python tests/bench/bench_slurm.py [TESTS]

or ``environment/run pytest -n0 tests/bench/bench_slurm.py``.  Targets: at most 5 calls of sbatch for 500 tests, and at
most one query a poll whatever their number.  Beside it, on the same cluster, a job a test, each asked for by its id, as
scripts do it; for fewer tests, since that is slow.  Starts a Slurm of two nodes on this machine, on loopback
(``environment/components slurm``).
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from slurm_cluster import Cluster, cluster

from runbook_lib.recipes.device_connections import Connections
from runbook_lib.recipes.workloads import Workload
from runbook_lib.slurm import submissions
from runbook_lib.slurm.batch_files import CALLS, arrays
from runbook_lib.slurm.client import Slurm
from runbook_lib.slurm.follow import Follower, submit
from runbook_lib.slurm.site import Site

TESTS, SINGLE = 500, 40
#: Nodes and GPUs of the tests, as the recipes have them.
SHAPES = ((1, 8), (1, 1), (2, 4), (1, 4))


def matrix(slurm: Slurm, base: Path, count: int) -> tuple[int, int, int, float, float]:
    """Calls of sbatch, polls, most queries of a poll; seconds to render and submit, and of the longest poll."""
    (base / "checkout").mkdir(parents=True)
    begun = time.monotonic()
    tests = [
        Workload("r", "gpt", f"t{i}", "dev", "dgx_h100", (), *SHAPES[i % 4], 600 + 60 * (i % 3), "sleep 3600")
        for i in range(count)
    ]
    site = Site(str(base / "checkout"), str(base / "1"))
    submissions.write_round(base, 1, arrays([(it, Connections(None, "")) for it in tests], site))
    done = submit(slurm, submissions.read(base))
    submitted = time.monotonic() - begun
    follower = Follower(slurm, submissions.newest(done).values())
    most, longest, polls = 0, 0.0, 10
    for _ in range(polls):
        before, begun = slurm.calls.total(), time.monotonic()
        assert len(follower.poll()) == count
        most, longest = max(most, slurm.calls.total() - before), max(longest, time.monotonic() - begun)
    slurm.cancel((it.job or 0, None) for it in done)
    return slurm.calls["sbatch"], polls, most, submitted, longest


def one_by_one(env: Mapping[str, str], base: Path, count: int) -> tuple[int, int, float, float]:
    """Calls of sbatch, queries of a poll, seconds of all calls and of a poll, with a job a test."""
    file = base / "single.sbatch"
    file.write_text("#!/bin/bash\n#SBATCH --output=/dev/null\nsleep 3600\n")
    begun = time.monotonic()
    jobs = [ask(env, "sbatch", "--parsable", str(file)) for _ in range(count)]
    submitted, begun = time.monotonic() - begun, time.monotonic()
    for job in jobs:
        ask(env, "squeue", "--noheader", "-j", job, "-o", "%T")
    polled = time.monotonic() - begun
    ask(env, "scancel", *jobs)
    return len(jobs), len(jobs), submitted, polled


def ask(env: Mapping[str, str], *command: str) -> str:
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.strip()


def measure(made: Cluster, base: Path, count: int) -> tuple[int, int]:
    """Print both, and return the calls of sbatch and the most queries of a poll."""
    env = {**os.environ, **made.environment}
    calls, polls, most, submitted, longest = matrix(Slurm(env), base / "matrix", count)
    print(f"{count} tests in arrays:  {calls} calls of sbatch (target {CALLS}), {submitted:.2f} s with rendering;")
    print(f"  a poll: {most} query (target 1), at most {longest:.2f} s, over {polls} polls")
    single, queries, took, poll = one_by_one(env, base, SINGLE)
    print(
        f"{single} tests, a job each:  {single} calls of sbatch, {took:.2f} s; a poll: {queries} queries, {poll:.2f} s"
    )
    print(f"  so {count} tests would take {count} calls, {took / single * count:.0f} s, and a poll {count} queries")
    return calls, most


@pytest.mark.component("slurm")
def test_a_matrix_of_500_tests_keeps_its_targets(tmp_path: Path) -> None:
    with cluster() as made:
        calls, most = measure(made, tmp_path, TESTS)
    assert (calls <= CALLS, most <= 1) == (True, True)


if __name__ == "__main__":
    with cluster() as up, tempfile.TemporaryDirectory() as folder:
        measure(up, Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else TESTS)
