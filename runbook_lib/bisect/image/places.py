"""The places where a run happens, and its verdict: this machine, in a container or with a user's command; a cluster.

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
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from runbook_lib.bisect import overlays
from runbook_lib.bisect.image.ledger import LedgerRun
from runbook_lib.bisect.image.request import BisectRequest
from runbook_lib.bisect.overlays import INVALID, Overlay
from runbook_lib.compute.places import WorkPlace
from runbook_lib.compute.slurm import jobs
from runbook_lib.compute.slurm.batch_files import job_files
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.site import Site
from runbook_lib.compute.tasks import make_step
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.golden import values as golden_values
from runbook_lib.recipes.parallelism import Connections
from runbook_lib.recipes.workloads import Workload
from runbook_lib.system import environment
from runbook_lib.system.files import make_folder, write

Overlays = tuple[Overlay, ...]
#: The first line that a container prints: without it none was started, and the exit status is not the test's own.
_STARTED = "runbook-started:"
_NUMBER = re.compile(r"-?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][-+]?[0-9]{1,3})?")
_MAX_OUTPUT = 4_000_000  # bytes from the end of an output


@dataclass(frozen=True)
class RunEnd:
    """The end of a run, before its values are read.

    ``problem``: why it has none, if the place is at fault.  ``error``: the last line on standard error.
    """

    status: int | None
    seconds: float
    node: str
    output: list[str]
    problem: str = ""
    error: str = ""


def inside_script(restored: Overlays, folder: Path, command: str) -> str:
    """Return the script for the container: install and verify the overlays, then run the command."""
    started = f'echo "{_STARTED} ${{SLURM_JOB_NODELIST:-$(hostname)}}"'
    return "\n".join(filter(None, ["#!/bin/bash", started, overlays.script(restored, str(folder)), command])) + "\n"


@dataclass(frozen=True)
class LocalPlace:
    """This machine.  ``container`` is None for a user's command that takes an image."""

    request: BisectRequest
    folder: Path
    checkout: Path
    container: WorkPlace | None = None

    def command(self, run: LedgerRun, restored: Overlays) -> str:
        """Return the user's command with the image filled in, or the container engine's command."""
        folder = self.folder / "runs" / str(run.number)
        if self.container is None:
            values = {
                "image": run.image, "overlay": str(folder / "overlay.sh"), "tag": run.point.tag,
                "restored": ",".join(f"{overlay.name}={overlay.old}" for overlay in restored),
            }  # fmt: skip
            command = self.request.command
            return re.sub(r"\{(image|overlay|tag|restored)\}", lambda match: shlex.quote(values[match[1]]), command)
        container = replace(self.container, image=replace(self.container.image, name=run.image))
        step = make_step("run", {**container.values, "words": ("bash", str(folder / "inside.sh"))})
        return f"exec {shlex.join(container.command(step))}"

    def finish(self, run: LedgerRun, restored: Overlays) -> RunEnd:
        """Start a run unless it is already claimed, and wait until it ends."""
        folder = self.folder / "runs" / str(run.number)
        if (folder / "claim").exists():
            print(f"Run {run.number} was started before: waiting for it.")
        else:
            make_folder(folder)
            for name, text in self._files(folder, run, restored).items():
                write(folder / name, text)
            # Its own session, so that the run continues if this process is killed.
            process = subprocess.Popen(
                ["bash", str(folder / "run.sh")], start_new_session=True, env=environment.user_environment(os.environ),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            process.wait()
        with open(folder / "lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # held by the run until it has ended
        output, ended = _lines(folder / "output.log"), _lines(folder / "ended")
        if not ended:
            return RunEnd(None, 0, "", output, "it was killed before it could report its exit status")
        code, seconds, node = ended[0].split()
        problem, error = "", _last_line(folder / "errors.log")
        if self.container is not None:
            problem = _container_problem(int(code), output, error)
        if code == "124" and not problem:
            problem = f"it took longer than {self.request.minutes} minutes"
        return RunEnd(int(code), float(seconds), node, output, problem, error)

    def _files(self, folder: Path, run: LedgerRun, restored: Overlays) -> Mapping[str, str]:
        """Return a run's files by name."""
        start, overlay_folder = files(__package__).joinpath("run.sh").read_text("utf-8"), self.folder / "overlays"
        start = start.replace("@FOLDER@", shlex.quote(str(folder))).replace("@MINUTES@", str(self.request.minutes))
        return {
            "inside.sh": inside_script(restored, overlay_folder, self.request.command), "run.sh": start,
            "command.sh": f"cd {shlex.quote(str(self.checkout))} || exit 1\n{self.command(run, restored)}\n",
            "overlay.sh": overlays.script(restored, str(overlay_folder)),
        }  # fmt: skip


@dataclass(frozen=True)
class SlurmPlace:
    """A cluster.  ``workload`` is the recipe's test, or the command in that form."""

    request: BisectRequest
    folder: Path
    site: Site
    slurm: Slurm
    workload: Workload
    connections: Connections

    @property
    def tree(self) -> Path:
        """The commit's archive."""
        return self.folder / "tree.tar"

    def command(self, run: LedgerRun, restored: Overlays) -> str:
        """Return the batch file and the script that each of its nodes runs."""
        return "\n".join(self._files(run, restored).values())

    def finish(self, run: LedgerRun, restored: Overlays) -> RunEnd:
        """Submit a run as a job unless that was done before, and wait until it ends."""
        job = jobs.of_folder(self.workload, self._results(run))
        if job.id is None:
            (job,) = jobs.submit(self.slurm, [(job, self._files(run, restored))])  # unless Slurm knows its name

        def pause(seconds: float) -> None:
            deadline = time.monotonic() + seconds
            while job.code is None and time.monotonic() < deadline:
                time.sleep(0.2)

        (test,) = jobs.follow(self.slurm, [job], {}, wait=True, sleep=pause)
        output, error = _lines(job.folder / "node-0.out.log"), _last_line(job.folder / "node-0.err.log")
        problem = _container_problem(job.code, output, error)
        if not test.over:
            raise Unreachable(f"Job {job.id} is still {test.word}. Run the same command again to continue.")
        if test.state == "TIMEOUT":
            problem = f"it took longer than {self.request.minutes} minutes"
        elif test.state not in ("COMPLETED", "FAILED") or job.code is None:  # its node may have failed
            problem = f"Slurm reports {test.word} for job {job.id}"
        node = next((line.removeprefix(_STARTED).strip() for line in output if line.startswith(_STARTED)), "")
        return RunEnd(job.code, _elapsed(job.folder), node, output, problem, error)

    def _results(self, run: LedgerRun) -> Path:
        return self.folder / "runs" / str(run.number) / "1"

    def _files(self, run: LedgerRun, restored: Overlays) -> Mapping[Path, str]:
        script = inside_script(restored, self.folder / "overlays", "").replace("{", "{{").replace("}", "}}")
        workload = replace(self.workload, script=script + self.workload.script, time_limit=self.request.minutes * 60)
        image = run.image
        if "@" in image:  # Enroot does not accept digests
            image = f"{image.partition('@')[0]}:{run.point.tag}"
        site = replace(self.site, image=WorkImage.parse(image).enroot_address)
        return job_files(workload, self.connections, site, self._results(run), self.tree)


def _container_problem(status: int | None, output: list[str], error: str) -> str:
    """Return the reason why the container was not started; empty if it was."""
    if any(line.startswith(_STARTED) for line in output):
        return ""
    return f"the container was not started (exit status {status}): {error}"


def _last_line(path: Path) -> str:
    return " ".join(_lines(path)[-1:])[:200]


def _lines(path: Path) -> list[str]:
    """Return the lines at the end of a file; none if it cannot be read."""
    return jobs.log_tail(path, _MAX_OUTPUT).decode("utf-8", "replace").splitlines()


def _elapsed(folder: Path) -> float:
    """Return the seconds between the start and the end of a job, by the files that it wrote; 0 if one is missing."""
    try:
        return (folder / "ended").stat().st_mtime - (folder / "started").stat().st_mtime
    except OSError:
        return 0.0


def judge(request: BisectRequest, run: LedgerRun, restored: Overlays, end: RunEnd, folder: Path) -> LedgerRun:
    """Return a run with its value, or as invalid or lost with the reason."""
    run = replace(run, status=end.status, node=end.node[:80], seconds=end.seconds)
    invalid = overlays.invalidity(restored, end.output)
    if invalid and (not end.problem or end.status == INVALID):
        return replace(run, outcome="invalid", reason=invalid[:400])
    if end.problem:
        return replace(run, outcome="lost", reason=end.problem)
    if request.metric == "exit":
        return replace(run, outcome="value", value=float(end.status == 0))
    # A test whose golden values drifted fails, but has measured values anyway.
    if end.status and request.metric == "value":
        reason = f"it failed with exit status {end.status}, without producing a value: {end.error}"
        return replace(run, outcome="lost", reason=reason.removesuffix(": "))
    try:
        value = _last_number(end.output) if request.metric == "value" else _golden_value(folder, request.metric)
    except RunbookError as error:
        return replace(run, outcome="lost", reason=str(error))
    return replace(run, outcome="value", value=value)


def _last_number(output: list[str]) -> float:
    """Return the number at the end of the last line that ends with one."""
    for line in reversed(output):
        last = re.split(r"[\s:=]", line[-200:].strip())[-1]
        match = None if line.startswith("runbook-") else _NUMBER.fullmatch(last)
        if match and math.isfinite(float(match[0])):
            return float(match[0])
    raise RunbookError("no line of its output ends with a number")


def _golden_value(folder: Path, metric: str) -> float:
    """Return the median of a metric over a run's golden files, ignoring the first half of the steps."""
    values: list[float] = []
    for path in sorted(folder.glob("1/assets/**/*.json")):
        try:
            series = golden_values.parse(path.read_bytes()).series.get(metric, {})
        except (OSError, golden_values.BadGoldenFile):
            continue
        steps = [value for _, value in sorted(series.items()) if math.isfinite(value)]
        values += steps[len(steps) // 2 :]
    if not values:
        raise RunbookError(f"none of its golden files has {metric}")
    return statistics.median(values)
