"""The failed jobs of a CI run, each with its cause and the evidence of other runs.

A failure is new, on the base branch too, or unknown.  Evidence is any run of the same workflow on the base branch, in
the merge queue in front of it, or of another pull request into it, unless that one changes the image as well, or its
labels asked for the other image type or a lightweight run.  What merged has passed the queue, so one red run may be the
fault of its change: two changes must fail, or the base branch itself.  On a busy branch old evidence decides nothing.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from runbook_lib import display
from runbook_lib.display import View
from runbook_lib.failures import history, read_logs
from runbook_lib.failures.evidence import FailedJob, Failure
from runbook_lib.failures.read_logs import JobLogs
from runbook_lib.golden import ci_runs
from runbook_lib.golden.ci_runs import RequestedRun, failed
from runbook_lib.golden.collect import FunctionalTestJob, GoldenSource, UploadMatch, match_uploads
from runbook_lib.pins.repositories import LIGHTWEIGHT, LTS
from runbook_lib.text.lists import shorten
from runbook_lib.world.github.ci_status import BAD_JOB, BAD_RUN, labels_at, on_base, platform_of, pull_of
from runbook_lib.world.github.models import Issue, WorkflowJob, WorkflowRun
from runbook_lib.world.ports import Forge, SecondCi

#: How much older than the run evidence may be: about 14 pull requests merge a day.
MAX_AGE = timedelta(days=3)
_MAX_RUNS = 15  # of which the jobs are read
_QUEUE = re.compile(r"gh-readonly-queue/.+/pr-(?P<number>[0-9]{1,9})-[0-9a-f]+")
_MAX_CAUSE = 160  # characters of a cause that a table stores; the evidence below is complete
#: A job in a run.
Tested = tuple[WorkflowRun, WorkflowJob]
Listed = Callable[[WorkflowRun], Sequence[WorkflowJob]]


@dataclass(frozen=True)
class BaseResult:
    """The evidence of other runs about a failed job.

    ``sentence`` begins with the verdict: new with a change, already failing on the base branch, or unknown.
    """

    state: Literal["new", "failing", "unknown"]
    sentence: str
    url: str = ""


@dataclass(frozen=True)
class Comparison:
    """The request to compare the failures of ``run`` with other runs into the branch ``base``.

    ``change`` describes the run's difference from its base.  ``image_files`` are the paths that name the image: another
    pull request that changes one tests another image.
    """

    github: Forge
    run: WorkflowRun
    base: str
    change: str
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
                found.append((run, same[0]))
                break
            if conclusions and conclusions <= BAD_JOB:
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
            ended = other.status == "completed" and other.conclusion in ("success", *BAD_RUN)
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
            (there,) = _diagnose(self.github, run.id, listed(run), [job])
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
        newest, places = found[0][1], list[str]()
        for run, job in found:
            places.append(f"{'fails' if job.conclusion in BAD_JOB else 'passes'} in {self._describe(run)}")
        ended, url = f"the job {' and '.join(places)}", newest.url
        if newest.conclusion in BAD_JOB:
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


UNKNOWN = BaseResult("unknown", "unknown: it was not compared with the base branch; a run there would decide")


@dataclass(frozen=True)
class DiagnosedJob:
    """A failed job.  ``test`` is ``<model>/<test case>``, empty for other kinds of jobs.

    ``platform`` is empty if unknown.  ``tracked`` is the issue of a test that also fails on the base branch, and
    ``history`` says how often its cause has been seen before.
    """

    failure: Failure
    test: str = ""
    on_base: BaseResult = UNKNOWN
    platform: str = ""
    tracked: Issue | None = None
    history: str = ""

    @property
    def comparison(self) -> str:
        """The comparison with the base branch, and the issue that tracks a failure there."""
        issue = f"; tracked by #{self.tracked.number} {self.tracked.url}" if self.tracked else ""
        return f"{self.on_base.sentence}{issue}"

    @property
    def unit_tests(self) -> tuple[str, ...]:
        """The failed unit tests by pytest's IDs, each once for all its parameters."""
        nodes = (name.partition("[")[0] for name in self.failure.tests)
        return tuple(dict.fromkeys(node for node in nodes if "::" in node))

    @property
    def row(self) -> dict[str, object]:
        """The job as a row of a table."""
        failure = self.failure
        return {
            "job": failure.job, "class": failure.kind, "cause": shorten(failure.cause, _MAX_CAUSE),
            "platform": self.platform, "on the base branch": self.comparison, "history": self.history,
            "next": failure.next, "url": failure.url,
        }  # fmt: skip


def diagnose_run(
    github: Forge, requested: RequestedRun, base: str, change: str, image_files: Collection[str]
) -> tuple[DiagnosedJob, ...]:
    """Return the cause of each failed job of a run, sorted by name, compared with the branch ``base``.

    Reads only as much of the logs as needed.  ``change`` describes the run's difference from that branch, and
    ``image_files`` are the paths that name the image of its tests.
    """
    jobs, chosen = _chosen(github, requested)
    failures = _diagnose(github, requested.run.id, jobs, chosen)
    on_base = Comparison(github, requested.run, base, change, image_files).results(chosen, failures)
    diagnosed = []
    for job, failure, result in zip(chosen, failures, on_base, strict=True):
        tests = [f"{test.model}/{test.test_case}" for test in ci_runs.functional_tests([job])]
        diagnosed.append(DiagnosedJob(failure, "".join(tests), result, platform_of(job)))
    return tuple(diagnosed)


