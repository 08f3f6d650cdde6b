"""What GitHub's refusals mean, in whole sentences, and what is done about an answer that was lost."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.transport.limits import TooLarge, strict

A = TypeVar("A", bound="_Addressed")
HOW = "Set GITHUB_TOKEN, or log in with `gh auth login`."
RIGHTS = (
    "A fine-grained token needs, for the repository, read access to metadata, contents and deployments, and write "
    "access to actions, issues and pull requests (to contents too, where git pushes with it); a classic one the scope "
    "repo."
)


class NotAllowed(RunbookError):
    """GitHub answered 403 or 404: the thing is not there, or not for this token (GitHub does not tell which)."""


class Transient(Unreachable):
    """A failure that another try may mend."""


def refusal(failed: str, repository: str, status: int, headers: Mapping[str, str], text: str) -> RunbookError:
    """Return the error for an answer of 400 or more.  ``failed``: what was tried; ``headers`` by lower-case name."""
    message = _message(text)
    if link := re.search(r"url=(https://[!-~]+)", headers.get("x-github-sso", "")):
        return RunbookError(
            f"{failed}: the organization asks for single sign-on. Authorize the token at {link[1]} and run again."
        )
    if status in (403, 429) and (until := _limited_until(status, headers, message)):
        return Unreachable(f"{failed}: GitHub limits the rate of this token. Try again {until}.")
    if status == 401:
        return RunbookError(
            f"{failed}: GitHub does not accept the token{message}. It is wrong, expired or revoked. {HOW} {RIGHTS}"
        )
    if status == 403:
        return NotAllowed(f"{failed}: GitHub does not allow it{message}. {_lacking(headers)}")
    if status in (400, 410) and re.search(r"\bversions?\b", message, re.IGNORECASE):
        return RunbookError(
            f"{failed}: GitHub does not speak the version of its API that this tool uses{message}. A newer release of "
            "the tool does; an old GitHub Enterprise Server must be upgraded."
        )
    if status == 404 and _lacks_scope(headers):
        return NotAllowed(f"{failed}: GitHub does not find it for this token{message}. {_lacking(headers)}")
    if status in (404, 410):
        return NotAllowed(
            f"{failed}: GitHub does not find it{message}. Check the name {repository}, and that the token may see it: "
            "GitHub answers the same for what is not there and for what the token may not see."
        )
    if status >= 500:
        return Transient(f"{failed}: GitHub has a problem of its own (HTTP {status}){message}. Try again later.")
    return RunbookError(f"{failed}: GitHub refuses it (HTTP {status}){message}. Correct what it names, then run again.")


def odd(failed: str, host: str, status: int, content: bytes) -> Unreachable:
    """Return the error for an answer below 400 that GitHub would not give."""
    what = "something" if content else "nothing"
    return Unreachable(f"{failed}: {host} answered HTTP {status} with {what}, as GitHub does not. Try again later.")


def late(host: str) -> str:
    """Return two sentences for an answer that does not end in time."""
    return f"{host} did not answer in time. Try again later."


def lost(host: str, error: Exception) -> str:
    """Return two sentences for a request without an answer."""
    from runbook_lib.transport.client import explain

    return f"{host} cannot be reached: {explain(error)}. Check the network, then try again."


def plain(text: str) -> str:
    """Return text from outside on one line, without control characters."""
    return "".join(char if char.isprintable() else " " for char in text).strip()


def _message(text: str) -> str:
    """Return GitHub's own words, bounded, or nothing."""
    try:
        answer = strict(text.encode("utf-8", "replace"))
        details = answer.get("errors") or []
        words = [answer.get("message"), *map(_detail, details if isinstance(details, list) else [details])]
    except (ValueError, AttributeError, TooLarge):
        return ""
    joined = "; ".join(plain(str(word)) for word in words if word)
    return f" ({joined[:500]})" if joined else ""


def _detail(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    return str(error.get("message") or " ".join(str(error.get(key, "")) for key in ("resource", "field", "code")))


def _limited_until(status: int, headers: Mapping[str, str], message: str) -> str:
    wait, reset = headers.get("retry-after", ""), headers.get("x-ratelimit-reset", "")
    if re.fullmatch(r"[0-9]{1,9}", wait):
        return f"in {int(wait)} seconds"
    if headers.get("x-ratelimit-remaining") == "0" and re.fullmatch(r"[0-9]{1,11}", reset):
        return f"after {datetime.fromtimestamp(int(reset), UTC):%Y-%m-%d %H:%M:%S} UTC"
    return "in a few minutes" if status == 429 or "rate limit" in message else ""


def _lacks_scope(headers: Mapping[str, str]) -> bool:
    """Return whether a classic token has none of the scopes that a request takes: GitHub then answers 404."""
    has, accepted = headers.get("x-oauth-scopes"), headers.get("x-accepted-oauth-scopes")
    return has is not None and bool(accepted) and not {*scopes(has)} & {*scopes(accepted)}


def scopes(header: str | None) -> frozenset[str]:
    """Return the scopes that a header lists."""
    return frozenset(re.findall(r"[\w:]+", header or ""))


def _lacking(headers: Mapping[str, str]) -> str:
    """Return what GitHub says that the token needs."""
    if accepted := headers.get("x-accepted-github-permissions"):
        return f"The token needs the permission {plain(accepted).replace('; ', ' or ')}."
    if accepted := headers.get("x-accepted-oauth-scopes"):
        has = plain(headers.get("x-oauth-scopes", "")) or "none"
        return f"The request needs one of the scopes {plain(accepted)}; the token has {has}."
    return RIGHTS


def once(look: Callable[[], A | None], create: Callable[[], A], withdraw: Callable[[A], object] | None = None) -> A:
    """Return what is there already, else what is created now.  After a failed creation, look again before raising.

    So neither an answer lost on its way nor somebody quicker leads to a second one.  Of two that were created at the
    same moment ``look`` finds the older one, and the other is withdrawn by whoever made it, where GitHub takes two.
    """
    if (there := look()) is not None:
        return there
    try:
        made = create()
    except RunbookError:
        if (there := look()) is not None:
            return there
        raise
    if withdraw is not None and (there := look()) is not None and there.url != made.url:
        withdraw(made)
        return there
    return made


class _Addressed(Protocol):
    """What GitHub holds under an address of its own."""

    @property
    def url(self) -> str:
        """The address."""
