"""The CI of the practice forge: its runs with their jobs, logs and artifacts, which are the same for every account."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from runbook_lib.practice import ci, evidence
from runbook_lib.practice.ci import Job
from runbook_lib.practice.git import BareRepository, read_texts
from runbook_lib.practice.store import Record, Store, matching, transactions
from runbook_lib.world.github.models import Artifact, NotAllowed, WorkflowJob, WorkflowRun
from runbook_lib.world.transport.archives import MissingFile

RUNNERS = {"dgx_h100": "nvidia-ci-aws-gpu-x8", "dgx_gb200": "nvidia-ci-aws-use2-gpu-x4"}
#: The ID of a job's artifact is so much more than its own.
ARTIFACTS = 1_000_000_000

T = TypeVar("T")


class PracticeRefusal(NotAllowed):
    """A refusal: it does not exist (``status`` 404, 410), or the account may not do it (403)."""

    def __init__(self, message: str = "Not Found", status: int = 404) -> None:
        verb = "allow" if status == 403 else "find"
        super().__init__(f"The practice forge does not {verb} it: {message.rstrip('.')}.")
        self.message, self.status = message, status


def one(found: Sequence[T]) -> T:
    """Return the first of what was looked for.  Raises PracticeRefusal if there is none."""
    if not found:
        raise PracticeRefusal()
    return found[0]


@dataclass(frozen=True)
class StoredFile:
    """A file without a server; there is none without ``data``."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def part(self, start: int, size: int) -> bytes:
        if not self.data:
            raise MissingFile("Practice does not have this file (any more).")
        return self.data[start : start + size]


@transactions
class PracticeRuns:
    """The runs.  Each tests ``merge_sha``, whose base was ``base_sha``; ``attempts`` are the times when one began."""

    def __init__(self, store: Store, remote: Path, pages: Path) -> None:
        self.store, self.home = store, BareRepository(remote)
        self._pages = pages
        self._archives = dict[int, bytes]()

    def clock(self) -> float:
        """Return the time, in seconds since 1970."""
        return float(self.store.state.clock)

    def url(self, page: str) -> str:
        """Return the URL of a page, such as ``pull/10``, which the end of a run writes."""
        return (self._pages / f"{page}.html").as_uri()

    def runs(
        self, branch: str | None = None, head_sha: str | None = None, event: str | None = None,
        status: str | None = None, since: datetime | None = None,
    ) -> tuple[WorkflowRun, ...]:  # fmt: skip
        shown = map(self._shown, matching(self.records(), head_branch=branch, head_sha=head_sha, event=event))
        recent = [run for run in shown if run.created >= (since or run.created)]
        return tuple(run for run in recent if status in (None, run.status, run.conclusion))

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
                found.append(Artifact(job.id + ARTIFACTS, name, size, "expired" in job.script, moment(job.ends)))
        return tuple(found)

    def artifact(self, artifact_id: int) -> StoredFile:
        kept = [job for job in self._all() if job.id == artifact_id - ARTIFACTS and "expired" not in job.script]
        return StoredFile(self.archive(kept[0]) if kept else b"")

    def log(self, job_id: int) -> StoredFile:
        ended = [job for job in self._all() if job.id == job_id and job.ends <= self.clock()]
        return StoredFile(evidence.log(ended[0]).encode() if ended and ended[0].conclusion != "skipped" else b"")

    def deployment_failed(self, sha: str) -> bool:
        return False

    def records(self) -> list[Record]:
        """Return the runs, newest first."""
        return list(reversed(self.store.state.runs))

    def record(self, number: int) -> Record:
        """Return the run with this ID.  Raises PracticeRefusal."""
        return one(matching(self.records(), id=number))

    def conclusion(self, run: Record) -> str:
        """Return how the latest attempt of a run has ended; nothing for one that has not."""
        latest = _latest(run)
        return "" if any(job.ends > self.clock() for job in latest) else latest[-1].conclusion

    def listed(self, run: Record) -> list[Job]:
        """Return the jobs of all attempts of a run that have started."""
        return [job for job in map(Job._make, run.jobs) if job.starts <= self.clock()]

    def _all(self) -> list[Job]:
        return [job for run in self.records() for job in self.listed(run)]

    def find(self, job_id: int) -> Job:
        """Return the job with this ID.  Raises PracticeRefusal."""
        return one([job for job in self._all() if job.id == job_id])

    def archive(self, job: Job) -> bytes:
        """Return the artifact of a job that has ended."""
        if job.id not in self._archives:
            self._archives[job.id] = evidence.archive(job, self._inputs(self.record(job.run)).measured(job))
        return self._archives[job.id]

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
        return ci.Inputs(tested, base, run.labels)

    def rerun_failed(self, run_id: int) -> None:
        run, now = self.record(run_id), self.clock()
        if self.conclusion(run) in ("", "success"):
            raise PracticeRefusal("This workflow run has not ended, or has no failed jobs to rerun", 403)
        self._begin_attempt(run, ci.retry(_latest(run), now), now)


def _latest(run: Record) -> list[Job]:
    return [job for job in map(Job._make, run.jobs) if job.attempt == len(run.attempts)]


def moment(seconds: float) -> datetime:
    """Return a time as GitHub shows it, in whole seconds; ``seconds`` since 1970."""
    return datetime.fromtimestamp(int(seconds), UTC)
