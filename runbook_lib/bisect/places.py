"""The places where a run happens, and its verdict: this machine, with a user's command; a cluster.

A started run continues if this process is killed, and is found again: here by its claim and its lock, on a cluster by
the name of its job.
"""

import fcntl
import math
import os
import re
import shlex
import statistics
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from runbook_lib.bisect import overlays
from runbook_lib.bisect.overlays import INVALID, Overlay
from runbook_lib.bisect.request import BisectRequest
from runbook_lib.bisect.search import Trial
from runbook_lib.compute.slurm import jobs
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.errors import Unreachable
from runbook_lib.golden import values as golden_values
from runbook_lib.world.machine.files import make_folder, write
from runbook_lib.world.machine.subprocess_lines import user_environment

_CANNOT_TELL = 125  # the exit status of docker and podman without a container, and of `git bisect run` for skip
_MAX_OUTPUT, _LONGEST = 4_000_000, 40  # bytes from the end of an output, characters of a number


@dataclass(frozen=True)
class _Place:
    """A place of runs, whose ``folder`` has the ledger and a folder for each run."""

    request: BisectRequest
    folder: Path

    def folder_of(self, run: Trial) -> Path:
        """Return the folder of what a run writes."""
        return self.folder / "runs" / str(run.number)


@dataclass(frozen=True)
class LocalPlace(_Place):
    """This machine, where a user's command takes the image, in the ``checkout``."""

    checkout: Path
    gpus = 0

    def command(self, run: Trial, overlay: Overlay | None) -> str:
        """Return the user's command with the image filled in."""
        values = {
            "image": run.image, "overlay": str(self.folder_of(run) / "overlay.sh"), "tag": run.point.tag,
            "restored": f"{overlay.name}={overlay.old}" if overlay else "",
        }  # fmt: skip
        pattern = r"\{(image|overlay|tag|restored)\}"
        return re.sub(pattern, lambda match: shlex.quote(values[match[1]]), self.request.subject)

    def finish(self, run: Trial, overlay: Overlay | None) -> Trial:
        """Start a run unless it is already claimed, wait until it ends, and return it with its outcome."""
        folder, minutes = self.folder_of(run), self.request.minutes
        start = files(__package__).joinpath("run.sh").read_text("utf-8")
        make_folder(folder)
        for name, text in {
            "overlay.sh": overlays.script(overlay, self.folder),
            "run.sh": start.replace("@FOLDER@", shlex.quote(str(folder))).replace("@MINUTES@", str(minutes)),
            "command.sh": f"cd {shlex.quote(str(self.checkout))} || exit 1\n{self.command(run, overlay)}\n",
        }.items():  # fmt: skip
            write(folder / name, text)
        # Its own session, so that the run continues if this process is killed.
        process = subprocess.Popen(
            ["bash", str(folder / "run.sh")], start_new_session=True, env=user_environment(os.environ),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        process.wait()
        with open(folder / "lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # held by the run until it has ended
        status = jobs.number_in(folder / "ended")
        problem = f"it took longer than {minutes} minutes" if (folder / "timeout").exists() else ""
        if status is None:
            problem = "it was killed before it could report its exit status"
        return judge(self.request, run, overlay, folder, problem)


@dataclass(frozen=True)
class SlurmPlace(_Place):
    """A cluster.  ``test`` is the recipe's test, or the command in that form."""

    slurm: Slurm
    test: SelectedTest

    @property
    def gpus(self) -> int:
        """The number of GPUs that a run allocates."""
        return self.test.test.nodes * self.test.test.gpus

    @property
    def tree(self) -> Path:
        """The commit's archive."""
        return self.folder / "tree.tar"

    def command(self, run: Trial, overlay: Overlay | None) -> str:
        """Return the batch file and the script that each of its nodes runs."""
        return "\n".join(self._files(run, overlay).values())

    def finish(self, run: Trial, overlay: Overlay | None) -> Trial:
        """Submit a run unless that was done before, wait until it ends, and return it with its outcome."""
        folder = self.folder_of(run)
        job = jobs.of_folder(self.test, folder)
        if job.id is None:  # Slurm may know its name
            (job,) = jobs.submit(self.slurm, [job], lambda _: self._files(run, overlay))
        (job,) = jobs.follow(self.slurm, [job], wait=True)
        if not job.over:
            raise Unreachable(f"Job {job.id} is still {job.word}.", "Run the same command again to continue.")
        is_ended = job.state in ("COMPLETED", "FAILED") and job.code is not None  # else its node may have failed
        problem = "" if is_ended else f"Slurm reports {job.word} for job {job.id}"
        if job.state == "TIMEOUT":
            problem = f"it took longer than {self.request.minutes} minutes"
        return judge(self.request, run, overlay, folder, problem)

    def _files(self, run: Trial, overlay: Overlay | None) -> Mapping[Path, str]:
        script = overlays.script(overlay, self.folder).replace("{", "{{").replace("}", "}}")
        test = replace(self.test.test, script=script + self.test.test.script, time_limit=self.request.minutes * 60)
        image = run.image
        if "@" in image:  # Enroot does not accept digests
            image = f"{image.partition('@')[0]}:{run.point.tag}"
        site = replace(self.request.site, image=WorkImage.parse(image).enroot_address)
        return jobs.job_files(replace(self.test, test=test), site, self.folder_of(run), self.tree)


def judge(request: BisectRequest, run: Trial, overlay: Overlay | None, folder: Path, problem: str) -> Trial:
    """Return a run that has ended with its value, or as invalid or lost with the reason.

    ``folder`` has what it wrote; ``problem`` is why it has no value, if its place knows that.
    """
    status, output = jobs.number_in(folder / "ended"), _lines(folder / "node-0.out.log")
    error = " ".join(_lines(folder / "node-0.err.log")[-1:])[:200]
    nodes = [line.removeprefix(overlays.STARTED).strip() for line in output if line.startswith(overlays.STARTED)]
    if not (problem or nodes) and (not request.here or "{overlay}" in request.subject):
        problem = f"the container was not started (exit status {status}): {error}"
    run = replace(run, node="".join(nodes[:1])[:80])
    invalid = overlays.invalidity(overlay, output) if overlay else ""
    if invalid and (not problem or status == INVALID):
        return replace(run, outcome="invalid", reason=invalid[:400])
    if not problem and status == _CANNOT_TELL:
        problem = f"it ended with status {status}, so no container was started, or the command cannot tell: {error}"
    # A test whose golden values drifted fails, but has measured values anyway.
    if not problem and status and request.metric == "value":
        problem = f"it failed with exit status {status}, without producing a value: {error}".removesuffix(": ")
    if problem:
        return replace(run, outcome="lost", reason=problem)
    if request.metric == "exit":
        return replace(run, outcome="value", value=float(status == 0))
    is_printed = request.metric == "value"
    value = _last_number(output) if is_printed else _golden_value(folder, request.metric)
    if value is None:
        reason = "no line of its output ends with a number"
        if not is_printed:
            reason = f"none of its golden files has {request.metric}"
        return replace(run, outcome="lost", reason=reason)
    return replace(run, outcome="value", value=value)


def _lines(path: Path) -> list[str]:
    """Return the lines at the end of a file; none if it cannot be read."""
    return jobs.log_tail(path, _MAX_OUTPUT).decode("utf-8", "replace").splitlines()


def _last_number(output: list[str]) -> float | None:
    """Return the number at the end of the last line that ends with one, None if no line does."""
    for line in reversed(output):
        last = re.split(r"[\s:=]", line[-200:].strip())[-1]
        if line.startswith("runbook-") or len(last) > _LONGEST:
            continue
        with suppress(ValueError):
            if math.isfinite(float(last)):
                return float(last)
    return None


def _golden_value(folder: Path, metric: str) -> float | None:
    """Return the median of a metric over a run's golden files, ignoring the first half of the steps; None if absent."""
    values: list[float] = []
    for path in sorted(folder.glob("assets/**/*.json")):
        try:
            series = golden_values.parse(path.read_bytes()).series.get(metric, {})
        except (OSError, golden_values.BadGoldenFile):
            continue
        steps = [value for _, value in sorted(series.items()) if math.isfinite(value)]
        values += steps[len(steps) // 2 :]
    return statistics.median(values) if values else None
