"""Issues that comments and reasons name."""

import re


def issue_of_comment(text: str, repository: str) -> int | None:
    """Return the issue in a person's comment: ``#12``, or the URL of an issue in this repository."""
    match = re.search(rf"{_address(repository)}|(?<![\w/])#([0-9]{{1,9}})\b", text)
    return int(match[1] or match[2]) if match else None


def issue_of_reason(reason: str, repository: str) -> int | None:
    """Return the issue in a reason: ``see #12``, ``issue #12``, or a URL.

    A bare number does not count: reasons are taken from logs, and a frame of a traceback has one too.
    """
    match = re.search(rf"{_address(repository)}|\b(?:see|issue) #([1-9][0-9]{{0,8}})\b", reason)
    return int(match[1] or match[2]) if match else None


def without_issues(cause: str) -> str:
    """Break the issue references in a cause, which comes from a log and must not determine a reason's issue."""
    return re.sub(r"(#|/issues/)(?=[0-9])", r"\1 ", cause)


def _address(repository: str) -> str:
    return rf"https?://[^/\s]+/{re.escape(repository)}/issues/([0-9]{{1,9}})\b"
