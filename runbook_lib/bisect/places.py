"""The subject of a search, the places of its runs, and the judgement on a run.

A command that takes the image runs on this machine, all else on a cluster.  A started run continues if this process is
killed, and is found again: here by its claim and its lock, on a cluster by the name of its job.
"""

import fcntl
import hashlib
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from runbook_lib.bisect import overlays
from runbook_lib.bisect.overlays import INVALID, Overlay
from runbook_lib.bisect.search import MAX_RUNS, Trial
from runbook_lib.compute.slurm import jobs
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.jobs import SlurmJob
from runbook_lib.compute.slurm.selection import SelectedTest, read_commit_tests
from runbook_lib.compute.slurm.site import Resources, Site
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.compute.workloads import Workload
from runbook_lib.errors import Refused, Unreachable
from runbook_lib.golden import values as golden_values
from runbook_lib.images.reference import Tag
from runbook_lib.pins.bump import Bump
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.machine.files import make_folder, write
from runbook_lib.world.machine.subprocess_lines import user_environment

_RECIPE_TEST = re.compile(r"[\w.-]+/[\w.-]+@[\w.-]+")
#: The exit status, which an empty text means too, or a metric and which of its values are better.
_METRIC = re.compile(r"(?:exit)?|(?!exit )(\S+) (higher|lower)")
_CANNOT_TELL = 125  # the exit status of docker and podman without a container, and of `git bisect run` for skip
_MAX_OUTPUT, _LONGEST = 4_000_000, 40  # bytes from the end of an output, characters of a number
_NO_PLACE = (
    "A test or a command runs on the cluster of the site file, which has no results: a folder visible to all nodes. A "
    'command that runs here names its image, such as: docker run --rm --gpus all -v "$PWD:$PWD" -w "$PWD" {image} '
    "bash -c '. {overlay} && pytest tests/unit_tests'"
)


@dataclass(frozen=True)
class BisectRequest:
    """A search from the ``good`` to the ``bad`` tag, of at most ``runs`` runs.

    ``subject`` is what is measured: a recipe's test, or a command.  ``metric`` is ``exit``, ``value`` (the last number
    that the command prints), or a metric of the test's golden values.  ``site`` has the time limit, GPUs and images.
    """

    good: Tag
    bad: Tag
    subject: str
    metric: str
    higher_is_better: bool
    runs: int
    site: Site

    @property
    def here(self) -> bool:
        """True for a command that takes the image, and runs on this machine; all else runs on the cluster."""
        return "{image}" in self.subject or "{tag}" in self.subject

    @property
    def minutes(self) -> int:
        """The time limit of a run, half an hour unless the site file has another."""
        return self.site.session.minutes or 30

    @property
    def measured(self) -> str:
        """The values of its runs, in words."""
        if self.metric == "exit":
            return "passed (1) or failed (0)"
        return f"{self.metric}, {'higher' if self.higher_is_better else 'lower'} is better"

    @property
    def key(self) -> str:
        """A name for this search, whatever its budget: the same parameters continue it."""
        facts = [str(self.good), str(self.bad), self.subject, self.measured, self.site.search_image]
        return hashlib.sha256(json.dumps([*facts, self.site.components]).encode()).hexdigest()[:12]


