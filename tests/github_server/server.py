"""The practice forge: a server on this machine that implements the part of GitHub's REST API that a bump uses."""

import sqlite3
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from local_server import (
    STORAGE,
    ApiError,
    LoopbackServer,
    NumberConverter,
    json_response,
    not_found,
)
from people import InvalidRequest
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from github_server import actions, code, pulls, tickets
from github_server.api import ApiCall, Route, ServedForge
from runbook_lib.errors import Unreachable
from runbook_lib.practice.runs import PracticeRefusal
from runbook_lib.practice.store import ENGINEER, Store

VERSION = "2022-11-28"
TOKEN = "practice-token"
ROUTES = (*code.ROUTES, *pulls.ROUTES, *tickets.ROUTES, *actions.ROUTES)
_RULES = Map(
    [Rule(route.path, methods=[route.method], endpoint=route) for route in ROUTES],
    converters={"number": NumberConverter},
    merge_slashes=False,
).bind("127.0.0.1")


def match_route(method: str, path: str) -> tuple[Route, dict[str, Any]] | None:
    """Return the route of a request and the parts of its path, or None."""
    try:
        route, parts = _RULES.match(path, method)
    except HTTPException:
        return None
    return route, dict(parts)


def token_of(request: Request) -> str | None:
    """Return the token of a request; None if there is none, and empty if GitHub does not accept its format."""
    if "Authorization" not in request.headers:
        return None
    login = request.authorization
    if login is None:
        return ""
    return (login.password if login.type == "basic" else login.token) or ""


class Forge:
    """A forge that answers on 127.0.0.1 until it is closed.  ``tokens`` is token → account."""

    def __init__(
        self, state: Path, remote: Path, clock: Callable[[], float] | None = time.time,
        forks: Mapping[str, Path] | None = None, *, listen: bool = False,
    ) -> None:  # fmt: skip
        """Serve the bare git repository ``remote``; ``state`` is the forge's SQLite file.

        ``forks`` are the bare repositories of other owners.  The previous port is used if it is free.
        """
        self.hub = ServedForge(Store(state), remote, Path("/"), clock, forks)
        self.tokens = {TOKEN: ENGINEER}
        with self.hub.store.transaction() as stored:
            last_port = getattr(stored, "port", 0)
            self._server = LoopbackServer(self.answer, last_port, name="practice forge", listen=listen)
            stored.port = self._server.port
            self.hub.address = self.url = self._server.url

    def close(self) -> None:
        """Stop serving; the state is kept."""
        self._server.close()
        self.hub.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self, request: Request) -> Response:
        """Answer one request in one transaction of the state, which an error undoes."""
        try:
            with self.hub.store.transaction():
                if request.path.startswith(STORAGE):
                    return self.hub.storage.get(request, self.hub.clock())
                response = self.answer_api(request)
        except PracticeRefusal as error:
            return ApiError(error.status, error.message).get_response()
        except InvalidRequest as error:
            return ApiError(422, str(error)).get_response()
        except HTTPException as error:
            return error.get_response()
        except Unreachable:
            return json_response({"message": "Server Error"}, 500)
        except (subprocess.CalledProcessError, sqlite3.Error):
            return json_response({"message": "Server Error"}, 500)
        if request.method == "GET" and response.status_code == 200 and response.is_json:
            response.add_etag(weak=True)
            response.make_conditional(request)
        if response.status_code == 304:
            response.data = b""
        return response

    def answer_api(self, request: Request) -> Response:
        """Answer a request to the API, or for a page.  Raises ApiError."""
        token = token_of(request)
        if token is not None and token not in self.tokens:
            raise ApiError(401, "Bad credentials")
        version = request.headers.get("X-GitHub-Api-Version", VERSION)
        if version != VERSION:
            raise ApiError(400, f"{version!r} is not a supported version of the REST API: use {VERSION}.")
        if not request.headers.get("User-Agent"):
            raise ApiError(403, "Please make sure your request has a User-Agent header.")
        call = ApiCall(self.hub, request, self.tokens.get(token or ""))
        if request.method != "GET":
            call.require_account()
        route, parts = match_route(request.method, request.path) or (None, {})
        repository = f"{parts.pop('owner', '')}/{parts.pop('repo', '')}"
        if route is None or repository.lower() not in ("/", self.hub.repository.lower()):
            raise not_found()
        response = route.handler(call, **parts)
        if call.caller:
            response.headers["X-OAuth-Scopes"] = "repo, workflow"
        return response
