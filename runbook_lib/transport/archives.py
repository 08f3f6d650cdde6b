"""Members of a zip archive on a server, or on the disk, without reading the rest of it.

``zipfile`` parses the directory and unpacks the members; it reads from a file whose byte ranges are fetched when they
are read.  Our own reader, not the library ``remotezip``: for the golden values in tests/bench/bench_downloads.py that
fetches 16 times the bytes that are needed, or 1.3 times with a buffer of the size of the last directory, where this one
fetches 1.1 times; and it takes 0.3 s to import.
"""

import io
import os
import stat
import struct
import threading
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runbook_lib.errors import CannotTell
from runbook_lib.transport.downloads import FileInParts

#: Bytes of a member that is read into memory.  The largest golden file of Megatron-LM has 3 MB.
LARGEST_MEMBER = 32 * 2**20
#: Bytes and entries of a directory; for a job with 8,192 logs it has 2 MB.
LARGEST_DIRECTORY, _MOST_MEMBERS = 4 * 2**20, 16_384

LARGEST_CHOICE = 64 * 2**20  # bytes of all chosen members, packed and unpacked: a job has two golden files
_SMALL = 4 * 2**20  # the same, for members that many threads may have in memory at the same time
_LARGEST_STREAM, _LARGEST_STREAMS = 4 * 2**30, 64 * 2**30  # unpacked bytes of a streamed member, and of all: logs
#: Bytes of a streamed member that are fetched first, fetched later, and unpacked at a time.
FIRST, _WINDOW, _CHUNK = 2**18, 2**20, 2**17
#: Members with at most this many bytes between them are fetched in one request, because another would cost more.
_GAP = 1024
_HEADER, _END = 30, 22  # bytes before a member's name, and of the record at the end of a zip
_EMPTY = b"PK\5\6" + bytes(_END - 4)  # a zip without members

#: Methods that unpack in bounded steps.  zipfile unpacks all others without a limit, and LZMA's own header claims
#: gigabytes of memory.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_one_large = threading.Lock()

#: Raised by zipfile for bytes that are not a zip; NotImplementedError for an unknown method or version.
_NO_ZIP = (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, struct.error)
#: Raised by zipfile for a member that cannot be unpacked; RuntimeError for an encrypted one.
_BROKEN = (*_NO_ZIP, zlib.error, RuntimeError)


@dataclass(frozen=True)
class Member:
    """The content of a member, or a sentence about why there is none."""

    name: str
    data: bytes = b""
    problem: str = ""


class PartsFile(io.RawIOBase):
    """A file of ``size`` bytes for ``zipfile``: it fetches what is read, and keeps one stretch of bytes.

    ``part`` reads a number of bytes from a position, or fewer at the end of the file; several threads call it.
    ``window``: how many bytes to fetch at least.  For use by one thread.
    """

    def __init__(self, part: Callable[[int, int], bytes], size: int, window: int = 0) -> None:
        super().__init__()
        self.part, self.size = part, size
        self._window = window
        self._begin, self._data = 0, b""
        self._position = 0

    def fetch(self, start: int, end: int) -> None:
        """Fetch the bytes from ``start`` to ``end``, unless they are here, and forget all others."""
        if start < end and not self._begin <= start <= end <= self._begin + len(self._data):
            self._begin, self._data = start, self.part(start, end - start)

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if self._position < 0:
            raise OSError("before the start of the file")
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        wanted = max(0, self.size - self._position)
        if size is not None and 0 <= size < wanted:
            wanted = size
        if wanted > LARGEST_MEMBER:
            raise zipfile.BadZipFile("a part of it is too large")
        if 0 < self._begin - self._position < wanted:  # the end of a directory is here already
            start = self._position
            self._data = self.part(start, self._begin - start) + self._data
            self._begin = start
        at = self._position - self._begin
        data = self._data[at : at + wanted] if at >= 0 else b""
        # A stream returns what is here before it fetches more: its reader may have read enough.
        if len(data) < wanted and not (data and self._window):
            start = self._position + len(data)
            self.fetch(start, min(self.size, start + max(wanted - len(data), self._window)))
            data += self._data[: wanted - len(data)]
        self._position += len(data)
        # A directory of more members than fit into memory, before zipfile parses it.
        if data.startswith(b"PK\1\2") and (len(data) > LARGEST_DIRECTORY or data.count(b"PK\1\2") > _MOST_MEMBERS):
            raise zipfile.BadZipFile(f"it has more than {_MOST_MEMBERS} members, or a directory of too many bytes")
        return data


