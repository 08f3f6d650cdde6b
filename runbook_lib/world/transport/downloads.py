"""Files that services offer, which are read in parts: what their readers know of them."""

from typing import Protocol

from runbook_lib.errors import RunbookError


class MissingFile(RunbookError):
    """A file that the server does not have (any more), or not for this token."""


class FileInParts(Protocol):
    """A file that is read in parts; ``size`` in bytes is known after the first part."""

    @property
    def size(self) -> int: ...

    def part(self, start: int, size: int) -> bytes:
        """Return ``size`` bytes from ``start``, or fewer at the end.  Raises MissingFile or Unreachable."""
