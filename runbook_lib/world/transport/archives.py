"""Files that are read in parts, and members of a zip among them, without reading the rest.

``zipfile`` parses the directory and unpacks the members; it gets the bytes that were fetched for it.  Our own reader,
not the library ``remotezip``: for the golden values in tests/bench/bench_downloads.py that fetches 16 times the bytes
that are needed, or 1.3 times with a buffer of the size of the last directory; and it takes 0.3 s to import.  Archives
are for the parser alone.
"""

import io
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from runbook_lib.errors import CannotTell, RunbookError

#: Bytes at the end that are fetched first, which hold the directory of most golden values; and those it may have.
_END, _LONGEST_END = 2**11, 2**23
_END_MARK, _ZIP64 = b"PK\5\6", 76  # after the directory, and bytes that zip64 puts between
#: Bytes of a streamed member that are fetched first, fetched later, and unpacked at a time.
FIRST, _WINDOW, _CHUNK = 2**18, 2**20, 2**17
_LONGEST_HEADER = 1024  # bytes by which a member's own header may be longer than in the directory
_HEADER = struct.Struct("<4s22xHH")  # before a member's name: a mark, and the bytes of its name and of more

#: Methods that CI uses, and that unpack in bounded steps.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: Raised by zipfile for bytes that are not a zip, and for a member that cannot be unpacked.
_BROKEN = (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, struct.error, zlib.error)


class MissingFile(RunbookError):
    """A file that the server does not have (any more), or not for this token."""


class FileInParts(Protocol):
    """A file that is read in parts; ``size`` in bytes is known after the first part."""

    @property
    def size(self) -> int: ...

    def part(self, start: int, size: int) -> bytes:
        """Return ``size`` bytes from ``start``, or fewer at the end.  Raises MissingFile or Unreachable."""


@dataclass(frozen=True)
class Member:
    """The content of a member, or a sentence about why there is none."""

    name: str
    data: bytes = b""
    problem: str = ""


class _Window:
    """The bytes of one member, fetched as they are read."""

    def __init__(self, file: FileInParts, start: int, end: int, first: int) -> None:
        self._file, self._start, self._end, self._next = file, start, end, first
        self._bytes = io.BytesIO()

    def read(self, size: int) -> bytes:
        if (data := self._bytes.read(size)) or self._start >= self._end:
            return data
        window = self._file.part(self._start, min(self._next, self._end - self._start))
        self._start, self._next = self._start + len(window), _WINDOW
        self._bytes = io.BytesIO(window)
        return self._bytes.read(size)


class Archive:
    """A zip whose directory has been read.  Several threads may read its members."""

    def __init__(self, file: FileInParts, size: int = 0) -> None:
        """Read the directory of a zip of ``size`` bytes (0: unknown).

        Raises CannotTell for a file that is not a zip or is broken; otherwise like the file.
        """
        self._file = file
        try:
            begin, directory = _directory(file, size)
            with directory:
                self._all = directory.infolist()
                for entry in self._all:
                    entry.header_offset += begin
                self._ends = _ends_of_members(self._all, begin + directory.start_dir)
        except _BROKEN as error:
            raise CannotTell(f"The archive is not a complete zip file ({_reason(error)}).") from error
        #: The members that can be streamed.
        self.entries = tuple(entry for entry in self._all if not _problem(entry))

    def stream(self, entry: zipfile.ZipInfo, first: int) -> Iterator[bytes]:
        """Yield the content of a member in pieces; ``first`` bytes are fetched initially, more on demand.

        Raises CannotTell if it cannot be unpacked; otherwise like the file.
        """
        try:
            yield from self._pieces(entry, first)
        except _BROKEN as error:
            raise CannotTell(f"{entry.filename} cannot be unpacked ({_reason(error)}).") from error

    def _pieces(self, entry: zipfile.ZipInfo, first: int) -> Iterator[bytes]:
        raw: Any = _Window(self._file, entry.header_offset, self._ends[entry.header_offset], first)
        mark, *lengths = _HEADER.unpack(raw.read(_HEADER.size))
        if mark != b"PK\3\4":
            raise zipfile.BadZipFile("its header is missing")
        raw.read(sum(lengths))
        with zipfile.ZipExtFile(raw, "r", entry) as member:
            while piece := member.read1(_CHUNK):
                yield piece

    def read(self, choose: Callable[[Iterable[str]], tuple[str, ...]]) -> Iterator[Member]:
        """Yield the members that ``choose`` picks from the names.  Raises the errors of the file."""
        # zipfile cuts a name at a zero byte and changes separators; orig_filename is the name in the archive.
        names = Counter(entry.orig_filename for entry in self._all)
        by_name = {entry.orig_filename: entry for entry in reversed(self._all)}
        for name in dict.fromkeys(choose(names)):
            entry, data = by_name[name], b""
            problem = _problem(entry)
            if not is_safe(name):
                problem = "its name leads out of the archive's folder"
            elif names[name] > 1:
                problem = f"the archive has {names[name]} members of this name"
            if not problem:
                try:
                    data = b"".join(self._pieces(entry, _WINDOW))
                    problem = "" if len(data) == entry.file_size else "its size differs from the archive's directory"
                except _BROKEN as error:
                    problem = f"it cannot be unpacked ({_reason(error)})"
            yield Member(name, problem=problem) if problem else Member(name, data)


def _directory(file: FileInParts, size: int) -> tuple[int, zipfile.ZipFile]:
    """Return the end of a zip of this size that holds its directory, and where it begins in the file."""
    data = file.part(max(0, size - _END), _END)
    if file.size != size:  # the forge named another one, or none
        size = file.size
        data = file.part(max(0, size - _END), _END)
    for _ in range(2):  # a long comment may be in between
        mark, begin = data.rfind(_END_MARK), size - len(data)
        length = int.from_bytes(data[mark + 12 : mark + 16], "little") + _ZIP64 - mark if mark >= 0 else 2**16
        if missing := min(length, begin, _LONGEST_END - len(data)) if length > 0 else 0:
            data = file.part(begin - missing, missing) + data
    return size - len(data), zipfile.ZipFile(io.BytesIO(data))


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def is_safe(name: str) -> bool:
    """Return True if a member's name is relative, stays in its folder, and means the same on every system."""
    parts = name.split("/")
    return not ("\\" in name or ":" in name or "\0" in name or any(part in ("", ".", "..") for part in parts))


def _ends_of_members(entries: list[zipfile.ZipInfo], start_of_directory: int) -> dict[int, int]:
    """Return the latest possible end of each member, in bytes, by its start.

    Raises BadZipFile if members share bytes: a small archive could unpack to any size.
    """
    entries = sorted(entries, key=lambda entry: entry.header_offset)
    starts = [*(entry.header_offset for entry in entries), start_of_directory]
    end = 0
    ends: dict[int, int] = {}
    for entry, following in zip(entries, starts[1:], strict=True):
        if entry.header_offset < end:
            raise zipfile.BadZipFile("its members overlap")
        end = entry.header_offset + _HEADER.size + entry.compress_size
        longest = end + len(entry.orig_filename.encode()) + len(entry.extra) + _LONGEST_HEADER
        ends[entry.header_offset] = min(following, longest)
    return ends


def _problem(entry: zipfile.ZipInfo) -> str:
    """Return why a member is not read; empty if it is."""
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "it is a link"
    if entry.is_dir():
        return "it is a folder"
    if entry.flag_bits & 0x1:
        return "it is encrypted"
    if entry.compress_type not in METHODS:
        return f"it is compressed by method {entry.compress_type}; only stored and deflated members are read"
    return ""
