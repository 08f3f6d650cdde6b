"""The workflow runs, jobs, artifacts and deployments of the forge's API."""

import hashlib
import secrets
from datetime import datetime

from local_server import STORAGE, ApiError, json_response
from people import COPY_PR_BOT
from werkzeug.wrappers import Response

from github_server import shapes
from github_server.api import ApiCall, Route, ServedForge
from runbook_lib.practice.runs import ARTIFACTS, StoredFile
from runbook_lib.practice.store import Record
from runbook_lib.world.github.models import Artifact

_LIFETIME = 90 * 86400.0  # of an artifact, in seconds


def _list_runs(call: ApiCall) -> Response:
    branch, sha, event, status = (call.request.args.get(name) for name in ("branch", "head_sha", "event", "status"))
    since = call.request.args.get("created", "").removeprefix(">=")
    found = call.hub.runs(branch, sha, event, status, datetime.fromisoformat(since) if since else None)
    return call.page(found, lambda run: shapes.run(call.hub, call.hub.record(run.id)), "workflow_runs")


def _get_run(call: ApiCall, run_id: int) -> Response:
    return json_response(shapes.run(call.hub, call.hub.record(run_id)))


def _list_jobs(call: ApiCall, run_id: int) -> Response:
    jobs = call.hub.jobs(run_id)
    return call.page(jobs, lambda job: shapes.job(call.hub, job), "jobs")


def _get_job(call: ApiCall, job_id: int) -> Response:
    return json_response(shapes.job(call.hub, call.hub.job(job_id)))


def _rerun_failed_jobs(call: ApiCall, run_id: int) -> Response:
    call.forge.rerun_failed(run_id)
    return json_response({}, 201)


def _artifact(call: ApiCall, shown: Artifact) -> shapes.Json:
    job = call.hub.find(shown.id - ARTIFACTS)
    return shapes.shape(
        call.hub, "artifact", call.hub.record(job.run), id=shown.id, run=job.run, size=shown.size, name=shown.name,
        created=job.ends, expires=job.ends + _LIFETIME, expired=shown.expired,
        sha256=hashlib.sha256(call.hub.archive(job)).hexdigest(),
    )  # fmt: skip


def _list_artifacts(call: ApiCall, run_id: int) -> Response:
    return call.page(call.hub.artifacts(run_id), lambda shown: _artifact(call, shown), "artifacts")


def _download_artifact(call: ApiCall, artifact_id: int) -> Response:
    return _redirect_to_storage(call, f"{artifact_id}.zip", "application/zip", call.forge.artifact(artifact_id))


def _download_log(call: ApiCall, job_id: int) -> Response:
    return _redirect_to_storage(call, f"{job_id}.txt", "text/plain; charset=utf-8", call.forge.log(job_id))


def _redirect_to_storage(call: ApiCall, name: str, media_type: str, file: StoredFile) -> Response:
    """Return a redirect to the storage, where the file is available without a token."""
    if not file.data:
        raise ApiError(410, "Artifact has expired")
    path = f"{STORAGE}{secrets.token_hex(16)}/{name}"
    call.hub.storage[path] = file.data, media_type
    return Response(status=302, headers={"Location": call.hub.address + path})


def _deployment(hub: ServedForge, run: Record, kind: str = "deployment", status: str = "") -> shapes.Json:
    return shapes.shape(hub, kind, run, creator=shapes.user(hub, COPY_PR_BOT.login), state=status)


def _list_deployments(call: ApiCall) -> Response:
    sha = call.request.args.get("sha")
    runs = [run for run in call.hub.records() if run.event == "push" and run.head_sha == (sha or run.head_sha)]
    return call.page(runs, lambda run: _deployment(call.hub, run))


_DEPLOYMENT_STATES = {"success": "success", "failure": "failure", "cancelled": "error", "skipped": "inactive"}


def _list_deployment_statuses(call: ApiCall, deployment_id: int) -> Response:
    hub, run = call.hub, call.hub.record(deployment_id)
    ended = [hub.show(it).conclusion for it in hub.listed(run) if it.kind == "queue"]
    statuses = [_DEPLOYMENT_STATES[conclusion] for conclusion in ended if conclusion]
    return call.page(statuses, lambda status: _deployment(hub, run, "deployment_status", status))


_ACTIONS = "/repos/<owner>/<repo>/actions"
_RUN = f"{_ACTIONS}/runs/<number:run_id>"
_JOB = f"{_ACTIONS}/jobs/<number:job_id>"
_DEPLOYMENTS = "/repos/<owner>/<repo>/deployments"
ROUTES = (
    Route("GET", f"{_ACTIONS}/runs", _list_runs),
    Route("GET", _RUN, _get_run),
    Route("GET", f"{_RUN}/jobs", _list_jobs),
    Route("GET", _JOB, _get_job),
    Route("GET", f"{_JOB}/logs", _download_log),
    Route("POST", f"{_RUN}/rerun-failed-jobs", _rerun_failed_jobs),
    Route("GET", f"{_RUN}/artifacts", _list_artifacts),
    Route("GET", f"{_ACTIONS}/artifacts/<number:artifact_id>/zip", _download_artifact),
    Route("GET", _DEPLOYMENTS, _list_deployments),
    Route("GET", f"{_DEPLOYMENTS}/<number:deployment_id>/statuses", _list_deployment_statuses),
)
