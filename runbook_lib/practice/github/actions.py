"""Workflow runs, jobs, artifacts and deployments, as the forge's API shows and changes them."""

import hashlib

from runbook_lib.practice.ci import evidence, plan
from runbook_lib.practice.github import shapes
from runbook_lib.practice.github.protocol import Answer, Problem, not_found, page
from runbook_lib.practice.github.routing import Call, Route
from runbook_lib.practice.hub import Hub, RunState, shown
from runbook_lib.practice.state import Job, Run

#: GitHub keeps artifacts and logs for so long; seconds.
_KEPT = 90 * 86400.0
#: For how long the address of a download is good; seconds.
_ADDRESS = 60.0


def _runs(call: Call) -> Answer:
    query, workflow = call.request.query, call.parts.get("workflow_id")
    if workflow not in (None, str(shapes.WORKFLOW_ID), plan.WORKFLOW_PATH.rpartition("/")[2]):
        raise not_found()
    asked = {name: query[name] for name in ("branch", "head_sha", "event", "actor") if name in query}

    def wanted(run: Run) -> bool:
        own = {"branch": run.head_branch, "head_sha": run.head_sha, "event": run.event, "actor": shapes.actor(run)}
        return asked.items() <= own.items()

    found = [it for it in call.hub.runs(wanted) if query.get("status") in (None, it.seen.status, it.seen.conclusion)]
    return page(call.request, call.url, found, lambda it: shapes.run(call.hub, it), "workflow_runs")


def _state(call: Call) -> RunState:
    attempt = call.number("attempt_number") if "attempt_number" in call.parts else None
    return call.hub.run(call.number("run_id"), attempt)


def _run(call: Call) -> Answer:
    return Answer(200, shapes.run(call.hub, _state(call)))


def _jobs(call: Call) -> Answer:
    state, hub = _state(call), call.hub
    states = [state]
    if call.request.query.get("filter") == "all":
        states = [hub.run(state.run.id, each.attempt) for each in hub.attempts(state.run)]
    found = [(each, *pair) for each in states for pair in shown(each, hub.clock())]
    return page(call.request, call.url, found, lambda it: shapes.job(hub, *it), "jobs")


def _found_job(call: Call) -> tuple[RunState, Job, plan.Seen]:
    job = call.hub.store.find(Job, call.number("job_id"))
    if job is None:
        raise not_found()
    state = call.hub.run(job.run, job.attempt)
    for each, seen in shown(state, call.hub.clock()):
        if each.id == job.id:
            return state, each, seen
    raise not_found()


def _job(call: Call) -> Answer:
    return Answer(200, shapes.job(call.hub, *_found_job(call)))


def _rerun_failed(call: Call) -> Answer:
    actor, state = call.caller.maintaining(), _state(call)
    if state.seen.status != "completed":
        raise Problem(403, "This workflow is already running")
    if state.seen.conclusion == "success":
        raise Problem(403, "This workflow run has no failed jobs to rerun")
    call.hub.rerun(state, actor)
    return Answer(201, {})


def _rerun_job(call: Call) -> Answer:
    actor = call.caller.maintaining()
    state, job, _ = _found_job(call)
    if call.hub.run(state.run.id).seen.status != "completed":
        raise Problem(403, "This workflow is already running")
    if state.attempt != call.hub.attempts(state.run)[-1]:
        raise Problem(403, "Unable to re-run this job because it is not part of the latest attempt")
    call.hub.rerun(state, actor, job.planned)
    return Answer(201, {})


def _cancel(call: Call) -> Answer:
    call.caller.maintaining()
    if not call.hub.cancel(_state(call)):
        raise Problem(409, "Cannot cancel a workflow run that is completed.")
    return Answer(202, {})


def _archive(hub: Hub, state: RunState, job: Job, seen: plan.Seen) -> bytes:
    planned = evidence.as_seen(job.planned, state.attempt.started, seen)
    golden = hub.golden(state, job) if planned is job.planned else {}
    return evidence.archive(planned, golden, state.attempt.started)


