"""The practice GitLab: the project that mirrors the practice repository, as GitLab's API (version 4) shows it.

It answers below `PREFIX` of the forge's address.  Whenever CI of a commit starts on the forge, a pipeline of that
commit starts here too; everything else follows from that moment and the clock.  Only reading is possible.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Literal
from urllib.parse import unquote, urlencode

from runbook_lib.practice import ci, evidence, gitlab_ci, pages, storage, suites
from runbook_lib.practice.gitlab_ci import Bridge, Seen
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.protocol import Answer, Request, encoded, whole
from runbook_lib.practice.shapes import Json, moment
from runbook_lib.practice.state import Run, Ticket
from runbook_lib.practice.world import GITLAB_TOKEN as TOKEN

PREFIX = "/gitlab"
PROJECT_ID = 19_378
_ME = {"id": 9001, "username": "release-engineer", "name": "Release Engineer", "state": "active", "locked": False}
#: Numbers of pipelines, of those that bridges start, and of jobs are told apart from the run's by their length.
_FIRST = 4_900_000_000
#: GitLab keeps artifacts for so long; seconds.
_KEPT = 30 * 86400.0


class _Refused(Exception):
    """An answer of 400 or more."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.answer = Answer(status, {"message": f"{status} {message}"})


@dataclass(frozen=True)
class Pipeline:
    """A pipeline of a run of the forge; ``bridge`` is the number of the one that started it, 0 for the parent."""

    run: Run
    bridges: tuple[Bridge, ...]
    bridge: int = 0

    @property
    def id(self) -> int:
        parent = self.run.id - _FIRST
        return parent * 100 + self.bridge if self.bridge else parent

    @property
    def internal(self) -> Literal["run", "skipped"]:
        return "skipped" if self.run.internal == "skipped" else "run"

    @property
    def jobs(self) -> tuple[ci.Planned, ...]:
        return self.bridges[self.bridge - 1].jobs

    def at(self, now: float) -> Seen:
        stopped, created = self.run.stopped, self.run.created
        if self.bridge:
            return gitlab_ci.bridge_at(self.bridges[self.bridge - 1], created, now, stopped, self.internal)
        return gitlab_ci.pipeline_at(self.bridges, created, now, stopped, self.internal)

    def job_at(self, job: ci.Planned, now: float) -> Seen:
        return gitlab_ci.job_at(job, self.run.created, now, self.run.stopped)


