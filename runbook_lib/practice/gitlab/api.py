"""The practice GitLab: the project that mirrors the practice repository, as version 4 of GitLab's API shows it.

It answers below `PREFIX` of the forge's address.  ``gitlab.pipelines`` says which pipelines exist; the only change
that a client can make is to start one.
"""

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote, urlencode

from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter, Map, Rule
from werkzeug.wrappers import Request, Response

from runbook_lib.practice.accounts import GITLAB_TOKEN
from runbook_lib.practice.ci import evidence, plan
from runbook_lib.practice.git import BareRepository
from runbook_lib.practice.github import pages
from runbook_lib.practice.github.errors import json_response
from runbook_lib.practice.github.shapes import Json, timestamp
from runbook_lib.practice.gitlab.ci import GitLabStatus
from runbook_lib.practice.gitlab.pipelines import Pipelines, PracticePipeline
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.serving import NumberConverter, file_response, positive_integer

PREFIX = "/gitlab"
PROJECT_ID = 19_378
_USER = {"id": 9001, "username": "release-engineer", "name": "Release Engineer", "state": "active", "locked": False}
#: The branches that are protected at first.
PROTECTED = ("main", "dev", "core_*")
#: Lifetime of artifacts; seconds.
_ARTIFACT_LIFETIME = 30 * 86400.0


class _Refusal(HTTPException):
    """A response with a status of 400 or more."""

    def __init__(self, status: int, message: str, content: object = None) -> None:
        super().__init__(message, json_response(content or {"message": f"{status} {message}"}, status))


