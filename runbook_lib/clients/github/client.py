"""GitHub's REST API: the repository's pull requests, labels, comments and workflow runs.

githubkit carries the requests; the answers become our own small dataclasses.  Its models are not used: they require
fields that GitHub's real answers sometimes lack, know only the newest version of the API, and are slow to import.
Nothing here retries a request that changes something: its answer may have been lost, so callers look first
(`once`).  Secrets appear in no message, and `send` takes them out of all that is published.
"""

import contextvars
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote

from runbook_lib.clients.github.auth import base_url, token_for
from runbook_lib.clients.github.errors import NotAllowed, Transient, late, lost, odd, once, plain, refusal
from runbook_lib.clients.github.models import (
    Account,
    Artifact,
    BranchComparison,
    Comment,
    Job,
    Labelling,
    Pull,
    Repository,
    Run,
    first_author,
    items_of,
)
from runbook_lib.errors import CannotTell, RunbookError, Unreachable
from runbook_lib.text.redact import Redactor
from runbook_lib.transport.limits import TooLarge, limit_to, strict, within

__all__ = ["GitHub", "once"]

if TYPE_CHECKING:
    import githubkit
    import httpx

# Version 2026-03-10 took merge_commit_sha, the commit that CI really tests, out of pull requests.
_VERSION = "2022-11-28"
_TIMEOUT = (30.0, 10.0)  # seconds without a byte, and to connect
_LIMIT = 60.0  # seconds for one answer from first to last byte, however it drips
_LARGEST = 16 * 2**20  # bytes of an answer; a page of a hundred pull requests with the longest texts has 7 MB
_LARGEST_LISTING = 64 * 2**20  # bytes of all pages; a thousand open pull requests have 25 MB
_LONGEST_LISTING = 600.0  # seconds for all pages; GitHub needs up to 5 for one of a hundred jobs
_REMEMBERED = 16 * 2**20  # bytes of answers that are kept to ask whether they still hold
#: Seconds before a read is tried again, after a server error or a lost connection.
_DELAYS = (0.5, 2.0)
_PER_PAGE = 100
_MAX_PAGES = 50

T = TypeVar("T")


