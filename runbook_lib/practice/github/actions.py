"""The workflow runs, jobs, artifacts and deployments of the forge's API."""

import hashlib
from typing import NamedTuple

from werkzeug.wrappers import Response

from runbook_lib.practice.ci import evidence, plan
from runbook_lib.practice.github import shapes
from runbook_lib.practice.github.api import ApiCall, Route
from runbook_lib.practice.github.errors import ApiError, json_response, not_found
from runbook_lib.practice.hub import Hub, RunState, listed_jobs
from runbook_lib.practice.state import JobRecord, RunRecord

#: Lifetime of artifacts and logs; seconds.
_LIFETIME = 90 * 86400.0
#: Time for which the address of a download is valid; seconds.
_ADDRESS_LIFETIME = 60.0


class ListedJob(NamedTuple):
    """A job of an attempt, as it is now."""

    state: RunState
    job: JobRecord
    status: plan.GitHubStatus

    @property
    def artifact_name(self) -> str:
        return evidence.artifact_name(self.job.planned, self.state.run.id, self.job.id)

    def planned(self) -> plan.Planned:
        """Return the job as it ended, which is earlier than planned if the run was cancelled."""
        return evidence.as_ended(self.job.planned, self.state.attempt.started, self.status)


def _listed(hub: Hub, state: RunState) -> list[ListedJob]:
    return [ListedJob(state, job, status) for job, status in listed_jobs(state, hub.clock())]


def _list_runs(call: ApiCall) -> Response:
    query = call.request.args

    def matches(run: RunRecord) -> bool:
        branch, sha = query.get("branch", run.head_branch), query.get("head_sha", run.head_sha)
        return (branch, sha) == (run.head_branch, run.head_sha)

    states = call.hub.runs(matches)
    return call.page(states, lambda state: shapes.run(call.hub, state), "workflow_runs")


def _get_run(call: ApiCall, run_id: int) -> Response:
    return json_response(shapes.run(call.hub, call.hub.run(run_id)))


def _list_jobs(call: ApiCall, run_id: int) -> Response:
    jobs = _listed(call.hub, call.hub.run(run_id))
    return call.page(jobs, lambda entry: shapes.job(call.hub, *entry), "jobs")


def _find_job(call: ApiCall, job_id: int) -> ListedJob:
    job = call.hub.store.find(JobRecord, job_id)
    if job is None:
        raise not_found()
    for entry in _listed(call.hub, call.hub.run(job.run, job.attempt)):
        if entry.job.id == job.id:
            return entry
    raise not_found()


def _get_job(call: ApiCall, job_id: int) -> Response:
    return json_response(shapes.job(call.hub, *_find_job(call, job_id)))


def _rerun_failed_jobs(call: ApiCall, run_id: int) -> Response:
    actor, state = call.caller.require_write(), call.hub.run(run_id)
    if state.status.status != "completed":
        raise ApiError(403, "This workflow is already running")
    if state.status.conclusion == "success":
        raise ApiError(403, "This workflow run has no failed jobs to rerun")
    call.hub.rerun(state, actor)
    return json_response({}, 201)


def _archive(hub: Hub, entry: ListedJob) -> bytes:
    planned = entry.planned()
    golden = hub.golden(entry.state, entry.job) if planned is entry.job.planned else {}
    return evidence.archive(planned, golden, entry.state.attempt.started)


def _artifact(hub: Hub, entry: ListedJob) -> shapes.Json:
    data = _archive(hub, entry)
    run, number, created = entry.state.run, entry.job.artifact, entry.status.completed or 0.0
    url = f"{shapes.api_url(hub)}/actions/artifacts/{number}"
    repository = shapes.REPOSITORY_ID
    return shapes.new_object("artifact", url, number) | {
        "size_in_bytes": len(data), "name": entry.artifact_name, "expired": hub.clock() > created + _LIFETIME,
        "created_at": shapes.timestamp(created), "updated_at": shapes.timestamp(created),
        "expires_at": shapes.timestamp(created + _LIFETIME),
        "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
        "workflow_run": {
            "id": run.id, "repository_id": repository, "head_repository_id": repository,
            "head_branch": run.head_branch, "head_sha": run.head_sha,
        },
    }  # fmt: skip


def _jobs_with_artifact(hub: Hub, run_id: int) -> list[ListedJob]:
    """Return the jobs of all attempts that left an artifact: those that started, and ran in that attempt."""
    return [
        entry
        for state in hub.all_attempts(run_id)
        for entry in _listed(hub, state)
        if entry.job.artifact
        and entry.status.completed
        and entry.status.started != entry.status.completed
        and entry.job.planned.starts >= 0
    ]


def _list_artifacts(call: ApiCall, run_id: int) -> Response:
    entries = _jobs_with_artifact(call.hub, run_id)
    return call.page(entries, lambda entry: _artifact(call.hub, entry), "artifacts")


