"""GitLab: pipelines and their jobs; functional jobs run in pipelines that bridges start.

Source: GitLab's REST API, version 4.  Only ``start`` changes anything; the token goes only to GitLab's own origin,
and appears in no message.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from runbook_lib.clients import replies
from runbook_lib.clients.gitlab import models
from runbook_lib.clients.gitlab.models import Branch, Bridge, FunctionalJob, NoSuchRef, Pipeline, PipelineJob, Project
from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.transport import urls
from runbook_lib.transport.downloads import Address
from runbook_lib.transport.http import Client, NoReply, pause_sentence

_TOKEN_FOR = {
    "read_api": "GITLAB_PROJECT, and that the token has the scope read_api",
    "api": "GITLAB_PROJECT, and that the token has the scope api and your role in the project is Developer or higher",
}
T = TypeVar("T")


class GitLab:
    """One project on GitLab, as one token sees it.  For use by one thread."""

    def __init__(
        self, env: Mapping[str, str] = os.environ, *, transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:  # fmt: skip
        """Prepare with GITLAB_URL, GITLAB_TOKEN and GITLAB_PROJECT (path or number).  Sends nothing yet."""
        url, token, project = (env.get(name, "").strip() for name in ("GITLAB_URL", "GITLAB_TOKEN", "GITLAB_PROJECT"))
        self.url = urls.service_address("GITLAB_URL", url, "https://gitlab.example.com")
        if not re.fullmatch(r"[!-~]+", token):
            raise RunbookError("There is no token for GitLab. Set GITLAB_TOKEN to one with the scope read_api.")
        if not re.fullmatch(r"[0-9]+|[\w.-]+(/[\w.-]+)+", project):
            raise RunbookError("GITLAB_PROJECT is not a project's path (group/name) or number.")
        self.name, self._token = project, token
        self._api = f"{url.rstrip('/')}/api/v4/projects/{quote(project, safe='')}"
        self._client = Client(httpx.URL(url), replies.LARGEST, transport=transport, sleep=sleep)

    def project(self) -> Project:
        """Return the project itself."""
        return self._read("read the project", "", models.project_of)

    def branch(self, name: str) -> Branch | None:
        """Return a branch of the repository; None if it does not exist."""
        action = f"read the branch {name}"
        reply = self._send(action, "GET", f"/repository/branches/{quote(name, safe='')}")
        # For a project that this token may not see, GitLab replies with 404 and a different message.
        if reply.status_code == 404 and "branch" in _message(reply.content).lower():
            return None
        return self._build(action, reply, models.branch_of)

    def protected(self) -> tuple[str, ...]:
        """Return the names of the protected branches, in which ``*`` matches any text."""
        return self._list("list the protected branches", "/protected_branches", lambda branch: str(branch["name"]))

    def start(self, ref: str, variables: Mapping[str, str]) -> Pipeline:
        """Start a pipeline for a branch's newest commit; never sent twice, even if the reply is lost."""
        action = f"start a pipeline of {ref}"
        content = {"ref": ref, "variables": [{"key": name, "value": value} for name, value in variables.items()]}
        reply = self._send(action, "POST", "/pipeline", content)
        return self._build(action, reply, models.pipeline_of, "api")

    def pipeline(self, number: int) -> Pipeline:
        """Return one pipeline."""
        return self._read(f"read pipeline {number}", f"/pipelines/{number}", models.pipeline_of)

    def pipelines(self, sha: str) -> tuple[Pipeline, ...]:
        """Return the pipelines of a commit, newest first, without child pipelines."""
        query = {"sha": sha, "order_by": "id", "sort": "desc"}
        pipelines = self._list(f"list the pipelines of {sha[:10]}", "/pipelines", models.pipeline_of, query)
        return tuple(pipeline for pipeline in pipelines if pipeline.source != "parent_pipeline")

    def variables(self, pipeline: int) -> dict[str, str]:
        """Return the variables that a pipeline was started with, without those of its configuration."""
        action = f"list the variables of pipeline {pipeline}"
        path = f"/pipelines/{pipeline}/variables"
        return dict(self._list(action, path, lambda variable: (str(variable["key"]), str(variable["value"]))))

    def bridges(self, pipeline: int) -> tuple[Bridge, ...]:
        """Return the bridges of a pipeline that start functional tests of an image type."""
        path = f"/pipelines/{pipeline}/bridges"
        bridges = self._list(f"list the bridges of pipeline {pipeline}", path, models.bridge_of)
        return tuple(filter(None, bridges))

    def pipeline_jobs(self, pipeline: int) -> tuple[PipelineJob, ...]:
        """Return the jobs of a pipeline itself, the last attempt of each."""
        return self._list(f"list the jobs of pipeline {pipeline}", f"/pipelines/{pipeline}/jobs", models.job_of)

    def jobs(self, bridge: Bridge) -> tuple[FunctionalJob, ...]:
        """Return the jobs of a bridge's pipeline, the last attempt of each."""
        if bridge.pipeline is None:
            return ()
        path = f"/pipelines/{bridge.pipeline}/jobs"
        action = f"list the jobs of pipeline {bridge.pipeline}"
        return self._list(action, path, lambda job: models.functional_job_of(job, bridge))

    def artifact(self, job: int) -> Address:
        """Return the zip of a job's artifacts, for reading."""
        return Address(f"{self._api}/jobs/{job}/artifacts", {"PRIVATE-TOKEN": self._token})

    def log(self, job: int) -> Address:
        """Return the log of a job, for reading."""
        return Address(f"{self._api}/jobs/{job}/trace", {"PRIVATE-TOKEN": self._token})

    # -- requests -----------------------------------------------------------------------------------------------

    def _read(self, action: str, path: str, build: Callable[[Any], T]) -> T:
        return self._build(action, self._send(action, "GET", path), build)

    def _list(
        self, action: str, path: str, build: Callable[[Any], T], query: Mapping[str, str] | None = None
    ) -> tuple[T, ...]:
        """Return all items of all pages, built.  ``action`` completes "Could not …"."""

        def read(page: Mapping[str, int]) -> tuple[list[T], bool, int]:
            reply = self._send(action, "GET", f"{path}?{httpx.QueryParams(query or {}).merge(page)}")
            items = self._build(action, reply, lambda page: [build(item) for item in replies.items_of(page)])
            return items, 'rel="next"' in reply.headers.get("Link", ""), len(reply.content)

        return replies.listing(self._problem(action), read)

    def _send(self, action: str, method: str, path: str, content: Any = None) -> httpx.Response:
        """Return the reply to a request; one that changes something is sent once, and follows no redirect."""
        try:
            return self._client.request(
                method, httpx.URL(f"{self._api}{path}"), {"Accept-Encoding": "gzip"},
                secret={"PRIVATE-TOKEN": self._token}, content=content, follow=method == "GET",
            )  # fmt: skip
        except NoReply as error:
            raise Unreachable(f"{self._problem(action)} cannot be reached: {error}. Try again later.") from error

    def _build(self, action: str, reply: httpx.Response, build: Callable[[Any], T], scope: str = "read_api") -> T:
        """Build an object from a reply's JSON.  Raises RunbookError for a refusal or an unexpected form."""
        if not 200 <= reply.status_code < 300:
            raise self._refusal(action, reply, scope)
        return replies.build(self._problem(action), reply.content, build, "GITLAB_URL")

    def _refusal(self, action: str, reply: httpx.Response, scope: str) -> RunbookError:
        problem, status = self._problem(action), reply.status_code
        if status < 400:
            return RunbookError(f"{problem} redirects to a different URL. Set GITLAB_URL to that one.")
        if status == 401:
            return RunbookError(f"{problem} does not accept the token. Renew GITLAB_TOKEN ({scope}).")
        if status in (403, 404):
            return RunbookError(
                f"{problem} does not find it, or not for this token (HTTP {status}). Check the number, "
                f"{_TOKEN_FOR[scope]}."
            )
        if status in (400, 409, 422):
            message = " ".join(_message(reply.content).replace(self._token, "***").split())[:300].rstrip(".")
            kind = NoSuchRef if "reference not found" in message.lower() else RunbookError
            return kind(f"{problem} refuses it (HTTP {status}): {message}. Correct the cause, then run again.")
        request = pause_sentence(reply.headers)
        if status == 429:
            return Unreachable(f"{problem} limits the rate of requests (HTTP 429).{request} Try again later.")
        return Unreachable(f"{problem} answered HTTP {status}.{request} Try again later.")

    def _problem(self, action: str) -> str:
        return f"Could not {action} of {self.name}: {self._client.home.host}"


def _message(body: bytes) -> str:
    """Return GitLab's own message about a refusal; empty if there is none."""
    try:
        document = replies.parse_json(body)
    except ValueError:
        return ""
    if not isinstance(document, dict):
        return ""
    return str(document.get("message") or document.get("error") or "")
