"""The practice GitLab: the project that mirrors the practice repository, as version 4 of GitLab's API shows it.

It is served below `PREFIX` of the forge's URL.  ``gitlab.pipelines`` determines which pipelines exist; the only
change that a client can make is to start one.  Objects have the fields that `clients.gitlab` reads.
"""

import json
from fnmatch import fnmatchcase

from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter, Map, Rule
from werkzeug.wrappers import Request, Response

from runbook_lib.practice.accounts import GITLAB_TOKEN
from runbook_lib.practice.ci import evidence, plan
from runbook_lib.practice.git import BareRepository
from runbook_lib.practice.github import pages
from runbook_lib.practice.github.api import ApiCall
from runbook_lib.practice.github.shapes import Json, timestamp
from runbook_lib.practice.gitlab.pipelines import GitLabJob, Pipelines, PracticePipeline
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.serving import NumberConverter, file_response, json_response

PREFIX = "/gitlab"
PROJECT_ID = 19_378
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
    def web_url(self) -> str:
        """The project's web page."""
        return f"{self.hub.url}{PREFIX}/{self.hub.repository}"

    def answer(self, request: Request) -> Response:
        """Respond to a request whose path begins with `PREFIX`.  Raises HTTPException with the reply to an error."""
        path = request.path.removeprefix(PREFIX)
        is_api = path.startswith("/api/")
        token = request.headers.get("PRIVATE-TOKEN", "")
        if is_api and token and token != GITLAB_TOKEN:
            raise _Refusal(401, "Unauthorized")
        try:
            show, parts = _RULES.match(path, request.method)
        except HTTPException:
            if request.method == "GET":
                raise _Refusal(404, "Not Found") from None
            raise _Refusal(403, "Forbidden") from None
        arguments = dict(parts)
        # GitLab does not reveal that a project exists to a caller who may not see it.
        if arguments.pop("project") not in (self.hub.repository, str(PROJECT_ID)) or (is_api and not token):
            raise _Refusal(404, "Project Not Found")
        try:
            content = show(self, request, **arguments)
        except LookupError:
            raise _Refusal(404, "Not found") from None
        if isinstance(content, Response):
            return content
        if isinstance(content, list):
            content, headers = ApiCall(self.hub, request, None).select_page(content, 20)
            return json_response(content, headers=headers)
        return json_response(content, 201 if request.method == "POST" else 200)

    def show_job_page(self, request: Request, number: int) -> Response:
        job = self.pipelines.find_job(number)
        title = f"GitLab job {job.planned.model}/{job.planned.test_case or job.planned.name}"
        return pages.page(self.hub, "job.html", title, status=job.status.status, log=job.log)

    def show_pipeline_page(self, request: Request, number: int) -> Response:
        pipeline, project = self.pipelines.find(number), f"{PREFIX}/{self.hub.repository}"
        title = f"GitLab pipeline {pipeline.id}"
        return pages.page(self.hub, "pipeline.html", title, pipeline=pipeline, project=project, now=self.hub.clock())

    def show_project(self, request: Request) -> Json:
        return {
            "path_with_namespace": self.hub.repository, "default_branch": "main", "web_url": self.web_url,
            "ssh_url_to_repo": str(self.pipelines.repository.path), "http_url_to_repo": f"{self.web_url}.git",
        }  # fmt: skip

    def list_protected_branches(self, request: Request) -> list[Json]:
        return [{"name": name} for name in self.hub.store.setting("protected", PROTECTED)]

    def show_branch(self, request: Request, branch: str) -> Json:
        tip = self.pipelines.tip(branch)
        if tip is None:
            raise _Refusal(404, "Branch Not Found")
        pushed_here = self.pipelines.repository.resolve(tip) is not None
        details = (self.pipelines.repository if pushed_here else self.hub.home).commit(tip)
        commit = {
            "id": tip, "title": details.message.splitlines()[0], "author_name": details.author,
            "committed_date": details.committed,
        }  # fmt: skip
        protected = any(fnmatchcase(branch, entry["name"]) for entry in self.list_protected_branches(request))
        return {"name": branch, "commit": commit, "protected": protected}

    def start_pipeline(self, request: Request) -> Json:
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
        return self._shown(self.pipelines.start(ref, tip, variables))

    def list_pipelines(self, request: Request) -> list[Json]:
        sha = request.args.get("sha")
        return [self._shown(pipeline) for pipeline in self.pipelines.all() if sha in (None, pipeline.run.head_sha)]

    def show_pipeline(self, request: Request, number: int) -> Json:
        return self._shown(self.pipelines.find(number))

    def list_bridges(self, request: Request, number: int) -> list[Json]:
        bridges, now = [], self.hub.clock()
        for child in self.pipelines.find(number).children:
            started = None
            if child.has_started(now):
                started = self._shown(child)
            bridges.append({"name": child.name, "status": child.at(now).status, "downstream_pipeline": started})
        return bridges

    def list_variables(self, request: Request, number: int) -> list[Json]:
        pairs = [entry.split("=", 1) for entry in self.pipelines.find(number).run.variables]
        return [{"key": key, "value": value, "variable_type": "env_var", "raw": False} for key, value in pairs]

    def list_jobs(self, request: Request, number: int) -> list[Json]:
        # Newest first, as GitLab lists them.
        return [self._job(job) for job in reversed(self.pipelines.find(number).jobs_at(self.hub.clock()))]

    def show_job(self, request: Request, number: int) -> Json:
        return self._job(self.pipelines.find_job(number))

    def download_artifacts(self, request: Request, number: int) -> Response:
        job = self.pipelines.find_job(number)
        if not job.has_artifacts or self.hub.clock() > (job.status.completed or 0.0) + _ARTIFACT_LIFETIME:
            raise _Refusal(404, "Not Found")
        return file_response(request, self._archive(job), "application/octet-stream")

    def show_trace(self, request: Request, number: int) -> Response:
        return Response(self.pipelines.find_job(number).log, content_type="text/plain; charset=utf-8")

    def _archive(self, job: GitLabJob) -> bytes:
        """Return the artifacts of a job that has ended."""
        if job.number not in self._archives:
            planned, golden = job.planned, {}
            if planned.measures:
                folder = f"{plan.TEST_CASES}/{planned.model}/{planned.test_case}"
                situation = self.pipelines.situations(job.run, folder)[planned.environment]
                for path, text in plan.measured(situation, planned).items():
                    name = path.rpartition("/")[2]
                    if "lm loss" not in text:  # inference tests call their files otherwise
                        name = name.replace("golden_values", "generations")
                    golden[name] = text
            test = f"{planned.test_case}-{planned.environment}-{planned.platform}".replace("_", "-")
            folder = f"results/iteration=0/restart=0/assets/basic/{test}/"
            self._archives[job.number] = evidence.archive(planned, golden, job.run.created + planned.starts, folder)
        return self._archives[job.number]

    def _shown(self, pipeline: PracticePipeline) -> Json:
        source = "api" if pipeline.run.event == "api" else "push"
        if pipeline.name:
            source = "parent_pipeline"
        return {
            "id": pipeline.id, "sha": pipeline.run.head_sha, "ref": pipeline.run.head_branch,
            "status": pipeline.at(self.hub.clock()).status, "source": source,
            "web_url": f"{self.web_url}/-/pipelines/{pipeline.id}",
        }  # fmt: skip

    def _job(self, job: GitLabJob) -> Json:
        planned, status = job.planned, job.status
        shown: Json = {
            "id": job.number, "name": planned.name, "stage": planned.model, "status": status.status, "duration": None,
            "failure_reason": status.reason or None, "allow_failure": planned.allow_failure, "artifacts_file": None,
            "artifacts_expire_at": None, "web_url": f"{self.web_url}/-/jobs/{job.number}",
        }  # fmt: skip
        if status.started is not None and status.completed is not None:
            shown["duration"] = status.completed - status.started
        if job.has_artifacts and status.completed:
            shown["artifacts_file"] = {"filename": "artifacts.zip", "size": len(self._archive(job))}
            shown["artifacts_expire_at"] = timestamp(status.completed + _ARTIFACT_LIFETIME)
        return shown


class _ProjectConverter(BaseConverter):
    """A project, by path or ID."""

    regex = "[^/]+/[^/]+|[0-9]+"
    part_isolating = False


_PROJECT = "/api/v4/projects/<project:project>"
_PIPELINE = f"{_PROJECT}/pipelines/<number:number>"
_JOB = f"{_PROJECT}/jobs/<number:number>"
_PAGES = {
    "/<project:project>/-/pipelines/<number:number>": PracticeGitLab.show_pipeline_page,
    "/<project:project>/-/jobs/<number:number>": PracticeGitLab.show_job_page,
    _PROJECT: PracticeGitLab.show_project,
    f"{_PROJECT}/protected_branches": PracticeGitLab.list_protected_branches,
    f"{_PROJECT}/repository/branches/<path:branch>": PracticeGitLab.show_branch,
    f"{_PROJECT}/pipelines": PracticeGitLab.list_pipelines,
    _PIPELINE: PracticeGitLab.show_pipeline,
    f"{_PIPELINE}/bridges": PracticeGitLab.list_bridges,
    f"{_PIPELINE}/variables": PracticeGitLab.list_variables,
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
