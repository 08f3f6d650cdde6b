"""The runs of a search on a cluster, one after another in one allocation, so that node differences cancel out.

The allocation is a job that runs each batch file once, as soon as it is written; the claim on a file is never
released.  It continues if this process is killed, and is found again by its job name.  Without another run it ends.
"""

import shlex
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from runbook_lib.bisect.image import places
from runbook_lib.bisect.image.ledger import LedgerRun
from runbook_lib.bisect.image.request import BisectRequest
from runbook_lib.bisect.overlays import Overlay
from runbook_lib.compute.slurm import batch_files, follow, rounds
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.site import Site
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.recipes import device_connections, workloads
from runbook_lib.system import files
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
    workload: workloads.Workload
    connections: device_connections.Connections
    tree: Path
    _followers: dict[str, follow.Follower] = field(default_factory=dict)

    def command(self, run: LedgerRun, restored: tuple[Overlay, ...]) -> str:
        """Return the batch file and the script that each of its nodes runs."""
        return "\n".join(self._batch(run, restored).files.values())

    def finish(self, run: LedgerRun, restored: tuple[Overlay, ...]) -> places.RunEnd:
        """Pass a run to the allocation unless that was done before, and wait until it ends."""
        folder = self.folder / "runs" / str(run.number)
        if not (folder / "batch").exists():
            batch = self._batch(run, restored)
            files.make_folder(Path(batch.tasks[0].folder))
            if not (folder / "1" / batch_files.TREE).is_symlink() and self.tree.exists():
                (folder / "1" / batch_files.TREE).symlink_to(self.tree)
            for path, text in batch.files.items():
                files.write(Path(path), text)
            files.write(folder / "batch", f"exec bash {shlex.quote(batch.path)}\n")

        def pause(seconds: float) -> None:
            deadline = time.monotonic() + seconds
            while not (folder / "ended").exists() and time.monotonic() < deadline:
                time.sleep(0.2)

        end = polling.follow(
            lambda: self._end(folder) or self._poll(folder),
            lambda end: polling.Observation("", over=end is not None),
            wait=True, sleep=pause, unreachable="The run continues in the meantime. Retrying.",
        )  # fmt: skip
        assert end is not None
        return end

    def release(self) -> None:
        """End the allocation after the last run of a search."""
        for allocation in rounds.read(self._allocations)[-1:]:
            files.write(allocation.folder / "stop", "")

    @property
    def _allocations(self) -> Path:
        return self.folder / "allocations"

    def _poll(self, folder: Path) -> places.RunEnd | None:
        """Return the end of a run whose allocation did not survive it; request an allocation if there is none."""
        allocations = rounds.read(self._allocations)
        if allocations:
            # Submit it unless Slurm already knows the name.
            allocation = follow.submit(self.slurm, allocations[-1])
            follower = self._followers.setdefault(allocation.name, follow.Follower(self.slurm, allocation.entries))
            (job,) = follower.poll()
            if not job.over:
                return None
            if end := self._end(folder):
                return end
            own = "".join(places.read_lines(folder / "allocation")) == allocation.name
            if own or (folder / "claim").exists():
                output = self._output(folder, "out")
                return places.RunEnd(None, 0, "", output, f"Slurm reports {job.word} for job {job.entry.job}")
        number = rounds.next_round(self._allocations)
        array = self._allocation(number)
        files.write(folder / "allocation", array.name)
        (allocation,) = rounds.write_round(self._allocations, number, [array])
        follow.submit(self.slurm, allocation)
        return None

    def _end(self, folder: Path) -> places.RunEnd | None:
        end = places.read_end(folder)
        if end is None:
            return None
        status, seconds, node = end
        output = self._output(folder, "out")
        errors = next(folder.glob("1/*/0/node-0.err.log"), folder / "none")
        problem = places.container_problem(status, output, places.last_line(errors))
        if "DUE TO TIME LIMIT" in " ".join(places.read_lines(errors)[-20:]):
            problem = f"it took longer than {self.request.minutes} minutes"
        return places.RunEnd(status, seconds, node, output, problem, places.last_line(errors))

    def _output(self, folder: Path, stream: str) -> list[str]:
        return places.read_lines(next(folder.glob(f"1/*/0/node-0.{stream}.log"), folder / "none"))

    def _allocation(self, number: int) -> batch_files.JobArray:
        """Return the job that allocates nodes and runs batch files on them."""
        seconds = _RUNS * self.request.minutes * 60
        site = replace(self.site, results=str(self._allocations / str(number)), image="", images={})
        (array,) = batch_files.arrays([(replace(self.workload, time_limit=seconds, script=""), self.connections)], site)
        text = places.fill_script(
            "allocation.sh",
            DIRECTIVES="\n".join(line for line in array.text.splitlines() if line.startswith("#SBATCH")),
            FOLDER=shlex.quote(array.folder), RUNS=shlex.quote(str(self.folder / "runs")),
            MINUTES=str(self.request.minutes), SECONDS=str(seconds), IDLE=str(_IDLE),
        )  # fmt: skip
        return replace(array, text=text)

    def _batch(self, run: LedgerRun, restored: tuple[Overlay, ...]) -> batch_files.JobArray:
        folder = self.folder / "runs" / str(run.number)
        script = places.inside_script(restored, self.folder / "overlays", "").replace("{", "{{").replace("}", "}}")
        workload = replace(self.workload, script=script + self.workload.script, time_limit=self.request.minutes * 60)
        image = run.image
        if "@" in image and self.site.runtime != "apptainer":  # Enroot does not accept digests
            image = f"{image.partition('@')[0]}:{run.point.tag}"
        image = image.replace("/", "#", 1) if "@" in image else WorkImage.parse(image).enroot_address
        mounts = (*self.site.mounts, (str(self.folder), str(self.folder)))
        site = replace(self.site, results=str(folder / "1"), image=image, images={}, mounts=mounts)
        (array,) = batch_files.arrays([(workload, self.connections)], site)
        return array
