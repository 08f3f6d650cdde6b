"""The practice GitLab: the project that mirrors the practice repository, as GitLab's API (version 4) shows it.

It answers below `PREFIX` of the forge's address.  What pipelines there are is told in ``gitlab_runs``; all that can be
changed is to start one.
"""

import json
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from html import escape
from typing import Any
from urllib.parse import unquote, urlencode

from runbook_lib.practice.ci import evidence, plan
from runbook_lib.practice.git import Bare
from runbook_lib.practice.github import pages, storage
from runbook_lib.practice.github.protocol import Answer, Request, encoded, whole
from runbook_lib.practice.github.shapes import Json, moment
from runbook_lib.practice.gitlab.ci import Seen
from runbook_lib.practice.gitlab.pipelines import Pipeline, Pipelines
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.tokens import GITLAB_TOKEN as TOKEN

PREFIX = "/gitlab"
PROJECT_ID = 19_378
_ME = {"id": 9001, "username": "release-engineer", "name": "Release Engineer", "state": "active", "locked": False}
#: The branches that are protected at first.
PROTECTED = ("main", "dev", "core_*")
#: GitLab keeps artifacts for so long; seconds.
_KEPT = 30 * 86400.0


class _Refused(Exception):
    """An answer of 400 or more."""

    def __init__(self, status: int, message: str, content: Any = None) -> None:
        super().__init__(message)
        self.answer = Answer(status, content or {"message": f"{status} {message}"})


