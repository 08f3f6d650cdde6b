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
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from runbook_lib.bisect import overlays
from runbook_lib.bisect.image.ledger import LedgerRun
from runbook_lib.bisect.image.request import BisectRequest
from runbook_lib.bisect.overlays import INVALID, Overlay
from runbook_lib.compute.slurm import jobs
from runbook_lib.compute.slurm.batch_files import job_files
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.golden import values as golden_values
from runbook_lib.system import environment
from runbook_lib.system.files import make_folder, write

Overlays = tuple[Overlay, ...]
_NUMBER = re.compile(r"-?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][-+]?[0-9]{1,3})?")
_MAX_OUTPUT = 4_000_000  # bytes from the end of an output


@dataclass(frozen=True)
class RunEnd:
    """The end of a run, before its values are read.

    ``problem``: why it has none, if the place is at fault.  ``error``: the last line on standard error.
    """

    status: int | None
    node: str
    output: list[str]
    problem: str = ""
    error: str = ""


@dataclass(frozen=True)
class LocalPlace:
    """This machine, where a user's command takes the image."""

    request: BisectRequest
    folder: Path

    def command(self, run: LedgerRun, restored: Overlays) -> str:
        """Return the user's command with the image filled in."""
        script = str(self.folder / "runs" / str(run.number) / "overlay.sh")
        values = {
            "image": run.image, "overlay": script, "tag": run.point.tag,
            "restored": ",".join(f"{overlay.name}={overlay.old}" for overlay in restored),
        }  # fmt: skip
        pattern = r"\{(image|overlay|tag|restored)\}"
        return re.sub(pattern, lambda match: shlex.quote(values[match[1]]), self.request.subject)

    def finish(self, run: LedgerRun, restored: Overlays) -> RunEnd:
        """Start a run unless it is already claimed, and wait until it ends."""
        folder, request = self.folder / "runs" / str(run.number), self.request
        start = files(__package__).joinpath("run.sh").read_text("utf-8")
        start = start.replace("@FOLDER@", shlex.quote(str(folder))).replace("@MINUTES@", str(request.minutes))
        make_folder(folder)
        for name, text in {
            "overlay.sh": overlays.script(restored, str(self.folder / "overlays")), "run.sh": start,
            "command.sh": f"cd {shlex.quote(request.site.checkout)} || exit 1\n{self.command(run, restored)}\n",
        }.items():  # fmt: skip
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
        status = int(ended[0]) if ended else None
        end = _end(status, output, folder / "errors.log", is_announced="{overlay}" in request.subject)
        if status is None:
            end = replace(end, problem="it was killed before it could report its exit status")
        elif status == 124 and not end.problem:
            end = replace(end, problem=f"it took longer than {request.minutes} minutes")
        return replace(end, node=end.node or os.uname().nodename)


@dataclass(frozen=True)
class SlurmPlace:
    """A cluster.  ``test`` is the recipe's test, or the command in that form."""

    request: BisectRequest
    folder: Path
    slurm: Slurm
    test: SelectedTest

    @property
    def tree(self) -> Path:
        """The commit's archive."""
        return self.folder / "tree.tar"

    def command(self, run: LedgerRun, restored: Overlays) -> str:
        """Return the batch file and the script that each of its nodes runs."""
        return "\n".join(self._files(run, restored).values())

    def finish(self, run: LedgerRun, restored: Overlays) -> RunEnd:
        """Submit a run as a job unless that was done before, and wait until it ends."""
        job = jobs.of_folder(self.test.test, self._results(run))
        if job.id is None:
            (job,) = jobs.submit(self.slurm, [(job, self._files(run, restored))])  # unless Slurm knows its name

        def pause(seconds: float) -> None:
            deadline = time.monotonic() + seconds
            while job.code is None and time.monotonic() < deadline:
                time.sleep(0.2)

        (ended,) = jobs.follow(self.slurm, [job], {}, wait=True, sleep=pause)
        if not ended.over:
            raise Unreachable(f"Job {job.id} is still {ended.word}. Run the same command again to continue.")
        end = _end(job.code, _lines(job.folder / "node-0.out.log"), job.folder / "node-0.err.log")
        if ended.state == "TIMEOUT":
            return replace(end, problem=f"it took longer than {self.request.minutes} minutes")
        if ended.state not in ("COMPLETED", "FAILED") or job.code is None:  # its node may have failed
            return replace(end, problem=f"Slurm reports {ended.word} for job {job.id}")
        return end

    def _results(self, run: LedgerRun) -> Path:
        return self.folder / "runs" / str(run.number) / "1"

    def _files(self, run: LedgerRun, restored: Overlays) -> Mapping[Path, str]:
        script = overlays.script(restored, str(self.folder / "overlays")).replace("{", "{{").replace("}", "}}")
        test = self.test.test
        test = replace(test, script=script + test.script, time_limit=self.request.minutes * 60)
        image = run.image
        if "@" in image:  # Enroot does not accept digests
            image = f"{image.partition('@')[0]}:{run.point.tag}"
        site = replace(self.request.site, image=WorkImage.parse(image).enroot_address)
        return job_files(test, self.test.connections, site, self._results(run), self.tree)


def _end(status: int | None, output: list[str], errors: Path, *, is_announced: bool = True) -> RunEnd:
    """Return the end of a run; one that is announced printed so as soon as its container was started."""
    error = " ".join(_lines(errors)[-1:])[:200]
    nodes = [line.removeprefix(overlays.STARTED).strip() for line in output if line.startswith(overlays.STARTED)]
    if is_announced and not nodes:
        return RunEnd(status, "", output, f"the container was not started (exit status {status}): {error}", error)
    return RunEnd(status, "".join(nodes[:1]), output, "", error)


def _lines(path: Path) -> list[str]:
    """Return the lines at the end of a file; none if it cannot be read."""
    return jobs.log_tail(path, _MAX_OUTPUT).decode("utf-8", "replace").splitlines()


def judge(request: BisectRequest, run: LedgerRun, restored: Overlays, end: RunEnd, folder: Path) -> LedgerRun:
    """Return a run with its value, or as invalid or lost with the reason."""
    run = replace(run, node=end.node[:80])
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