class GitLab:
    """One project.  Every method is called inside a transaction of the hub's."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.url = hub.url + PREFIX
        # What a run tests does not change, and is worked out from many files.
        self._bridges: dict[int, tuple[Bridge, ...]] = {}
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
        if request.method != "GET":
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
        routes: Mapping[str, Callable[[Request, int], Answer]] = {
            r"": lambda _request, _: Answer(200, self._project()),
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
        if found.bridge:
            jobs = enumerate(found.jobs, 1)
            rows = [(f"jobs/{found.id * 100 + k}", f"{it.model}/{it.name}", found.job_at(it, now)) for k, it in jobs]
        else:
            children = [Pipeline(found.run, found.bridges, k + 1) for k in range(len(found.bridges))]
            rows = [(f"pipelines/{it.id}", it.bridges[it.bridge - 1].name, it.at(now)) for it in children]
        shown = ([pages.link(f"{home}/{place}", name), seen.status] for place, name, seen in rows)
        about = f"<p><b>{found.at(now).status}</b>, <code>{found.run.head_sha}</code></p>"
        return pages.page(self.hub, f"GitLab pipeline {found.id}", about, pages.table(("", "state"), shown))

    # -- what there is ------------------------------------------------------------------------------------------

    def _all(self) -> list[Pipeline]:
        """The pipelines that nobody's bridge started, newest first."""
        self.hub.tickets()  # a push that nobody has seen yet may have stopped one
        runs = [run for run in reversed(self.hub.store.all(Run)) if _has_pipeline(run)]
        return [Pipeline(run, self._plan(run)) for run in runs]

    def _find(self, number: int) -> Pipeline:
        for divisor in (1, 100):
            run = self.hub.store.find(Run, number // divisor + _FIRST)
            if run is None or not _has_pipeline(run):
                continue
            if pull := self.hub.store.find(Ticket, run.pull):
                self.hub.refreshed(pull)
                run = self.hub.store.find(Run, run.id) or run
            found = Pipeline(run, self._plan(run), number % 100 if divisor == 100 else 0)
            if divisor == 1 or (0 < found.bridge <= len(found.bridges) and self._started(found)):
                return found
        raise _Refused(404, "Not found")

    def _started(self, child: Pipeline) -> bool:
        bridge, run = child.bridges[child.bridge - 1], child.run
        return child.internal == "run" and gitlab_ci.has_started(bridge, run.created, self.hub.clock(), run.stopped)

    def _find_job(self, number: int) -> tuple[Pipeline, int]:
        child, position = self._find(number // 100), number % 100
        if not child.bridge or not 0 < position <= len(child.jobs):
            raise _Refused(404, "Not found")
        return child, position

    def _plan(self, run: Run) -> tuple[Bridge, ...]:
        if run.id not in self._bridges:
            self._bridges[run.id] = gitlab_ci.plan(self._situations(run))
        return self._bridges[run.id]

    def _situations(self, run: Run) -> dict[str, ci.Situation]:
        """What the tests of each environment depend on.  Here the head is tested, not its merge into the base."""
        home = self.hub.home
        changed = [it.path for it in home.changes(run.base_sha, run.head_sha) if it.path.startswith(ci.TEST_CASES)]
        folders = [*changed, *(f"{ci.TEST_CASES}/{name}" for name in ci.FATES)]
        new, old = (self._images(commit) for commit in (run.head_sha, run.base_sha))
        recipes = home.texts(run.head_sha, suites.RECIPES)
        golden, base_golden = home.texts(run.head_sha, *folders), home.texts(run.base_sha, *folders)
        return {
            environment: ci.Situation(
                frozenset({"Run functional tests"}), True, run.seconds, new.get(environment, ""),
                old.get(environment, ""), recipes, golden, base_golden,
            )
            for environment in gitlab_ci.ENVIRONMENTS
        }  # fmt: skip

    def _images(self, commit: str) -> dict[str, str]:
        return gitlab_ci.images(self.hub.home.texts(commit, gitlab_ci.BUILD).get(gitlab_ci.BUILD, ""))

    def _archive(self, child: Pipeline, position: int) -> bytes:
        """The artifacts of a job that has ended."""
        number, job, run = child.id * 100 + position, child.jobs[position - 1], child.run
        if number not in self._archives:
            golden: dict[str, str] = {}
            if job.measures:
                folder, home = f"{ci.TEST_CASES}/{job.model}/{job.test_case}", self.hub.home
                new, old = (self._images(commit).get(job.environment, "") for commit in (run.head_sha, run.base_sha))
                texts = [home.texts(commit, folder) for commit in (run.head_sha, run.base_sha)]
                found = ci.measured(job, *texts, image=new, base_image=old, lts=False)
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
        }  # fmt: skip

    def _brief(self, it: Pipeline) -> Json:
        run, seen = it.run, it.at(self.hub.clock())
        return {
            "id": it.id, "iid": it.id % 100_000, "project_id": PROJECT_ID, "sha": run.head_sha,
            "ref": run.head_branch, "status": seen.status, "source": "parent_pipeline" if it.bridge else "push",
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
        shown = [self._brief(it) for it in self._all()]
        found = [it for it in shown if asked.items() <= it.items()]
        return self._page(request, found if request.query.get("sort") != "asc" else found[::-1])

    def _list_bridges(self, request: Request, number: int) -> Answer:
        parent = self._find(number)
        found = [] if parent.bridge else [self._bridge(parent, k + 1) for k in range(len(parent.bridges))]
        return self._page(request, found)

    def _bridge(self, parent: Pipeline, number: int) -> Json:
        child = Pipeline(parent.run, parent.bridges, number)
        it, seen = parent.bridges[number - 1], child.at(self.hub.clock())
        return self._ran(it.name, "functional_tests", parent, seen) | {
            "id": child.id * 100, "allow_failure": it.allow_failure,
            "downstream_pipeline": self._brief(child) if self._started(child) else None,
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
        child = self._find(number)
        count = len(child.jobs) if child.bridge else 0
        # Newest first, as GitLab lists them.
        return self._page(request, [self._job(child, position) for position in range(count, 0, -1)])

    def _job(self, child: Pipeline, position: int) -> Json:
        job, number = child.jobs[position - 1], child.id * 100 + position
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


def _has_pipeline(run: Run) -> bool:
    # A run of an older version of this forge does not say how long its pipeline took.
    return run.internal != "none" and run.seconds > 0


def _times(seen: Seen) -> Json:
    started, completed = (None if it is None else moment(it) for it in (seen.started, seen.completed))
    took = None if seen.started is None or seen.completed is None else seen.completed - seen.started
    return {"started_at": started, "finished_at": completed, "duration": took, "queued_duration": None}


def _left_artifacts(job: ci.Planned, seen: Seen) -> bool:
    return job.kind == "functional" and seen.status in ("success", "failed")


def _gitlab_name(path: str, text: str) -> str:
    """Inference tests call their file otherwise."""
    name = path.rpartition("/")[2]
    return name if "lm loss" in text else name.replace("golden_values", "generations")
