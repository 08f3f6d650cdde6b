"""What other runs prove about the failed jobs of a CI run: new with its change, failing on the base branch, or unknown.

Evidence is any run of the same workflow on the base branch, in the merge queue in front of it, or of another pull
request into it, unless that one changes the image as well, or its labels asked for the other image type or a
lightweight run.  What merged has passed the queue, so one red run may be the fault of the change that it tested: two
changes must fail, or the base branch itself.  On a busy branch old evidence decides nothing.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, cached_property
from typing import Literal

from runbook_lib import display
from runbook_lib.failures.failure import Failure
from runbook_lib.golden.ci_runs import BAD
from runbook_lib.pins.repositories import LIGHTWEIGHT, LTS
from runbook_lib.world.github.ci_status import labels_at, on_base, platform_of, pull_of
from runbook_lib.world.github.models import WorkflowJob, WorkflowRun
from runbook_lib.world.ports import Forge

#: How much older than the run evidence may be: about 14 pull requests merge a day.
MAX_AGE = timedelta(days=3)
#: Number of runs of which the jobs are read.
_MAX_RUNS = 15
_QUEUE = re.compile(r"gh-readonly-queue/.+/pr-(?P<number>[0-9]{1,9})-[0-9a-f]+")

#: A job in a run.
Tested = tuple[WorkflowRun, WorkflowJob]
Listed = Callable[[WorkflowRun], Sequence[WorkflowJob]]
Diagnosis = Callable[[int, Sequence[WorkflowJob], Sequence[WorkflowJob]], Sequence[Failure]]


@dataclass(frozen=True)
class BaseResult:
    """What other runs prove about a failed job.

    ``sentence`` begins with the verdict: new with a change, already failing on the base branch, or unknown.
    """

    state: Literal["new", "failing", "unknown"]
    sentence: str
    url: str = ""


@dataclass(frozen=True)
class Comparison:
    """The request to compare the failures of ``run`` with other runs into the branch ``base``.

    ``change`` describes the run's difference from its base, and ``diagnose`` reads the logs of another run's jobs.
    ``image_files`` are the paths that name the image: another pull request that changes one tests another image.
    """

    github: Forge
    run: WorkflowRun
    base: str
    change: str
    diagnose: Diagnosis
    image_files: Collection[str] = ()

    def results(self, jobs: Sequence[WorkflowJob], failures: Sequence[Failure]) -> list[BaseResult]:
        """Return what other runs prove about each failed job."""
        runs, listed = self._other_runs(), cache(self._jobs)
        return [self._result(job, failure, runs, listed) for job, failure in zip(jobs, failures, strict=True)]

    def _result(self, job: WorkflowJob, failure: Failure, runs: Sequence[WorkflowRun], listed: Listed) -> BaseResult:
        """Read other runs, the newest first, until they prove something about a failed job."""
        found: list[Tested] = []
        for run in runs:
            same = _jobs_of(job, listed(run))
            conclusions = {other.conclusion for other in same}
            if conclusions == {"success"}:
                return self._not_failing(failure, [*found, (run, same[0])])
            if conclusions and conclusions <= BAD:
                found.append((run, same[0]))
                changes = {_change(run) for run, _ in found}
                if "" in changes or len(changes) > 1:  # on the base branch, which is no change, or with two changes
                    return self._failing(failure, found, listed)
        return self._not_failing(failure, found)

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
            is_of_change = pull_of(other.head_branch) and other.head_branch != self.run.head_branch
            is_later = self.run.head_branch == self.base and other.created >= self.run.created
            ended = other.status == "completed" and other.conclusion in ("success", *BAD - {"cancelled"})
            same = other.name == self.run.name and other.id != self.run.id and not other.fork
            if same and ended and (on_base(other, self.base) or is_of_change) and not is_later:
                found[other.id] = other
        return sorted(found.values(), key=lambda run: (run.created, run.id), reverse=True)[:_MAX_RUNS]

    def _jobs(self, run: WorkflowRun) -> Sequence[WorkflowJob]:
        """Return the jobs of another run; none if it is for a pull request into another branch, or tests otherwise."""
        if number := pull_of(run.head_branch):
            if self.github.pull(number).base_ref != self.base:
                return ()
            if not self.github.files(number).keys().isdisjoint(self.image_files):
                return ()
        labels = self._labels(run)
        if LIGHTWEIGHT in labels or (LTS in labels) != self._is_lts:
            return ()
        return self.github.jobs(run.id)

    @cached_property
    def _is_lts(self) -> bool:
        return LTS in self._labels(self.run)

    def _labels(self, run: WorkflowRun) -> frozenset[str]:
        """Return the labels of a pull request at the start of its run; a run of anything else has none."""
        number = pull_of(run.head_branch)
        if not number:
            return frozenset()
        return labels_at(self.github.pull(number).labels, self.github.labellings(number), run.created)

    def _failing(self, failure: Failure, failing: Sequence[Tested], listed: Listed) -> BaseResult:
        """Return the result of a job that fails elsewhere, too, if it fails there for the same reason."""
        places = []
        for run, job in failing:
            (there,) = self.diagnose(run.id, listed(run), [job])
            if doubt := other_cause(failure, there, cancelled=job.conclusion == "cancelled"):
                return BaseResult("unknown", f"unknown: the job fails in {self._describe(run)}, {doubt}", there.url)
            places.append(self._describe(run))
        sentence = f"already failing on {self.base}: the job fails in {' and in '.join(places)}"
        return BaseResult("failing", sentence, failing[0][1].url)

    def _not_failing(self, failure: Failure, found: Sequence[Tested]) -> BaseResult:
        """Return the result of a job that is not known to fail elsewhere; if it passed, it did so last."""
        decides = f"a run of it on {self.base} would decide"
        if not found:
            days = display.count(MAX_AGE.days, "day")
            sentence = f"unknown: no run into {self.base} of the {days} before this one has tested the job; {decides}"
            return BaseResult("unknown", sentence)
        places = [f"{'fails' if job.conclusion in BAD else 'passes'} in {self._describe(run)}" for run, job in found]
        ended, url = f"the job {' and '.join(places)}", found[0][1].url
        if found[0][1].conclusion in BAD:
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
    queued = _QUEUE.fullmatch(run.head_branch)
    number = int(queued["number"]) if queued else pull_of(run.head_branch)
    return f"#{number}" if number else ""


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