class GitLab:
    """One project.  Every method is called inside a transaction of the hub's."""

    def __init__(self, hub: Hub, place: Bare) -> None:
        self.hub = hub
        self.url = hub.url + PREFIX
        self.runs = Pipelines(hub, place)
        self._archives: dict[int, bytes] = {}

    def answer(self, request: Request) -> Answer:
        """Answer one request; its path begins with `PREFIX`."""
        try:
            found = self._routed(request)
        except _Refused as refused:
            found = refused.answer
        return encoded(found, request)

    def _routed(self, request: Request) -> Answer:
        headers = request.headers
        token = headers.get("private-token") or headers.get("authorization", "").removeprefix("Bearer ")
        path = request.path.removeprefix(PREFIX).removeprefix("/api/v4")
        if request.method == "GET" and not request.path.startswith(f"{PREFIX}/api/"):
            return self._page_for(path)
        if token and token != TOKEN:
            raise _Refused(401, "Unauthorized")
        if request.method != "GET" and not (request.method == "POST" and path.endswith("/pipeline")):
            raise _Refused(403 if token else 401, "Forbidden" if token else "Unauthorized")
        if path == "/user":
            if not token:
                raise _Refused(401, "Unauthorized")
            return Answer(200, {**_ME, "web_url": f"{self.url}/release-engineer", "avatar_url": None})
        match = re.fullmatch(r"/projects/([^/]+)(/.*)?", path)
        # GitLab does not tell whether a project that one may not see is there.
        if not match or not token or unquote(match[1]) not in (self.hub.repository, str(PROJECT_ID)):
            raise _Refused(404, "Project Not Found" if match else "Not Found")
        return self._in_project(request, match[2] or "")

    def _in_project(self, request: Request, path: str) -> Answer:
        if path == "/pipeline" and request.method == "POST":
            return self._start(request)
        if branch := re.fullmatch(r"/repository/branches/([^/]+)", path):
            return Answer(200, self._branch(unquote(branch[1])))
        routes: Mapping[str, Callable[[Request, int], Answer]] = {
            r"": lambda _request, _: Answer(200, self._project()),
            r"/protected_branches": lambda request, _: self._page(request, self._protected()),
            r"/pipelines": lambda request, _: self._pipelines(request),
            r"/pipelines/([0-9]{1,15})": lambda _, number: Answer(200, self._in_full(self._find(number))),
            r"/pipelines/([0-9]{1,15})/bridges": self._list_bridges,
            r"/pipelines/([0-9]{1,15})/jobs": self._list_jobs,
            r"/jobs/([0-9]{1,15})": lambda _, number: Answer(200, self._job(*self._find_job(number))),
            r"/jobs/([0-9]{1,15})/artifacts": self._download,
            r"/jobs/([0-9]{1,15})/trace": lambda _, number: self._trace(number),
        }
        for pattern, show in routes.items():
            if match := re.fullmatch(pattern, path):
                return show(request, int(match[1]) if match.groups() else 0)
        raise _Refused(404, "Not Found")

    def _page_for(self, path: str) -> Answer:
        """What lies behind a ``web_url``, for people."""
        match = re.fullmatch(rf"/{re.escape(self.hub.repository)}/-/(pipelines|jobs)/([0-9]{{1,15}})", path)
        if match is None:
            raise _Refused(404, "Not Found")
        number, now, home = int(match[2]), self.hub.clock(), f"{PREFIX}/{self.hub.repository}/-"
        if match[1] == "jobs":
            child, position = self._find_job(number)
            job = child.jobs[position - 1]
            about = f"<p><b>{child.job_at(job, now).status}</b></p><pre>{escape(self._log(child, position))}</pre>"
            return pages.page(self.hub, f"GitLab job {job.model}/{job.test_case or job.name}", about)
        found = self._find(number)
        jobs = enumerate(found.jobs, 1)
        rows = [(f"jobs/{found.number(k)}", f"{it.model}/{it.name}", found.job_at(it, now)) for k, it in jobs]
        if not found.bridge:
            children = [found.child(k + 1) for k in range(len(found.bridges))]
            rows += [(f"pipelines/{it.id}", it.bridges[it.bridge - 1].name, it.at(now)) for it in children]
        shown = ([pages.link(f"{home}/{place}", name), seen.status] for place, name, seen in rows)
        about = f"<p><b>{found.at(now).status}</b>, <code>{found.run.head_sha}</code></p>"
        return pages.page(self.hub, f"GitLab pipeline {found.id}", about, pages.table(("", "state"), shown))

    def _find(self, number: int) -> Pipeline:
        if found := self.runs.find(number):
            return found
        raise _Refused(404, "Not found")

    def _find_job(self, number: int) -> tuple[Pipeline, int]:
        if found := self.runs.find_job(number):
            return found
        raise _Refused(404, "Not found")

    def _archive(self, child: Pipeline, position: int) -> bytes:
        """The artifacts of a job that has ended."""
        number, job, run = child.number(position), child.jobs[position - 1], child.run
        if number not in self._archives:
            golden: dict[str, str] = {}
            if job.measures:
                folder, home = f"{plan.TEST_CASES}/{job.model}/{job.test_case}", self.hub.home
                new, old = (
                    self.runs.images(commit).get(job.environment, "") for commit in (run.head_sha, run.base_sha)
                )
                texts = [home.texts(commit, folder) for commit in (run.head_sha, run.base_sha)]
                found = plan.measured(job, *texts, image=new, base_image=old, lts=False)
                golden = {_gitlab_name(path, text): text for path, text in found.items()}
            name = f"{job.test_case}-{job.environment}-{job.platform}".replace("_", "-")
            inside = f"results/iteration=0/restart=0/assets/basic/{name}/"
            self._archives[number] = evidence.archive(job, golden, run.created + job.starts, inside)
        return self._archives[number]

    # -- answers ------------------------------------------------------------------------------------------------

    def _project(self) -> Json:
        name = self.hub.name
        return {
            "id": PROJECT_ID, "name": name, "path": name, "path_with_namespace": self.hub.repository,
            "default_branch": "main", "web_url": f"{self.url}/{self.hub.repository}", "visibility": "private",
            "ssh_url_to_repo": str(self.runs.place.path), "http_url_to_repo": f"{self.url}/{self.hub.repository}.git",
        }  # fmt: skip

    def _patterns(self) -> list[str]:
        return list(self.hub.store.setting("protected", PROTECTED))

    def _protected(self) -> list[Json]:
        level = {"access_level": 40, "access_level_description": "Maintainers", "user_id": None, "group_id": None}
        return [
            {"id": number, "name": name, "push_access_levels": [{"id": number, **level}],
             "merge_access_levels": [{"id": number, **level}], "allow_force_push": False,
             "code_owner_approval_required": False}
            for number, name in enumerate(self._patterns(), 1)
        ]  # fmt: skip

    def _branch(self, name: str) -> Json:
        tip = self.runs.tip(name)
        if tip is None:
            raise _Refused(404, "Branch Not Found")
        place = self.runs.place if self.runs.place.resolve(tip) else self.hub.home
        it = place.commit(tip)
        protected = any(fnmatchcase(name, pattern) for pattern in self._patterns())
        commit = {
            "id": tip, "short_id": tip[:8], "title": it.message.splitlines()[0], "message": it.message,
            "author_name": it.author, "author_email": it.author_email, "authored_date": it.authored,
            "committer_name": it.committer, "committed_date": it.committed, "parent_ids": list(it.parents),
        }  # fmt: skip
        return {
            "name": name, "commit": commit, "merged": False, "protected": protected, "default": name == "main",
            "developers_can_push": False, "developers_can_merge": False, "can_push": True,
            "web_url": f"{self.url}/{self.hub.repository}/-/tree/{name}",
        }  # fmt: skip

    def _start(self, request: Request) -> Answer:
        """What GitLab does for ``POST /projects/:id/pipeline``: ``ref`` and ``variables``."""
        try:
            asked = json.loads(request.body or b"{}")
            ref = asked.get("ref", "")
            variables = {str(it["key"]): str(it["value"]) for it in asked.get("variables", [])}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _Refused(400, "Bad Request") from None
        if not isinstance(ref, str) or not ref:
            raise _Refused(400, "", {"error": "ref is missing"})
        tip = self.runs.tip(ref)
        if tip is None:
            raise _Refused(400, "", {"message": {"base": ["Reference not found"]}})
        return Answer(201, self._in_full(self.runs.start(ref, tip, variables)))

    def _brief(self, it: Pipeline) -> Json:
        run, seen = it.run, it.at(self.hub.clock())
        return {
            "id": it.id, "iid": it.id % 100_000, "project_id": PROJECT_ID, "sha": run.head_sha,
            "ref": run.head_branch, "status": seen.status, "source": it.source,
            "created_at": moment(run.created), "updated_at": moment(seen.completed or self.hub.clock()),
            "web_url": f"{self.url}/{self.hub.repository}/-/pipelines/{it.id}", "name": None,
        }  # fmt: skip

    def _in_full(self, it: Pipeline) -> Json:
        seen = it.at(self.hub.clock())
        return self._brief(it) | _times(seen) | {
            "before_sha": "0" * 40, "tag": False, "yaml_errors": None, "user": _ME, "committed_at": None,
            "coverage": None,
        }  # fmt: skip

    def _pipelines(self, request: Request) -> Answer:
        asked = {name: value for name, value in request.query.items() if name in ("sha", "ref", "status", "source")}
        shown = [self._brief(it) for it in self.runs.all()]
        found = [it for it in shown if asked.items() <= it.items()]
        return self._page(request, found if request.query.get("sort") != "asc" else found[::-1])

    def _list_bridges(self, request: Request, number: int) -> Answer:
        parent = self._find(number)
        found = [] if parent.bridge else [self._bridge(parent, k + 1) for k in range(len(parent.bridges))]
        return self._page(request, found)

    def _bridge(self, parent: Pipeline, number: int) -> Json:
        child = parent.child(number)
        it, seen = parent.bridges[number - 1], child.at(self.hub.clock())
        return self._ran(it.name, "functional_tests", parent, seen) | {
            "id": child.id * 100, "allow_failure": it.allow_failure,
            "downstream_pipeline": self._brief(child) if self.runs.started(child) else None,
        }  # fmt: skip

    def _ran(self, name: str, stage: str, pipeline: Pipeline, seen: Seen) -> Json:
        """What bridges and jobs have in common."""
        run = pipeline.run
        return _times(seen) | {
            "name": name, "stage": stage, "status": seen.status, "ref": run.head_branch, "tag": False,
            "coverage": None, "created_at": moment(run.created), "erased_at": None, "user": _ME,
            "commit": {"id": run.head_sha, "short_id": run.head_sha[:8], "title": run.title},
            "pipeline": self._brief(pipeline),
            "web_url": f"{self.url}/{self.hub.repository}/-/pipelines/{pipeline.id}",
        } | ({"failure_reason": seen.reason} if seen.status == "failed" else {})  # fmt: skip

    def _list_jobs(self, request: Request, number: int) -> Answer:
        owner = self._find(number)
        # Newest first, as GitLab lists them.
        return self._page(request, [self._job(owner, position) for position in range(len(owner.jobs), 0, -1)])

    def _job(self, child: Pipeline, position: int) -> Json:
        job, number = child.jobs[position - 1], child.number(position)
        seen = child.job_at(job, self.hub.clock())
        file = None
        if _left_artifacts(job, seen):
            file = {"filename": "artifacts.zip", "size": len(self._archive(child, position))}
        until = moment(seen.completed + _KEPT) if file and seen.completed else None
        return self._ran(job.name, job.model, child, seen) | {
            "id": number, "allow_failure": job.allow_failure, "archived": False, "artifacts_file": file,
            "artifacts": [{"file_type": "archive", **file, "file_format": "zip"}] if file else [],
            "artifacts_expire_at": until, "tag_list": [], "runner": None,
            "web_url": f"{self.url}/{self.hub.repository}/-/jobs/{number}",
        }  # fmt: skip

    def _download(self, request: Request, number: int) -> Answer:
        child, position = self._find_job(number)
        now, job = self.hub.clock(), child.jobs[position - 1]
        seen = child.job_at(job, now)
        if not _left_artifacts(job, seen) or now > (seen.completed or 0.0) + _KEPT:
            raise _Refused(404, "Not Found")
        return storage.part(self._archive(child, position), "application/octet-stream", request.headers)

    def _trace(self, number: int) -> Answer:
        text = self._log(*self._find_job(number))
        return Answer(200, text.encode(), {"Content-Type": "text/plain; charset=utf-8"})

    def _log(self, child: Pipeline, position: int) -> str:
        job = child.jobs[position - 1]
        ended = child.job_at(job, self.hub.clock()).completed is not None
        return evidence.log(job, child.run.created + job.starts) if ended else ""

    def _page(self, request: Request, found: list[Json]) -> Answer:
        """One page, with the headers by which GitLab tells of the others."""
        size, number = min(100, whole(request.query.get("per_page"), 20)), whole(request.query.get("page"), 1)
        last = max(1, -(-len(found) // size))
        headers: dict[str, Any] = {
            "X-Total": len(found), "X-Total-Pages": last, "X-Per-Page": size, "X-Page": number,
            "X-Next-Page": number + 1 if number < last else "", "X-Prev-Page": number - 1 if number > 1 else "",
        }  # fmt: skip
        if number < last:
            query = urlencode({**request.query, "page": number + 1, "per_page": size})
            headers["Link"] = f'<{self.hub.url}{request.path}?{query}>; rel="next"'
        shown = found[(number - 1) * size : number * size]
        return Answer(200, shown, {name: str(value) for name, value in headers.items()})


def _times(seen: Seen) -> Json:
    started, completed = (None if it is None else moment(it) for it in (seen.started, seen.completed))
    took = None if seen.started is None or seen.completed is None else seen.completed - seen.started
    return {"started_at": started, "finished_at": completed, "duration": took, "queued_duration": None}


def _left_artifacts(job: plan.Planned, seen: Seen) -> bool:
    return job.kind == "functional" and seen.status in ("success", "failed")


def _gitlab_name(path: str, text: str) -> str:
    """Inference tests call their file otherwise."""
    name = path.rpartition("/")[2]
    return name if "lm loss" in text else name.replace("golden_values", "generations")