def _download_artifact(call: ApiCall, artifact_id: int) -> Response:
    call.caller.require_account()
    entry = _find_artifact(call.hub, artifact_id)
    if call.hub.clock() > (entry.status.completed or 0.0) + _LIFETIME:
        raise ApiError(410, "Artifact has expired")
    return _redirect_to_storage(call, f"{entry.artifact_name}.zip", "application/zip", _archive(call.hub, entry))


def _find_artifact(hub: Hub, artifact_id: int) -> ListedJob:
    for job in hub.store.all(JobRecord):
        if artifact_id and job.artifact == artifact_id:
            for entry in _jobs_with_artifact(hub, job.run):
                if entry.job == job:
                    return entry
    raise not_found()


def _download_log(call: ApiCall, job_id: int) -> Response:
    call.caller.require_account()
    entry = _find_job(call, job_id)
    if entry.status.status != "completed" or entry.status.conclusion == "skipped":
        raise not_found()
    if call.hub.clock() > (entry.status.completed or 0.0) + _LIFETIME:
        raise ApiError(410, "Server Error")
    planned = entry.planned()
    text = evidence.log(planned, entry.state.attempt.started + planned.starts)
    return _redirect_to_storage(call, f"{job_id}.txt", "text/plain; charset=utf-8", text.encode())


def _redirect_to_storage(call: ApiCall, name: str, media_type: str, data: bytes) -> Response:
    """Return a redirect to the storage, where the file is available for a short time without a token."""
    path = call.hub.storage.put(name, media_type, data, call.hub.clock() + _ADDRESS_LIFETIME)
    return Response(status=302, headers={"Location": call.hub.url + path})


def _list_deployments(call: ApiCall) -> Response:
    sha = call.request.args.get("sha")
    states = call.hub.runs(lambda run: bool(run.pull) and run.head_sha == (sha or run.head_sha))
    return call.page(states, lambda state: _deployment(call.hub, state))


def _deployment(hub: Hub, state: RunState) -> shapes.Json:
    run, url = state.run, f"{shapes.api_url(hub)}/deployments/{state.run.id}"
    return shapes.new_object("deployment", url, run.id) | {
        "sha": run.head_sha, "ref": run.head_branch, "creator": shapes.user(hub, "copy-pr-bot[bot]"),
        "created_at": shapes.timestamp(run.created), "updated_at": shapes.timestamp(run.created),
        "repository_url": shapes.api_url(hub),
    }  # fmt: skip


_DEPLOYMENT_STATES = {"success": "success", "failure": "failure", "cancelled": "error", "skipped": "inactive"}


def _list_deployment_statuses(call: ApiCall, deployment_id: int) -> Response:
    state = call.hub.run(deployment_id)
    deployment = _deployment(call.hub, state)
    queue_jobs = [entry for entry in _listed(call.hub, state) if entry.job.planned.kind == "queue"]
    conclusions = [entry.status.conclusion for entry in queue_jobs[:1] if entry.status.conclusion]
    status = shapes.new_object("deployment_status", f"{deployment['statuses_url']}/1", state.run.id) | {
        "creator": deployment["creator"], "deployment_url": deployment["url"],
        "created_at": deployment["created_at"], "updated_at": deployment["updated_at"],
        "repository_url": deployment["repository_url"],
        "target_url": f"{shapes.web_url(call.hub)}/actions/runs/{state.run.id}",
    }  # fmt: skip
    return call.page(conclusions, lambda conclusion: status | {"state": _DEPLOYMENT_STATES[conclusion]})


_ACTIONS = "/repos/<owner>/<repo>/actions"
_RUN = f"{_ACTIONS}/runs/<number:run_id>"
_JOB = f"{_ACTIONS}/jobs/<number:job_id>"
_DEPLOYMENTS = "/repos/<owner>/<repo>/deployments"
_READ, _WRITE, _DEPLOYMENTS_READ = ("actions=read",), ("actions=write",), ("deployments=read",)
ROUTES = (
    Route("GET", f"{_ACTIONS}/runs", _list_runs, _READ),
    Route("GET", _RUN, _get_run, _READ),
    Route("GET", f"{_RUN}/jobs", _list_jobs, _READ),
    Route("GET", _JOB, _get_job, _READ),
    Route("GET", f"{_JOB}/logs", _download_log, _READ),
    Route("POST", f"{_RUN}/rerun-failed-jobs", _rerun_failed_jobs, _WRITE, full=True),
    Route("GET", f"{_RUN}/artifacts", _list_artifacts, _READ),
    Route("GET", f"{_ACTIONS}/artifacts/<number:artifact_id>/zip", _download_artifact, _READ, full=True),
    Route("GET", _DEPLOYMENTS, _list_deployments, _DEPLOYMENTS_READ),
    Route("GET", f"{_DEPLOYMENTS}/<number:deployment_id>/statuses", _list_deployment_statuses, _DEPLOYMENTS_READ),
)
