"""The CI of the practice forge: its runs with their jobs, logs and artifacts, which are the same for every account."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Self

from runbook_lib.clients.github.errors import NotAllowed
from runbook_lib.clients.github.models import Artifact, WorkflowJob, WorkflowRun
from runbook_lib.practice import ci, evidence
from runbook_lib.practice.git import BareRepository
from runbook_lib.practice.store import FIRST_ID, Record, Store, transactions
from runbook_lib.transport.downloads import MissingFile

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


@dataclass(frozen=True)
class ListedJob:
    """A job that has started, and its status now; ``attempt`` is the number of that of the run."""

    id: int
    run: Record
    attempt: int
    job: ci.Job
    status: ci.Status

    @property
    def began(self) -> float:
        """The time at which its attempt began."""
        return float(self.run.attempts[self.attempt - 1].started)

    @property
    def artifact(self) -> int:
        """The ID of its artifact; 0 for a job that leaves none, because it never ran in this attempt."""
        ran = self.job.starts >= self.began and self.status.completed not in (None, self.status.started)
        return self.id + _ARTIFACTS if ran and self.job.test_case else 0


@transactions
class PracticeRuns:
    """The runs.  Each tests ``merge_sha``, whose base was ``base_sha``, in one attempt or more."""

    def __init__(self, store: Store, remote: Path, pages: Path, clock: Callable[[], float] | None = None) -> None:
        self.store, self.home = store, BareRepository(remote)
        self._pages = pages
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
        status = self.status(run)
        return WorkflowRun(
            run.id, self.url(f"actions/runs/{run.id}"), ci.WORKFLOW, run.head_sha, run.head_branch, status.status,
            status.conclusion or "", len(run.attempts), moment(run.created),
        )  # fmt: skip

    def jobs(self, run_id: int) -> tuple[WorkflowJob, ...]:
        run = self.record(run_id)
        return tuple(self.show(job) for job in self.listed(run) if job.attempt == len(run.attempts))

    def job(self, job_id: int) -> WorkflowJob:
        return self.show(self.find(job_id))

    def show(self, listed: ListedJob) -> WorkflowJob:
        """Return a job as it is shown."""
        job, status = listed.job, listed.status
        return WorkflowJob(
            id=listed.id, url=self.url(f"actions/runs/{listed.run.id}/job/{listed.id}"), name=job.name,
            status=status.status, conclusion=status.conclusion or "", started=moment(status.started),
            completed=None if status.completed is None else moment(status.completed),
            failed_steps=(job.kind,) if status.conclusion == "failure" else (),
            runners=(RUNNERS.get(job.platform, "ubuntu-latest"),),
        )  # fmt: skip

    def artifacts(self, run_id: int) -> tuple[Artifact, ...]:
        return tuple(
            Artifact(
                job.artifact, evidence.artifact_name(job.job, run_id, job.id), len(self.archive(job)),
                self._is_expired(job), moment(job.job.ends),
            )
            for job in self.listed(self.record(run_id)) if job.artifact
        )  # fmt: skip

    def artifact(self, artifact_id: int) -> StoredFile:
        return StoredFile(lambda: self.read_artifact(artifact_id))

    def log(self, job_id: int) -> StoredFile:
        return StoredFile(lambda: self.read_log(job_id))

    def deployment_failed(self, sha: str) -> bool:
        newest = [run for run in self.records() if run.event == "push" and run.head_sha == sha][:1]
        ended = {job.status.conclusion for run in newest for job in self.listed(run) if job.job.kind == "queue"}
        return not ended.isdisjoint(("failure", "cancelled"))

    # -- what is behind it ------------------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """Return the runs, newest first."""
        return list(reversed(self.store.state.runs))

    def record(self, run_id: int) -> Record:
        """Return a run.  Raises PracticeRefusal."""
        for run in self.records():
            if run.id == run_id:
                return run
        raise PracticeRefusal()

    def status(self, run: Record) -> ci.Status:
        """Return the status of the latest attempt of a run."""
        last = run.attempts[-1]
        return ci.run_at(_jobs(last), last.started, last.stopped, self.clock())

    def listed(self, run: Record) -> list[ListedJob]:
        """Return the jobs of all attempts of a run that have started."""
        now = self.clock()
        return [
            ListedJob(number, run, attempt, job, ci.job_at(job, now))
            for attempt, jobs in enumerate(map(_jobs, run.attempts), 1)
            for number, job in enumerate(jobs, run.id + _IDS_OF_ATTEMPT * attempt) if job.starts <= now
        ]  # fmt: skip

    def find(self, number: int) -> ListedJob:
        """Return the job with this ID, or with the artifact that has it.  Raises PracticeRefusal."""
        for job in self.listed(self.record(number - (number - FIRST_ID) % _IDS_OF_RUN)):
            if number in (job.id, job.artifact):
                return job
        raise PracticeRefusal()

    def archive(self, listed: ListedJob) -> bytes:
        """Return the artifact of a job that has ended; it contains no golden values if the job was stopped."""
        return evidence.archive(listed.job, _measured(self._inputs(listed.run), listed.job), listed.began)

    def read_artifact(self, artifact_id: int) -> bytes:
        """Return an artifact's zip.  Raises PracticeRefusal."""
        job = self.find(artifact_id)
        if artifact_id != job.artifact or self._is_expired(job):
            raise PracticeRefusal("Artifact has expired", 410)
        return self.archive(job)

    def _is_expired(self, listed: ListedJob) -> bool:
        return "expired" in listed.job.script or self.clock() > listed.job.ends + LIFETIME

    def read_log(self, job_id: int) -> bytes:
        """Return the log of a job that has ended.  Raises PracticeRefusal."""
        job = self.find(job_id)
        if job.status.conclusion in (None, "skipped") or self.clock() > job.job.ends + LIFETIME:
            raise PracticeRefusal("There is no log (any more)", 410)
        return evidence.log(job.job).encode()

    # -- what changes it --------------------------------------------------------------------------------------------

    def start(self, run: Record, broken: Sequence[str], began: float) -> None:
        """Begin a run, in which the jobs fail whose names contain one of these."""
        run.id, run.created = FIRST_ID + _IDS_OF_RUN * len(self.store.state.runs), began
        run.broken, run.attempts = [*broken], []
        self._begin_attempt(run, ci.jobs(self._inputs(run), began, self.store.state.ci_seconds), began)
        self.store.state.runs.append(run)

    def _begin_attempt(self, run: Record, jobs: Iterable[ci.Job], began: float) -> None:
        run.attempts.append(Record(started=began, stopped=None, jobs=[Record(**vars(job)) for job in jobs]))

    def _inputs(self, run: Record) -> ci.Inputs:
        """Return what decides a run, which never changes."""
        return _read_inputs(self.home, run.merge_sha, run.base_sha, tuple(run.labels), run.event, tuple(run.broken))

    def repeat(self, run: Record) -> None:
        """Run the jobs that failed once more, and all jobs of a run that was stopped."""
        now, last = self.clock(), run.attempts[-1]
        again = ci.retry(_jobs(last), now)
        if last.stopped is not None:
            again = ci.jobs(self._inputs(run), now, self.store.state.ci_seconds)
        self._begin_attempt(run, again, now)

    def stop(self, run: Record) -> None:
        """Cancel a run that has not ended."""
        if self.status(run).status != "completed":
            last, now = run.attempts[-1], self.clock()
            last.stopped, last.jobs = now, [Record(**vars(job)) for job in ci.stop(_jobs(last), now)]


def _jobs(attempt: Record) -> list[ci.Job]:
    return [ci.Job(**vars(job)) for job in attempt.jobs]


def moment(seconds: float) -> datetime:
    """Return a time as GitHub shows it, in whole seconds; ``seconds`` since 1970."""
    return datetime.fromtimestamp(int(seconds), UTC)


@lru_cache(maxsize=64)
def _read_inputs(
    home: BareRepository, tested: str, base: str, labels: tuple[str, ...], event: str, broken: tuple[str, ...]
) -> ci.Inputs:
    """Return what decides a run of two commits, which never changes."""
    return ci.Inputs(home.texts(tested, *ci.FILES), home.texts(base, *ci.FILES), labels, event, broken)


@lru_cache(maxsize=128)
def _measured(inputs: ci.Inputs, job: ci.Job) -> tuple[tuple[str, str], ...]:
    """Return (file name, text) of the golden values that a job leaves behind."""
    return tuple((path.rpartition("/")[2], text) for path, text in inputs.measured(job).items())
