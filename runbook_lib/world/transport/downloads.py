"""Files that services offer, which are read in parts: what their readers know of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from runbook_lib.errors import RunbookError

if TYPE_CHECKING:
    from runbook_lib.world.transport.web import Web


class MissingFile(RunbookError):
    """A file that the server does not have (any more), or not for this token."""


class FileInParts(Protocol):
    """A file that is read in parts; ``size`` in bytes is known after the first part."""

    @property
    def size(self) -> int: ...

    def part(self, start: int, size: int) -> bytes:
        """Return ``size`` bytes from ``start``, or fewer at the end.  Raises MissingFile or Unreachable."""


class Download(Protocol):
    """A file that a service offers, of which nothing has been read yet."""

    def open(self, web: "Web") -> FileInParts:
        """Return the file for reading.  Raises Unreachable for a URL that may not be read."""


@dataclass(frozen=True)
class Address:
    """The URL of a file.  ``headers`` contain the token and go only to this origin."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def open(self, web: "Web") -> FileInParts:
        """Return the file for reading; no request is sent yet.  Raises Unreachable for a URL that is not https."""
        from runbook_lib.world.transport.web import RemoteFile

        return RemoteFile(web, self.url, self.headers)
