"""The CI of the practice forge: its runs with their jobs, logs and artifacts, which are the same for every account."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from runbook_lib.practice import ci, evidence
from runbook_lib.practice.ci import Job
from runbook_lib.practice.git import BareRepository, read_texts
from runbook_lib.practice.store import Record, Store, transactions
from runbook_lib.world.github.errors import NotAllowed
from runbook_lib.world.github.models import Artifact, WorkflowJob, WorkflowRun
from runbook_lib.world.transport.downloads import MissingFile

RUNNERS = {"dgx_h100": "nvidia-ci-aws-gpu-x8", "dgx_gb200": "nvidia-ci-aws-use2-gpu-x4"}
#: The ID of a job's artifact is so much more than its own.
ARTIFACTS = 1_000_000_000


class PracticeRefusal(NotAllowed, MissingFile):
    """What does not exist (``status`` 404, 410), or the account may not do (403)."""

    def __init__(self, message: str = "Not Found", status: int = 404) -> None:
        verb = "allow" if status == 403 else "find"
        super().__init__(f"The practice forge does not {verb} it: {message.rstrip('.')}.")
        self.message, self.status = message, status


@dataclass(frozen=True)
class StoredFile:
    """A file without a server; ``read`` returns the content, or raises PracticeRefusal."""

    read: Callable[[], bytes]

    @cached_property
    def _content(self) -> bytes:
        return self.read()

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self._content)

    def part(self, start: int, size: int) -> bytes:
        """Return ``size`` bytes from ``start``, or fewer at the end.  Raises MissingFile."""
        return self._content[start : start + size]


@transactions
class PracticeRuns:
    """The runs.  Each tests ``merge_sha``, whose base was ``base_sha``; ``attempts`` are the times when one began."""

    def __init__(self, store: Store, remote: Path, pages: Path, clock: Callable[[], float] | None = None) -> None:
        self.store, self.home = store, BareRepository(remote)
        self._pages = pages
        self._archives = dict[int, bytes]()
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
            "completed" if conclusion else "in_progress", conclusion, len(run.attempts), moment(run.created),
        )  # fmt: skip

    def jobs(self, run_id: int) -> tuple[WorkflowJob, ...]:
        run = self.record(run_id)
        return tuple(self.show(job) for job in self.listed(run) if job.attempt == len(run.attempts))

    def job(self, job_id: int) -> WorkflowJob:
        return self.show(self.find(job_id))

    def show(self, job: Job) -> WorkflowJob:
        """Return a job as it is shown."""
        is_over = self.clock() >= job.ends
        return WorkflowJob(
            id=job.id, url=self.url(f"actions/runs/{job.run}/job/{job.id}"), name=job.name,
            status="completed" if is_over else "waiting" if job.kind == "queue" else "in_progress",
            conclusion=job.conclusion if is_over else "",
            started=moment(job.starts), completed=moment(job.ends) if is_over else None,
            failed_steps=(job.kind,) if is_over and job.conclusion == "failure" else (),
            runners=(RUNNERS.get(job.platform, "ubuntu-latest"),),
        )  # fmt: skip

    def artifacts(self, run_id: int) -> tuple[Artifact, ...]:
        """Each test that ran in an attempt and has ended has left one."""
        run, found = self.record(run_id), []
        for job in self.listed(run):
            if job.platform and job.ends <= self.clock() and job.starts >= run.attempts[job.attempt - 1]:
                name, size = evidence.artifact_name(job), len(self.archive(job))
                found.append(Artifact(job.id + ARTIFACTS, name, size, _is_expired(job), moment(job.ends)))
        return tuple(found)

    def artifact(self, artifact_id: int) -> StoredFile:
        return StoredFile(lambda: self.read_artifact(artifact_id))

    def log(self, job_id: int) -> StoredFile:
        return StoredFile(lambda: self.read_log(job_id))

    def deployment_failed(self, sha: str) -> bool:
        newest = [run for run in self.records() if run.event == "push" and run.head_sha == sha][:1]
        ended = {self.show(job).conclusion for run in newest for job in self.listed(run) if job.kind == "queue"}
        return not ended.isdisjoint(("failure", "cancelled"))

    # -- what is behind it ------------------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """Return the runs, newest first."""
        return list(reversed(self.store.state.runs))

    def record(self, number: int) -> Record:
        """Return the run with this ID.  Raises PracticeRefusal."""
        for run in self.records():
            if run.id == number:
                return run
        raise PracticeRefusal()

    def conclusion(self, run: Record) -> str:
        """Return how the latest attempt of a run has ended; nothing for one that has not."""
        return ci.conclude(_latest(run), self.clock())

    def listed(self, run: Record) -> list[Job]:
        """Return the jobs of all attempts of a run that have started."""
        return [job for job in _jobs(run) if job.starts <= self.clock()]

    def find(self, job_id: int) -> Job:
        """Return the job with this ID.  Raises PracticeRefusal."""
        for job in (job for run in self.records() for job in self.listed(run)):
            if job.id == job_id:
                return job
        raise PracticeRefusal()

    def archive(self, job: Job) -> bytes:
        """Return the artifact of a job that has ended; it contains no golden values if the job was stopped."""
        if job.id not in self._archives:
            self._archives[job.id] = evidence.archive(job, self._inputs(self.record(job.run)).measured(job))
        return self._archives[job.id]

    def read_artifact(self, artifact_id: int) -> bytes:
        """Return an artifact's zip.  Raises PracticeRefusal."""
        job = self.find(artifact_id - ARTIFACTS)
        if _is_expired(job):
            raise PracticeRefusal("Artifact has expired", 410)
        return self.archive(job)

    def read_log(self, job_id: int) -> bytes:
        """Return the log of a job that has ended.  Raises PracticeRefusal."""
        job = self.find(job_id)
        if job.conclusion == "skipped" or job.ends > self.clock():
            raise PracticeRefusal("There is no log")
        return evidence.log(job).encode()

    # -- what changes it --------------------------------------------------------------------------------------------

    def start(self, began: float, **run: Any) -> None:
        """Begin a run."""
        made = Record(id=self.store.next_id(), created=began, attempts=[], jobs=[], **run)
        self._begin_attempt(made, ci.jobs(self._inputs(made), began, self.store.state.ci_seconds), began)
        self.store.state.runs.append(made)

    def _begin_attempt(self, run: Record, jobs: Iterable[Job], began: float) -> None:
        run.attempts.append(began)
        run.jobs += [job._replace(run=run.id, attempt=len(run.attempts), id=self.store.next_id()) for job in jobs]

    def _inputs(self, run: Record) -> ci.Inputs:
        """Return what decides a run, which never changes."""
        tested, base = (read_texts(self.home, sha, *ci.FILES) for sha in (run.merge_sha, run.base_sha))
        return ci.Inputs(tested, base, run.labels, run.event)

    def repeat(self, run: Record) -> None:
        """Run the jobs that failed once more."""
        self._begin_attempt(run, ci.retry(_latest(run), self.clock()), self.clock())

    def stop(self, run: Record) -> None:
        """Cancel a run that has not ended."""
        if not self.conclusion(run):
            before = [job for job in _jobs(run) if job.attempt < len(run.attempts)]
            run.jobs = [*before, *ci.stop(_latest(run), self.clock())]


def _jobs(run: Record) -> list[Job]:
    return [Job(*job) for job in run.jobs]


def _latest(run: Record) -> list[Job]:
    return [job for job in _jobs(run) if job.attempt == len(run.attempts)]


def _is_expired(job: Job) -> bool:
    return "expired" in job.script


def moment(seconds: float) -> datetime:
    """Return a time as GitHub shows it, in whole seconds; ``seconds`` since 1970."""
    return datetime.fromtimestamp(int(seconds), UTC)
