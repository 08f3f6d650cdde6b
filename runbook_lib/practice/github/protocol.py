"""What all of GitHub's REST API has in common: requests, answers, errors, accounts, pages, ETags, versions."""

import hashlib
import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

#: The versions of the API that are spoken, the default first.
VERSIONS = ("2022-11-28", "2026-03-10")
#: What the newer one took away, wherever it stood.
_GONE_SINCE_2026 = frozenset({"merge_commit_sha", "assignee", "has_downloads", "use_squash_pr_title_as_default"})
#: What an issue tells of its pull request; by the newer version's description a time of merging is never null there.
_PULL_OF_AN_ISSUE = {"url", "html_url", "diff_url", "patch_url", "merged_at"}
_DOCS = "https://docs.github.com/rest"
_SSO_HELP = "https://docs.github.com/articles/authenticating-to-a-github-organization-with-saml-single-sign-on/"

T = TypeVar("T")


@dataclass(frozen=True)
class Account:
    """Somebody on the practice forge.  ``permission`` is theirs in the repository."""

    id: int
    login: str
    name: str
    permission: Literal["write", "read"] = "read"
    kind: Literal["User", "Bot", "Organization"] = "User"
    email: str = ""  # by which commits are known to be theirs


ENGINEER = Account(
    90_000_001, "release-engineer", "Release Engineer", "write", email="release-engineer@practice.invalid"
)
#: Who wrote some of the tests: they may be asked to mend them.
TEST_AUTHOR = Account(90_000_005, "mlindqvist", "Mara Lindqvist", "write", email="mara@practice.invalid")
CONTRIBUTOR = Account(90_000_002, "outside-contributor", "Outside Contributor")
COPY_PR_BOT = Account(90_000_003, "copy-pr-bot[bot]", "copy-pr-bot", "write", "Bot")
ACTIONS_BOT = Account(90_000_004, "github-actions[bot]", "github-actions", "write", "Bot")
ACCOUNTS: Mapping[str, Account] = {
    each.login: each for each in (ENGINEER, CONTRIBUTOR, COPY_PR_BOT, ACTIONS_BOT, TEST_AUTHOR)
}


@dataclass(frozen=True)
class Token:
    """A practice token: whose, and what is wrong with it.

    A classic one has ``scopes``; a fine-grained one ``permissions`` in their place, such as ``issues=write``.
    """

    account: Account
    trouble: Literal["", "sso", "expired"] = ""
    scopes: str | None = "repo, workflow"
    permissions: frozenset[str] = frozenset()

    @classmethod
    def fine_grained(cls, *permissions: str, account: Account = ENGINEER) -> "Token":
        """One with these permissions alone, on all repositories of the forge."""
        return cls(account, scopes=None, permissions=frozenset(permissions))


_READ = tuple(f"{name}=read" for name in ("actions", "contents", "deployments", "issues", "metadata", "pull_requests"))
TOKENS: Mapping[str, Token] = {
    "practice-token": Token(ENGINEER),
    "contributor-token": Token(CONTRIBUTOR),
    "sso-token": Token(ENGINEER, "sso"),
    "expired-token": Token(ENGINEER, "expired"),
    "readonly-token": Token.fine_grained(*_READ),
}


@dataclass(frozen=True)
class Request:
    """One request; header names are lower-case, ``path`` is decoded."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def fields(self) -> dict[str, Any]:
        """The JSON object of the body."""
        try:
            value = json.loads(self.body or b"{}")
        except ValueError as error:
            raise Problem(400, "Problems parsing JSON") from error
        if not isinstance(value, dict):
            raise Problem(400, "Body should be a JSON object")
        return value


@dataclass(frozen=True)
class Answer:
    """One answer; ``content`` is JSON to be, or bytes that are sent as they are."""

    status: int = 200
    content: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Problem(Exception):
    """An answer of 400 or more, with GitHub's words."""

    def __init__(
        self,
        status: int,
        message: str,
        errors: Sequence[Any] | None = None,
        headers: Mapping[str, str] | None = None,
        docs: str = _DOCS,
    ) -> None:
        super().__init__(message)
        content: dict[str, Any] = {"message": message}
        if errors is not None:
            content["errors"] = list(errors)
        self.answer = Answer(status, {**content, "documentation_url": docs, "status": str(status)}, headers or {})


def not_found() -> Problem:
    return Problem(404, "Not Found")


def invalid(resource: str, *, field: str = "", code: str = "custom", message: str = "") -> Problem:
    """422 for one field."""
    error = {"resource": resource, "code": code} | ({"field": field} if field else {})
    return Problem(422, "Validation Failed", [error | ({"message": message} if message else {})])