class Tail:
    """The number of bytes to fetch from the end of the next archive: directories of one run have similar sizes."""

    def __init__(self, size: int = 2048) -> None:
        self.size = size


class Archive:
    """A zip whose directory has been read.  Several threads may stream its members concurrently."""

    def __init__(self, directory: zipfile.ZipFile, file: PartsFile) -> None:
        self.directory = directory
        self._file = file
        self._ends = _ends_of_members(directory)
        #: The members that can be streamed.
        self.entries = tuple(entry for entry in directory.infolist() if not _problem(entry, _LARGEST_STREAM))
        if sum(max(entry.file_size, entry.compress_size) for entry in self.entries) > _LARGEST_STREAMS:
            raise CannotTell(f"The archive unpacks to more than {_LARGEST_STREAMS // 2**30} GB.")

    def stream(self, entry: zipfile.ZipInfo, first: int) -> Iterator[bytes]:
        """Yield the content of a member in pieces; ``first`` bytes are fetched initially, more on demand."""
        start, end = entry.header_offset, self._ends[entry.header_offset]
        file = PartsFile(self._file.part, end, _WINDOW)
        # A separate ZipFile for this thread.  Even one without members can open the entries of another's directory.
        reader = zipfile.ZipFile(io.BytesIO(_EMPTY))
        reader.fp = file  # type: ignore[assignment]
        try:
            file.fetch(start, min(end, start + first))
            with reader.open(entry) as member:
                while piece := member.read1(_CHUNK):  # type: ignore[attr-defined]
                    yield piece
        except _BROKEN as error:
            raise CannotTell(f"{entry.filename} cannot be unpacked ({str(error) or type(error).__name__}).") from error

    def read(self, entries: Iterable[zipfile.ZipInfo]) -> Iterator[Member]:
        """Yield the contents of members in the order of their places.  Neighbours are fetched together."""
        groups: list[list[zipfile.ZipInfo]] = []
        end = -_GAP - 1
        for entry in sorted(entries, key=lambda entry: entry.header_offset):
            if entry.header_offset - end > _GAP:
                groups.append([])
            groups[-1].append(entry)
            end = self._ends[entry.header_offset]
        for group in groups:
            self._file.fetch(group[0].header_offset, self._ends[group[-1].header_offset])
            for entry in group:
                yield _content(self.directory, entry)


def read(
    file: FileInParts, size: int, choose: Callable[[Iterable[str]], tuple[str, ...]], tail: Tail,
    keep: Callable[[Member], Member] = lambda member: member,
) -> tuple[Member, ...]:  # fmt: skip
    """Return the members that ``choose`` picks from the names of a zip of ``size`` bytes (0: unknown).

    ``keep`` may replace each member as soon as it is read, so that not all contents are in memory together.
    Raises CannotTell for a file that is not a zip, is broken or exceeds the limits; otherwise like the file.
    """
    with remote(file, size, tail) as archive:
        return tuple(_members(archive, choose, keep))


@contextmanager
def remote(file: FileInParts, size: int, tail: Tail) -> Iterator[Archive]:
    """Open a zip of ``size`` bytes (0: unknown) on a server.  Raises the errors of ``read``."""
    ranges = _with_tail(file, size, tail.size)
    with _open_archive(ranges) as archive:
        tail.size = min(ranges.size - archive.directory.start_dir, LARGEST_DIRECTORY)
        yield archive


@contextmanager
def local(path: Path) -> Iterator[Archive]:
    """Open a zip on the disk.  Raises CannotTell, and OSError."""
    with path.open("rb") as file:
        descriptor = file.fileno()
        ranges = PartsFile(lambda start, size: os.pread(descriptor, size, start), os.fstat(descriptor).st_size)
        with _open_archive(ranges) as archive:
            yield archive


def is_safe(name: str) -> bool:
    """Return True if a member's name is relative, stays in its folder, and means the same on every system."""
    parts = name.split("/")
    return not ("\\" in name or ":" in name or "\0" in name or any(part in ("", ".", "..") for part in parts))


