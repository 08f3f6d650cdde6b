"""The workflow runs of the practice forge, with their jobs, artifacts, logs and deployments."""

from collections.abc import Sequence

from runbook_lib.clients.github.models import Artifact, WorkflowJob, WorkflowRun
from runbook_lib.practice.access import ForgeAccess, moment, transaction
from runbook_lib.practice.ci import evidence, plan
from runbook_lib.practice.downloads import StoredFile
from runbook_lib.practice.hub import JobState, PracticeRefusal, RunState
from runbook_lib.practice.store import JobRecord

#: Lifetime of artifacts and logs; seconds.
LIFETIME = 90 * 86400.0
RUNNERS = {"dgx_h100": "nvidia-ci-aws-gpu-x8", "dgx_gb200": "nvidia-ci-aws-use2-gpu-x4"}


class Actions(ForgeAccess):
    """Reading and rerunning workflow runs."""

    @transaction
    def runs(self, branch: str | None = None, head_sha: str | None = None) -> tuple[WorkflowRun, ...]:
        """Return workflow runs, newest first."""
        states = self.hub.runs(lambda run: branch in (None, run.head_branch) and head_sha in (None, run.head_sha))
        return tuple(map(self._run, states))

    @transaction
    def run(self, run_id: int) -> WorkflowRun:
        """Return one workflow run."""
        return self._run(self.hub.run(run_id))

    def _run(self, state: RunState) -> WorkflowRun:
        run, status = state.run, state.status
        return WorkflowRun(
            run.id, self.url(f"actions/runs/{run.id}"), plan.WORKFLOW, run.head_sha, run.head_branch, status.status,
            status.conclusion or "", state.attempt.attempt, moment(run.created),
        )  # fmt: skip

    @transaction
    def jobs(self, run_id: int) -> tuple[WorkflowJob, ...]:
        """Return the jobs of a run's latest attempt."""
        return tuple(map(self._job, self.hub.jobs(self.hub.run(run_id))))

    @transaction
    def job(self, job_id: int) -> WorkflowJob:
        """Return one job."""
        return self._job(self.hub.job(job_id))

    def _job(self, job: JobState) -> WorkflowJob:
        """Return a job.  On GitHub even a waiting job has a start: the time when it was listed."""
        planned, status = job.record.planned, job.status
        started = status.started or job.state.attempt.started + max(planned.appears, 0.0)
        return WorkflowJob(
            id=job.record.id, url=self.url(f"actions/runs/{job.record.run}/job/{job.record.id}"), name=planned.name,
            status=status.status, conclusion=status.conclusion or "", started=moment(started),
            completed=None if status.completed is None else moment(status.completed),
            failed_steps=(planned.kind,) if status.conclusion == "failure" else (),
            runners=(RUNNERS.get(planned.platform, "ubuntu-latest"),),
        )  # fmt: skip

    @transaction
    def rerun_failed(self, run_id: int) -> None:
        """Run the failed jobs of a run once more, as its next attempt."""
        self.require_write()
        state = self.hub.run(run_id)
        if state.status.status != "completed":
            raise PracticeRefusal("This workflow is already running", 403)
        if state.status.conclusion == "success":
            raise PracticeRefusal("This workflow run has no failed jobs to rerun", 403)
        self.hub.rerun(state, self.account)

    @transaction
    def artifacts(self, run_id: int) -> tuple[Artifact, ...]:
        """Return the artifacts that the jobs of all attempts of a run have uploaded."""
        return tuple(map(self._artifact, self.jobs_with_artifact(run_id)))

    def _artifact(self, job: JobState) -> Artifact:
        created = job.status.completed or 0.0
        expired = self.hub.clock() > created + LIFETIME
        return Artifact(
            job.record.artifact, artifact_name(job), len(self.hub.archive(job)), expired, moment(created)
        )  # fmt: skip

    def jobs_with_artifact(self, run_id: int) -> Sequence[JobState]:
        """Return the jobs of all attempts that left an artifact: those that started, and ran in that attempt."""
        jobs = []
        for state in self.hub.all_attempts(run_id):
            for job in self.hub.jobs(state):
                ran = job.status.completed and job.status.started != job.status.completed
                if job.record.artifact and ran and job.record.planned.starts >= 0:
                    jobs.append(job)
        return jobs

    def artifact(self, artifact_id: int) -> StoredFile:
        """Return an artifact's zip, for reading."""
        return StoredFile(lambda: self.read_artifact(artifact_id))

    @transaction
    def read_artifact(self, artifact_id: int) -> bytes:
        """Return an artifact's zip.  Raises PracticeRefusal."""
        job = self.find_artifact(artifact_id)
        self._require_kept(job)
        return self.hub.archive(job)

    def find_artifact(self, artifact_id: int) -> JobState:
        """Return the job that left an artifact.  Raises PracticeRefusal."""
        for record in self.hub.store.all(JobRecord):
            if record.artifact == artifact_id:
                for job in self.jobs_with_artifact(record.run):
                    if job.record == record:
                        return job
        raise PracticeRefusal()

    def _require_kept(self, job: JobState) -> None:
        if self.hub.clock() > (job.status.completed or 0.0) + LIFETIME:
            raise PracticeRefusal("Artifact has expired", 410)

    def log(self, job_id: int) -> StoredFile:
        """Return the log of a job, for reading."""
        return StoredFile(lambda: self.read_log(job_id))

    @transaction
    def read_log(self, job_id: int) -> bytes:
        """Return the log of a job that has ended.  Raises PracticeRefusal."""
        job = self.hub.job(job_id)
        if job.status.status != "completed" or job.status.conclusion == "skipped":
            raise PracticeRefusal()
        self._require_kept(job)
        return job.log.encode()

    @transaction
    def deployment_failed(self, sha: str) -> bool:
        """Return True if the newest deployment of a commit failed."""
        states = self.hub.runs(lambda run: bool(run.pull) and run.head_sha == sha)
        queue = [job for state in states[:1] for job in self.hub.jobs(state) if job.record.planned.kind == "queue"]
        return any(job.status.conclusion in ("failure", "cancelled") for job in queue)


def artifact_name(job: JobState) -> str:
    """Return the name of the artifact of a job."""
    return evidence.artifact_name(job.record.planned, job.state.run.id, job.record.id)