def parse(
    bump: Bump, site: Site, good: str, test: str, metric: str = "exit", budget: str = "40", *, practice: bool = False
) -> BisectRequest:
    """Return the search that the parameters describe.  Raises RunbookError, mostly Refused."""
    family = bump.repository.sites.family
    if not bump.tag:
        raise Refused("A search needs two tags: good, the newest that works, and tag, one that does not.")
    first, last = family.read(good), family.read(str(bump.tag))
    if not first.is_older(last):
        raise Refused(f"good={first} must be older than tag={last}, and of the same kind.", "Swap or correct them.")
    subject = test.strip()
    if not subject:
        raise Refused("Name a recipe's test as model/case@platform, or the command to run in each image.")
    if practice and (simulated := re.fullmatch("practice (.+)", subject)):
        python = shlex.quote(sys.executable)
        subject = f"{python} -m runbook_lib.practice.workload {simulated[1]} {{tag}} {{restored}}"
    if not re.fullmatch(r"[0-9]{1,4}", budget) or not 4 <= int(budget) <= MAX_RUNS:
        raise Refused(f"budget={budget!r} is not a number of runs from 4 to {MAX_RUNS}, such as 40.")
    measured = _METRIC.fullmatch(metric.strip())
    if measured is None or not (measured[1] in (None, "value") or _RECIPE_TEST.fullmatch(subject)):
        raise Refused(
            f"metric={metric!r} is not exit, value lower or value higher; nor, for a recipe's test, a golden metric "
            "and which of its values are better, such as iteration-time lower."
        )
    request = BisectRequest(first, last, subject, measured[1] or "exit", measured[2] != "lower", int(budget), site)
    if not (request.here or site.results):
        raise Refused(_NO_PLACE)
    return request


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
        make_folder(folder)
        write(folder / "overlay.sh", overlays.script(overlay, self.folder))
        write(folder / "command.sh", f"cd {shlex.quote(str(self.checkout))} || exit 1\n{self.command(run, overlay)}\n")
        script = files(__package__).joinpath("run.sh").read_text("utf-8")
        # Its own session, so that the run continues if this process is killed.
        subprocess.Popen(
            ["bash", "-c", script, "run.sh", str(folder), str(minutes)],
            start_new_session=True, env=user_environment(os.environ),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ).wait()  # fmt: skip
        with open(folder / "lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # held by the run until it has ended
        problem = f"it took longer than {minutes} minutes" if (folder / "timeout").exists() else ""
        return judge(self.request, run, overlay, folder, problem)


@dataclass(frozen=True)
class SlurmPlace(_Place):
    """A cluster.  ``test`` is the recipe's test, or the command in that form."""

    slurm: Slurm
    test: SelectedTest

    def command(self, run: Trial, overlay: Overlay | None) -> str:
        """Return the batch file and the script that each of its nodes runs."""
        return "\n".join(jobs.job_files(*self._job(run, overlay)).values())

    def finish(self, run: Trial, overlay: Overlay | None) -> Trial:
        """Submit a run unless that was done before, wait until it ends, and return it with its outcome."""
        job, site = self._job(run, overlay)
        if job.id is None:  # Slurm may know its name
            (job,) = jobs.submit(self.slurm, [job], site)
        (job,) = jobs.follow(self.slurm, [job])
        if not job.over:
            raise Unreachable(f"Job {job.id} is still {job.word}.", "Run the same command again to continue.")
        problem = "" if job.state in ("COMPLETED", "FAILED") else f"Slurm reports {job.word} for job {job.id}"
        if job.state == "TIMEOUT":
            problem = f"it took longer than {self.request.minutes} minutes"
        return judge(self.request, run, overlay, job.folder, problem)

    def _job(self, run: Trial, overlay: Overlay | None) -> tuple[SlurmJob, Site]:
        """Return the job of a run, and the site with its image."""
        script = overlays.script(overlay, self.folder).replace("{", "{{").replace("}", "}}")
        needs = replace(self.test.test.needs, minutes=self.request.minutes)
        test = replace(self.test.test, script=script + self.test.test.script, needs=needs)
        name, _, digest = run.image.partition("@")
        image = f"{name}:{run.point.tag}" if digest else name  # Enroot does not accept digests
        site = replace(self.request.site, image=WorkImage.parse(image).enroot_address)
        return jobs.of_folder(replace(self.test, test=test), self.folder_of(run)), site


def test_of(branch: BumpBranch, request: BisectRequest) -> SelectedTest:
    """Return the test named ``model/case@platform`` in the bump's recipes, or the command in that form."""
    if not _RECIPE_TEST.fullmatch(request.subject):
        session, script = request.site.session, request.subject.replace("{", "{{").replace("}", "}}")
        needs = Resources(session.nodes, session.gpus_per_node, request.minutes)
        named = ("the parameter test", "bisect", request.key, branch.bump.image_type, "any")
        return SelectedTest(Workload(*named, (), needs, script))
    name, _, platform = request.subject.partition("@")
    tests, _ = read_commit_tests(branch, replace(request.site, platform=platform), name)
    if len(tests) != 1:
        raise Refused(f"test={request.subject!r} matches {len(tests)} tests.", "Name one, as model/case@platform.")
    if obstacle := tests[0].obstacle:
        raise Refused(f"{request.subject} cannot run there: {obstacle}")
    return replace(tests[0], golden={})  # a run that is cancelled has no value, whatever it has written


def judge(request: BisectRequest, run: Trial, overlay: Overlay | None, folder: Path, problem: str) -> Trial:
    """Return a run that has ended with its value, or as invalid or lost with the reason.

    ``folder`` has what it wrote; ``problem`` is why it has no value, if its place knows that.
    """
    status, output = jobs.number_in(folder / "ended"), jobs.last_lines(folder / "node-0.out.log", _MAX_OUTPUT)
    error = " ".join(jobs.last_lines(folder / "node-0.err.log")[-1:])[:200]
    nodes = [line.removeprefix(overlays.STARTED).strip() for line in output if line.startswith(overlays.STARTED)]
    if status is None and not problem:
        problem = "it was killed before it could report its exit status"
    if not (problem or nodes) and (not request.here or "{overlay}" in request.subject):
        problem = f"the container was not started (exit status {status}): {error}"
    if not problem and status == _CANNOT_TELL:
        problem = f"it ended with status {status}, so no container was started, or the command cannot tell: {error}"
    run = replace(run, node="".join(nodes[:1])[:80])
    invalid = overlays.invalidity(overlay, output) if overlay else ""
    if invalid and (not problem or status == INVALID):
        return replace(run, outcome="invalid", reason=invalid[:400])
    # A test whose golden values drifted fails, but has measured values anyway.
    if not problem and status and request.metric == "value":
        problem = f"it failed with exit status {status}, without producing a value: {error}".removesuffix(": ")
    value: float | None
    value, missing = float(status == 0), ""
    if request.metric == "value":
        value, missing = _last_number(output), "no line of its output ends with a number"
    elif request.metric != "exit":
        value, missing = _golden_value(folder, request.metric), f"none of its golden files has {request.metric}"
    if problem or value is None:
        return replace(run, outcome="lost", reason=problem or missing)
    return replace(run, outcome="value", value=value)


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