def _artifact(hub: Hub, state: RunState, job: Job, seen: plan.Seen) -> shapes.Json:
    data = _archive(hub, state, job, seen)
    made = seen.completed or 0.0
    url = f"{shapes.api(hub)}/actions/artifacts/{job.artifact}"
    repository = shapes.REPOSITORY_ID
    return {
        "id": job.artifact, "node_id": shapes.node("MDg6", job.artifact), "size_in_bytes": len(data),
        "name": evidence.artifact_name(job.planned, state.run.id, job.id), "url": url,
        "archive_download_url": f"{url}/zip", "expired": hub.clock() > made + _KEPT,
        "created_at": shapes.moment(made), "updated_at": shapes.moment(made),
        "expires_at": shapes.moment(made + _KEPT), "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
        "workflow_run": {
            "id": state.run.id, "repository_id": repository, "head_repository_id": repository,
            "head_branch": state.run.head_branch, "head_sha": state.run.head_sha,
        },
    }  # fmt: skip


def _uploaded(hub: Hub, run_id: int) -> list[tuple[RunState, Job, plan.Seen]]:
    """The jobs of all attempts that have left an artifact: those that had started, and ran in that attempt."""
    states = [hub.run(run_id, each.attempt) for each in hub.attempts(hub.run(run_id).run)]
    return [
        (state, job, seen)
        for state in states
        for job, seen in shown(state, hub.clock())
        if job.artifact and seen.completed and seen.started != seen.completed and job.planned.starts >= 0
    ]


def _artifacts(call: Call) -> Answer:
    found = _uploaded(call.hub, call.number("run_id"))
    if name := call.request.query.get("name"):
        found = [each for each in found if evidence.artifact_name(each[1].planned, each[0].run.id, each[1].id) == name]
    return page(call.request, call.url, found, lambda it: _artifact(call.hub, *it), "artifacts")


def _found_artifact(call: Call) -> tuple[RunState, Job, plan.Seen]:
    number = call.number("artifact_id")
    job = next((job for job in call.hub.store.all(Job) if number and job.artifact == number), None)
    for found in _uploaded(call.hub, job.run) if job else ():
        if found[1] == job:
            return found
    raise not_found()


def _one_artifact(call: Call) -> Answer:
    return Answer(200, _artifact(call.hub, *_found_artifact(call)))


def _download_artifact(call: Call) -> Answer:
    call.caller.known()
    state, job, seen = _found_artifact(call)
    if call.parts["archive_format"] != "zip":
        raise not_found()
    if call.hub.clock() > (seen.completed or 0.0) + _KEPT:
        raise Problem(410, "Artifact has expired")
    name = evidence.artifact_name(job.planned, state.run.id, job.id)
    return _stored(call, f"{name}.zip", "application/zip", _archive(call.hub, state, job, seen))


def _download_log(call: Call) -> Answer:
    call.caller.known()
    state, job, seen = _found_job(call)
    if seen.status != "completed" or seen.conclusion == "skipped":
        raise not_found()
    if call.hub.clock() > (seen.completed or 0.0) + _KEPT:
        raise Problem(410, "Server Error")
    planned = evidence.as_seen(job.planned, state.attempt.started, seen)
    text = evidence.log(planned, state.attempt.started + planned.starts)
    return _stored(call, f"{job.id}.txt", "text/plain; charset=utf-8", text.encode())


def _stored(call: Call, name: str, kind: str, data: bytes) -> Answer:
    """A redirect to the storage, where the bytes may be had for a short time without a token."""
    location = call.hub.storage.put(name, kind, data, call.hub.clock() + _ADDRESS)
    return Answer(302, b"", {"Location": call.hub.url + location})


