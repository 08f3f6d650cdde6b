"""GitHub's refusals as errors with advice."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.world.replies import one_line, parse_json

if TYPE_CHECKING:
    import httpx

LOGIN_ADVICE = "Set GITHUB_TOKEN, or log in with `gh auth login`."
RIGHTS = (
    "A fine-grained token needs, for the repository, read access to metadata, contents and deployments, and write "
    "access to actions, issues and pull requests (to contents too, where git pushes with it); a classic one the scope "
    "repo."
)


class NotAllowed(RunbookError):
    """A reply of 403 or 404: the object does not exist, or this token may not see it (GitHub does not say which)."""


class Transient(Unreachable):
    """A failure that another attempt may fix; it is unknown whether the request was carried out."""


def refusal(failed: str, repository: str, reply: "httpx.Response", text: str) -> RunbookError:
    """Return the error for a reply of 400 or more, of this text; ``failed`` is the start of its message."""
    from runbook_lib.world.transport.http import requested_pause  # its library is slow to import

    status, headers, pause = reply.status_code, reply.headers, requested_pause(reply.headers)
    message = _message(text)
    if link := re.search(r"url=(https://[!-~]+)", headers.get("x-github-sso", "")):
        return RunbookError(
            f"{failed}: the organization asks for single sign-on.", f"Authorize the token at {link[1]} and run again."
        )
    if status == 429 or (status == 403 and (pause or "rate limit" in message)):
        when = f"{pause:.0f} seconds" if pause else "a few minutes"
        return Unreachable(f"{failed}: GitHub limits the rate of this token.", f"Try again in {when}.")
    if status == 401:
        return RunbookError(
            f"{failed}: GitHub does not accept the token{message}. It is wrong, expired or revoked.",
            f"{LOGIN_ADVICE} {RIGHTS}",
        )
    if status == 403:
        return NotAllowed(f"{failed}: GitHub does not allow it{message}.", _required(headers))
    # To a classic token with none of the scopes that a request accepts, GitHub replies with 404.
    owned, accepted = headers.get("x-oauth-scopes"), headers.get("x-accepted-oauth-scopes")
    if status == 404 and owned is not None and accepted and not scopes(owned) & scopes(accepted):
        return NotAllowed(f"{failed}: GitHub does not find it for this token{message}.", _required(headers))
    if status in (404, 410):
        return NotAllowed(
            f"{failed}: GitHub does not find it{message}.",
            f"Check the name {repository}, and that the token may see it: GitHub gives the same reply for a missing "
            "object and for one that the token may not see.",
        )
    if status >= 500:
        return Transient(f"{failed}: GitHub has an internal problem (HTTP {status}){message}.", "Try again later.")
    return RunbookError(f"{failed}: GitHub refuses it (HTTP {status}){message}.", "Correct the cause, then run again.")


def _message(text: str) -> str:
    """Return GitHub's own message in parentheses, bounded, or nothing."""
    try:
        document = parse_json(text.encode("utf-8", "replace"))
        details = document.get("errors") or []
        if not isinstance(details, list):
            details = [details]
        parts = [document.get("message"), *map(_detail, details)]
    except (ValueError, AttributeError):
        return ""
    message = "; ".join(one_line(str(part)) for part in parts if part)
    if not message:
        return ""
    return f" ({message[:500]})"


def _detail(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    return str(error.get("message") or " ".join(str(error.get(key, "")) for key in ("resource", "field", "code")))


def scopes(header: str | None) -> frozenset[str]:
    """Return the scopes that a header lists."""
    return frozenset(re.findall(r"[\w:]+", header or ""))


def _required(headers: Mapping[str, str]) -> str:
    """Return a sentence on the permissions that the token needs, according to GitHub."""
    if accepted := headers.get("x-accepted-github-permissions"):
        return f"The token needs the permission {one_line(accepted).replace('; ', ' or ')}."
    if accepted := headers.get("x-accepted-oauth-scopes"):
        owned = one_line(headers.get("x-oauth-scopes", "")) or "none"
        return f"The request needs one of the scopes {one_line(accepted)}; the token has {owned}."
    return RIGHTS
