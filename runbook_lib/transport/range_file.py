"""A file for ``zipfile`` of which only the bytes are fetched that it reads, from a server or from the disk."""

import io
import zipfile
from collections.abc import Callable

#: Bytes of a member that is read into memory.  The largest golden file of Megatron-LM has 3 MB.
LARGEST_MEMBER = 32 * 2**20
#: Maximum bytes and entries of a directory; for a job with 8,192 logs it has 2 MB.
LARGEST_DIRECTORY, _MOST_MEMBERS = 4 * 2**20, 16_384
_WINDOW = 2**20  # bytes that are fetched at a time of a member that is streamed
_ENTRY = b"PK\1\2"  # the first bytes of an entry of the directory


class RangeFile(io.RawIOBase):
    """A file of ``size`` bytes for ``zipfile``: it fetches data when read, and drops earlier data.

    ``part`` reads a number of bytes from a position, or fewer at the end of the file; several threads call it.
    ``window``: how many bytes to fetch at least.  For use by one thread.
    """

    def __init__(self, part: Callable[[int, int], bytes], size: int, window: int = 0) -> None:
        super().__init__()
        self._part = part
        self._window = window
        self._parts: list[tuple[int, bytes]] = []
        self._position = 0
        self.size = size

    def part_until(self, end: int) -> "RangeFile":
        """Return the file up to ``end`` for another thread, which reads it in large windows."""
        return RangeFile(self._part, end, _WINDOW)

    def fetch(self, start: int, end: int) -> None:
        """Fetch the bytes from ``start`` to ``end``, unless they are here, and forget all others."""
        known = any(begin <= start and end <= begin + len(data) for begin, data in self._parts)
        if start < end and not known:
            self._parts = [(start, self._part(start, end - start))]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if position < 0:
            raise OSError("before the start of the file")
        self._position = position
        return position

    def read(self, size: int | None = -1) -> bytes:
        wanted = max(0, self.size - self._position)
        if size is not None and 0 <= size < wanted:
            wanted = size
        if wanted > max(LARGEST_MEMBER, LARGEST_DIRECTORY):
            raise zipfile.BadZipFile("a part of it is too large")
        data = self._piece(self._position, wanted)
        # A directory must be complete to be parsed; a stream returns fetched data before it waits for more.
        while not self._window and len(data) < wanted:
            piece = self._piece(self._position + len(data), wanted - len(data))
            if not piece:
                break
            data += piece
        self._position += len(data)
        # A directory of more members than fit into memory, before zipfile parses it.
        if data.startswith(_ENTRY) and (len(data) > LARGEST_DIRECTORY or data.count(_ENTRY) > _MOST_MEMBERS):
            raise zipfile.BadZipFile(f"it has more than {_MOST_MEMBERS} members, or a directory of too many bytes")
        return data

    def _piece(self, start: int, wanted: int) -> bytes:
        """Return up to ``wanted`` bytes from ``start``; fetch them if no part has them."""
        if not wanted:
            return b""
        for begin, data in self._parts:
            if begin <= start < begin + len(data):
                return data[start - begin : start - begin + wanted]
        self._parts = [(begin, data) for begin, data in self._parts if begin > start]
        end = min([start + max(wanted, self._window), self.size, *(begin for begin, _ in self._parts)])
        fetched = self._part(start, end - start)
        self._parts.append((start, fetched))
        return fetched[:wanted]
