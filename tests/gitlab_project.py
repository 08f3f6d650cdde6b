"""A small GitLab with recorded replies, served on this machine, and the scripted pipelines of practice with faults."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from local_server import answering

from runbook_lib.errors import RunbookError
from runbook_lib.world.gitlab.models import Pipeline
from runbook_lib.world.ports import SecondCi

TOKEN = "secret-of-gitlab"


def pipeline(number: int, sha: str, status: str = "failed", **more: Any) -> dict[str, Any]:
    shown = {"id": number, "sha": sha, "ref": "main", "status": status, "source": "push"}
    return {**shown, "web_url": f"https://gitlab.example.com/p/-/pipelines/{number}", **more}


def bridge(name: str, started: int | None, status: str = "failed") -> dict[str, Any]:
    return {"id": 1, "name": name, "status": status, "downstream_pipeline": {"id": started} if started else None}


def job(number: int, name: str, status: str = "failed", **more: Any) -> dict[str, Any]:
    shown = {"id": number, "name": name, "stage": "gpt", "status": status, "web_url": ""}
    return {**shown, "artifacts_file": {"size": 1}, "artifacts_expire_at": None, **more}


@dataclass
class Project:
    """The replies of a project by path: a list comes in pages of two, bytes are a file; ``statuses`` come first."""

    replies: dict[str, Any] = field(default_factory=dict)
    name: str = "adlr/megatron-lm"
    url: str = ""
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    posts: list[Any] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        return {"GITLAB_URL": self.url, "GITLAB_TOKEN": TOKEN, "GITLAB_PROJECT": self.name}

    def respond(self, address: str, token: str | None) -> tuple[int, dict[str, str], bytes]:
        """Return the status, the headers and the body for an address."""
        self.tokens.append(token)
        path, _, query = address.partition("?")
        inner = path.partition(f"/{self.name.replace('/', '%2F')}")[2].strip("/")
        status, headers = self.statuses.pop(0) if self.statuses else 200, dict(self.headers)
        reply, asked = self.replies.get(inner), httpx.QueryParams(query)
        if token != TOKEN or reply is None:
            return 401 if token != TOKEN else 404, headers, b"{}"
        if isinstance(reply, bytes):
            return status, headers, reply
        if inner == "pipelines":
            reply = [entry for entry in reply if entry["sha"] == asked["sha"]]
        if isinstance(reply, list):
            page = int(asked.get("page", 1))
            if 2 * page < len(reply):
                headers["Link"] = f'<{self.url}{path}?page={page + 1}>; rel="next"'
            reply = reply[2 * page - 2 : 2 * page]
        return status, headers, json.dumps(reply).encode()

    def configure(self, patch: pytest.MonkeyPatch) -> None:
        """Set the environment variables that lead to it."""
        for name, value in self.env.items():
            patch.setenv(name, value)


@contextmanager
def served(replies: Mapping[str, Any] | None = None, name: str = "adlr/megatron-lm") -> Iterator[Project]:
    """Serve a project with these replies."""
    project = Project(dict(replies or {}), name)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            project.posts.append(json.loads(request.read()))
        token = request.headers.get("PRIVATE-TOKEN")
        status, headers, body = project.respond(request.url.raw_path.decode(), token)
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))

    with answering(answer) as project.url:
        yield project


def with_test(head: str, test: str, archive: bytes, status: str = "failed") -> dict[str, Any]:
    """Return the replies of a project with one pipeline, in which one functional test of dev ran on dgx_h100."""
    return {
        "pipelines": [pipeline(1, head, status)],
        "pipelines/1": pipeline(1, head, status),
        "pipelines/1/bridges": [bridge("functional:run_dev_dgx_h100", 2, status)],
        "pipelines/2/jobs": [job(21, test, status, artifacts_file={"size": len(archive)})],
        "jobs/21/artifacts": archive,
    }


@dataclass
class Fault:
    """A reply to the next ``times`` requests like this; if it is ``late``, the request takes effect before."""

    method: str
    path: str
    status: int
    content: Any = None
    times: int = 1
    late: bool = False


class GitLabServer(httpx.BaseTransport):
    """GitLab's REST API for a second CI of practice."""

    def __init__(self, second_ci: SecondCi) -> None:
        self._second_ci = second_ci

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.headers.get("PRIVATE-TOKEN") != TOKEN:
            return httpx.Response(401, json={})
        path = request.url.path.partition("/Megatron-LM")[2].strip("/")
        try:
            reply = self._answer(path, request)
        except RunbookError as error:
            if "Reference not found" in str(error):
                return httpx.Response(400, json={"message": {"base": ["Reference not found"]}})
            return httpx.Response(404, json={"message": "404 Not Found"})
        if isinstance(reply, bytes):
            first, last = map(int, request.headers["Range"].removeprefix("bytes=").split("-"))
            part = reply[first : last + 1]
            ends = f"bytes {first}-{first + len(part) - 1}/{len(reply)}"
            return httpx.Response(206, headers={"Content-Range": ends}, stream=httpx.ByteStream(part))
        return httpx.Response(200, json=reply)

    def _answer(self, path: str, request: httpx.Request) -> Any:
        ci = self._second_ci
        match path.split("/"):
            case ["repository", "branches"]:
                name = request.url.params["search"]
                return [{"name": f"{name}-2", "protected": True}, {"name": name, "protected": ci.is_protected(name)}]
            case ["pipeline"]:
                asked = json.loads(request.read())
                variables = {entry["key"]: entry["value"] for entry in asked["variables"]}
                return _shown(ci.start(asked["ref"], variables))
            case ["pipelines"]:
                return [_shown(each) for each in ci.pipelines(request.url.params["sha"])]
            case ["pipelines", number]:
                return _shown(ci.pipeline(int(number)))
            case ["pipelines", number, "variables"]:
                return [{"key": name, "value": value} for name, value in ci.variables(int(number)).items()]
            case ["pipelines", number, "bridges"]:
                return [bridge(each.name, each.pipeline, each.status) for each in ci.bridges(int(number))]
            case ["pipelines", number, "jobs"]:
                return [job(each.id, each.name, each.status, stage=each.stage, artifacts_file={"size": each.size})
                        for each in ci.jobs(int(number))]  # fmt: skip
            case ["jobs", number, what]:
                read = ci.log if what == "trace" else ci.artifact
                return read(int(number)).part(0, 2**30)
        raise AssertionError(path)


