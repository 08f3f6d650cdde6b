"""The practice forge: a server on this machine that implements the part of GitHub's REST API that a bump uses.

Tests control its settings and the tokens that it accepts.
"""

import re
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import token_rights
from local_server import STORAGE, ApiError, LoopbackServer, json_response, not_found
from people import InvalidRequest
from token_rights import TOKENS, Token
from werkzeug.exceptions import HTTPException
from werkzeug.routing import IntegerConverter, Map, Rule
from werkzeug.wrappers import Request, Response

from github_server import actions, pulls, tickets
from github_server.api import ApiCall, Route, ServedForge
from runbook_lib.errors import RunbookError
from runbook_lib.practice.runs import PracticeRefusal
from runbook_lib.practice.store import Store

VERSION = "2022-11-28"
ROUTES = (*pulls.ROUTES, *tickets.ROUTES, *actions.ROUTES)
_RULES = Map(
    [Rule(route.path, methods=[route.method], endpoint=route) for route in ROUTES],
    converters={"number": IntegerConverter},
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
    """A forge that answers on 127.0.0.1 until it is closed; its settings are part of the state."""

    def __init__(
        self, state: Path, remote: Path, clock: Callable[[], float] | None = time.time,
        forks: Mapping[str, Path] | None = None, *, listen: bool = False,
    ) -> None:  # fmt: skip
        """Serve the bare git repository ``remote``; ``state`` is the forge's SQLite file.

        ``forks`` are the bare repositories of other owners.
        """
        self.hub = ServedForge(Store(state), remote, Path("/"), clock, forks)
        self.tokens: dict[str, Token] = dict(TOKENS)  # a test may add one
        with self.hub.store.transaction() as stored:
            self.hub.private = getattr(stored, "private", False)
        # A test may exchange `answer` later.
        self._server = LoopbackServer(lambda request: self.answer(request), listen=listen)
        self.hub.address = self.url = self._server.url

    def close(self) -> None:
        """Stop serving; the state is kept."""
        self._server.close()
        self.hub.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def make_private(self, private: bool = True) -> None:
        with self.hub.store.transaction() as state:
            self.hub.private = state.private = private

    def answer(self, request: Request) -> Response:
        """Answer one request in one transaction of the state, which an error undoes."""
        try:
            with self.hub.store.transaction():
                if request.path.startswith(STORAGE):
                    data, media_type = self.hub.storage[request.path]
                    file = Response(data, content_type=media_type)
                    return file.make_conditional(request, accept_ranges=True, complete_length=len(data))
                response = self._answer_api(request)
        except PracticeRefusal as error:
            return ApiError(error.status, error.message).get_response()
        except InvalidRequest as error:
            return ApiError(422, str(error)).get_response()
        except HTTPException as error:
            return error.get_response()
        except (RunbookError, sqlite3.Error):
            return json_response({"message": "Server Error"}, 500)
        return response

    def _answer_api(self, request: Request) -> Response:
        """Answer a request to the API as GitHub does to a token with these rights.  Raises HTTPException."""
        text, private = token_of(request), self.hub.private
        token = self.tokens.get(text or "")
        if text is not None and (token is None or token.problem == "expired"):
            raise ApiError(401, "Bad credentials")
        route, parts = match_route(request.method, request.path) or (None, {})
        headers = token_rights.headers(route, token, private)
        try:
            version = request.headers.get("X-GitHub-Api-Version")
            if version != VERSION:
                raise ApiError(400, f"{version!r} is not a supported version of the REST API: use {VERSION}.")
            if not request.headers.get("User-Agent"):
                raise ApiError(403, "Please make sure your request has a User-Agent header.")
            if token and token.problem == "sso" and request.path != "/user":
                raise token_rights.single_sign_on_required(self.hub.owner)
            if route and (error := token_rights.refusal(route, token, private)):
                raise error
            if not self.hub.has_issues:
                self._refuse_issues(request, parts)
            call = ApiCall(self.hub, request, token.account if token else None)
            if request.method != "GET":
                call.require_account()
            repository = f"{parts.pop('owner', '')}/{parts.pop('repo', '')}"
            if route is None or repository.lower() not in ("/", self.hub.repository.lower()):
                raise not_found()
            response = route.handler(call, **parts)
        except ApiError as error:
            error.get_response().headers.update(headers)
            raise
        response.headers.update(headers)
        return response

    def _refuse_issues(self, request: Request, parts: Mapping[str, Any]) -> None:
        """Raise the error of a repository that has no issues; its pull requests are shown anyway."""
        if re.search(r"/issues(/[0-9]+)?$", request.path) and not request.path.startswith("/search/"):
            number = parts.get("issue_number", 0)
            if not any(ticket.number == number and ticket.base_ref for ticket in self.hub.tickets()):
                raise ApiError(410, "Issues are disabled for this repo")
