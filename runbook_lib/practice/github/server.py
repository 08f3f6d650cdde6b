"""The practice forge: a server on this machine that speaks GitHub's REST API for all that a bump calls.

It listens on 127.0.0.1 alone, in daemon threads of this process.  Nothing is logged.
"""

import os
import re
import socketserver
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from runbook_lib.errors import RunbookError
from runbook_lib.practice.git import Bare, GitFailed
from runbook_lib.practice.github import actions, code, pulls, tickets
from runbook_lib.practice.github.pages import page_for
from runbook_lib.practice.github.protocol import (
    TOKENS,
    Answer,
    Caller,
    Problem,
    Request,
    Token,
    caller,
    encoded,
    in_version,
    not_found,
    single_sign_on,
    version_of,
)
from runbook_lib.practice.github.routing import Call, Route, find
from runbook_lib.practice.github.storage import PREFIX
from runbook_lib.practice.gitlab.api import PREFIX as GITLAB
from runbook_lib.practice.gitlab.api import GitLab
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.loopback import is_local
from runbook_lib.practice.state import Store

ROUTES = (*code.ROUTES, *pulls.ROUTES, *tickets.ROUTES, *actions.ROUTES)
#: How long the practice CI takes; seconds.
CI_SECONDS = 20.0
_LIMIT = 5000
_LARGEST = 1 << 20


@dataclass
class _Fault:
    """An answer that a test has ordered, for the next so many requests that match."""

    method: str
    path: re.Pattern[str]
    answer: Answer
    times: int
    carried_out: bool = False