def modified(entry: zipfile.ZipInfo) -> float:
    """Return when a member was last changed, in seconds since the epoch; 0 for an impossible date."""
    try:
        return time.mktime((*entry.date_time, 0, 0, 0))
    except (ValueError, OverflowError):
        return 0.0


def _with_tail(file: FileInParts, size: int, tail: int) -> PartsFile:
    """Return a file whose last ``tail`` bytes have been fetched.  ``size`` is the forge's, or 0 if unknown."""
    if not size:
        file.part(0, 1)
        size = file.size
    ranges = PartsFile(file.part, size)
    ranges.fetch(max(0, size - tail), size)
    if file.size != size:
        return _with_tail(file, file.size, tail)
    return ranges


@contextmanager
def _open_archive(file: PartsFile) -> Iterator[Archive]:
    try:
        directory = zipfile.ZipFile(file)
        archive = Archive(directory, file)
    except _NO_ZIP as error:
        raise CannotTell(f"The archive is not a complete zip file ({str(error) or type(error).__name__}).") from error
    with directory:
        yield archive


def _ends_of_members(directory: zipfile.ZipFile) -> dict[int, int]:
    """Return the latest possible end of each member, in bytes, by its start.

    Raises BadZipFile if members share bytes: a small archive could unpack to any size, and newer versions of zipfile
    look only at the member that is opened.
    """
    entries = sorted(directory.infolist(), key=lambda entry: entry.header_offset)
    starts = [*(entry.header_offset for entry in entries), directory.start_dir]
    end = 0
    ends: dict[int, int] = {}
    for entry, following in zip(entries, starts[1:], strict=True):
        if entry.header_offset < end:
            raise zipfile.BadZipFile("its members overlap")
        end = entry.header_offset + _HEADER + entry.compress_size
        # The member's own header may be slightly longer than in the directory.
        longest = end + len(entry.orig_filename.encode()) + len(entry.extra) + _GAP
        ends[entry.header_offset] = min(following, longest)
    return ends


def _members(
    archive: Archive, choose: Callable[[Iterable[str]], tuple[str, ...]], keep: Callable[[Member], Member]
) -> Iterator[Member]:
    entries = archive.directory.infolist()
    # zipfile cuts a name at a zero byte and changes separators; orig_filename is the original name in the archive.
    names = Counter(entry.orig_filename for entry in entries)
    by_name = {entry.orig_filename: entry for entry in reversed(entries)}
    budget, small_budget = LARGEST_CHOICE, _SMALL
    small: list[zipfile.ZipInfo] = []
    large: list[zipfile.ZipInfo] = []
    for name in dict.fromkeys(choose(names)):
        entry = by_name[name]
        cost = entry.file_size + entry.compress_size
        problem = _problem(entry, LARGEST_MEMBER)
        if not is_safe(name):
            problem = "its name leads out of the archive's folder"
        elif names[name] > 1:
            problem = f"the archive has {names[name]} members of this name"
        elif cost > budget:
            problem = problem or f"all of them are larger than {LARGEST_CHOICE // 2**20} MB together"
        if problem:
            yield Member(name, problem=problem)
            continue
        budget -= cost
        if cost > small_budget:
            large.append(entry)
        else:
            small_budget -= cost
            small.append(entry)
    yield from map(keep, archive.read(small))
    for entry in large:
        with _one_large:
            yield from map(keep, archive.read([entry]))


def _problem(entry: zipfile.ZipInfo, largest: int) -> str:
    """Return why a member is not read; empty if it is.  ``largest``: the limit of its bytes, packed and unpacked."""
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "it is a link"
    if entry.is_dir():
        return "it is a folder"
    if entry.flag_bits & 0x1:
        return "it is encrypted"
    if entry.compress_type not in METHODS:
        return f"it is compressed by method {entry.compress_type}; only stored and deflated members are read"
    if max(entry.file_size, entry.compress_size) > largest:
        return f"it is larger than {largest // 2**20} MB"
    return ""


def _content(directory: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Member:
    name = entry.orig_filename
    try:
        with directory.open(entry) as member:
            data = member.read(entry.file_size + 1)  # zipfile itself stops at the size that the directory claims
    except (*_BROKEN, OSError) as error:
        return Member(name, problem=f"it cannot be unpacked ({str(error) or type(error).__name__})")
    if len(data) != entry.file_size:
        return Member(name, problem="its size differs from the archive's directory")
    return Member(name, data)
