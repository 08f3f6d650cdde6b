"""What other runs prove about the failed jobs of a CI run: new with its change, failing on the base branch, or unknown.

Evidence are runs of the same workflow on the base branch, in the merge queue in front of it, and of other pull requests
into it.  What merged has passed the queue, so one red run may be the fault of the change that it tested: two changes
must fail, or the base branch itself.  On a busy branch old evidence decides nothing.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from runbook_lib import display
from runbook_lib.clients.github.ci_status import branch_of, on_base, platform_of
from runbook_lib.clients.github.models import WorkflowJob, WorkflowRun
from runbook_lib.failures.failure import Failure
from runbook_lib.golden.ci_runs import BAD
from runbook_lib.world.ports import Forge

#: How much older than the run evidence may be: about 14 pull requests merge a day.
MAX_AGE = timedelta(days=3)
#: Number of runs of which the jobs are read.
_MAX_RUNS = 15
_QUEUE = re.compile(r"gh-readonly-queue/.+/pr-(?P<number>[0-9]{1,9})-[0-9a-f]+")
_PULL = re.compile(branch_of(0).replace("0", "(?P<number>[0-9]{1,9})"))

Diagnosis = Callable[[int, Sequence[WorkflowJob], Sequence[WorkflowJob]], Sequence[Failure]]


@dataclass(frozen=True)
class BaseResult:
    """What other runs prove about a failed job.

    ``sentence`` begins with the verdict: new with a change, already failing on the base branch, or unknown.
    """

    state: Literal["new", "failing", "unknown"]
    sentence: str
    url: str = ""


@dataclass
class _Evidence:
    """How a job ended in other runs, newest first: where it fails, with its job there, and where it passes."""

    failing: list[tuple[WorkflowRun, WorkflowJob]] = field(default_factory=list)
    passing: tuple[WorkflowRun, WorkflowJob] | None = None
    changes: set[str] = field(default_factory=set)

    @property
    def fails(self) -> bool:
        """Whether the job fails on the base branch, which is no change, or with two different changes."""
        return "" in self.changes or len(self.changes) > 1

    @property
    def is_decided(self) -> bool:
        """Whether no older run is needed."""
        return self.fails or self.passing is not None


@dataclass(frozen=True)
class Comparison:
    """The request to compare the failures of ``run`` with other runs into the branch ``base``.

    ``change`` describes the run's difference from its base, and ``diagnose`` reads the logs of another run's jobs.
    """

    github: Forge
    run: WorkflowRun
    base: str
    change: str
    diagnose: Diagnosis

    def results(self, jobs: Sequence[WorkflowJob], failures: Sequence[Failure]) -> list[BaseResult]:
        """Return what other runs prove about each failed job."""
        evidence = self._read(jobs)
        results = []
        for failure, found in zip(failures, evidence, strict=True):
            results.append(self._failing(failure, found) if found.fails else self._not_failing(failure, found))
        return results

    def _read(self, jobs: Sequence[WorkflowJob]) -> list[_Evidence]:
        """Read the jobs of other runs, the newest first, until each failed job is decided."""
        evidence = [_Evidence() for _ in jobs]
        for run in self._other_runs()[:_MAX_RUNS]:
            undecided = [each for each in zip(jobs, evidence, strict=True) if not each[1].is_decided]
            if not undecided:
                break
            if (pull := _PULL.fullmatch(run.head_branch)) and self._base_of(int(pull["number"])) != self.base:
                continue
            listed = self.github.jobs(run.id)
            for job, found in undecided:
                same = _jobs_of(job, listed)
                conclusions = {other.conclusion for other in same}
                if conclusions == {"success"}:
                    found.passing = run, same[0]
                elif conclusions and conclusions <= BAD:
                    found.failing.append((run, same[0]))
                    found.changes.add(_change(run))
        return evidence

    def _other_runs(self) -> list[WorkflowRun]:
        """Return the finished runs of the same workflow that are evidence, the newest first."""
        since = self.run.created - MAX_AGE
        runs = (
            *self.github.runs(self.base, since=since),
            *self.github.runs(event="merge_group", since=since),
            *self.github.runs(event="push", status="failure", since=since),
        )
        found = {}
        for other in runs:
            is_of_change = _PULL.fullmatch(other.head_branch) and other.head_branch != self.run.head_branch
            is_later = self.run.head_branch == self.base and other.created >= self.run.created
            ended = other.status == "completed" and other.conclusion in ("success", *BAD - {"cancelled"})
            same = other.name == self.run.name and other.id != self.run.id and not other.fork
            if same and ended and (on_base(other, self.base) or is_of_change) and not is_later:
                found[other.id] = other
        return sorted(found.values(), key=lambda run: (run.created, run.id), reverse=True)

    def _base_of(self, number: int) -> str:
        return self.github.pull(number).base_ref

    def _failing(self, failure: Failure, found: _Evidence) -> BaseResult:
        """Return the result of a job that fails elsewhere, too, if it fails there for the same reason."""
        places = []
        for run, job in found.failing:
            (there,) = self.diagnose(run.id, self.github.jobs(run.id), [job])
            if doubt := other_cause(failure, there, cancelled=job.conclusion == "cancelled"):
                return BaseResult("unknown", f"unknown: the job fails in {self._describe(run)}, {doubt}", there.url)
            places.append(self._describe(run))
        sentence = f"already failing on {self.base}: the job fails in {' and in '.join(places)}"
        return BaseResult("failing", sentence, found.failing[0][1].url)

    def _not_failing(self, failure: Failure, found: _Evidence) -> BaseResult:
        """Return the result of a job that is not known to fail elsewhere."""
        decides = f"a run of it on {self.base} would decide"
        places = [f"fails in {self._describe(run)}" for run, _ in found.failing]
        url = found.failing[0][1].url if found.failing else ""
        if found.passing:
            run, job = found.passing
            url = url or job.url
            places.append(f"passes in {self._describe(run)}")
        if not places:
            days = display.count(MAX_AGE.days, "day")
            sentence = f"unknown: no run into {self.base} of the {days} before this one has tested the job; {decides}"
            return BaseResult("unknown", sentence)
        ended = f"the job {' and '.join(places)}"
        if found.failing:
            return BaseResult("unknown", f"unknown: {ended}; {decides}", url)
        if failure.kind == "flaky infrastructure":
            sentence = f"unknown: {ended}, and here the infrastructure failed; a rerun would decide"
            return BaseResult("unknown", sentence, url)
        return BaseResult("new", f"new with {self.change}: {ended}", url)

    def _describe(self, run: WorkflowRun) -> str:
        """Name a run, the commit that it tested, and its age compared with this run."""
        place = _change(run) or f"on {self.base}"
        if _QUEUE.fullmatch(run.head_branch):
            place = f"the merge queue, {place}"
        hours = round((self.run.created - run.created).total_seconds() / 3600)
        age = f"{display.count(abs(hours), 'hour')} {'earlier' if hours >= 0 else 'later'}"
        return f"CI run {run.id} of {run.head_sha[:10]} ({place}; {run.created:%Y-%m-%d}, {age})"


def _change(run: WorkflowRun) -> str:
    """Return the pull request that a run tests, such as ``#12``; empty for one of the base branch itself."""
    match = _QUEUE.fullmatch(run.head_branch) or _PULL.fullmatch(run.head_branch)
    return f"#{match['number']}" if match else ""


def _jobs_of(job: WorkflowJob, others: Iterable[WorkflowJob]) -> list[WorkflowJob]:
    """Return the jobs with the same name and, if both are known, the same platform."""
    platform = platform_of(job)
    same = [other for other in others if other.name == job.name]
    return [other for other in same if not platform or platform_of(other) in ("", platform)]


def other_cause(here: Failure, there: Failure, *, cancelled: bool = False) -> str:
    """Return why a failure elsewhere may have a different cause than this one; empty if it has the same."""
    unknown = "unknown" in (here.kind, there.kind)
    if here.kind == there.kind and not (unknown and cancelled):
        return ""
    if unknown and there.kind != "flaky infrastructure" and not cancelled:
        return ""
    return f"with a different cause ({there.kind} there, {here.kind} here); a rerun of both would decide"
