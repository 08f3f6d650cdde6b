"""What GitHub allows a token, and the advice where it does not."""

import re
from collections.abc import Mapping

from runbook_lib.errors import RunbookError
from runbook_lib.world.replies import one_line

LOGIN_ADVICE = "Set GITHUB_TOKEN, or log in with `gh auth login`."
RIGHTS = (
    "A fine-grained token needs, for the repository, read access to metadata, contents and deployments, and write "
    "access to actions, issues and pull requests (to contents too, where git pushes with it); a classic one the scope "
    "repo."
)


class NotAllowed(RunbookError):
    """A reply of 403 or 404: the object does not exist, or this token may not see it (GitHub does not say which)."""


def scopes(header: str | None) -> frozenset[str]:
    """Return the scopes that a header lists."""
    return frozenset(re.findall(r"[\w:]+", header or ""))


def required(headers: Mapping[str, str]) -> str:
    """Return a sentence on the permissions that the token needs, according to GitHub."""
    if accepted := headers.get("x-accepted-github-permissions"):
        return f"The token needs the permission {one_line(accepted).replace('; ', ' or ')}."
    if accepted := headers.get("x-accepted-oauth-scopes"):
        owned = one_line(headers.get("x-oauth-scopes", "")) or "none"
        return f"The request needs one of the scopes {one_line(accepted)}; the token has {owned}."
    return RIGHTS