class PracticeGitLab:
    """One project.  Every method is called inside a transaction of the hub."""

    def __init__(self, hub: Hub, repository: BareRepository) -> None:
        self.hub = hub
        self.pipelines = Pipelines(hub, repository)
        self._archives: dict[int, bytes] = {}

    @property
    def url(self) -> str:
        return self.hub.url + PREFIX

    @property
    def web_url(self) -> str:
        """The address of the project for people."""
        return f"{self.url}/{self.hub.repository}"

    def answer(self, request: Request) -> Response:
        """Answer one request, whose path begins with `PREFIX`.  Raises HTTPException with the answer to an error."""
        path = request.path.removeprefix(PREFIX)
        is_api = path.startswith("/api/")
        token = request.headers.get("PRIVATE-TOKEN") or request.headers.get("Authorization", "").removeprefix("Bearer ")
        if is_api and token and token != GITLAB_TOKEN:
            raise _Refusal(401, "Unauthorized")
        try:
            show, parts = _RULES.match(path, request.method)
        except HTTPException:
            if request.method == "GET":
                raise _Refusal(404, "Not Found") from None
            raise _Refusal(403 if token else 401, "Forbidden" if token else "Unauthorized") from None
        if is_api and not token:
            # GitLab does not reveal that a project exists to a caller who may not see it.
            raise _Refusal(404, "Project Not Found") if "project" in parts else _Refusal(401, "Unauthorized")
        if parts.get("project", self.hub.repository) not in (self.hub.repository, str(PROJECT_ID)):
            raise _Refusal(404, "Project Not Found")
        arguments = {name: value for name, value in parts.items() if name != "project"}
        response: Response = show(self, request, **arguments)
        if response.is_json and request.method == "GET":
            response.add_etag(weak=True)
            response.make_conditional(request)
        return response

    # -- pages for people ---------------------------------------------------------------------------------------

    def show_job_page(self, request: Request, number: int) -> Response:
        pipeline, position = self._find_job(number)
        job = pipeline.jobs[position - 1]
        status = pipeline.job_at(job, self.hub.clock()).status
        title = f"GitLab job {job.model}/{job.test_case or job.name}"
        return pages.page(self.hub, "job.html", title, status=status, log=self._log(pipeline, position))

    def show_pipeline_page(self, request: Request, number: int) -> Response:
        pipeline, project = self._find_pipeline(number), f"{PREFIX}/{self.hub.repository}"
        title = f"GitLab pipeline {pipeline.id}"
        return pages.page(self.hub, "pipeline.html", title, pipeline=pipeline, project=project, now=self.hub.clock())

    # -- the project --------------------------------------------------------------------------------------------

    def show_user(self, request: Request) -> Response:
        return json_response({**_USER, "web_url": f"{self.url}/release-engineer", "avatar_url": None})

    def show_project(self, request: Request) -> Response:
        name = self.hub.name
        return json_response({
            "id": PROJECT_ID, "name": name, "path": name, "path_with_namespace": self.hub.repository,
            "default_branch": "main", "web_url": self.web_url, "visibility": "private",
            "ssh_url_to_repo": str(self.pipelines.repository.path), "http_url_to_repo": f"{self.web_url}.git",
        })  # fmt: skip

    def _protected_patterns(self) -> list[str]:
        return list(self.hub.store.setting("protected", PROTECTED))

    def list_protected_branches(self, request: Request) -> Response:
        level = {"access_level": 40, "access_level_description": "Maintainers", "user_id": None, "group_id": None}
        return self._page(request, [
            {"id": number, "name": name, "push_access_levels": [{"id": number, **level}],
             "merge_access_levels": [{"id": number, **level}], "allow_force_push": False,
             "code_owner_approval_required": False}
            for number, name in enumerate(self._protected_patterns(), 1)
        ])  # fmt: skip

    def show_branch(self, request: Request, branch: str) -> Response:
        tip = self.pipelines.tip(branch)
        if tip is None:
            raise _Refusal(404, "Branch Not Found")
        repository = self.pipelines.repository if self.pipelines.repository.resolve(tip) else self.hub.home
        details = repository.commit(tip)
        protected = any(fnmatchcase(branch, pattern) for pattern in self._protected_patterns())
        commit = {
            "id": tip, "short_id": tip[:8], "title": details.message.splitlines()[0], "message": details.message,
            "author_name": details.author, "author_email": details.author_email, "authored_date": details.authored,
            "committer_name": details.committer, "committed_date": details.committed,
            "parent_ids": list(details.parents),
        }  # fmt: skip
        return json_response({
            "name": branch, "commit": commit, "merged": False, "protected": protected, "default": branch == "main",
            "developers_can_push": False, "developers_can_merge": False, "can_push": True,
            "web_url": f"{self.web_url}/-/tree/{branch}",
        })  # fmt: skip

    # -- pipelines ----------------------------------------------------------------------------------------------

    def start_pipeline(self, request: Request) -> Response:
        """Start a pipeline of a branch, with variables: ``POST /projects/:id/pipeline``."""
        try:
            fields = json.loads(request.get_data() or b"{}")
            ref = fields.get("ref", "")
            variables = {str(entry["key"]): str(entry["value"]) for entry in fields.get("variables", [])}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _Refusal(400, "Bad Request") from None
        if not isinstance(ref, str) or not ref:
            raise _Refusal(400, "", {"error": "ref is missing"})
        tip = self.pipelines.tip(ref)
        if tip is None:
            raise _Refusal(400, "", {"message": {"base": ["Reference not found"]}})
        return json_response(self._pipeline_in_full(self.pipelines.start(ref, tip, variables)), 201)

    def list_pipelines(self, request: Request) -> Response:
        filters = {name: request.args[name] for name in ("sha", "ref", "status", "source") if name in request.args}
        entries = [self._pipeline(pipeline) for pipeline in self.pipelines.all()]
        entries = [entry for entry in entries if filters.items() <= entry.items()]
        if request.args.get("sort") == "asc":
            entries.reverse()
        return self._page(request, entries)

    def show_pipeline(self, request: Request, number: int) -> Response:
        return json_response(self._pipeline_in_full(self._find_pipeline(number)))

    def list_bridges(self, request: Request, number: int) -> Response:
        parent = self._find_pipeline(number)
        count = 0 if parent.bridge else len(parent.bridges)
        return self._page(request, [self._bridge(parent, position) for position in range(1, count + 1)])

    def list_jobs(self, request: Request, number: int) -> Response:
        pipeline = self._find_pipeline(number)
        # Newest first, as GitLab lists them.
        return self._page(request, [self._job(pipeline, position) for position in range(len(pipeline.jobs), 0, -1)])

    def show_job(self, request: Request, number: int) -> Response:
        return json_response(self._job(*self._find_job(number)))

    def download_artifacts(self, request: Request, number: int) -> Response:
        pipeline, position = self._find_job(number)
        now, job = self.hub.clock(), pipeline.jobs[position - 1]
        status = pipeline.job_at(job, now)
        if not _has_artifacts(job, status) or now > (status.completed or 0.0) + _ARTIFACT_LIFETIME:
            raise _Refusal(404, "Not Found")
        return file_response(request, self._archive(pipeline, position), "application/octet-stream")

    def show_trace(self, request: Request, number: int) -> Response:
        return Response(self._log(*self._find_job(number)), content_type="text/plain; charset=utf-8")

    def _find_pipeline(self, number: int) -> PracticePipeline:
        pipeline = self.pipelines.find(number)
        if pipeline is None:
            raise _Refusal(404, "Not found")
        return pipeline

    def _find_job(self, number: int) -> tuple[PracticePipeline, int]:
        job = self.pipelines.find_job(number)
        if job is None:
            raise _Refusal(404, "Not found")
        return job

    def _archive(self, pipeline: PracticePipeline, position: int) -> bytes:
        """Return the artifacts of a job that has ended."""
        number, job, run = pipeline.job_number(position), pipeline.jobs[position - 1], pipeline.run
        if number not in self._archives:
            golden = self._measured_golden_files(pipeline, job) if job.measures else {}
            name = f"{job.test_case}-{job.environment}-{job.platform}".replace("_", "-")
            folder = f"results/iteration=0/restart=0/assets/basic/{name}/"
            self._archives[number] = evidence.archive(job, golden, run.created + job.starts, folder)
        return self._archives[number]

    def _measured_golden_files(self, pipeline: PracticePipeline, job: plan.Planned) -> dict[str, str]:
        commits = (pipeline.run.head_sha, pipeline.run.base_sha)
        folder = f"{plan.TEST_CASES}/{job.model}/{job.test_case}"
        image, base_image = (self.pipelines.images(commit).get(job.environment, "") for commit in commits)
        golden, base_golden = (self.hub.home.texts(commit, folder) for commit in commits)
        measured = plan.measured(job, golden, base_golden, image=image, base_image=base_image, lts=False)
        return {_gitlab_name(path, text): text for path, text in measured.items()}

    def _log(self, pipeline: PracticePipeline, position: int) -> str:
        job = pipeline.jobs[position - 1]
        has_ended = pipeline.job_at(job, self.hub.clock()).completed is not None
        return evidence.log(job, pipeline.run.created + job.starts) if has_ended else ""

    # -- the form of answers ------------------------------------------------------------------------------------

    def _pipeline(self, pipeline: PracticePipeline) -> Json:
        run, status = pipeline.run, pipeline.at(self.hub.clock())
        return {
            "id": pipeline.id, "iid": pipeline.id % 100_000, "project_id": PROJECT_ID, "sha": run.head_sha,
            "ref": run.head_branch, "status": status.status, "source": pipeline.source,
            "created_at": timestamp(run.created), "updated_at": timestamp(status.completed or self.hub.clock()),
            "web_url": f"{self.web_url}/-/pipelines/{pipeline.id}", "name": None,
        }  # fmt: skip

    def _pipeline_in_full(self, pipeline: PracticePipeline) -> Json:
        return self._pipeline(pipeline) | _times(pipeline.at(self.hub.clock())) | {
            "before_sha": "0" * 40, "tag": False, "yaml_errors": None, "user": _USER, "committed_at": None,
            "coverage": None,
        }  # fmt: skip

    def _bridge(self, parent: PracticePipeline, number: int) -> Json:
        child, bridge = parent.child(number), parent.bridges[number - 1]
        status = child.at(self.hub.clock())
        return self._job_or_bridge(bridge.name, "functional_tests", parent, status) | {
            "id": child.id * 100, "allow_failure": bridge.allow_failure,
            "downstream_pipeline": self._pipeline(child) if self.pipelines.has_started(child) else None,
        }  # fmt: skip

    def _job_or_bridge(self, name: str, stage: str, pipeline: PracticePipeline, status: GitLabStatus) -> Json:
        run = pipeline.run
        shown = _times(status) | {
            "name": name, "stage": stage, "status": status.status, "ref": run.head_branch, "tag": False,
            "coverage": None, "created_at": timestamp(run.created), "erased_at": None, "user": _USER,
            "commit": {"id": run.head_sha, "short_id": run.head_sha[:8], "title": run.title},
            "pipeline": self._pipeline(pipeline), "web_url": f"{self.web_url}/-/pipelines/{pipeline.id}",
        }  # fmt: skip
        if status.status == "failed":
            shown["failure_reason"] = status.reason
        return shown

    def _job(self, pipeline: PracticePipeline, position: int) -> Json:
        job, number = pipeline.jobs[position - 1], pipeline.job_number(position)
        status = pipeline.job_at(job, self.hub.clock())
        file, artifacts, expires = None, [], None
        if _has_artifacts(job, status):
            file = {"filename": "artifacts.zip", "size": len(self._archive(pipeline, position))}
            artifacts = [{"file_type": "archive", **file, "file_format": "zip"}]
            if status.completed:
                expires = timestamp(status.completed + _ARTIFACT_LIFETIME)
        return self._job_or_bridge(job.name, job.model, pipeline, status) | {
            "id": number, "allow_failure": job.allow_failure, "archived": False, "artifacts_file": file,
            "artifacts": artifacts, "artifacts_expire_at": expires, "tag_list": [], "runner": None,
            "web_url": f"{self.web_url}/-/jobs/{number}",
        }  # fmt: skip

    def _page(self, request: Request, entries: Sequence[Json]) -> Response:
        """Return one page, with the headers by which GitLab describes the others."""
        size = min(100, positive_integer(request.args.get("per_page"), 20))
        number = positive_integer(request.args.get("page"), 1)
        last = max(1, -(-len(entries) // size))
        headers: dict[str, Any] = {
            "X-Total": len(entries), "X-Total-Pages": last, "X-Per-Page": size, "X-Page": number,
            "X-Next-Page": number + 1 if number < last else "", "X-Prev-Page": number - 1 if number > 1 else "",
        }  # fmt: skip
        if number < last:
            query = urlencode(request.args.to_dict() | {"page": number + 1, "per_page": size})
            headers["Link"] = f'<{self.hub.url}{quote(request.path)}?{query}>; rel="next"'
        return json_response(entries[(number - 1) * size : number * size], headers=headers)


def _times(status: GitLabStatus) -> Json:
    started = None if status.started is None else timestamp(status.started)
    finished = None if status.completed is None else timestamp(status.completed)
    duration = None
    if status.started is not None and status.completed is not None:
        duration = status.completed - status.started
    return {"started_at": started, "finished_at": finished, "duration": duration, "queued_duration": None}


def _has_artifacts(job: plan.Planned, status: GitLabStatus) -> bool:
    return job.kind == "functional" and status.status in ("success", "failed")


def _gitlab_name(path: str, text: str) -> str:
    """Return the name of a golden file in the artifacts, which inference tests change."""
    name = path.rpartition("/")[2]
    return name if "lm loss" in text else name.replace("golden_values", "generations")


class _ProjectConverter(BaseConverter):
    """A project, by its path or its id."""

    regex = "[^/]+/[^/]+|[0-9]+"
    part_isolating = False


_API = "/api/v4"
_PROJECT = f"{_API}/projects/<project:project>"
_PIPELINE = f"{_PROJECT}/pipelines/<number:number>"
_JOB = f"{_PROJECT}/jobs/<number:number>"
_PAGES = {
    "/<project:project>/-/pipelines/<number:number>": PracticeGitLab.show_pipeline_page,
    "/<project:project>/-/jobs/<number:number>": PracticeGitLab.show_job_page,
    f"{_API}/user": PracticeGitLab.show_user,
    _PROJECT: PracticeGitLab.show_project,
    f"{_PROJECT}/protected_branches": PracticeGitLab.list_protected_branches,
    f"{_PROJECT}/repository/branches/<path:branch>": PracticeGitLab.show_branch,
    f"{_PROJECT}/pipelines": PracticeGitLab.list_pipelines,
    _PIPELINE: PracticeGitLab.show_pipeline,
    f"{_PIPELINE}/bridges": PracticeGitLab.list_bridges,
    f"{_PIPELINE}/jobs": PracticeGitLab.list_jobs,
    _JOB: PracticeGitLab.show_job,
    f"{_JOB}/artifacts": PracticeGitLab.download_artifacts,
    f"{_JOB}/trace": PracticeGitLab.show_trace,
}
_RULES = Map(
    [
        *(Rule(path, endpoint=show, methods=["GET"]) for path, show in _PAGES.items()),
        Rule(f"{_PROJECT}/pipeline", endpoint=PracticeGitLab.start_pipeline, methods=["POST"]),
    ],
    converters={"number": NumberConverter, "project": _ProjectConverter},
    merge_slashes=False,
).bind("127.0.0.1")
