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

from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.world import replies
from runbook_lib.world.gitlab import models
from runbook_lib.world.gitlab.models import Bridge, NoSuchRef, Pipeline, PipelineJob
from runbook_lib.world.transport import urls
from runbook_lib.world.transport.downloads import FileInParts
from runbook_lib.world.transport.http import Client, NoReply, pause_sentence
from runbook_lib.world.transport.web import RemoteFile

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
            raise RunbookError("There is no token for GitLab.", "Set GITLAB_TOKEN to one with the scope read_api.")
        if not re.fullmatch(r"[0-9]+|[\w.-]+(/[\w.-]+)+", project):
            raise RunbookError("GITLAB_PROJECT is not a project's path (group/name) or number.")
        self.name, self._token = project, token
        self._api = f"{url.rstrip('/')}/api/v4/projects/{quote(project, safe='')}"
        self._secret = {"PRIVATE-TOKEN": token}
        self._client = Client(httpx.URL(url), replies.LARGEST, transport=transport, sleep=sleep)

    def addresses(self) -> tuple[str, ...]:
        """Return the addresses of the project, for people and for git."""
        names = ("web_url", "ssh_url_to_repo", "http_url_to_repo")
        return self._read("", lambda project: tuple(str(project[name]) for name in names if project[name]))

    def protected(self) -> tuple[str, ...]:
        """Return the names of the protected branches, in which ``*`` matches any text."""
        return self._list("/protected_branches", lambda branch: str(branch["name"]))

    def start(self, ref: str, variables: Mapping[str, str]) -> Pipeline:
        """Start a pipeline for a branch's newest commit; never sent twice, even if the reply is lost."""
        listed = [{"key": name, "value": value} for name, value in variables.items()]
        return self._read("/pipeline", models.pipeline_of, {"ref": ref, "variables": listed})

    def pipeline(self, number: int) -> Pipeline:
        """Return one pipeline."""
        return self._read(f"/pipelines/{number}", models.pipeline_of)

    def pipelines(self, sha: str) -> tuple[Pipeline, ...]:
        """Return the pipelines of a commit, newest first, without child pipelines."""

        def build(data: Any) -> Pipeline | None:
            return None if data.get("source") == "parent_pipeline" else models.pipeline_of(data)

        return tuple(filter(None, self._list("/pipelines", build, sha=sha, order_by="id", sort="desc")))

    def variables(self, pipeline: int) -> dict[str, str]:
        """Return the variables that a pipeline was started with, without those of its configuration."""
        return dict(self._list(f"/pipelines/{pipeline}/variables", lambda it: (str(it["key"]), str(it["value"]))))

    def bridges(self, pipeline: int) -> tuple[Bridge, ...]:
        """Return the bridges of a pipeline that start functional tests of an image type."""
        return tuple(filter(None, self._list(f"/pipelines/{pipeline}/bridges", models.bridge_of)))

    def jobs(self, pipeline: int) -> tuple[PipelineJob, ...]:
        """Return the jobs of a pipeline itself, the last attempt of each."""
        return self._list(f"/pipelines/{pipeline}/jobs", models.job_of)

    def artifact(self, job: int) -> FileInParts:
        """Return the zip of a job's artifacts, for reading."""
        return RemoteFile(self._client, httpx.URL(f"{self._api}/jobs/{job}/artifacts"), self._secret)

    def log(self, job: int) -> FileInParts:
        """Return the log of a job, for reading."""
        return RemoteFile(self._client, httpx.URL(f"{self._api}/jobs/{job}/trace"), self._secret)

    # -- requests -----------------------------------------------------------------------------------------------

    def _read(self, path: str, build: Callable[[Any], T], content: Any = None) -> T:
        return self._send(path, build, content)[0]

    def _list(self, path: str, build: Callable[[Any], T], **query: str) -> tuple[T, ...]:
        """Return all items of all pages, built."""

        def read(page: Mapping[str, int]) -> tuple[list[T], bool, int]:
            address = f"{path}?{httpx.QueryParams(query).merge(page)}"
            items, reply = self._send(address, lambda page: [build(item) for item in replies.items_of(page)])
            return items, 'rel="next"' in reply.headers.get("Link", ""), len(reply.content)

        return replies.listing(self._problem(path), read)

    def _send(self, path: str, build: Callable[[Any], T], content: Any = None) -> tuple[T, httpx.Response]:
        """Return what a reply's JSON describes.  Content that changes something is sent once, without a redirect.

        Raises RunbookError for a refusal or an unexpected form.
        """
        problem, method = self._problem(path), "POST" if content else "GET"
        try:
            reply = self._client.request(
                method, httpx.URL(f"{self._api}{path}"), {"Accept-Encoding": "gzip"},
                secret=self._secret, content=content, follow=method == "GET",
            )  # fmt: skip
        except NoReply as error:
            raise Unreachable(f"{problem} cannot be reached: {error}.", "Try again later.") from error
        if not reply.is_success:
            raise self._refusal(problem, reply)
        return replies.build(problem, reply.content, build, "GITLAB_URL"), reply

    def _refusal(self, problem: str, reply: httpx.Response) -> RunbookError:
        status = reply.status_code
        if status < 400:
            return RunbookError(f"{problem} redirects to a different URL.", "Set GITLAB_URL to that one.")
        if status == 401:
            return RunbookError(
                f"{problem} does not accept the token.", "Renew GITLAB_TOKEN (read_api, to start: api)."
            )
        if status in (403, 404):
            return RunbookError(
                f"{problem} does not find it, or not for this token (HTTP {status}).",
                "Check the number, GITLAB_PROJECT, "
                "and that the token has the scope read_api; to start pipelines api, and the role Developer or higher.",
            )
        if status in (400, 409, 422):
            message = " ".join(_message(reply.content).replace(self._token, "***").split())[:300].rstrip(".")
            kind = NoSuchRef if "reference not found" in message.lower() else RunbookError
            return kind(f"{problem} refuses it (HTTP {status}): {message}. Correct the cause, then run again.")
        limit = " limits the rate of requests" if status == 429 else ""
        return Unreachable(f"{problem}{limit} (HTTP {status}).{pause_sentence(reply.headers)} Try again later.")

    def _problem(self, path: str) -> str:
        action = "start a pipeline" if path == "/pipeline" else f"read {path.partition('?')[0][1:] or 'the project'}"
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
