"""Requests to GitHub's REST API about one repository.

githubkit carries the requests; the replies become our own small dataclasses.  Its models are not used: they require
fields that GitHub's real replies sometimes lack, know only the newest version of the API, and are slow to import.  Its
retries repeat requests that change something, and its HTTP cache stores invalid replies; this module does neither.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx

from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.text.redact import Redactor
from runbook_lib.world import replies
from runbook_lib.world.github.errors import LOGIN_ADVICE, RIGHTS, Transient, refusal
from runbook_lib.world.transport import urls
from runbook_lib.world.transport.http import TIMEOUT, USER_AGENT, Client
from runbook_lib.world.transport.web import RemoteFile

if TYPE_CHECKING:
    import githubkit

_API = "https://api.github.com"
# Version 2026-03-10 removed merge_commit_sha, the commit that CI really tests, from pull requests.
VERSION = "2022-11-28"
_ROOTS = ("/user", "/search/")  # the paths that are not below a repository

T = TypeVar("T")


class GitHubConnection:
    """One repository on GitHub, as one token sees it.  For use by one thread.

    ``action`` describes a request: it completes "Could not …".  ``path`` is below the repository, unless it begins with
    one of ``_ROOTS``.  A request that changes something is never sent twice: its reply may have been lost, so callers
    check first.  Secrets appear in no message, and ``send`` removes them from all that is published.
    """

    def __init__(
        self, repository: str, env: Mapping[str, str] = os.environ, transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:  # fmt: skip
        """Prepare for ``owner/name`` with GITHUB_TOKEN, else the token of ``gh auth token``.  Sends nothing yet."""
        if not re.fullmatch(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+", repository):
            raise RunbookError(f"{repository!r} is not a repository on GitHub; expected owner/name.")
        self.repository = repository
        #: The scopes of a classic token, as listed by GitHub; None for other tokens, and before any reply.
        self.scopes: str | None = None
        self._url = httpx.URL(urls.service_address("GITHUB_API_URL", env.get("GITHUB_API_URL") or _API, _API))
        self._token = _token_for(env, str(self._url))
        self._redactor = Redactor({**env, "GITHUB_TOKEN": self._token})
        self._http = Client(self._url, replies.LARGEST, transport=transport, sleep=sleep)

    @cached_property
    def _client(self) -> "githubkit.GitHub[Any]":
        import githubkit  # slower to import than most notebooks that send nothing

        return githubkit.GitHub(
            self._token, base_url=str(self._url), user_agent=USER_AGENT, timeout=TIMEOUT, transport=self._http,
            # A renamed repository replies with a redirect, and a POST that follows a redirect may become a GET.
            follow_redirects=False, http_cache=False, auto_retry=False,
        )  # fmt: skip

    def close(self) -> None:
        """Close the connections."""
        self._http.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def file(self, path: str) -> RemoteFile:
        """Return a file, whose URL redirects to a storage."""
        url = httpx.URL(f"{str(self._url).rstrip('/')}/repos/{self.repository}{path}")
        secret = {"Authorization": f"Bearer {self._token}", "X-GitHub-Api-Version": VERSION}
        return RemoteFile(self._http, url, secret)

    def get(
        self, action: str, path: str, build: Callable[[Any], T], params: Mapping[str, str | int] | None = None
    ) -> T:
        """Return one reply, built."""
        return self._request(action, "GET", path, build, params=params or {})[0]

    def pages(
        self, action: str, path: str, build: Callable[[Any], T], key: str = "",
        params: Mapping[str, str | None] | None = None,
    ) -> tuple[T, ...]:  # fmt: skip
        """Return all items of all pages, built; ``key`` is the name of the list in a page.  None is no parameter."""
        given = {name: value for name, value in (params or {}).items() if value is not None}

        def read(page: Mapping[str, int]) -> tuple[list[T], bool, int]:
            def listed(page: Any) -> list[T]:
                return [build(item) for item in replies.items_of(page, key)]

            items, response = self._request(action, "GET", path, listed, params={**given, **page})
            return items, "next" in response.links, len(response.content)

        return replies.listing(self._problem(action), read)

    def public(self, value: T) -> T:
        """Return text or data as published by ``send``: without secrets and characters that UTF-8 cannot encode."""
        text = json.dumps(self._redactor.data(value), ensure_ascii=False)
        public: T = json.loads(text.encode("utf-8", "replace"))
        return public

    def send(self, action: str, method: str, path: str, fields: Any, build: Callable[[Any], T]) -> T:
        """Change something; return the reply, built."""
        try:
            return self._request(action, method, path, build, json=self.public(fields))[0]
        except Transient as error:
            raise Unreachable(
                str(error), "The change may have been made anyway: run the step again, which checks first."
            ) from error

    def _request(
        self, action: str, method: str, path: str, build: Callable[[Any], T], **options: Any
    ) -> tuple[T, httpx.Response]:
        """Return the object built from a reply's JSON, or from None for an empty one, and the reply."""
        from githubkit.exception import GitHubException, RequestError, RequestFailed

        failed, problem, client = f"Could not {action} in {self.repository}", self._problem(action), self._client
        if not path.startswith(_ROOTS):
            path = f"/repos/{self.repository}{path}"
        headers = {"X-GitHub-Api-Version": VERSION, "Accept-Encoding": "gzip"}
        try:
            reply = client.request(method, path, headers=headers, **options)
        except RequestFailed as error:
            refused = error.response.raw_response
            raise refusal(failed, self.repository, refused, refused.text.replace(self._token, "***")) from error
        except RequestError as error:
            raise Transient(
                f"{problem} cannot be reached: {error.exc}.", "Check the network, then try again."
            ) from error
        except (GitHubException, ValueError, OverflowError) as error:  # such as an invalid Retry-After
            raise Unreachable(f"{failed}: the reply is not one of GitHub's.") from error
        response = reply.raw_response
        self.scopes = response.headers.get("X-OAuth-Scopes")
        if response.has_redirect_location:
            raise RunbookError(f"{failed}: the repository has moved.", "Set GITHUB_REPOSITORY to its new name.")
        # The reply to a deletion is empty, or contains the remaining items.
        if not response.is_success or not (response.content or response.status_code == 204):
            description = "an unexpected body" if response.content else "no body"
            raise Unreachable(f"{problem} answered HTTP {response.status_code} with {description}.", "Try again later.")
        return replies.build(problem, response.content, build, "GITHUB_API_URL"), response

    def _problem(self, action: str) -> str:
        return f"Could not {action} in {self.repository}: {self._url.host}"


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
