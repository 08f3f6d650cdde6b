"""The practice forge: a server on this machine that implements the part of GitHub's REST API that a bump uses."""

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map
from werkzeug.wrappers import Request, Response

from runbook_lib.errors import RunbookError
from runbook_lib.practice.accounts import TOKENS
from runbook_lib.practice.git import BareRepository, ForgeGitError
from runbook_lib.practice.github import actions, code, pulls, tickets
from runbook_lib.practice.github.api import (
    ApiCall,
    Caller,
    Route,
    identify_caller,
    require_version,
    single_sign_on_required,
)
from runbook_lib.practice.github.errors import ApiError, json_response, not_found
from runbook_lib.practice.github.pages import page_for
from runbook_lib.practice.github.storage import PREFIX as STORAGE
from runbook_lib.practice.gitlab.api import PREFIX as GITLAB
from runbook_lib.practice.gitlab.api import PracticeGitLab
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.serving import LimitedRequest, LoopbackServer, NumberConverter
from runbook_lib.practice.state import Store

ROUTES = (*code.ROUTES, *pulls.ROUTES, *tickets.ROUTES, *actions.ROUTES)
_RULES = Map([route.rule() for route in ROUTES], converters={"number": NumberConverter}, merge_slashes=False).bind(
    "127.0.0.1"
)
#: Duration of the practice CI; seconds.
CI_SECONDS = 20.0


def match_route(method: str, path: str) -> tuple[Route, dict[str, Any]] | None:
    """Return the route of a request and the parts of its path, or None."""
    try:
        route, parts = _RULES.match(path, method)
    except HTTPException:
        return None
    return route, dict(parts)


def _find_route(hub: Hub, method: str, path: str) -> tuple[Route, dict[str, Any]] | None:
    """Return the route of a request for a repository of this forge and the parts of its path, or None."""
    match = match_route(method, path)
    if match is None or "owner" not in match[1]:
        return match
    _, parts = match
    name = f"{parts.pop('owner')}/{parts.pop('repo')}"
    return match if name.lower() == hub.repository.lower() else None


class Forge:
    """A forge that answers on 127.0.0.1 until it is closed.

    ``tokens`` are those that it accepts, and ``private`` hides the repository from callers without one of them.
    """

    def __init__(
        self,
        state: Path,
        remote: Path,
        *,
        repository: str = "practice/Megatron-LM",
        clock: Callable[[], float] = time.time,
        forks: Mapping[str, Path] | None = None,
        gitlab: Path | None = None,
        ci_seconds: float | None = None,
    ) -> None:
        """Serve the bare git repository ``remote``; ``state`` is the forge's SQLite file.

        ``forks`` are the bare repositories of other owners, and ``gitlab`` is that of the GitLab project if it is
        another one.  The port is that of last time if it is free.  The CI takes ``ci_seconds``, by default
        RUNBOOK_PRACTICE_CI_SECONDS or 20 s.  Raises RunbookError for a state of another version or an invalid
        duration, and sqlite3.DatabaseError for a file that is not a database.
        """
        seconds = _ci_seconds() if ci_seconds is None else ci_seconds
        store = Store(state)
        self.hub = Hub(store, remote, forks or {}, repository, clock, seconds)
        self.tokens = dict(TOKENS)
        self.private = bool(store.setting("private", False))
        self._gitlab = PracticeGitLab(self.hub, BareRepository(gitlab) if gitlab else self.hub.home)
        with store.transaction():
            last_port = int(store.setting("port", 0))
            self._server = LoopbackServer(self._application, last_port, name="practice forge")
            store.set("port", self._server.port)
            self.hub.url = self.url = self._server.url

    def close(self) -> None:
        """Stop answering; the state is kept."""
        self._server.close()
        self.hub.store.close()

    def __enter__(self) -> "Forge":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _application(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return self.answer(LimitedRequest(environ))(environ, start_response)

    def answer(self, request: Request) -> Response:
        """Answer one request, in one transaction of the state."""
        if request.path.startswith(f"{GITLAB}/"):
            return self._answer_or_fail(lambda: self._gitlab.answer(request))
        if request.path.startswith(STORAGE):
            return self._answer_or_fail(lambda: self.hub.storage.get(request, self.hub.clock()))
        return self._answer_api(request)

    def _answer_or_fail(self, answer: Callable[[], Response]) -> Response:
        """Return the answer, or that to the error that it met, which undoes all changes of the state."""
        try:
            with self.hub.store.transaction():
                return answer()
        except HTTPException as error:
            return error.get_response()
        except (ForgeGitError, sqlite3.Error):
            return json_response({"message": "Server Error"}, 500)

    def _answer_api(self, request: Request) -> Response:
        caller = Caller("")
        match = _find_route(self.hub, request.method, request.path)

        def answer() -> Response:
            nonlocal caller
            caller = identify_caller(request, self.tokens)
            require_version(request)
            return self._call(request, caller, match)

        response = self._answer_or_fail(answer)
        if request.method == "GET" and response.status_code == 200 and response.is_json:
            response.add_etag(weak=True)
            response.make_conditional(request)
        if response.status_code == 304:
            response.data = b""
        response.headers.update(self._permission_headers(caller, match[0] if match else None))
        return response

    def _call(self, request: Request, caller: Caller, match: tuple[Route, dict[str, Any]] | None) -> Response:
        if request.method == "GET" and not re.match(r"/(user|repos|search)(/|$)", request.path):
            return page_for(self.hub, request.path)
        if not request.headers.get("User-Agent"):
            raise ApiError(
                403, "Request forbidden by administrative rules. Please make sure your request has a User-Agent header."
            )
        if caller.problem == "sso" and request.path != "/user":
            raise single_sign_on_required(self.hub.owner)
        if request.method != "GET":
            caller.require_account()
        if match is None:
            raise not_found()
        route, parts = match
        if refusal := route.refusal(caller, self.private):
            raise refusal
        return route.handler(ApiCall(self.hub, request, caller), **parts)

    def _permission_headers(self, caller: Caller, route: Route | None) -> dict[str, str]:
        """Return the headers that name what the token has, and what the operation needs of a token of its kind."""
        if caller.permissions is not None and route and route.needs:
            return {"X-Accepted-GitHub-Permissions": "; ".join(route.needs)}
        if caller.scopes is None:
            return {}
        needed = route.scopes(self.private) if route else ()
        return {"X-OAuth-Scopes": caller.scopes, "X-Accepted-OAuth-Scopes": ", ".join(needed)}


def _ci_seconds() -> float:
    text = os.environ.get("RUNBOOK_PRACTICE_CI_SECONDS")
    if not text:
        return CI_SECONDS
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text) or not float(text):
        raise RunbookError(
            f"RUNBOOK_PRACTICE_CI_SECONDS={text!r} is not a valid duration: set it to a number of seconds above 0, "
            "such as 20."
        )
    return float(text)