def _shown(found: Pipeline) -> dict[str, Any]:
    return {"id": found.id, "sha": found.sha, "ref": found.ref, "status": found.status, "web_url": found.url}


class Faulty(httpx.BaseTransport):
    """Scripted pipelines with faults; they are under way the next ``running`` times that somebody looks at one.

    With ``jobs_end_first`` their jobs are not.
    """

    def __init__(self, scripted: httpx.BaseTransport) -> None:
        self._scripted = scripted
        self.faults: list[Fault] = []
        self.running = 0
        self.jobs_end_first = False
        self.started: list[dict[str, str]] = []

    def fail(self, method: str, path: str, status: int, content: Any = None, **options: Any) -> None:
        self.faults.append(Fault(method, path, status, content, **options))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        for fault in self.faults:
            if fault.times and fault.method == request.method and re.search(fault.path, request.url.path):
                fault.times -= 1
                if fault.late:
                    self._answer(request)
                return httpx.Response(fault.status, json=fault.content)
        return self._answer(request)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            asked = json.loads(request.read())
            self.started.append({entry["key"]: entry["value"] for entry in asked["variables"]})
        response = self._scripted.handle_request(request)
        if self.running and "/pipelines" in request.url.path:
            is_jobs = request.url.path.endswith("/jobs")
            self.running -= is_jobs
            if is_jobs and self.jobs_end_first:
                return response
            return httpx.Response(200, content=response.content.replace(b'"success"', b'"running"'))
        return response