def causes(github: Forge, requested: RequestedRun) -> tuple[Failure, ...]:
    """Return the cause of each failed job of a run, sorted by name, without comparing with the base branch."""
    return _diagnose(github, requested.run.id, *_chosen(github, requested))


def _chosen(github: Forge, requested: RequestedRun) -> tuple[Sequence[WorkflowJob], list[WorkflowJob]]:
    """Return all jobs of a run, and the failed ones or the one that was requested."""
    jobs = github.jobs(requested.run.id)
    chosen = sorted(failed(jobs), key=lambda job: (job.name, job.id))
    if requested.job is not None:
        chosen = [job for job in jobs if job.id == requested.job] or [github.job(requested.job)]  # an earlier attempt
    return jobs, chosen


def _diagnose(
    github: Forge, run_id: int, jobs: Sequence[WorkflowJob], chosen: Iterable[WorkflowJob]
) -> tuple[Failure, ...]:
    matches = match_uploads(ci_runs.functional_tests(jobs), github.artifacts(run_id), run_id)
    failed_jobs = {job.id: FailedJob(job.name, job.url, job.conclusion, job.failed_steps) for job in chosen}
    return _read_logs(github, failed_jobs, [match for match in matches if len(match.jobs) == 1])


def _read_logs(
    service: Forge | SecondCi, jobs: Mapping[int, FailedJob], matches: Iterable[UploadMatch]
) -> tuple[Failure, ...]:
    """Return the cause of each job's failure, from its log and its own artifact; ``jobs`` by their numbers."""
    uploads = {match.jobs[0].id: match.upload for match in matches}
    logs = []
    for number, job in jobs.items():
        logs.append(JobLogs(job, log=service.log(number)))
        if upload := uploads.get(number):
            logs[-1] = replace(logs[-1], artifact=service.artifact(upload.id), size=upload.size)
    return read_logs.diagnose_all(logs)


def diagnose_pipeline(source: GoldenSource, base: str, base_commit: str) -> tuple[DiagnosedJob, ...]:
    """Return the cause of each failed functional job of a pipeline, compared with the pipeline of ``base_commit``."""
    gitlab = source.second_ci
    assert gitlab is not None, "it is a pipeline"
    failing = (job for job in source.jobs if job.state not in ("passed", "skipped"))
    jobs = sorted(failing, key=lambda job: (job.name, job.id))
    failures = _read_logs(gitlab, {job.id: FailedJob(job.name, conclusion=job.state) for job in jobs}, source.matches)
    place = f"{base} at {base_commit[:10]}"
    finished = [pipeline for pipeline in gitlab.pipelines(base_commit) if pipeline.status in ("success", "failed")]
    there: dict[tuple[str, str, str], FunctionalTestJob] = {}
    if finished:
        on_base = ci_runs.of_gitlab(gitlab, finished[0], source.environment)
        there = {(job.model, job.test_case, job.platform): job for job in on_base.jobs}
        place = f"{base} ({on_base.name} of {base_commit[:10]})"
    diagnosed = []
    for job, failure in zip(jobs, failures, strict=True):
        test = there.get((job.model, job.test_case, job.platform))
        result = _result_of_pipeline(gitlab, failure, test, place)
        diagnosed.append(DiagnosedJob(failure, f"{job.model}/{job.test_case}", result, job.platform))
    return tuple(diagnosed)


def _result_of_pipeline(gitlab: SecondCi, failure: Failure, test: FunctionalTestJob | None, place: str) -> BaseResult:
    if test is None or test.state not in ("passed", "failed", "timed out"):
        return BaseResult("unknown", f"unknown: no job of this test has finished on {place}; one would decide")
    if test.state == "passed":
        if failure.kind == "flaky infrastructure":
            return BaseResult("unknown", f"unknown: it passes on {place}; a rerun here would decide")
        return BaseResult("new", f"new with this image: it passes on {place}")
    (cause,) = _read_logs(gitlab, {test.id: FailedJob(test.name, conclusion=test.state)}, ())
    if doubt := other_cause(failure, cause):
        return BaseResult("unknown", f"unknown: it fails on {place}, {doubt}")
    return BaseResult("failing", f"already failing on {place}, since an unknown time")


def add_history(jobs: Sequence[DiagnosedJob], records: Path | None) -> tuple[DiagnosedJob, ...]:
    """Add what the archive has of earlier failures; ``records`` is a bump's folder."""
    if records is None or not jobs:
        return tuple(jobs)
    earlier = history.read(records.parent.parent)
    return tuple(replace(job, history=history.describe(earlier, job.failure, job.platform)) for job in jobs)


def show(jobs: Sequence[DiagnosedJob]) -> View:
    """Show each failed job with its cause, then the verbatim evidence."""
    view = display.table((job.row for job in jobs), empty="No job failed.")
    for job in jobs:
        view += show_evidence(job.failure)
    return view


def show_evidence(failure: Failure) -> View:
    """Show what a cause is concluded from; nothing if there is no evidence."""
    view = View("", "")
    if failure.evidence:
        title = f"{failure.job}: {failure.kind}" + (f" of rank {failure.rank}" if failure.rank is not None else "")
        if failure.where:
            title += f" ({failure.where.place})"
        view += display.code("\n".join(failure.evidence), title=title)
    if failure.details:
        view += display.note("; ".join(f"{name}: {detail}" for name, detail in failure.details.items()))
    return view