@dataclass
class _Limits:
    """How many requests a token has sent in this hour of the forge's clock."""

    used: dict[tuple[str, int], int] = field(default_factory=dict)

    def headers(self, token: str, now: float, cost: int) -> dict[str, str]:
        hour = int(now // 3600)
        used = self.used[token, hour] = self.used.get((token, hour), 0) + cost
        return {
            "X-RateLimit-Limit": str(_LIMIT),
            "X-RateLimit-Remaining": str(max(0, _LIMIT - used)),
            "X-RateLimit-Used": str(used),
            "X-RateLimit-Reset": str((hour + 1) * 3600),
            "X-RateLimit-Resource": "core",
        }


class Forge:
    """A running forge.  The methods are the knobs for tests and for people who practise."""

    def __init__(self, hub: Hub, server: ThreadingHTTPServer, gitlab: Path | None = None) -> None:
        self.hub = hub
        self.url = hub.url
        self._server = server
        self._limits = _Limits()
        self._gitlab = GitLab(hub, Bare(gitlab) if gitlab else hub.home)
        self._faults: list[_Fault] = []
        self._tokens = dict(TOKENS)
        self._private = bool(hub.store.setting("private", False))

    def close(self) -> None:
        """Stop listening; the state stays."""
        self._server.shutdown()
        self._server.server_close()
        self.hub.store.close()

    def __enter__(self) -> "Forge":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- knobs --------------------------------------------------------------------------------------------------

    def set_ci_seconds(self, seconds: float) -> None:
        """How long the runs take that start from now on."""
        self._set("ci seconds", seconds)

    def break_jobs(self, *names: str, how: str = "") -> None:
        """Let every job fail, in runs that start from now on, whose name holds one of these.

        ``linting``, ``cicd-container-build`` and the buckets of unit tests fail in their own way each; ``how`` says
        whether a functional test cannot ``import`` a library or meets a ``shape`` that does not fit.
        """
        with self.hub.store.transaction():
            self.hub.store.set("broken jobs", list(names))
            self.hub.store.set("broken how", how)

    def skip_gitlab(self, how: str = "skipped") -> None:
        """Let GitLab skip the pipelines that start from now on; "none": start none; "run": run them again."""
        self._set("internal", how)

    def protect(self, *names: str) -> None:
        """The protected branches of the GitLab project from now on; ``*`` stands for any text."""
        self._set("protected", list(names))

    def disable_issues(self, disabled: bool = True) -> None:
        """The repository's setting by which it has no issues; pull requests stay."""
        self._set("issues disabled", disabled)

    def enable_gb200(self, enabled: bool) -> None:
        """The repository's variable that lets GB200 jobs run, for maintainers."""
        self._set("gb200", enabled)

    def refuse_deployment(self, sha: str = "next") -> None:
        """Let the deployment to the environment ``test`` fail for this commit, or for the next that is authorized."""
        with self.hub.store.transaction():
            refused = self.hub.store.setting("refused deployments", [])
            self.hub.store.set("refused deployments", [*refused, sha])

    def make_private(self, private: bool = True) -> None:
        """The repository's setting by which nobody reads it without a token that may."""
        self._private = private
        self._set("private", private)

    def issue_token(self, text: str, token: Token) -> None:
        """Take one more token, for as long as this forge runs."""
        self._tokens[text] = token

    def merge(self, number: int) -> str:
        """Merge a pull request, as the merge queue does; the new tip of its base branch, which CI then tests."""
        with self.hub.store.transaction():
            return str(self.hub.merge_pull(self.hub.ticket(number)).merge_sha)

    def fail(
        self, method: str, path: str, status: int, *, content: Any = None, headers: Mapping[str, str] | None = None,
        times: int = 1, carried_out: bool = False,
    ) -> None:  # fmt: skip
        """Answer the next ``times`` requests whose path matches the pattern like this; status 0 drops the connection.

        With ``carried_out`` the request is done all the same, and only its answer is lost.
        """
        answer = Answer(status, {"message": "Server Error"} if content is None else content, headers or {})
        self._faults.append(_Fault(method, re.compile(path), answer, times, carried_out))

    def _set(self, name: str, value: Any) -> None:
        with self.hub.store.transaction():
            self.hub.store.set(name, value)

    # -- requests -----------------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Answer:
        """Answer one request; status 0 stands for a lost connection."""
        for fault in self._faults:
            if fault.times and fault.method == request.method and fault.path.search(unquote(request.path)):
                fault.times -= 1
                if fault.carried_out:
                    self._answer(request)
                return encoded(fault.answer, request)
        return self._answer(request)

    def _answer(self, request: Request) -> Answer:
        if request.path.startswith(f"{GITLAB}/"):
            return self._of_gitlab(request)
        who, version, found = Caller(""), "", find(ROUTES, self.hub, request.method, request.path)
        try:
            who, version = caller(request.headers, self._tokens), version_of(request.headers)
            with self.hub.store.transaction():
                if request.path.startswith(PREFIX):
                    return self.hub.storage.get(request.path, request.headers, self.hub.clock())
                answer = self._routed(request, who, found)
        except Problem as problem:
            answer = problem.answer
        except (GitFailed, sqlite3.Error):
            answer = Answer(500, {"message": "Server Error"})
        done = encoded(Answer(answer.status, in_version(answer.content, version), answer.headers), request)
        headers = {**self._common(who, version, done.status), **self._accepted(who, found and found[0])}
        return Answer(done.status, done.content, {**headers, **done.headers})

    def _of_gitlab(self, request: Request) -> Answer:
        try:
            with self.hub.store.transaction():
                return self._gitlab.answer(request)
        except (GitFailed, sqlite3.Error):
            return encoded(Answer(500, {"message": "500 Internal Server Error"}), request)

    def _routed(self, request: Request, who: Caller, found: tuple[Route, dict[str, str]] | None) -> Answer:
        if request.method == "GET" and not re.match(r"/(user|repos|repositories|search)(/|$)", request.path):
            return page_for(self.hub, unquote(request.path))
        if not request.headers.get("user-agent"):
            raise Problem(
                403, "Request forbidden by administrative rules. Please make sure your request has a User-Agent header."
            )
        if who.trouble == "sso" and request.path != "/user":
            raise single_sign_on(self.hub.owner)
        if request.method != "GET":
            who.known()
        if found is None:
            raise not_found()
        route, parts = found
        if refusal := route.refusal(who, self._private):
            raise refusal
        return route.handler(Call(self.hub, request, who, parts))

    def _accepted(self, who: Caller, route: Route | None) -> dict[str, str]:
        """What GitHub tells with each answer: what a token of this kind would need, and what a classic one has."""
        if who.permissions is not None:
            return {"X-Accepted-GitHub-Permissions": "; ".join(route.needs)} if route and route.needs else {}
        if who.scopes is None:
            return {}
        scopes = ", ".join(route.scopes(self._private)) if route else ""
        return {"X-OAuth-Scopes": who.scopes, "X-Accepted-OAuth-Scopes": scopes}

    def _common(self, who: Caller, version: str, status: int) -> dict[str, str]:
        headers = {"X-GitHub-Media-Type": "github.v3; format=json", "X-GitHub-Request-Id": "PRACTICE"}
        if version:
            headers["X-GitHub-Api-Version-Selected"] = version
        return headers | self._limits.headers(who.token, self.hub.clock(), 0 if status == 304 else 1)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    # Headers and body are two pieces, and without this the second waits for word of the first.
    disable_nagle_algorithm = True
    timeout = 60
    forge: Forge

    def _serve(self) -> None:
        size = self.headers.get("Content-Length", "0")
        local = is_local(self.headers.get("Host"))
        if not local or not size.isdigit() or int(size) > _LARGEST:
            self.close_connection = True
            return self._send(Answer(413 if local else 421, b"", {}))
        parts = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return self._send(
            self.forge.answer(Request(self.command, parts.path, query, headers, self.rfile.read(int(size))))
        )

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - the names that http.server calls

    def _send(self, answer: Answer) -> None:
        if not answer.status:
            self.close_connection = True
            return
        self.send_response(answer.status, HTTPStatus(answer.status).phrase)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status not in (204, 304):
            self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        if answer.status not in (204, 304):
            self.wfile.write(answer.content)

    def version_string(self) -> str:
        return "github.com"

    def log_message(self, *_: object) -> None:
        """Nothing: a request holds secrets."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def server_bind(self) -> None:
        # HTTPServer would ask a name server for this machine's name.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, *_: object) -> None:
        """Nothing: a client that went away is no concern of the person at the terminal."""


def serve(
    state: Path,
    remote: Path,
    *,
    repository: str = "practice/Megatron-LM",
    clock: Callable[[], float] = time.time,
    port: int = 0,
    forks: Mapping[str, Path] | None = None,
    gitlab: Path | None = None,
    ci_seconds: float | None = None,
) -> Forge:
    """Start the forge of a bare git repository; its state is the SQLite file ``state``.

    ``forks`` names the bare repositories of other owners; ``gitlab`` is that of the GitLab project, where it is not the
    same.  Port 0 is the one used last time, if it is free, so that
    addresses written down stay good.  The CI takes ``ci_seconds``, or RUNBOOK_PRACTICE_CI_SECONDS, or 20 s.
    Raises RunbookError for a state of another version or a duration that is none, and sqlite3.DatabaseError for a
    file that is no database.
    """
    seconds = _seconds(os.environ.get("RUNBOOK_PRACTICE_CI_SECONDS")) if ci_seconds is None else ci_seconds
    store = Store(state)
    hub = Hub(store, remote, forks or {}, repository, clock, seconds)

    class Handler(_Handler):
        pass

    try:
        server = _listen(port or int(store.setting("port", 0)), Handler)
    except OSError:
        if port:
            store.close()
            raise
        server = _listen(0, Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    with store.transaction():
        store.set("port", server.server_port)
    Handler.forge = forge = Forge(hub, server, gitlab)
    Thread(target=server.serve_forever, args=(0.05,), name="practice forge", daemon=True).start()
    return forge


def _seconds(text: str | None) -> float:
    if not text:
        return CI_SECONDS
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text) or not float(text):
        raise RunbookError(f"RUNBOOK_PRACTICE_CI_SECONDS={text!r} is no number of seconds above 0, such as 20.")
    return float(text)


def _listen(port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    return _Server(("127.0.0.1", port), handler)