@dataclass(frozen=True)
class Caller:
    """Who asks: an account, or nobody."""

    token: str
    account: Account | None = None
    trouble: str = ""
    scopes: str | None = None
    permissions: frozenset[str] | None = None

    @property
    def may_write(self) -> bool:
        return self.account is not None and self.account.permission == "write"

    def known(self) -> Account:
        """The account; 401 for nobody."""
        if self.account is None:
            raise Problem(401, "Requires authentication")
        return self.account

    def maintaining(self) -> Account:
        """The account, for what needs the permission to write in the repository."""
        account = self.known()
        if not self.may_write:
            raise Problem(403, "Must have admin rights to Repository.")
        return account


def caller(headers: Mapping[str, str], tokens: Mapping[str, Token] = TOKENS) -> Caller:
    """Who a request comes from; 401 for a token that is wrong or has expired."""
    kind, _, value = headers.get("authorization", "").strip().partition(" ")
    value = value.strip()
    if kind.lower() == "basic":
        try:
            value = b64decode(value, validate=True).decode().partition(":")[2]
        except ValueError as error:
            raise Problem(401, "Bad credentials") from error
    if not value:
        return Caller("")
    token = tokens.get(value)
    if token is None or token.trouble == "expired":
        raise Problem(401, "Bad credentials")
    permissions = token.permissions if token.scopes is None else None
    return Caller(value, token.account, token.trouble, token.scopes, permissions)


def single_sign_on(organization: str) -> Problem:
    """What GitHub answers to a token that the organization has not been given access by."""
    url = f"https://github.com/orgs/{organization}/sso?authorization_request=AAAAPRACTICE"
    return Problem(
        403,
        "Resource protected by organization SAML enforcement. "
        "You must grant your Personal Access token access to this organization.",
        headers={"X-GitHub-SSO": f"required; url={url}"},
        docs=_SSO_HELP,
    )


def version_of(headers: Mapping[str, str]) -> str:
    """The version of the API that is asked for."""
    asked = headers.get("x-github-api-version", VERSIONS[0])
    if asked not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise Problem(400, f"{asked!r} is not a supported version of the REST API. Supported versions: {known}.")
    return asked


def in_version(content: Any, version: str) -> Any:
    """The content as that version of the API gives it."""
    if version == VERSIONS[0] or isinstance(content, bytes):
        return content
    if isinstance(content, dict):
        gone = _GONE_SINCE_2026
        if set(content) == _PULL_OF_AN_ISSUE and content["merged_at"] is None:
            gone = gone | {"merged_at"}
        return {key: in_version(value, version) for key, value in content.items() if key not in gone}
    return [in_version(each, version) for each in content] if isinstance(content, list) else content


def whole(text: str | None, default: int) -> int:
    """A positive number of the query; GitHub takes anything else as if it were not there."""
    return int(text) if text and re.fullmatch(r"[1-9][0-9]{0,8}", text) else default


def page(
    request: Request, url: str, found: Sequence[T], show: Callable[[T], Any], key: str = "", **beside: Any
) -> Answer:
    """One page of what was found, with the ``Link`` header.  With ``key``, an object that also tells the total."""
    size = min(100, whole(request.query.get("per_page"), 30))
    number, last = whole(request.query.get("page"), 1), max(1, -(-len(found) // size))
    content: Any = [show(each) for each in found[(number - 1) * size : number * size]]
    if key:
        content = {"total_count": len(found), **beside, key: content}
    links = ({"prev": number - 1} if number > 1 else {}) | ({"next": number + 1, "last": last} if number < last else {})
    links |= {"first": 1} if number > 1 else {}
    header = ", ".join(
        f'<{url}?{urlencode({**request.query, "page": target})}>; rel="{name}"' for name, target in links.items()
    )
    return Answer(200, content, {"Link": header} if header else {})


def encoded(answer: Answer, request: Request) -> Answer:
    """The answer in bytes, with its ETag; 304 when the caller has it already."""
    if isinstance(answer.content, bytes):
        return answer
    body = b"" if answer.content is None else json.dumps(answer.content).encode()
    headers = {"Content-Type": "application/json; charset=utf-8", **answer.headers}
    if request.method == "GET" and answer.status == 200:
        tag = f'W/"{hashlib.sha256(body).hexdigest()}"'
        headers |= {"ETag": tag, "Cache-Control": "private, max-age=60, s-maxage=60"}
        headers["Vary"] = "Accept, Authorization, Cookie, X-GitHub-OTP, Accept-Encoding, Accept, X-Requested-With"
        known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
        if tag.removeprefix("W/") in known:
            return Answer(304, b"", {name: value for name, value in headers.items() if name != "Content-Type"})
    return Answer(answer.status, body, headers)
