"""Issues that comments and reasons name."""

import re


def number_in(text: str, repository: str) -> int | None:
    """The issue that a person's comment names: ``#12``, or the address of an issue of this repository."""
    found = re.search(rf"{_address(repository)}|(?<![\w/])#([0-9]{{1,9}})\b", text)
    return int(found[1] or found[2]) if found else None


def named_in(reason: str, repository: str) -> int | None:
    """The issue that a reason gives: ``see #12``, ``issue #12``, or an address.

    A bare number is none: reasons are taken from logs, and a frame of a traceback has one too.
    """
    found = re.search(rf"{_address(repository)}|\b(?:see|issue) #([1-9][0-9]{{0,8}})\b", reason)
    return int(found[1] or found[2]) if found else None


def unnamed(cause: str) -> str:
    """Return a cause without any issue that it names: it comes from a log, and a reason's issue is taken as it is."""
    return re.sub(r"(#|/issues/)(?=[0-9])", r"\1 ", cause)


def _address(repository: str) -> str:
    return rf"https?://[^/\s]+/{re.escape(repository)}/issues/([0-9]{{1,9}})\b"
