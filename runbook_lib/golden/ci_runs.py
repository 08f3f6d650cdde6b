"""The runs whose golden values may be collected, on GitHub and on GitLab; what must not be used is said."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from runbook_lib.bump import ImageType
from runbook_lib.clients.github.ci_status import LIGHTWEIGHT, LTS, WORKFLOW
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.models import Job, Run
from runbook_lib.clients.gitlab.client import FunctionalJob, GitLab
from runbook_lib.errors import Refused
from runbook_lib.golden import match_artifacts
from runbook_lib.golden.collect import Problem, Source
from runbook_lib.golden.match_artifacts import Pair, RanJob, State, Upload
from runbook_lib.transport.ranges import Address

_GITHUB: dict[str, State] = {
    "success": "passed", "failure": "failed", "cancelled": "cancelled", "timed_out": "timed out",
}  # fmt: skip
_GITLAB: dict[str, State] = {
    "success": "passed", "failed": "failed", "canceled": "cancelled", "canceling": "cancelled",
    "skipped": "skipped", "manual": "skipped",
}  # fmt: skip


def of_github(
    github: GitHub, run_id: int, *, image_type: ImageType, branch: str, head: str, labels: AbstractSet[str],
    older: bool = False,
) -> Source:  # fmt: skip
    """A workflow run of the pull request that is mirrored to ``branch`` and whose head commit is ``head``.

    ``labels`` are those of the moment when the run started.  ``older`` permits a run of an earlier commit.  Raises
    Refused for a run of something else, and as GitHub does: a run of another repository is not found there.
    """
    run = github.run(run_id)
    name = f"CI run {run.id}"
    if run.fork:
        raise Refused(
            f"{name} is a run of a fork's branch that is called {run.head_branch}: its values are whoever's that is. "
            f"Name a run of the bump's pull request: {run.url}"
        )
    if run.head_branch != branch or run.name != WORKFLOW:
        raise Refused(
            f"{name} is no run of {WORKFLOW} on {branch}: it is {run.name or 'nameless'} on {run.head_branch or 'no '}"
            f"{'' if run.head_branch else 'branch'}. Name a run of the bump's pull request: {run.url}"
        )
    if run.head_sha != head and not older:
        raise Refused(
            f"{name} tested {run.head_sha[:10]}, and the pull request stands at {head[:10]}. Its values may not be "
            "those of the commit that would be merged.",
            "older-run",
        )
    unusable = _of_no_use(run, image_type, labels)
    if unusable:
        return Source(name, (), (), _github_address(github), image_type, unusable=unusable)
    listed = github.jobs(run.id)
    jobs = tuple(it for job in listed for it in tested(job))
    if not any(job.state in ("passed", "failed", "timed out", "cancelled") for job in jobs):
        return Source(name, jobs, (), _github_address(github), image_type, unusable=_none_ran(listed))
    uploads = [Upload(it.id, it.name, it.size, it.expired, it.created) for it in github.artifacts(run.id)]
    return Source(name, jobs, match_artifacts.pair(jobs, uploads, run.id), _github_address(github), image_type)


def of_gitlab(gitlab: GitLab, pipeline_id: int, *, image_type: ImageType, head: str, older: bool = False) -> Source:
    """The functional tests of a pipeline for one image type; as ``of_github``."""
    pipeline = gitlab.pipeline(pipeline_id)
    name = f"pipeline {pipeline.id}"
    if pipeline.sha != head and not older:
        raise Refused(
            f"{name} tested {pipeline.sha[:10]}, and the bump stands at {head[:10]}. Its values may not be those of "
            "the commit that would be merged.",
            "older-run",
        )
    bridges = [it for it in gitlab.bridges(pipeline_id) if it.environment == image_type]
    problems = tuple(
        Problem(it.name, f"It started no pipeline (its status is {it.status}).")
        for it in bridges
        if it.pipeline is None
    )
    jobs: list[RanJob] = []
    pairs: list[Pair] = []
    for bridge in bridges:
        for job in gitlab.jobs(bridge):
            if match_artifacts.is_name(job.stage) and match_artifacts.is_name(job.name):
                tested = _of_gitlab_job(job)
                jobs.append(tested)
                if job.size or job.expired:
                    upload = Upload(job.id, f"artifacts of job {job.id}", job.size, job.expired, job=job.id)
                    pairs.append(Pair(upload, (tested,)))
    unusable = "" if bridges else f"It has no bridge functional:run_{image_type}…: no functional test of it ran."
    return Source(
        name, tuple(jobs), tuple(pairs), lambda upload: Address(*gitlab.download(upload.id)), image_type,
        gitlab=True, unusable=unusable, problems=problems,
    )  # fmt: skip


def _github_address(github: GitHub) -> Callable[[Upload], Address]:
    return lambda upload: Address(*github.download(upload.id))


def _of_no_use(run: Run, image_type: ImageType, labels: AbstractSet[str]) -> str:
    """Why none of a run's values may be used."""
    if run.status != "completed":
        return f"The run has not ended: it is {run.status.replace('_', ' ')}. Wait for it: {run.url}"
    if LTS in labels:
        return f"It ran on the LTS image (label {LTS!r}) and named its files as those of dev: none of them is used."
    if image_type == "lts":
        return "It ran on the dev image: golden values of lts come from GitLab alone."
    if LIGHTWEIGHT in labels:
        return f"It was lightweight (label {LIGHTWEIGHT!r}): four steps, and no golden values."
    return ""


def tested(job: Job) -> list[RanJob]:
    """The functional test that a job is; none for a job of another kind."""
    names = match_artifacts.named(job.name)
    if names is None:
        return []
    state: State = _GITHUB.get(job.conclusion, "skipped") if job.status == "completed" else "unfinished"
    return [RanJob(job.id, job.name, *names, state, job.started, job.completed)]


def _none_ran(jobs: Sequence[Job]) -> str:
    failed = sorted({job.name for job in jobs if job.conclusion in ("failure", "timed_out", "cancelled")})
    # Unit tests are `<bucket> - latest`, and a bucket is a path; the job that sums up a run fails with any other.
    units = [name for name in failed if name.startswith("tests/")]
    blame = units or [name for name in failed if not name.startswith("Nemo_CICD")]
    if units:
        return f"No functional test ran, because of failed unit tests ({', '.join(units[:5])}): mend those first."
    return f"No functional test ran; these jobs failed: {', '.join(blame[:5]) or 'none'}."


def _of_gitlab_job(job: FunctionalJob) -> RanJob:
    state = _GITLAB.get(job.status, "unfinished")
    if state == "failed" and "timeout" in job.reason:
        state = "timed out"
    return RanJob(
        job.id, f"{job.stage}/{job.name}", job.stage, job.name, state,
        platform=job.platform, environment=job.environment,
    )  # fmt: skip
