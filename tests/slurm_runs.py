"""Jobs in a folder, submitted and followed."""

import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from runbook_lib.compute.slurm import jobs
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.jobs import SlurmJob
from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.slurm.site import Resources, Site
from runbook_lib.compute.workloads import Workload

SITE = Site(image="/image.sqsh", options=("--oversubscribe",))


class CountingSlurm(Slurm):
    """Slurm that counts the commands it is asked to run; a check of a batch file is not a submission."""

    def __init__(self, env: Mapping[str, str]) -> None:
        super().__init__(env)
        self.calls: list[str] = []

    def _run(self, program: str, *arguments: str, text: str = "") -> str:
        self.calls.append("check" if "--test-only" in arguments else program)
        return super()._run(program, *arguments, text=text)


def plan(base: Path, scripts: Mapping[str, str], nodes: int = 1) -> list[SlurmJob]:
    """Jobs for tests of these names."""
    base.mkdir(parents=True, exist_ok=True)
    tarfile.open(base / jobs.TREE, "w").close()
    planned = []
    for name, script in scripts.items():
        quoted = script.replace("{", "{{").replace("}", "}}")
        test = Workload("r.yaml", "gpt", name, "dev", "dgx_h100", ("mr",), Resources(nodes, 2, 10), quoted)
        planned.append(jobs.of_folder(SelectedTest(test, golden={"golden.json": None}), base / test.name / "1"))
    return planned


def run(
    slurm: Slurm, planned: Sequence[SlurmJob], *, early: bool = False,
    until: Callable[[tuple[SlurmJob, ...]], bool] = lambda found: all(job.over for job in found),
) -> dict[str, SlurmJob]:  # fmt: skip
    """Submit what has no ID yet and follow it until it is so, by default to the end."""
    known = [jobs.of_folder(job.entry, job.folder) for job in planned]
    new = [job for job in known if job.id is None]
    started = [
        *(job for job in known if job.id is not None),
        *(jobs.submit(slurm, new, SITE, lambda _: time.sleep(0.1)) if new else ()),
    ]
    limit = time.monotonic() + 180
    while not until(found := jobs.poll(slurm, started, early=early)):
        assert time.monotonic() < limit, found
        time.sleep(0.1)
    return {job.entry.test.case: job for job in found}
