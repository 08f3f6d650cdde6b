"""The CI of the practice forge: its runs with their jobs, logs and artifacts, which are the same for every account."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from runbook_lib.practice import ci, evidence
from runbook_lib.practice.git import BareRepository, read_texts
from runbook_lib.practice.store import FIRST_ID, Record, Store, transactions
from runbook_lib.world.github.errors import NotAllowed
from runbook_lib.world.github.models import Artifact, WorkflowJob, WorkflowRun
from runbook_lib.world.transport.downloads import MissingFile

#: Lifetime of artifacts and logs; seconds.
LIFETIME = 90 * 86400.0
RUNNERS = {"dgx_h100": "nvidia-ci-aws-gpu-x8", "dgx_gb200": "nvidia-ci-aws-use2-gpu-x4"}
#: The IDs of a run's jobs and artifacts lie between its own and that of the next run.
_IDS_OF_RUN, _IDS_OF_ATTEMPT, _ARTIFACTS = 100_000, 1000, 50_000


class PracticeRefusal(NotAllowed):
    """What does not exist (``status`` 404, 410), or the account may not do (403)."""

    def __init__(self, message: str = "Not Found", status: int = 404) -> None:
        verb = "allow" if status == 403 else "find"
        super().__init__(f"The practice forge does not {verb} it: {message.rstrip('.')}.")
        self.message, self.status = message, status


@dataclass(frozen=True)
class StoredFile:
    """A file without a server; ``read`` returns the content, or raises PracticeRefusal."""

    read: Callable[[], bytes]

    def open(self, web: object) -> Self:
        """Return the file for reading."""
        return self

    @cached_property
    def _content(self) -> bytes:
        try:
            return self.read()
        except PracticeRefusal as error:
            raise MissingFile(str(error)) from error

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self._content)

    def part(self, start: int, size: int) -> bytes:
        """Return ``size`` bytes from ``start``, or fewer at the end.  Raises MissingFile."""
        return self._content[start : start + size]


class ListedJob(NamedTuple):
    """A job that has started; ``attempt`` is the number of that of the run."""

    id: int
    run: Record
    attempt: int
    job: ci.Job

    @property
    def began(self) -> float:
        """The time at which its attempt began."""
        return float(self.run.attempts[self.attempt - 1].started)


@transactions
class PracticeRuns:
    """The runs.  Each tests ``merge_sha``, whose base was ``base_sha``, in one attempt or more."""

    def __init__(self, store: Store, remote: Path, pages: Path, clock: Callable[[], float] | None = None) -> None:
        self.store, self.home = store, BareRepository(remote)
        self._pages = pages
        self._known, self._archives = dict[int, ci.Inputs](), dict[int, bytes]()
        self.clock = clock or (lambda: float(store.state.clock))

    def url(self, page: str) -> str:
        """Return the URL of a page, such as ``pull/10``, which the end of a run writes."""
        return (self._pages / f"{page}.html").as_uri()

    # -- what the port shows ----------------------------------------------------------------------------------------

    def runs(
        self, branch: str | None = None, head_sha: str | None = None, event: str | None = None,
        status: str | None = None, since: datetime | None = None,
    ) -> tuple[WorkflowRun, ...]:  # fmt: skip
        asked = {"head_branch": branch, "head_sha": head_sha, "event": event}.items()
        records = (run for run in self.records() if all(value in (None, getattr(run, name)) for name, value in asked))
        shown = (run for run in map(self._shown, records) if status in (None, run.status, run.conclusion))
        return tuple(run for run in shown if since is None or run.created >= since)

    def run(self, run_id: int) -> WorkflowRun:
        return self._shown(self.record(run_id))

    def _shown(self, run: Record) -> WorkflowRun:
        conclusion = self.conclusion(run)
        return WorkflowRun(
            run.id, self.url(f"actions/runs/{run.id}"), ci.WORKFLOW, run.head_sha, run.head_branch,
            "completed" if conclusion else "in_progress", conclusion or "", len(run.attempts), moment(run.created),
        )  # fmt: skip

    def jobs(self, run_id: int) -> tuple[WorkflowJob, ...]:
        run = self.record(run_id)
        return tuple(self.show(job) for job in self.listed(run) if job.attempt == len(run.attempts))

    def job(self, job_id: int) -> WorkflowJob:
        return self.show(self.find(job_id))

    def show(self, listed: ListedJob) -> WorkflowJob:
        """Return a job as it is shown."""
        job = listed.job
        is_over = self.clock() >= job.ends
        return WorkflowJob(
            id=listed.id, url=self.url(f"actions/runs/{listed.run.id}/job/{listed.id}"), name=job.name,
            status="completed" if is_over else "waiting" if job.kind == "queue" else "in_progress",
            conclusion=job.conclusion if is_over else "",
            started=moment(job.starts), completed=moment(job.ends) if is_over else None,
            failed_steps=(job.kind,) if is_over and job.conclusion == "failure" else (),
            runners=(RUNNERS.get(job.platform, "ubuntu-latest"),),
        )  # fmt: skip

    def artifacts(self, run_id: int) -> tuple[Artifact, ...]:
        return tuple(
            Artifact(
                it.id + _ARTIFACTS, evidence.artifact_name(it.job, run_id, it.id), len(self.archive(it)),
                self._is_expired(it), moment(it.job.ends),
            )
            for it in self.listed(self.record(run_id)) if self._has_artifact(it)
        )  # fmt: skip

    def artifact(self, artifact_id: int) -> StoredFile:
        return StoredFile(lambda: self.read_artifact(artifact_id))

    def log(self, job_id: int) -> StoredFile:
        return StoredFile(lambda: self.read_log(job_id))

    def deployment_failed(self, sha: str) -> bool:
        newest = [run for run in self.records() if run.event == "push" and run.head_sha == sha][:1]
        ended = {self.show(it).conclusion for run in newest for it in self.listed(run) if it.job.kind == "queue"}
        return not ended.isdisjoint(("failure", "cancelled"))

    # -- what is behind it ------------------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """Return the runs, newest first."""
        return list(reversed(self.store.state.runs))

    def record(self, number: int) -> Record:
        """Return the run that a number is of, or of one of its jobs or artifacts.  Raises PracticeRefusal."""
        for run in self.records():
            if run.id == number - (number - FIRST_ID) % _IDS_OF_RUN:
                return run
        raise PracticeRefusal()

    def conclusion(self, run: Record) -> ci.Conclusion | None:
        """Return how the latest attempt of a run has ended; None for one that has not."""
        return ci.conclude(_jobs(run.attempts[-1]), self.clock())

    def listed(self, run: Record) -> list[ListedJob]:
        """Return the jobs of all attempts of a run that have started."""
        now = self.clock()
        return [
            ListedJob(number, run, attempt, job)
            for attempt, jobs in enumerate(map(_jobs, run.attempts), 1)
            for number, job in enumerate(jobs, run.id + _IDS_OF_ATTEMPT * attempt) if job.starts <= now
        ]  # fmt: skip

    def find(self, number: int) -> ListedJob:
        """Return the job with this ID, or with the artifact that has it.  Raises PracticeRefusal."""
        for job in self.listed(self.record(number)):
            if number == job.id or (number == job.id + _ARTIFACTS and self._has_artifact(job)):
                return job
        raise PracticeRefusal()

    def _has_artifact(self, listed: ListedJob) -> bool:
        """Report if a job has left an artifact: one of a test that ran in this attempt and has ended."""
        job = listed.job
        return bool(job.test_case and job.starts >= listed.began and job.starts < job.ends <= self.clock())

    def archive(self, listed: ListedJob) -> bytes:
        """Return the artifact of a job that has ended; it contains no golden values if the job was stopped."""
        if listed.id not in self._archives:
            golden = self._inputs(listed.run).measured(listed.job)
            named = {path.rpartition("/")[2]: text for path, text in golden.items()}
            self._archives[listed.id] = evidence.archive(listed.job, named, listed.began)
        return self._archives[listed.id]

    def read_artifact(self, artifact_id: int) -> bytes:
        """Return an artifact's zip.  Raises PracticeRefusal."""
        job = self.find(artifact_id)
        if artifact_id == job.id or self._is_expired(job):
            raise PracticeRefusal("Artifact has expired", 410)
        return self.archive(job)

    def _is_expired(self, listed: ListedJob) -> bool:
        return "expired" in listed.job.script or self.clock() > listed.job.ends + LIFETIME

    def read_log(self, job_id: int) -> bytes:
        """Return the log of a job that has ended.  Raises PracticeRefusal."""
        job = self.find(job_id).job
        if job.conclusion == "skipped" or not job.ends <= self.clock() <= job.ends + LIFETIME:
            raise PracticeRefusal("There is no log (any more)", 410)
        return evidence.log(job).encode()

    # -- what changes it --------------------------------------------------------------------------------------------

    def start(self, began: float, fates: Mapping[str, str], **run: Any) -> None:
        """Begin a run, in which tests or jobs have these fates before those of the scenario."""
        number = FIRST_ID + _IDS_OF_RUN * len(self.store.state.runs)
        made = Record(id=number, created=began, fates=[*fates.items()], attempts=[], **run)
        self._begin_attempt(made, ci.jobs(self._inputs(made), began, self.store.state.ci_seconds), began)
        self.store.state.runs.append(made)

    def _begin_attempt(self, run: Record, jobs: Iterable[ci.Job], began: float) -> None:
        run.attempts.append(Record(started=began, jobs=[Record(**vars(job)) for job in jobs]))

    def _inputs(self, run: Record) -> ci.Inputs:
        """Return what decides a run, which never changes."""
        if run.id not in self._known:
            tested, base = (read_texts(self.home, sha, *ci.FILES) for sha in (run.merge_sha, run.base_sha))
            self._known[run.id] = ci.Inputs(tested, base, run.labels, run.event, dict(run.fates))
        return self._known[run.id]

    def repeat(self, run: Record) -> None:
        """Run the jobs that failed once more, and all jobs of a run that was stopped."""
        now = self.clock()
        if self.conclusion(run) == "cancelled":
            self._begin_attempt(run, ci.jobs(self._inputs(run), now, self.store.state.ci_seconds), now)
        else:
            self._begin_attempt(run, ci.retry(_jobs(run.attempts[-1]), now), now)

    def stop(self, run: Record) -> None:
        """Cancel a run that has not ended."""
        if self.conclusion(run) is None:
            last = run.attempts[-1]
            last.jobs = [Record(**vars(job)) for job in ci.stop(_jobs(last), self.clock())]


def _jobs(attempt: Record) -> list[ci.Job]:
    return [ci.Job(**vars(job)) for job in attempt.jobs]


def moment(seconds: float) -> datetime:
    """Return a time as GitHub shows it, in whole seconds; ``seconds`` since 1970."""
    return datetime.fromtimestamp(int(seconds), UTC)
