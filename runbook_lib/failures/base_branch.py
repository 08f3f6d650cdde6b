"""The state of a CI run's failed jobs on the base branch: new failures, failures of the base, or unknown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from runbook_lib.clients.github.ci_status import on_base, platform_of
from runbook_lib.clients.github.models import WorkflowJob, WorkflowRun
from runbook_lib.failures.failure import Failure
from runbook_lib.golden.ci_runs import BAD
from runbook_lib.world.ports import Forge

#: Number of finished runs of the base branch that are read to find out since when a job fails there.
_MAX_RUNS = 15

Diagnosis = Callable[[int, Sequence[WorkflowJob], Sequence[WorkflowJob]], Sequence[Failure]]


@dataclass(frozen=True)
class BaseResult:
    """The comparison of a failed job with the newest finished run of the base branch.

    ``sentence`` begins with the verdict: new with a change, already failing on the base branch, or unknown.
    """

    state: Literal["new", "failing", "unknown"]
    sentence: str
    url: str = ""


@dataclass(frozen=True)
class Comparison:
    """The request to compare the failures of ``run`` with the branch ``base``.

    ``change`` describes the run's difference from its base, and ``diagnose`` reads the logs of another run's jobs.
    """

    github: Forge
    run: WorkflowRun
    base: str
    change: str
    diagnose: Diagnosis

    def results(self, jobs: Sequence[WorkflowJob], failures: Sequence[Failure]) -> list[BaseResult]:
        """Return the result of each failed job on the base branch."""
        finished = self._finished_runs()
        if not finished:
            reason = f"unknown: no run of {self.run.name or 'CI'} has finished on {self.base}; one would decide"
            return [BaseResult("unknown", reason) for _ in jobs]
        newest = finished[0]
        base_jobs = self.github.jobs(newest.id)
        results = [self._compare(job, failure, newest, base_jobs) for job, failure in zip(jobs, failures, strict=True)]
        both = {}
        for number, (job, result) in enumerate(zip(jobs, results, strict=True)):
            if result.state == "failing":
                both[number] = _jobs_of(job, base_jobs)[0]
        causes = self.diagnose(newest.id, base_jobs, list(both.values())) if both else ()
        for number, there in zip(list(both), causes, strict=True):
            doubt = other_cause(failures[number], there, cancelled=both[number].conclusion == "cancelled")
            if doubt:
                results[number] = BaseResult("unknown", f"unknown: {self._ended(newest, 'fails')}, {doubt}", there.url)
                del both[number]
        since = self._since({number: jobs[number] for number in both}, finished)
        for number, sentence in since.items():
            results[number] = replace(results[number], sentence=sentence)
        return results

    def _finished_runs(self) -> list[WorkflowRun]:
        """Return the finished runs of the same workflow on the base branch or in its merge queue, newest first."""
        finished = []
        for other in (*self.github.runs(self.base), *self.github.runs(event="merge_group")):
            same = other.name == self.run.name and other.id != self.run.id and on_base(other, self.base)
            earlier = not on_base(self.run, self.base) or other.created < self.run.created
            ended = other.status == "completed" and other.conclusion in ("success", *BAD - {"cancelled"})
            if same and earlier and ended:
                finished.append(other)
        return sorted(finished, key=lambda run: (run.created, run.id), reverse=True)

    def _compare(
        self, job: WorkflowJob, failure: Failure, newest: WorkflowRun, base_jobs: Sequence[WorkflowJob]
    ) -> BaseResult:
        same = _jobs_of(job, base_jobs)
        conclusions = {other.conclusion for other in same}
        url = same[0].url if same else ""
        if conclusions and conclusions <= BAD:
            return BaseResult("failing", "", url)
        if conclusions != {"success"}:
            ended = ", ".join(sorted(conclusions - {"skipped"}))
            problem = f"ended there with {ended}" if ended else "did not run there"
            sentence = f"unknown: the job {problem} ({_describe(newest)}); a run of it on {self.base} would decide"
            return BaseResult("unknown", sentence, url)
        if failure.kind == "flaky infrastructure":
            passes = f"unknown: {self._ended(newest, 'passes')}"
            return BaseResult("unknown", f"{passes}, and here the infrastructure failed; a rerun would decide", url)
        return BaseResult("new", f"new with {self.change}: {self._ended(newest, 'passes')}", url)

    def _ended(self, run: WorkflowRun, verb: str) -> str:
        return f"the job {verb} on {self.base} ({_describe(run)})"

    def _since(self, jobs: Mapping[int, WorkflowJob], finished: Sequence[WorkflowRun]) -> dict[int, str]:
        """Return for each job that fails on the base branch a sentence with the time since it fails."""
        first = dict.fromkeys(jobs, finished[0])
        passed: set[int] = set()
        for run in finished[1:_MAX_RUNS]:
            if passed.issuperset(jobs):
                break
            listed = self.github.jobs(run.id)
            for number in jobs.keys() - passed:
                conclusions = {other.conclusion for other in _jobs_of(jobs[number], listed)}
                if "success" in conclusions:
                    passed.add(number)
                elif conclusions & BAD:
                    first[number] = run
        sentences = {}
        for number, run in first.items():
            since = "since" if number in passed else "since at least"
            sentences[number] = f"already failing on {self.base} {since} {_describe(run)}"
        return sentences


def _jobs_of(job: WorkflowJob, others: Iterable[WorkflowJob]) -> list[WorkflowJob]:
    """Return the jobs with the same name and, if both are known, the same platform."""
    platform = platform_of(job)
    same = [other for other in others if other.name == job.name]
    return [other for other in same if not platform or platform_of(other) in ("", platform)]


def other_cause(here: Failure, there: Failure, *, cancelled: bool = False) -> str:
    """Return why a failure on the base branch may have a different cause than this one; empty if it has the same."""
    unknown = "unknown" in (here.kind, there.kind)
    if here.kind == there.kind and not (unknown and cancelled):
        return ""
    if unknown and there.kind != "flaky infrastructure" and not cancelled:
        return ""
    return f"with a different cause ({there.kind} there, {here.kind} here); a rerun of both would decide"


def _describe(run: WorkflowRun) -> str:
    return f"{run.created:%Y-%m-%d}, CI run {run.id} of {run.head_sha[:10]}"
