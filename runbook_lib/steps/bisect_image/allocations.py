"""The runs of a search on a cluster, one after another in one allocation, so that node differences cancel out.

The allocation is a job that runs each batch file once, as soon as it is written; the claim on a file is never
released.  It continues if this process is killed, and is found again by its job name.  Without another run it ends.
"""

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path

from runbook_lib.bisect.overlays import Overlay
from runbook_lib.containers.work.image import WorkImage
from runbook_lib.recipes.device_connections import Connections
from runbook_lib.recipes.workloads import Workload
from runbook_lib.slurm import follow, submissions
from runbook_lib.slurm.batch_files import TREE, JobArray, arrays
from runbook_lib.slurm.client import Slurm
from runbook_lib.slurm.follow import Follower
from runbook_lib.slurm.site import Site
from runbook_lib.slurm.submissions import Submission
from runbook_lib.steps.bisect_image.ledger import LedgerRun
from runbook_lib.steps.bisect_image.places import (
    RunEnd,
    container_problem,
    inside_script,
    last_line,
    read_end,
    read_lines,
)
from runbook_lib.steps.bisect_image.request import BisectRequest
from runbook_lib.system import atomic_files
from runbook_lib.transport import polling

#: An allocation's time limit, as a multiple of a run's.
_RUNS = 4
#: Seconds for which an allocation waits for its next run.
_IDLE = 60


@dataclass(frozen=True)
class SlurmPlace:
    """A cluster.  ``workload`` is the recipe's test, or the command in that form; ``tree`` the commit's archive."""

    request: BisectRequest
    folder: Path
    site: Site
    slurm: Slurm
    workload: Workload
    connections: Connections
    tree: Path
    wait: bool = True
    _followers: dict[str, Follower] = field(default_factory=dict)

    def command(self, run: LedgerRun, restored: tuple[Overlay, ...]) -> str:
        """Return the batch file and the script that each of its nodes runs."""
        return "\n".join(self._batch(run, restored).files.values())

    def finish(self, run: LedgerRun, restored: tuple[Overlay, ...], say: Callable[[str], object]) -> RunEnd | None:
        """Pass a run to the allocation unless that was done before, and wait until it ends."""
        folder = self.folder / "runs" / str(run.number)
        if not (folder / "batch").exists():
            batch = self._batch(run, restored)
            atomic_files.make_folder(Path(batch.tasks[0].folder))
            if not (folder / "1" / TREE).is_symlink() and self.tree.exists():
                (folder / "1" / TREE).symlink_to(self.tree)
            for path, text in batch.files.items():
                atomic_files.write(Path(path), text)
            atomic_files.write(folder / "batch", f"exec bash {shlex.quote(batch.path)}\n", durable=True)

        def pause(seconds: float) -> None:
            deadline = time.monotonic() + seconds
            while not (folder / "ended").exists() and time.monotonic() < deadline:
                time.sleep(0.2)

        return polling.follow(
            lambda: self._end(folder) or self._poll(folder, say),
            lambda end: polling.Observation("", over=end is not None),
            wait=self.wait, sleep=pause, say=say, unreachable="The run continues in the meantime. Retrying.",
        )  # fmt: skip

    def release(self) -> None:
        """End the allocation after the last run of a search."""
        for allocation in submissions.read(self._allocations)[-1:]:
            atomic_files.write(allocation.folder / "stop", "")

    @property
    def _allocations(self) -> Path:
        return self.folder / "allocations"

    def _poll(self, folder: Path, say: Callable[[str], object]) -> RunEnd | None:
        """Return the end of a run whose allocation did not survive it; request an allocation if there is none."""
        allocations = submissions.read(self._allocations)
        if allocations:
            # Submit it unless Slurm already knows the name.
            (allocation,) = follow.submit(self.slurm, allocations[-1:], say=say)
            follower = self._followers.setdefault(allocation.name, Follower(self.slurm, allocation.entries))
            (job,) = follower.poll()
            if not job.over:
                return None
            if end := self._end(folder):
                return end
            own = "".join(read_lines(folder / "allocation")) == allocation.name
            if own or (folder / "claim").exists():
                output = self._output(folder, "out")
                return RunEnd(None, 0, "", output, f"Slurm reports {job.word} for job {job.entry.job}")
        array = self._allocation(submissions.next_round(self._allocations))
        atomic_files.write(folder / "allocation", array.name)
        follow.submit(self.slurm, self._write(array), say=say)
        return None

    def _write(self, array: JobArray) -> tuple[Submission, ...]:
        return submissions.write_round(self._allocations, submissions.next_round(self._allocations), [array])

    def _end(self, folder: Path) -> RunEnd | None:
        end = read_end(folder)
        if end is None:
            return None
        status, seconds, node = end
        output = self._output(folder, "out")
        errors = next(folder.glob("1/*/0/node-0.err.log"), folder / "none")
        problem = container_problem(status, output, last_line(errors))
        if "DUE TO TIME LIMIT" in " ".join(read_lines(errors)[-20:]):
            problem = f"it took longer than {self.request.minutes} minutes"
        return RunEnd(status, seconds, node, output, problem, last_line(errors))

    def _output(self, folder: Path, stream: str) -> list[str]:
        return read_lines(next(folder.glob(f"1/*/0/node-0.{stream}.log"), folder / "none"))

    def _allocation(self, number: int) -> JobArray:
        """Return the job that allocates nodes and runs batch files on them."""
        seconds = _RUNS * self.request.minutes * 60
        site = replace(self.site, results=str(self._allocations / str(number)), image="", images={})
        (array,) = arrays([(replace(self.workload, time_limit=seconds, script=""), self.connections)], site)
        values = {
            "@DIRECTIVES@": "\n".join(line for line in array.text.splitlines() if line.startswith("#SBATCH")),
            "@FOLDER@": shlex.quote(array.folder), "@RUNS@": shlex.quote(str(self.folder / "runs")),
            "@MINUTES@": str(self.request.minutes), "@SECONDS@": str(seconds), "@IDLE@": str(_IDLE),
        }  # fmt: skip
        text = files(__package__).joinpath("allocation.sh").read_text("utf-8")
        for name, value in values.items():
            text = text.replace(name, value)
        return replace(array, text=text)

    def _batch(self, run: LedgerRun, restored: tuple[Overlay, ...]) -> JobArray:
        folder = self.folder / "runs" / str(run.number)
        script = inside_script(self.request, restored, self.folder / "overlays", "")
        workload = replace(
            self.workload, script=_escape(script) + self.workload.script, time_limit=self.request.minutes * 60
        )
        image = run.image
        if "@" in image and self.site.runtime != "apptainer":  # Enroot does not accept digests
            image = f"{image.partition('@')[0]}:{run.point.tag}"
        image = WorkImage.parse(image).enroot_address if "@" not in image else image.replace("/", "#", 1)
        mounts = (*self.site.mounts, (str(self.folder), str(self.folder)))
        site = replace(self.site, results=str(folder / "1"), image=image, images={}, mounts=mounts)
        (array,) = arrays([(workload, self.connections)], site)
        return array


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
