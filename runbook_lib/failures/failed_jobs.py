"""The failed jobs of a CI run, each with its cause, the result of the same job on the base branch, and its history."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from runbook_lib import display
from runbook_lib.display import View
from runbook_lib.failures import read_logs
from runbook_lib.failures.base_branch import BaseResult, Comparison, other_cause
from runbook_lib.failures.failure import FailedJob, Failure
from runbook_lib.failures.patterns import RERUN
from runbook_lib.failures.read_logs import JobLogs
from runbook_lib.golden import ci_runs
from runbook_lib.golden.ci_runs import RequestedRun, failed
from runbook_lib.golden.collect import FunctionalTestJob, GoldenSource, match_uploads
from runbook_lib.record import run_file
from runbook_lib.world.github.ci_status import platform_of
from runbook_lib.world.github.models import Issue, WorkflowJob
from runbook_lib.world.ports import Forge, SecondCi

_COMPARED = 150  # characters of a cause that are compared; tables store at most 160
#: Maximum number of characters of a cause in a table; the evidence below is complete.
_MAX_CAUSE = 160
#: Earlier failures, the oldest first, each with the location of its record.
History = Sequence[tuple[str, dict[str, str]]]
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
        """Return a row for a table."""
        cause = self.failure.cause
        if len(cause) > _MAX_CAUSE:
            cause = f"{cause[:_MAX_CAUSE]} …"
        return {
            "job": self.failure.job, "class": self.failure.kind, "cause": cause, "platform": self.platform,
            "on the base branch": self.comparison, "history": self.history, "next": self.failure.next,
            "url": self.failure.url,
        }  # fmt: skip


def diagnose_run(
    github: Forge, requested: RequestedRun, base: str = "main", change: str = "this run",
    image_files: Collection[str] = (),
) -> tuple[DiagnosedJob, ...]:  # fmt: skip
    """Return the cause of each failed job of a run, sorted by name, compared with the branch ``base``.

    Reads only as much of the logs as needed.  ``change`` describes the run's difference from that branch, and
    ``image_files`` are the paths that name the image of its tests.
    """
    jobs, chosen = _chosen(github, requested)
    failures = _diagnose(github, requested.run.id, jobs, chosen)
    comparison = Comparison(github, requested.run, base, change, partial(_diagnose, github), image_files)
    on_base = comparison.results(chosen, failures)
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
    artifacts = {match.jobs[0].id: match.upload for match in matches if len(match.jobs) == 1}  # unambiguous
    logs = []
    for job in chosen:
        failed_job = FailedJob(job.name, job.url, job.conclusion, job.failed_steps)
        logs.append(JobLogs(failed_job, log=github.log(job.id)))
        if upload := artifacts.get(job.id):
            logs[-1] = replace(logs[-1], artifact=github.artifact(upload.id), size=upload.size)
    return read_logs.diagnose_all(logs)


def diagnose_pipeline(source: GoldenSource, base: str, base_commit: str) -> tuple[DiagnosedJob, ...]:
    """Return the cause of each failed functional job of a pipeline, compared with the pipeline of ``base_commit``."""
    gitlab = source.second_ci
    assert gitlab is not None, "it is a pipeline"
    jobs = [job for job in source.jobs if job.state not in ("passed", "skipped")]
    jobs.sort(key=lambda job: (job.name, job.id))
    uploads = {match.jobs[0].id: match.upload for match in source.matches}
    logs = []
    for job in jobs:
        logs.append(JobLogs(FailedJob(job.name), log=gitlab.log(job.id)))
        if upload := uploads.get(job.id):
            logs[-1] = replace(logs[-1], artifact=gitlab.artifact(upload.id), size=upload.size)
    failures = read_logs.diagnose_all(logs)
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
    log = JobLogs(FailedJob(test.name), log=gitlab.log(test.id))
    (cause,) = read_logs.diagnose_all([log])
    if doubt := other_cause(failure, cause):
        return BaseResult("unknown", f"unknown: it fails on {place}, {doubt}")
    return BaseResult("failing", f"already failing on {place}, since an unknown time")


def add_history(jobs: Sequence[DiagnosedJob], records: Path | None) -> tuple[DiagnosedJob, ...]:
    """Add what the archive has of earlier failures; ``records`` is a bump's folder."""
    if records is None or not jobs:
        return tuple(jobs)
    earlier = read_history(records.parent.parent)
    return tuple(replace(job, history=history_of(earlier, job.failure, job.platform)) for job in jobs)


def history_of(rows: History, failure: Failure, platform: str = "") -> str:
    """Return how often the class and cause have been seen, and how often infrastructure failed the job.

    Other jobs of the same run failed at the same time, so they are no history, nor is the job of the same name on
    another platform; an earlier attempt of the job is.
    """
    if not rows:
        return ""
    same: dict[str, str] = {}
    flaky: dict[str, str] = {}
    for place, row in rows:
        url, kind = row.get("url", ""), row.get("class", "")
        is_same_job = row.get("job") == failure.job and row.get("platform", "") in (platform, "")
        if url and (url == failure.url or (_run_of(url) == _run_of(failure.url) and not is_same_job)):
            continue
        if kind == failure.kind and _signature(row.get("cause", "")) == _signature(failure.cause):
            same[_run_of(url) or place] = place
        if is_same_job and kind in RERUN:
            flaky[url] = place
    seen = _times(same) if same else "not seen before in this archive"
    return f"{seen}; infrastructure failed this job before: {_times(flaky)}" if flaky else seen


def read_history(archive: Path) -> History:
    """Return the failures in an archive, or in a part of it."""
    rows = []
    for table in sorted(archive.glob("**/*failures.csv"), key=lambda path: path.parent.name):
        day, bump = table.parent.name[:8], table.parent.parent.name
        for row in run_file.rows(table):
            address = f" ({row['url']})" if row.get("url") else ""
            rows.append((f"{day[:4]}-{day[4:6]}-{day[6:]} in {bump}{address}", row))
    return rows


def _times(places: Mapping[str, str]) -> str:
    return f"seen {display.count(len(places), 'time')} in this archive, last on {list(places.values())[-1]}"


def _run_of(url: str) -> str:
    """Return the address of the run to which the address of a job on GitHub belongs; of others, the job's own."""
    return url.partition("/job/")[0]


def _signature(cause: str) -> str:
    """Return a cause without ranks, numbers, addresses and folders."""
    words = re.sub(r"Rank \d{1,6}|A process|(?:/[\w.+-]{1,100})+/", "", cause[:_COMPARED])
    return re.sub(r"0x[0-9a-f]{1,16}|[0-9a-f]{8,40}|\d{1,20}", "#", words).strip(" .…")


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
