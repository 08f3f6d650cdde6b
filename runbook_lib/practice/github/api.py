"""The rules that all operations of GitHub's REST API share: callers, permissions and pages."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from werkzeug.routing import Rule
from werkzeug.wrappers import Request, Response

from runbook_lib.practice.accounts import PracticeAccount, Token
from runbook_lib.practice.github.errors import ApiError, json_response, not_found
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.serving import positive_integer

VERSION = "2022-11-28"
_SSO_HELP = "https://docs.github.com/articles/authenticating-to-a-github-organization-with-saml-single-sign-on/"

T = TypeVar("T")


@dataclass(frozen=True)
class Caller:
    """The sender of a request: an account, or nobody.

    ``scopes`` are those of a classic token, ``permissions`` those of a fine-grained one; the other is None.
    """

    token: str
    account: PracticeAccount | None = None
    problem: str = ""
    scopes: str | None = None
    permissions: frozenset[str] | None = None

    @property
    def may_write(self) -> bool:
        return self.account is not None and self.account.permission == "write"

    def require_account(self) -> PracticeAccount:
        """Return the account.  Raises ApiError 401 for nobody."""
        if self.account is None:
            raise ApiError(401, "Requires authentication")
        return self.account

    def require_write(self) -> PracticeAccount:
        """Return the account.  Raises ApiError 403 for one that may not write in the repository."""
        account = self.require_account()
        if not self.may_write:
            raise ApiError(403, "Must have admin rights to Repository.")
        return account


def identify_caller(request: Request, tokens: Mapping[str, Token]) -> Caller:
    """Return the sender of a request.  Raises ApiError 401 for a token that is wrong or has expired."""
    if "Authorization" not in request.headers:
        return Caller("")
    login = request.authorization
    value = ""
    if login is not None:
        value = (login.password if login.type == "basic" else login.token) or ""
    token = tokens.get(value)
    if token is None or token.problem == "expired":
        raise ApiError(401, "Bad credentials")
    permissions = token.permissions if token.scopes is None else None
    return Caller(value, token.account, token.problem, token.scopes, permissions)


def require_version(request: Request) -> None:
    """Raise ApiError 400 for a request that names another version of the API."""
    version = request.headers.get("X-GitHub-Api-Version", VERSION)
    if version != VERSION:
        raise ApiError(400, f"{version!r} is not a supported version of the REST API. Supported versions: {VERSION}.")


def single_sign_on_required(organization: str) -> ApiError:
    """Return the error for a token that has not been authorized for the organization."""
    url = f"https://github.com/orgs/{organization}/sso?authorization_request=AAAAPRACTICE"
    return ApiError(
        403,
        "Resource protected by organization SAML enforcement. "
        "You must grant your Personal Access token access to this organization.",
        headers={"X-GitHub-SSO": f"required; url={url}"},
        docs=_SSO_HELP,
    )


@dataclass(frozen=True)
class ApiCall:
    """A request that matched a route."""

    hub: Hub
    request: Request
    caller: Caller

    @property
    def url(self) -> str:
        """The address of the request, without its query."""
        return self.hub.url + quote(self.request.path)

    def fields(self) -> dict[str, Any]:
        """Return the JSON object of the body.  Raises ApiError 400 for anything else."""
        try:
            fields = json.loads(self.request.get_data() or b"{}")
        except ValueError as error:
            raise ApiError(400, "Problems parsing JSON") from error
        if not isinstance(fields, dict):
            raise ApiError(400, "Body should be a JSON object")
        return fields

    def created(self, content: Mapping[str, object]) -> Response:
        """Return the response for an object that was created; ``content`` contains its address."""
        return json_response(content, 201, {"Location": str(content["url"])})

    def page(self, entries: Sequence[T], show: Callable[[T], object], key: str = "", **more: object) -> Response:
        """Return one page of the entries, as a list or, with ``key``, in an object that also contains the total."""
        shown, headers = self.select_page(entries)
        content: object = [show(entry) for entry in shown]
        if key:
            content = {"total_count": len(entries), **more, key: content}
        return json_response(content, headers=headers)

    def select_page(self, entries: Sequence[T]) -> tuple[Sequence[T], dict[str, str]]:
        """Return the entries of the requested page, and the header ``Link`` that leads to the next."""
        size = min(100, positive_integer(self.request.args.get("per_page"), 30))
        number = positive_integer(self.request.args.get("page"), 1)
        last = max(1, -(-len(entries) // size))
        headers = {}
        if number < last:
            query = urlencode(self.request.args.to_dict() | {"page": number + 1})
            headers["Link"] = f'<{self.url}?{query}>; rel="next"'
        return entries[(number - 1) * size : number * size], headers


@dataclass(frozen=True)
class Route:
    """One operation; ``path`` is a rule of Werkzeug's router.

    A fine-grained token must have one of the permissions ``needs``, by GitHub's page "Permissions required for
    fine-grained personal access tokens".  ``full`` marks an operation for which a classic token needs the scope
    ``repo`` even in a public repository, by GitHub's description.
    """

    method: str
    path: str
    handler: Callable[..., Response]
    needs: tuple[str, ...] = ()
    full: bool = False

    def scopes(self, private: bool) -> tuple[str, ...]:
        """Return the scopes of which a classic token must have one; none for what anybody may read."""
        if private or self.full:
            return ("repo",)
        return () if self.method == "GET" else ("public_repo", "repo")

    def refusal(self, caller: Caller, private: bool) -> ApiError | None:
        """Return the error for a caller that may not use this operation, or None."""
        if private and caller.account is None:
            return not_found()
        if caller.permissions is not None:
            return self._permission_refusal(caller.permissions, private)
        scopes = self.scopes(private)
        if caller.scopes is None or not scopes or set(caller.scopes.split(", ")) & set(scopes):
            return None
        return not_found()

    def _permission_refusal(self, permissions: frozenset[str], private: bool) -> ApiError | None:
        if not self.needs or (self.method == "GET" and not private):
            return None
        readable = {f"{permission.removesuffix('=write')}=read" for permission in permissions}
        if (permissions | readable | {"metadata=read"}) & set(self.needs):
            return None
        return ApiError(403, "Resource not accessible by personal access token")

    def rule(self) -> Rule:
        """Return the rule by which requests find this route."""
        return Rule(self.path, methods=[self.method], endpoint=self)
