"""The tokens of the practice forge in tests, and the rights that GitHub asks of a token for each operation.

The permissions are those of GitHub's page "Permissions required for fine-grained personal access tokens", the scopes
those of its description.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from github_server.api import Route
from local_server import ApiError, not_found
from people import STRANGER

from runbook_lib.practice.store import ENGINEER, PracticeAccount

_SSO_HELP = "https://docs.github.com/articles/authenticating-to-a-github-organization-with-saml-single-sign-on/"


@dataclass(frozen=True)
class Token:
    """A token: its owner, and the problem that it has.

    A classic token has ``scopes``; a fine-grained one has ``permissions`` instead, such as ``issues=write``.
    """

    account: PracticeAccount
    problem: Literal["", "sso", "expired"] = ""
    scopes: str | None = "repo, workflow"
    permissions: frozenset[str] = frozenset()

    @classmethod
    def fine_grained(cls, *permissions: str, account: PracticeAccount = ENGINEER) -> "Token":
        """Return a token with only these permissions, on all repositories of the forge."""
        return cls(account, scopes=None, permissions=frozenset(permissions))


_READABLE = ("actions", "contents", "deployments", "issues", "metadata", "pull_requests")
TOKENS: Mapping[str, Token] = {
    "practice-token": Token(ENGINEER),
    "contributor-token": Token(STRANGER),
    "sso-token": Token(ENGINEER, "sso"),
    "expired-token": Token(ENGINEER, "expired"),
    "readonly-token": Token.fine_grained(*(f"{name}=read" for name in _READABLE)),
}

_CONVERSATION = ("issues", "pull_requests")  # for issues and pull requests alike: either permission is sufficient
#: Part of a path below the repository → the permissions of which a token must have one; the first match counts.
_PERMISSIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("/actions/", ("actions",)),
    ("/deployments", ("deployments",)),
    ("/commits", ("contents",)),
    ("/compare/", ("contents",)),
    ("/pulls/<number:pull_number>/files", ("pull_requests",)),
    ("/pulls/<number:pull_number>", ("contents", "pull_requests")),
    ("/pulls", ("pull_requests",)),
    ("/assignees/", _CONVERSATION),
    ("/labels", _CONVERSATION),
    ("/comments", _CONVERSATION),
    ("/events", _CONVERSATION),
    ("/issues", ("issues",)),
    ("/repos/<owner>/<repo>", ("metadata",)),
)


def needs(route: Route) -> tuple[str, ...]:
    """Return the permissions of which a fine-grained token must have one."""
    path = route.path if route.path.startswith("/repos/") else ""
    names = next((names for part, names in _PERMISSIONS if part in path), ())
    if route.method == "GET":
        return tuple(f"{name}=read" for name in names)
    if route.method == "PATCH":
        return ("issues=write", "pull_requests=write") if "/issues/" in route.path else ("pull_requests=write",)
    return tuple(f"{name}=write" for name in names)


def is_full(route: Route) -> bool:
    """Report if a classic token needs the scope ``repo`` even in a public repository."""
    return route.path.endswith(("/rerun-failed-jobs", "/zip"))


def scopes(route: Route, private: bool) -> tuple[str, ...]:
    """Return the scopes of which a classic token must have one; none for what anybody may read."""
    if private or is_full(route):
        return ("repo",)
    return () if route.method == "GET" else ("public_repo", "repo")


def refusal(route: Route, token: Token | None, private: bool) -> ApiError | None:
    """Return the error for the owner of a token who may not use this operation, or None."""
    if token is None:
        return not_found() if private else None
    if token.scopes is None:
        readable = {f"{permission.removesuffix('=write')}=read" for permission in token.permissions}
        has_one = (token.permissions | readable | {"metadata=read"}) & set(needs(route))
        if has_one or not needs(route) or (route.method == "GET" and not private):
            return None
        return ApiError(403, "Resource not accessible by personal access token")
    required = scopes(route, private)
    return None if not required or {*token.scopes.split(", ")} & {*required} else not_found()


def headers(route: Route | None, token: Token | None, private: bool) -> dict[str, str]:
    """Return the headers that name what the token has, and what the operation needs of a token of its kind."""
    if token is None:
        return {}
    if token.scopes is None:
        return {"X-Accepted-GitHub-Permissions": "; ".join(needs(route))} if route and needs(route) else {}
    needed = scopes(route, private) if route else ()
    return {"X-OAuth-Scopes": token.scopes, "X-Accepted-OAuth-Scopes": ", ".join(needed)}


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


def least(sets: set[tuple[str, ...]]) -> set[str]:
    """The fewest permissions that hold one of each set; writing includes reading."""
    found = {it for (it,) in (each for each in sets if len(each) == 1)}
    for each in sorted((each for each in sets if len(each) > 1), key=lambda it: it[0].endswith("=read")):
        if not {*each, *(it.replace("=read", "=write") for it in each)} & found:
            found.add(max(each))  # of a pull request's conversation, which is an issue's too
    found -= {it for it in found if it.replace("=read", "=write") in found - {it}}
    return found - {"metadata=read"}
