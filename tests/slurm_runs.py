"""A matrix in a folder, submitted and followed."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from runbook_lib.compute.slurm import rounds
from runbook_lib.compute.slurm.batch_files import arrays
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.follow import Follower, ObservedTest, submit
from runbook_lib.compute.slurm.rounds import Submission
from runbook_lib.compute.slurm.site import Site
from runbook_lib.recipes.parallelism import Connections
from runbook_lib.recipes.workloads import Workload

_NO_NEED = Connections(None, "Nothing requires it.")


def plan(base: Path, scripts: Mapping[str, str], nodes: int = 1, seconds: int = 600) -> tuple[Submission, ...]:
    """The next round, with tests of these names."""
    (base / "checkout").mkdir(parents=True, exist_ok=True)
    number = rounds.next_round(base)
    site = Site(str(base / "checkout"), str(base / str(number)))
    quoted = {name: script.replace("{", "{{").replace("}", "}}") for name, script in scripts.items()}
    tests = [
        Workload("r.yaml", "gpt", name, "dev", "dgx_h100", ("mr",), nodes, 2, seconds, script)
        for name, script in quoted.items()
    ]
    return rounds.write_round(base, number, arrays([(it, _NO_NEED) for it in tests], site))


def run(
    slurm: Slurm, base: Path, *, early: bool = False, until: Callable[[tuple[ObservedTest, ...]], bool] | None = None
) -> dict[str, ObservedTest]:
    """Submit what is planned and follow it: to the end, or until it is so."""
    done = [submit(slurm, array, sleep=nap) for array in rounds.read(base)]
    entries = rounds.newest(done).values()
    expected = {it.test.name: ("golden.json",) for it in entries}
    follower = Follower(slurm, entries, expected, early=early)
    limit = time.monotonic() + 180
    while True:
        tests = follower.poll()
        if until(tests) if until else all(it.over for it in tests):
            return {it.entry.test.case: it for it in tests}
        assert time.monotonic() < limit, tests
        nap(0)


def nap(_: float) -> None:
    time.sleep(0.1)
