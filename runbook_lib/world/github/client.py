"""One repository on GitHub: its pull requests, issues, labels, comments and workflow runs.

githubkit carries the requests; the replies become our own small dataclasses.  Its models are not used: they require
fields that GitHub's real replies sometimes lack, know only the newest version of the API, and are slow to import.  Its
retries repeat requests that change something, and its HTTP cache stores invalid replies; this module does neither.
"""

import json
import os
import re
import subprocess
from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from runbook_lib.errors import RunbookError
from runbook_lib.text.redact import Redactor
from runbook_lib.world.api import Api
from runbook_lib.world.github import models
from runbook_lib.world.github.models import (
    LOGIN_ADVICE,
    RIGHTS,
    Artifact,
    Comment,
    Issue,
    LabelEvent,
    NotAllowed,
    Pull,
    WorkflowJob,
    WorkflowRun,
    required,
    scopes,
)
from runbook_lib.world.replies import items_of, whole_number
from runbook_lib.world.transport import urls
from runbook_lib.world.transport.archives import FileInParts
from runbook_lib.world.transport.http import TIMEOUT, USER_AGENT, Client

if TYPE_CHECKING:
    import githubkit

_API = "https://api.github.com"
# Version 2026-03-10 removed merge_commit_sha, the commit that CI really tests, from pull requests.
VERSION = "2022-11-28"
#: Where each permission to read shows: its name → a path.
_PROBES = {
    "actions": "/actions/runs", "contents": "/commits", "deployments": "/deployments", "issues": "/issues",
    "pull_requests": "/pulls",
}  # fmt: skip

T = TypeVar("T")