def _deployments(call: Call) -> Answer:
    query = call.request.query
    found = [
        state
        for state in call.hub.runs(lambda run: bool(run.pull))
        if query.get("sha", state.run.head_sha) == state.run.head_sha
        and query.get("ref", state.run.head_branch) == state.run.head_branch
        and query.get("environment", "test") == "test"
    ]
    return page(call.request, call.url, found, lambda it: _deployment(call.hub, it))


def _deployment(hub: Hub, state: RunState) -> shapes.Json:
    run, url = state.run, f"{shapes.api(hub)}/deployments/{state.run.id}"
    return {
        "id": run.id, "node_id": shapes.node("DE", run.id), "url": url, "sha": run.head_sha, "ref": run.head_branch,
        "task": "deploy", "payload": {}, "original_environment": "test", "environment": "test", "description": None,
        "creator": shapes.user(hub, "copy-pr-bot[bot]"), "created_at": shapes.moment(run.created),
        "updated_at": shapes.moment(run.created), "statuses_url": f"{url}/statuses",
        "repository_url": shapes.api(hub),
    }  # fmt: skip


def _statuses(call: Call) -> Answer:
    state = call.hub.run(call.number("deployment_id"))
    queue = next((seen for job, seen in shown(state, call.hub.clock()) if job.planned.kind == "queue"), None)
    words = {"success": "success", "failure": "failure", "cancelled": "error", "skipped": "inactive"}
    said = words[queue.conclusion] if queue and queue.conclusion else "waiting"
    found = [said] if said != "waiting" else []
    deployment = _deployment(call.hub, state)
    return page(call.request, call.url, found, lambda it: {
        "id": state.run.id, "node_id": shapes.node("DES", state.run.id), "url": f"{deployment['statuses_url']}/1",
        "state": it, "creator": deployment["creator"], "description": "", "environment": "test",
        "target_url": f"{shapes.web(call.hub)}/actions/runs/{state.run.id}", "created_at": deployment["created_at"],
        "updated_at": deployment["updated_at"], "deployment_url": deployment["url"],
        "repository_url": deployment["repository_url"],
    })  # fmt: skip


_HERE = "/repos/{owner}/{repo}/actions"
_RUN = f"{_HERE}/runs/{{run_id}}"
_READ, _WRITE, _DEPLOYMENTS = ("actions=read",), ("actions=write",), ("deployments=read",)
ROUTES = (
    Route("GET", f"{_HERE}/runs", _runs, _READ),
    Route("GET", f"{_HERE}/workflows/{{workflow_id}}/runs", _runs, _READ),
    Route("GET", _RUN, _run, _READ),
    Route("GET", f"{_RUN}/attempts/{{attempt_number}}", _run, _READ),
    Route("GET", f"{_RUN}/jobs", _jobs, _READ),
    Route("GET", f"{_RUN}/attempts/{{attempt_number}}/jobs", _jobs, _READ),
    Route("GET", f"{_HERE}/jobs/{{job_id}}", _job, _READ),
    Route("GET", f"{_HERE}/jobs/{{job_id}}/logs", _download_log, _READ),
    Route("POST", f"{_RUN}/rerun-failed-jobs", _rerun_failed, _WRITE, full=True),
    Route("POST", f"{_HERE}/jobs/{{job_id}}/rerun", _rerun_job, _WRITE, full=True),
    Route("POST", f"{_RUN}/cancel", _cancel, _WRITE, full=True),
    Route("GET", f"{_RUN}/artifacts", _artifacts, _READ),
    Route("GET", f"{_HERE}/artifacts/{{artifact_id}}", _one_artifact, _READ),
    Route("GET", f"{_HERE}/artifacts/{{artifact_id}}/{{archive_format}}", _download_artifact, _READ, full=True),
    Route("GET", "/repos/{owner}/{repo}/deployments", _deployments, _DEPLOYMENTS),
    Route("GET", "/repos/{owner}/{repo}/deployments/{deployment_id}/statuses", _statuses, _DEPLOYMENTS),
)