class GitHub:
    """One repository on GitHub, as one token sees it.  For use by one thread."""

    def __init__(self, repository: str, token: str, client: "githubkit.GitHub[Any]", redactor: Redactor) -> None:
        self.repository = repository
        #: The scopes that a classic token has, as GitHub lists them; None for another token, and before any answer.
        self.scopes: str | None = None
        self._token = token
        self._redactor = redactor
        self._client = client
        # githubkit keeps its connections in a context variable, and every cell of a notebook has a context of its own.
        self._context = contextvars.copy_context()
        # Answers by request, with their ETag: asking whether they still hold costs nothing of the rate limit.
        self._known: dict[tuple[str, str], tuple[str, bytes, bool]] = {}
        self._received = 0  # bytes of answers
        self._context.run(client.__enter__)

    @classmethod
    def connect(
        cls, repository: str, env: Mapping[str, str] = os.environ, transport: "httpx.BaseTransport | None" = None
    ) -> Self:
        """Prepare for ``owner/name`` with GITHUB_TOKEN, else the token of ``gh auth token``.  Sends nothing yet.

        Raises RunbookError without a usable token, address or proxy.
        """
        if not re.fullmatch(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+", repository):
            raise RunbookError(f"{repository!r} is no repository on GitHub; expected owner/name.")
        url = base_url(env)
        token = token_for(env, url)
        import githubkit
        import httpx

        from runbook_lib.transport.client import USER_AGENT, open_transport

        client = githubkit.GitHub(
            token,
            base_url=url,
            user_agent=USER_AGENT,
            # A renamed repository answers with a redirect, and a POST that follows one may become a GET.
            follow_redirects=False,
            timeout=httpx.Timeout(_TIMEOUT[0], connect=_TIMEOUT[1]),
            transport=transport or open_transport(),
            event_hooks={"response": [limit_to(_LARGEST, _LIMIT)]},
            http_cache=False,
            auto_retry=False,
        )
        return cls(repository, token, client, Redactor({**env, "GITHUB_TOKEN": token}))

    def close(self) -> None:
        """Close the connections."""
        self._context.run(self._client.__exit__)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- reading ------------------------------------------------------------------------------------------------

    def me(self) -> Account:
        """Return the account of the token."""
        return self.get("see whose token this is", "/user", Account.of)

    def repo(self) -> Repository:
        """Return the repository, and what this token may do there."""
        return self.get("look at the repository", self.path(), Repository.of)

    def pulls(self, head: str | None = None, base: str | None = None, state: str = "open") -> tuple[Pull, ...]:
        """Return pull requests, newest first; ``head`` is ``owner:branch``."""
        query = {"state": state} | ({"head": head} if head else {}) | ({"base": base} if base else {})
        return tuple(self.pages("list the pull requests", self.path("/pulls"), Pull.of, params=query))

    def pull(self, number: int) -> Pull:
        """Return one pull request."""
        return self.get(f"read pull request #{number}", self.path(f"/pulls/{number}"), Pull.of)

    def labels(self, number: int) -> frozenset[str]:
        """Return the names of a pull request's labels."""
        path = self.path(f"/issues/{number}/labels")
        return frozenset(self.pages(f"read the labels of #{number}", path, lambda label: str(label["name"])))

    def labellings(self, number: int) -> tuple[Labelling, ...]:
        """Return when labels were set on a pull request and taken off, oldest first."""
        path = self.path(f"/issues/{number}/events")
        events = self.pages(f"read the events of #{number}", path, Labelling.of)
        return tuple(event for event in events if event is not None)

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Return the conversation of a pull request, oldest first."""
        path = self.path(f"/issues/{number}/comments")
        return tuple(self.pages(f"read the comments of #{number}", path, Comment.of))

    def files(self, number: int) -> tuple[str, ...]:
        """Return the paths that a pull request changes."""
        path = self.path(f"/pulls/{number}/files")
        return tuple(self.pages(f"list the files of #{number}", path, lambda file: str(file["filename"])))

    def last_author(self, path: str, ref: str) -> str:
        """Return the login of whoever last committed to a path; empty where GitHub knows no account."""
        params: dict[str, str | int] = {"path": path, "sha": ref, "per_page": 1}
        return self.get(f"see who last changed {path}", self.path("/commits"), first_author, params)

    def compare(self, base: str, head: str) -> BranchComparison:
        """Compare two branches or commits of the repository's network."""
        path = self.path(f"/compare/{quote(base)}...{quote(head)}")
        what = f"compare {base} with {head[:10]}"
        return self.get(what, path, BranchComparison.of, params={"per_page": 1})

    def runs(self, branch: str | None = None, head_sha: str | None = None) -> tuple[Run, ...]:
        """Return workflow runs, newest first."""
        query = ({"branch": branch} if branch else {}) | ({"head_sha": head_sha} if head_sha else {})
        path = self.path("/actions/runs")
        return tuple(self.pages("list the CI runs", path, Run.of, key="workflow_runs", params=query))

    def run(self, run_id: int) -> Run:
        """Return one workflow run."""
        return self.get(f"read CI run {run_id}", self.path(f"/actions/runs/{run_id}"), Run.of)

    def jobs(self, run_id: int) -> tuple[Job, ...]:
        """Return the jobs of a run's latest attempt."""
        path = self.path(f"/actions/runs/{run_id}/jobs")
        what = f"list the jobs of CI run {run_id}"
        return tuple(self.pages(what, path, Job.of, key="jobs", params={"filter": "latest"}))

    def job(self, job_id: int) -> Job:
        """Return one job."""
        return self.get(f"read job {job_id}", self.path(f"/actions/jobs/{job_id}"), Job.of)

    def artifacts(self, run_id: int) -> tuple[Artifact, ...]:
        """Return what the jobs of all attempts of a run have uploaded."""
        path = self.path(f"/actions/runs/{run_id}/artifacts")
        return tuple(self.pages(f"list the artifacts of CI run {run_id}", path, Artifact.of, key="artifacts"))

    def download(self, artifact_id: int) -> tuple[str, dict[str, str]]:
        """Return the address that redirects to an artifact's zip, and the headers for this origin, no other."""
        return self._address(f"/actions/artifacts/{artifact_id}/zip")

    def log(self, job_id: int) -> tuple[str, dict[str, str]]:
        """Return the address that redirects to the log of a job, and the headers as in ``download``."""
        return self._address(f"/actions/jobs/{job_id}/logs")

    def _address(self, rest: str) -> tuple[str, dict[str, str]]:
        url = f"{str(self._client.config.base_url).rstrip('/')}{self.path(rest)}"
        return url, {"Authorization": f"Bearer {self._token}", "X-GitHub-Api-Version": _VERSION}

    def deployment_failed(self, sha: str, environment: str = "test") -> bool:
        """Return whether the newest deployment of a commit failed ("had a problem deploying" on the pull request)."""
        query = {"sha": sha, "environment": environment}
        what = f"see whether {sha[:10]} was deployed"
        ids = list(self.pages(what, self.path("/deployments"), lambda deployment: int(deployment["id"]), params=query))
        if not ids:
            return False
        path = self.path(f"/deployments/{max(ids)}/statuses")
        states = list(self.pages(what, path, lambda status: (int(status["id"]), str(status["state"]))))
        return bool(states) and max(states)[1] in ("failure", "error")

    # -- changing -----------------------------------------------------------------------------------------------

    def open_pull(self, title: str, head: str, base: str, body: str, *, draft: bool = True) -> Pull:
        """Open a pull request; ``head`` is ``owner:branch``."""
        fields = {"title": title, "head": head, "base": base, "body": body, "draft": draft}
        what = f"open a pull request from {head} into {base}"
        return self.send(what, "POST", self.path("/pulls"), fields, Pull.of)

    def update_pull(self, number: int, *, body: str | None = None, title: str | None = None) -> Pull:
        """Change the body or the title of a pull request."""
        fields = ({"title": title} if title is not None else {}) | ({"body": body} if body is not None else {})
        return self.send(f"edit pull request #{number}", "PATCH", self.path(f"/pulls/{number}"), fields, Pull.of)

    def comment(self, number: int, body: str) -> Comment:
        """Write a comment."""
        path = self.path(f"/issues/{number}/comments")
        return self.send(f"comment on #{number}", "POST", path, {"body": body}, Comment.of)

    def remove_comment(self, comment: Comment) -> None:
        """Delete a comment of one's own."""
        self.send("remove the comment", "DELETE", self.path(f"/issues/comments/{comment.id}"), None, bool)

    def rerun_failed(self, run_id: int) -> None:
        """Run the failed jobs of a run once more, as its next attempt."""
        path = self.path(f"/actions/runs/{run_id}/rerun-failed-jobs")
        self.send(f"run the failed jobs of CI run {run_id} again", "POST", path, {}, lambda _: None)

    def add_label(self, number: int, name: str) -> None:
        """Set a label.  Setting it twice is the same as once."""
        path = self.path(f"/issues/{number}/labels")
        self.send(f"set the label {name!r} on #{number}", "POST", path, {"labels": [name]}, lambda _: None)

    def remove_label(self, number: int, name: str) -> None:
        """Remove a label.  Raises NotAllowed also if it is not set."""
        path = self.path(f"/issues/{number}/labels/{quote(name, safe='')}")
        self.send(f"take the label {name!r} off #{number}", "DELETE", path, None, lambda _: None)

    # -- requests -----------------------------------------------------------------------------------------------

    def path(self, rest: str = "") -> str:
        """Return the path of something in this repository."""
        return f"/repos/{self.repository}{rest}"

    def get(self, what: str, path: str, build: Callable[[Any], T], params: Mapping[str, str | int] | None = None) -> T:
        """Return one answer, built; ``what`` completes "Could not …"."""
        return self._read(what, path, params or {}, build)[0]

    def exists(self, what: str, path: str) -> bool:
        """Return whether there is something, where GitHub answers with nothing else."""
        try:
            response = self._retried(lambda: self._request(what, "GET", path))
        except NotAllowed:
            return False
        if response.status_code != 204:
            raise odd(f"Could not {what} in {self.repository}", self._host, response.status_code, response.content)
        return True

    def pages(
        self,
        what: str,
        path: str,
        build: Callable[[Any], T],
        key: str | None = None,
        params: Mapping[str, str | int] | None = None,
    ) -> Iterator[T]:
        """Yield all items of all pages, built; ``key`` is where a page holds them."""
        failed = f"Could not {what} in {self.repository}"
        received, end = self._received, time.monotonic() + _LONGEST_LISTING
        for page in range(1, _MAX_PAGES + 1):
            query = {**(params or {}), "per_page": _PER_PAGE, "page": page}
            items, more = self._read(what, path, query, lambda page: [build(each) for each in items_of(page, key)])
            yield from items
            if not more:
                return
            if self._received - received > _LARGEST_LISTING:
                raise CannotTell(f"{failed}: {self._host} sends more than {_LARGEST_LISTING // 2**20} MB.")
            if time.monotonic() > end:
                raise Unreachable(f"{failed}: {late(self._host)}")
        raise CannotTell(f"{failed}: there are more than {_MAX_PAGES * _PER_PAGE}, which is more than this tool reads.")

    def _read(self, what: str, path: str, params: Mapping[str, str | int], build: Callable[[Any], T]) -> tuple[T, bool]:
        """Return what was built of the JSON, and whether there is a further page."""
        return self._retried(lambda: self._read_once(what, path, params, build))

    def _retried(self, read: Callable[[], T]) -> T:
        for delay in _DELAYS:
            try:
                return read()
            except Transient:
                time.sleep(delay)
        return read()

    def _read_once(
        self, what: str, path: str, params: Mapping[str, str | int], build: Callable[[Any], T]
    ) -> tuple[T, bool]:
        key = (path, repr(sorted(params.items())))
        tag, content, more = self._known.get(key, ("", b"", False))
        response = self._request(what, "GET", path, params=params, headers={"If-None-Match": tag} if tag else {})
        if response.status_code == 304 and tag:
            return self._build(what, lambda body: build(strict(body)), content), more
        if response.status_code != 200:
            raise odd(f"Could not {what} in {self.repository}", self._host, response.status_code, response.content)
        content, more = response.content, "next" in response.links
        built = self._build(what, lambda body: build(strict(body)), content)
        # Only now: an answer that makes no sense would be believed for as long as it holds.
        if tag := response.headers.get("ETag", ""):
            self._known[key] = tag, content, more
            while sum(len(known) for _, known, _ in self._known.values()) > _REMEMBERED:
                del self._known[next(iter(self._known))]
        return built, more

    def public(self, value: T) -> T:
        """Return a text, or data, as ``send`` publishes it: without secrets, and without what UTF-8 cannot hold."""
        text = json.dumps(self._redactor.data(value), ensure_ascii=False)
        public: T = json.loads(text.encode("utf-8", "replace"))
        return public

    def send(self, what: str, method: str, path: str, fields: Any, build: Callable[[Any], T]) -> T:
        """Change something; never tried again, as its answer alone may have been lost."""
        try:
            response = self._request(what, method, path, json=self.public(fields))
        except Transient as error:
            raise Unreachable(f"{error} It may have been done all the same; running again looks first.") from error
        # What is taken away is answered with nothing, or with what is left.
        if response.status_code >= 300 or not (response.content or (method, response.status_code) == ("DELETE", 204)):
            raise odd(f"Could not {what} in {self.repository}", self._host, response.status_code, response.content)
        return self._build(what, lambda reply: build(strict(reply.content) if reply.content else None), response)

    def _request(self, what: str, method: str, path: str, **options: Any) -> "httpx.Response":
        from githubkit.exception import GitHubException, RequestError, RequestFailed

        headers = {"X-GitHub-Api-Version": _VERSION, "Accept-Encoding": "gzip", **options.pop("headers", {})}
        context = self._context.copy()  # a thread that is left behind would keep it to itself
        try:
            answer = within(
                _LIMIT, lambda: context.run(lambda: self._client.request(method, path, headers=headers, **options))
            )
        except RequestFailed as error:
            raise self._refusal(what, error.response.raw_response) from error
        except RequestError as error:
            if isinstance(error.exc, TooLarge):
                raise self._too_large(what) from error
            raise Transient(f"Could not {what} in {self.repository}: {lost(self._host, error.exc)}") from error
        except TimeoutError as error:
            raise Transient(f"Could not {what} in {self.repository}: {late(self._host)}") from error
        except (GitHubException, ValueError, OverflowError) as error:  # a Retry-After that is no number, for one
            raise Unreachable(f"Could not {what} in {self.repository}: the answer is not one of GitHub's.") from error
        response = answer.raw_response
        self._received += len(response.content)
        self.scopes = response.headers.get("X-OAuth-Scopes")
        if response.has_redirect_location:
            raise RunbookError(
                f"Could not {what}: GitHub says that {self.repository} has moved. "
                "Set GITHUB_REPOSITORY to its new name."
            )
        return response

    def _build(self, what: str, build: Callable[[Any], T], answer: Any) -> T:
        try:
            return build(answer)
        except TooLarge as error:
            raise self._too_large(what) from error
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise CannotTell(
                f"Could not {what} in {self.repository}: GitHub's answer is not of the form expected "
                f"({type(error).__name__}: {plain(str(error))})."
            ) from error
        except ValueError as error:
            raise Unreachable(
                f"Could not {what} in {self.repository}: {self._host} answered with something that is no JSON of "
                "GitHub's. Is GITHUB_API_URL the address of the API, and does no proxy or login page stand between?"
            ) from error

    def _too_large(self, what: str) -> CannotTell:
        return CannotTell(
            f"Could not {what} in {self.repository}: {self._host} sends more than {_LARGEST // 2**20} MB, or more "
            "values than an answer of GitHub's has."
        )

    def _refusal(self, what: str, response: "httpx.Response") -> RunbookError:
        text = response.text.replace(self._token, "***")
        headers = {name.lower(): value for name, value in response.headers.items()}
        return refusal(f"Could not {what} in {self.repository}", self.repository, response.status_code, headers, text)

    @property
    def _host(self) -> str:
        return str(self._client.config.base_url.host)