class _Transport(httpx.BaseTransport):
    """Our client as githubkit's transport, which it closes after each request."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._client.answer(request)


class GitHub(Api):
    """One repository on GitHub, as one token sees it; ``world.ports.Forge`` says what the methods return.

    A path is below the repository, unless it begins with ``/user`` or ``/search/``.  Secrets are removed from all that
    is published.
    """

    variable = "GITHUB_API_URL"
    moved = "If the repository has moved, set GITHUB_REPOSITORY to its new name."

    def __init__(
        self, repository: str, env: Mapping[str, str] = os.environ, transport: httpx.BaseTransport | None = None
    ) -> None:
        """Prepare for ``owner/name`` with GITHUB_TOKEN, else the token of ``gh auth token``.  Sends nothing yet."""
        if not re.fullmatch(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+", repository):
            raise RunbookError(f"{repository!r} is not a repository on GitHub; expected owner/name.")
        self.repository = repository
        url = urls.service_address(self.variable, env.get(self.variable) or _API, _API)
        token = _token_for(env, url)
        self._redactor = Redactor({**env, "GITHUB_TOKEN": token})
        headers = {"Authorization": f"Bearer {token}", "X-GitHub-Api-Version": VERSION}
        super().__init__(repository, url, token, headers, transport)

    @property
    def scopes(self) -> str | None:
        """The scopes of a classic token, as listed by GitHub; None for other tokens, and before any reply."""
        scopes: str | None = self._headers.get("X-OAuth-Scopes")
        return scopes

    def public(self, value: T) -> T:
        """Return text or data as it is published: without secrets and characters that UTF-8 cannot encode."""
        text = json.dumps(self._redactor.data(value), ensure_ascii=False)
        public: T = json.loads(text.encode("utf-8", "replace"))
        return public

    def _address(self, path: str) -> httpx.URL:
        return super()._address(path if path.startswith(("/user", "/search/")) else f"/repos/{self.repository}{path}")

    @cached_property
    def _github(self) -> "githubkit.GitHub[Any]":
        import githubkit  # slower to import than most notebooks that send nothing

        return githubkit.GitHub(
            self._token, base_url=str(self._url), user_agent=USER_AGENT, timeout=TIMEOUT,
            transport=_Transport(self._client), follow_redirects=False, http_cache=False, auto_retry=False,
        )  # fmt: skip

    def _reply(self, method: str, url: httpx.URL, content: Any) -> httpx.Response:
        from githubkit.exception import RequestError, RequestFailed

        headers = {"X-GitHub-Api-Version": VERSION, "Accept-Encoding": "gzip"}
        try:
            return self._github.request(method, str(url), json=self.public(content), headers=headers).raw_response
        except RequestFailed as error:
            return error.response.raw_response
        except RequestError as error:
            raise error.exc from None  # our transport's

    def _refusal(self, problem: str, reply: httpx.Response, message: str) -> RunbookError:
        status, headers = reply.status_code, reply.headers
        if link := re.search(r"url=(https://[!-~]+)", headers.get("x-github-sso", "")):
            advice = f"Authorize the token at {link[1]} and run again."
            return RunbookError(f"{problem}: the organization asks for single sign-on.", advice)
        if status == 401:
            return RunbookError(
                f"{problem} does not accept the token{message}. It is wrong, expired or revoked.",
                f"{LOGIN_ADVICE} {RIGHTS}",
            )
        if status == 403:
            return NotAllowed(f"{problem} does not allow it{message}.", required(headers))
        # To a classic token with none of the scopes that a request accepts, GitHub replies with 404.
        owned, accepted = headers.get("x-oauth-scopes"), headers.get("x-accepted-oauth-scopes")
        if status == 404 and owned is not None and accepted and not scopes(owned) & scopes(accepted):
            return NotAllowed(f"{problem} does not find it for this token{message}.", required(headers))
        if status in (404, 410):
            return NotAllowed(
                f"{problem} does not find it{message}.",
                f"Check the name {self.repository}, and that the token may see it: GitHub gives the same reply for a "
                "missing object and for one that the token may not see.",
            )
        return super()._refusal(problem, reply, message)

    def me(self) -> str:
        return self._ask("read the account of the token", "/user", lambda user: str(user["login"]))

    def repo(self) -> models.GitHubRepository:
        return self._ask("read the repository", "", models.GitHubRepository.of)

    def may_read(self, area: str) -> bool:
        try:
            self._ask(f"check whether the token may read {area}", _PROBES[area], lambda _: None, query={"per_page": 1})
        except NotAllowed as error:
            return "not accessible" not in str(error)  # it is not, for example, issues that the repository disabled
        return True

    def may_write(self, login: str) -> bool:
        path = f"/collaborators/{quote(login, safe='')}/permission"
        try:
            permission = self._ask(f"read the permission of {login}", path, lambda access: str(access["permission"]))
        except NotAllowed:
            return False
        return permission in ("admin", "write")

    def pulls(self, head: str | None = None, base: str | None = None, state: str = "open") -> tuple[Pull, ...]:
        query = {"state": state, "head": head, "base": base}
        return self._list("list the pull requests", "/pulls", Pull.of, query=query)

    def pull(self, number: int) -> Pull:
        return self._ask(f"read pull request #{number}", f"/pulls/{number}", Pull.of)

    def labellings(self, number: int) -> tuple[LabelEvent, ...]:
        return self._list(f"read the events of #{number}", f"/issues/{number}/events", LabelEvent.of)

    def comments(self, number: int) -> tuple[Comment, ...]:
        return self._list(f"read the comments of #{number}", f"/issues/{number}/comments", Comment.of)

    def files(self, number: int) -> Mapping[str, str]:
        def file(item: Any) -> tuple[str, str]:
            return str(item["filename"]), str(item.get("patch") or "")

        return dict(self._list(f"list the files of #{number}", f"/pulls/{number}/files", file))

    def last_author(self, path: str, ref: str) -> str:
        def author(commits: Any) -> str:
            listed = items_of(commits)
            return models.login(listed[0]["author"]) if listed else ""

        return self._ask(
            f"find who last changed {path}", "/commits", author, query={"path": path, "sha": ref, "per_page": 1}
        )

    def behind(self, base: str, head: str) -> int:
        path = f"/compare/{quote(base)}...{quote(head)}"
        action = f"compare {base} with {head[:10]}"
        return self._ask(action, path, lambda comparison: whole_number(comparison["behind_by"]), query={"per_page": 1})

    def runs(
        self, branch: str | None = None, head_sha: str | None = None, event: str | None = None,
        status: str | None = None, since: datetime | None = None,
    ) -> tuple[WorkflowRun, ...]:  # fmt: skip
        created = f">={since:%Y-%m-%dT%H:%M:%SZ}" if since else None
        query = {"branch": branch, "head_sha": head_sha, "event": event, "status": status, "created": created}
        return self._list("list the CI runs", "/actions/runs", WorkflowRun.of, key="workflow_runs", query=query)

    def run(self, run_id: int) -> WorkflowRun:
        return self._ask(f"read CI run {run_id}", f"/actions/runs/{run_id}", WorkflowRun.of)

    def jobs(self, run_id: int) -> tuple[WorkflowJob, ...]:
        path = f"/actions/runs/{run_id}/jobs"
        action = f"list the jobs of CI run {run_id}"
        return self._list(action, path, WorkflowJob.of, key="jobs", query={"filter": "latest"})

    def job(self, job_id: int) -> WorkflowJob:
        return self._ask(f"read job {job_id}", f"/actions/jobs/{job_id}", WorkflowJob.of)

    def artifacts(self, run_id: int) -> tuple[Artifact, ...]:
        path = f"/actions/runs/{run_id}/artifacts"
        return self._list(f"list the artifacts of CI run {run_id}", path, Artifact.of, key="artifacts")

    def artifact(self, artifact_id: int) -> FileInParts:
        return self._file(f"/actions/artifacts/{artifact_id}/zip")

    def log(self, job_id: int) -> FileInParts:
        return self._file(f"/actions/jobs/{job_id}/logs")

    def deployment_failed(self, sha: str) -> bool:
        """Return True if the newest deployment of a commit failed ("had a problem deploying" on the pull request)."""
        query = {"sha": sha, "environment": "test"}
        action = f"check whether {sha[:10]} was deployed"
        ids = self._list(action, "/deployments", lambda deployment: int(deployment["id"]), query=query)
        if not ids:
            return False
        path = f"/deployments/{max(ids)}/statuses"
        states = self._list(action, path, lambda status: (int(status["id"]), str(status["state"])))
        return bool(states) and max(states)[1] in ("failure", "error")

    def open_pull(self, title: str, head: str, base: str, body: str) -> Pull:
        fields = {"title": title, "head": head, "base": base, "body": body, "draft": True}
        return self._ask(f"open a pull request from {head} into {base}", "/pulls", Pull.of, "POST", content=fields)

    def update_pull(self, number: int, body: str) -> Pull:
        return self._ask(f"edit pull request #{number}", f"/pulls/{number}", Pull.of, "PATCH", content={"body": body})

    def comment(self, number: int, body: str) -> Comment:
        return self._ask(
            f"comment on #{number}", f"/issues/{number}/comments", Comment.of, "POST", content={"body": body}
        )

    def remove_comment(self, comment: Comment) -> None:
        self._ask("remove the comment", f"/issues/comments/{comment.id}", bool, "DELETE")

    def rerun_failed(self, run_id: int) -> None:
        path = f"/actions/runs/{run_id}/rerun-failed-jobs"
        self._ask(f"run the failed jobs of CI run {run_id} again", path, lambda _: None, "POST", content={})

    def add_label(self, number: int, name: str) -> None:
        path = f"/issues/{number}/labels"
        self._ask(f"add the label {name!r} to #{number}", path, lambda _: None, "POST", content={"labels": [name]})

    def remove_label(self, number: int, name: str) -> None:
        path = f"/issues/{number}/labels/{quote(name, safe='')}"
        self._ask(f"remove the label {name!r} from #{number}", path, lambda _: None, "DELETE")

    def search_issues(self, words: str) -> tuple[Issue, ...]:
        plain = words.replace('"', " ")
        query = f'repo:{self.repository} is:issue is:open "{plain}"'
        issues = self._list(f"search the issues for {plain!r}", "/search/issues", Issue.of, "items", {"q": query})
        return tuple(sorted(issues, key=lambda issue: issue.number))

    def list_issues(self, creator: str = "") -> tuple[Issue, ...]:
        query = {"state": "open", "creator": creator or None}
        issues = self._list("list the issues", "/issues", _unless_pull, query=query)
        return tuple(sorted(issues, key=lambda issue: issue.number))

    def issue(self, number: int) -> Issue:
        return self._ask(f"read issue #{number}", f"/issues/{number}", Issue.of)

    def is_assignable(self, login: str) -> bool:
        try:
            return self._ask(
                f"see whether {login} can be assigned", f"/assignees/{quote(login, safe='')}", lambda _: True
            )
        except NotAllowed:
            return False

    def file_issue(self, title: str, body: str, labels: Collection[str] = (), assignee: str = "") -> Issue:
        fields: dict[str, Any] = {"title": title, "body": body, "labels": sorted(labels)}  # ignored without permission
        if assignee:
            fields["assignees"] = [assignee]
        return self._ask(f"file the issue {title!r}", "/issues", Issue.of, "POST", content=fields)

    def withdraw_issue(self, issue: Issue) -> None:
        fields = {"state": "closed", "state_reason": "not_planned"}
        self._ask(f"close issue #{issue.number}", f"/issues/{issue.number}", Issue.of, "PATCH", content=fields)


def _unless_pull(data: Any) -> Issue | None:
    return None if "pull_request" in data else Issue.of(data)


def _token_for(env: Mapping[str, str], url: str) -> str:
    """Return GITHUB_TOKEN, else that of ``gh`` for this host.  Raises RunbookError if there is none."""
    token = (env.get("GITHUB_TOKEN") or _token_of_gh(url)).strip()
    if not token:
        raise RunbookError("There is no token for GitHub.", f"{LOGIN_ADVICE} {RIGHTS}")
    if not re.fullmatch(r"[!-~]+", token):
        raise RunbookError(
            "GITHUB_TOKEN contains spaces or other characters that no token has.", "Copy the token again."
        )
    return token


def _token_of_gh(url: str) -> str:
    # The token of one host must never go to another.
    host = urlsplit(url).hostname or ""
    if host == urlsplit(_API).hostname:
        host = "github.com"
    try:
        process = subprocess.run(
            ["gh", "auth", "token", "--hostname", host],
            capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):  # without gh there is just no token
        return ""
    return process.stdout if process.returncode == 0 else ""
