"""Files that practice offers for reading, without a server."""

from collections.abc import Callable
from dataclasses import dataclass

from runbook_lib.practice.hub import PracticeRefusal
from runbook_lib.transport.downloads import MissingFile


@dataclass(frozen=True)
class StoredFile:
    """A file of which ``read`` returns the content, or raises PracticeRefusal."""

    read: Callable[[], bytes]

    def open(self, web: object) -> "FileInMemory":
        """Return the file for reading.  Raises MissingFile."""
        try:
            return FileInMemory(self.read())
        except PracticeRefusal as error:
            raise MissingFile(str(error)) from error


@dataclass(frozen=True)
class FileInMemory:
    """A file that is read in parts."""

    content: bytes

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.content)

    def part(self, start: int, size: int) -> bytes:
        """Return ``size`` bytes from ``start``, or fewer at the end."""
        return self.content[start : start + size]
