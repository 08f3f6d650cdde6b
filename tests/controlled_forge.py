"""A practice forge that tests control: its settings, the tokens that it accepts, and faults."""

import json
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import token_rights
from github_server.server import Forge, match_route, token_of
from local_server import ApiError
from token_rights import TOKENS, Token
from werkzeug.wrappers import Request, Response


@dataclass
class Fault:
    """A response to the next ``times`` requests that match; status 0 closes the connection instead."""

    method: str
    path: re.Pattern[str]
    status: int
    content: object
    headers: Mapping[str, str]
    times: int
    carried_out: bool

    def matches(self, request: Request) -> bool:
        return bool(self.times and self.method == request.method and self.path.search(request.path))

    def response(self, request: Request) -> Response:
        if not self.status:
            request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError
        response = Response(json.dumps(self.content), self.status, self.headers, content_type="application/json")
        if request.method == "GET" and self.status == 200:
            response.add_etag()
        return response


class ControlledForge(Forge):
    """A forge with controls.  Settings apply to runs that start afterwards, and are part of the state."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._faults: list[Fault] = []
        super().__init__(*args, **options)
        self._rights: dict[str, Token] = {}
        for text, token in TOKENS.items():
            self.issue_token(text, token)
        with self.hub.store.transaction() as state:
            self.hub.private = getattr(state, "private", False)

    def disable_issues(self, disabled: bool = True) -> None:
        self.hub.has_issues = not disabled

    def make_private(self, private: bool = True) -> None:
        self.hub.private = private
        with self.hub.store.transaction() as state:
            state.private = private

    def issue_token(self, text: str, token: Token) -> None:
        """Accept one more token, until this forge is closed."""
        self._rights[text] = token
        if token.problem != "expired":
            self.tokens[text] = token.account

    def fail(
        self, method: str, path: str, status: int, *, content: Any = None, headers: Mapping[str, str] | None = None,
        times: int = 1, carried_out: bool = False,
    ) -> None:  # fmt: skip
        """Response the next ``times`` requests like this whose path matches; status 0 closes the connection.

        With ``carried_out`` the request takes effect, and only its answer is lost.
        """
        content = {"message": "Server Error"} if content is None else content
        self._faults.append(Fault(method, re.compile(path), status, content, headers or {}, times, carried_out))

    def answer(self, request: Request) -> Response:
        for fault in self._faults:
            if fault.matches(request):
                fault.times -= 1
                if fault.carried_out:
                    super().answer(request)
                return fault.response(request)
        return super().answer(request)

    def answer_api(self, request: Request) -> Response:
        """Answer a request as GitHub does to a token with these rights."""
        text = token_of(request)
        token = self._rights.get(text or "")
        route, parts = match_route(request.method, request.path) or (None, {})
        headers = {}
        if token and token.problem != "expired":
            headers = token_rights.headers(route, token, self.hub.private)
        try:
            if token and token.problem == "sso" and request.path != "/user":
                raise token_rights.single_sign_on_required(self.hub.owner)
            if route and (token or text is None) and (error := token_rights.refusal(route, token, self.hub.private)):
                raise error
            if not self.hub.has_issues:
                self._refuse_issues(request, parts)
            response = super().answer_api(request)
        except ApiError as error:
            error.get_response().headers.update(headers)
            raise
        response.headers.pop("X-OAuth-Scopes", None)
        response.headers.update(headers)
        return response

    def _refuse_issues(self, request: Request, parts: Mapping[str, Any]) -> None:
        """Raise the error of a repository that has no issues; its pull requests are shown anyway."""
        if re.search(r"/issues(/[0-9]+)?$", request.path) and not request.path.startswith("/search/"):
            number = parts.get("issue_number", 0)
            if not any(ticket.number == number and ticket.base_ref for ticket in self.hub.tickets()):
                raise ApiError(410, "Issues are disabled for this repo")
