"""Some members of a zip on a server, by reading its directory and those members alone.

``zipfile`` does the parsing; beneath it lies a file whose parts are fetched when they are touched.  A server without
ranges gives the whole archive, which goes to a temporary file.  Own, and not the library ``remotezip``: that reads
64 KB where 2 suffice, asks one address once, and follows redirects on terms that we could not bound.
"""

import io
import itertools
import os
import stat
import struct
import tempfile
import threading
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from runbook_lib.errors import CannotTell
from runbook_lib.golden.match_artifacts import is_safe
from runbook_lib.transport.ranges import NoRanges, RemoteFile

#: Bytes.  The largest golden file of Megatron-LM has 3 MB.
LARGEST_MEMBER = 32 * 2**20
_LARGEST_CHOICE = 64 * 2**20  # bytes of all members that are chosen, packed and unpacked: a job has two golden files
_SMALL = 4 * 2**20  # the same, of those that many threads may hold in memory at the same time
_LARGEST_DIRECTORY, _MOST_MEMBERS = 4 * 2**20, 16_384  # bytes and entries; a job of 8,192 logs has 2 MB
_LARGEST_ARCHIVE = 8 * 2**30
#: Members with so few bytes between them are fetched in one go: a request costs more.
_GAP = 1024
_ENTRY = b"PK\1\2"  # what an entry of the directory begins with
_HEADER, _END = 30, 22  # bytes before a member's name, and of the record at a zip's end


#: Methods that unpack in bounded steps.  zipfile unpacks all others without a limit, and LZMA's own header claims
#: gigabytes of memory.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_one_large = threading.Lock()


@dataclass(frozen=True)
class Member:
    """A member's content, or in a sentence why there is none; ``stored`` is where its reader has put the content."""

    name: str
    data: bytes = b""
    problem: str = ""
    stored: Path | None = None


#: What zipfile raises for bytes that are no zip; NotImplementedError for a compression that it does not know.
_NO_ZIP = (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, struct.error)


class Tail:
    """How many bytes to fetch from the end of the next archive: those of one run have directories of about one size."""

    def __init__(self) -> None:
        self.size = 2048


def read(
    file: RemoteFile, size: int, choose: Callable[[Iterable[str]], tuple[str, ...]], tail: Tail,
    keep: Callable[[Member], Member] = lambda it: it,
) -> tuple[Member, ...]:  # fmt: skip
    """The members that ``choose`` picks from the names of a zip of ``size`` bytes.

    ``keep`` may replace each member as soon as it is read, so that not all contents are in memory together.
    Raises CannotTell for what is no zip, or broken, or beyond our bounds; Gone and Unreachable as RemoteFile does.
    """
    with understood(), opened(file, size, tail) as (archive, parts):
        return tuple(_members(archive, parts, choose, keep))


@contextmanager
def understood() -> Iterator[None]:
    """Raises CannotTell for whatever zipfile says of something that is no zip, or a broken one."""
    try:
        yield
    except _NO_ZIP as error:
        raise CannotTell(f"The archive is no whole zip file ({str(error) or type(error).__name__}).") from error


@contextmanager
def opened(file: RemoteFile, size: int, tail: Tail) -> Iterator[tuple[zipfile.ZipFile, "_Parts | None"]]:
    """A zip with its directory read; without parts where it had to be fetched whole, to a temporary file."""
    try:
        parts = _Parts(file, size, tail.size)
    except NoRanges:
        with tempfile.TemporaryFile() as local:
            _download(file, local)
            local.flush()
            with zipped(local) as archive:
                yield archive, None
        return
    with parts, zipfile.ZipFile(parts) as archive:
        tail.size = min(parts.size - archive.start_dir, _LARGEST_DIRECTORY)
        require_apart(archive)
        yield archive, parts


@contextmanager
def zipped(file: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """A zip in a file on the disk, with its directory read."""
    with _Directory(file.fileno(), closefd=False) as bounded, zipfile.ZipFile(bounded) as archive:
        require_apart(archive)
        yield archive


class _Directory(io.FileIO):
    """A file of which zipfile may read what is plausible as a zip's directory."""

    def read(self, size: int | None = -1) -> bytes:
        rest = os.fstat(self.fileno()).st_size - self.tell()
        wanted = rest if size is None or size < 0 else min(size, rest)
        _require_plausible_size(wanted)
        return _plausible(super().read(wanted))


def _require_plausible_size(size: int) -> None:
    if size > max(LARGEST_MEMBER, _LARGEST_DIRECTORY):
        raise zipfile.BadZipFile("a part of it is too large")


def _plausible(data: bytes) -> bytes:
    """Return what zipfile is about to read; raise BadZipFile for the directory of too many members.

    zipfile makes an object of each, of some hundred bytes, before anybody can count them.
    """
    if data.startswith(_ENTRY) and (len(data) > _LARGEST_DIRECTORY or data.count(_ENTRY) > _MOST_MEMBERS):
        raise zipfile.BadZipFile(f"it has more than {_MOST_MEMBERS} members, or a directory of too many bytes")
    return data


def require_apart(archive: zipfile.ZipFile) -> None:
    """Raise BadZipFile where members share bytes: so a small archive could unpack to any size.

    Newer versions of zipfile look only at the member that is opened.
    """
    end = 0
    for entry in sorted(archive.infolist(), key=lambda it: it.header_offset):
        if entry.header_offset < end:
            raise zipfile.BadZipFile("its members overlap")
        end = entry.header_offset + _HEADER + entry.compress_size


def _download(file: RemoteFile, local: IO[bytes]) -> None:
    def restart() -> None:
        local.seek(0)
        local.truncate()

    file.whole(local.write, restart, _LARGEST_ARCHIVE)


def _members(
    archive: zipfile.ZipFile, parts: "_Parts | None", choose: Callable[[Iterable[str]], tuple[str, ...]],
    keep: Callable[[Member], Member],
) -> Iterator[Member]:  # fmt: skip
    entries = archive.infolist()
    # zipfile cuts a name at a zero byte and mends separators: the name as it stands is orig_filename.
    names = Counter(entry.orig_filename for entry in entries)
    chosen = set(choose(names))
    left, left_small = _LARGEST_CHOICE, _SMALL
    small: list[zipfile.ZipInfo] = []
    large: list[zipfile.ZipInfo] = []
    for entry in entries:
        name = entry.orig_filename
        if name in chosen:
            chosen.discard(name)
            if problem := _problem(entry, names[name]):
                yield Member(name, problem=problem)
            elif (cost := entry.file_size + entry.compress_size) > left:
                yield Member(name, problem=f"all of them are larger than {_LARGEST_CHOICE // 2**20} MB together")
            else:
                left -= cost
                if cost <= left_small:
                    left_small -= cost
                    small.append(entry)
                else:
                    large.append(entry)
    if parts:
        parts.prepare(_spans(small, entries, archive.start_dir))
    for entry in small:
        yield keep(_content(archive, entry))
    for entry in large:
        with _one_large:
            if parts:
                parts.prepare(_spans([entry], entries, archive.start_dir))
            yield keep(_content(archive, entry))


def _problem(entry: zipfile.ZipInfo, times: int) -> str:
    if not is_safe(entry.orig_filename):
        return "its name leads out of the archive's folder"
    if times > 1:
        return f"the archive holds {times} members of this name"
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "it is a link"
    if entry.is_dir():
        return "it is a folder"
    if entry.flag_bits & 0x1:
        return "it is encrypted"
    if entry.compress_type not in METHODS:
        return f"it is compressed by method {entry.compress_type}; only stored and deflated members are read"
    if max(entry.file_size, entry.compress_size) > LARGEST_MEMBER:
        return f"it is larger than {LARGEST_MEMBER // 2**20} MB"
    return ""


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Member:
    name = entry.orig_filename
    try:
        with archive.open(entry) as opened:
            data = opened.read(entry.file_size + 1)  # zipfile itself stops at the size that the directory tells
    except (*_NO_ZIP, zlib.error, RuntimeError, OSError) as error:
        return Member(name, problem=f"it cannot be unpacked ({str(error) or type(error).__name__})")
    if len(data) != entry.file_size:
        return Member(name, problem="it has another size than the archive's directory says")
    return Member(name, data)


def _spans(
    chosen: Iterable[zipfile.ZipInfo], entries: Iterable[zipfile.ZipInfo], end: int
) -> Iterator[tuple[int, int]]:
    """Start and end of each stretch to fetch.  A member ends where the next begins, or before."""
    starts = sorted({entry.header_offset for entry in entries} | {end})
    following = dict(itertools.pairwise(starts))
    first = last = -1
    for entry in sorted(chosen, key=lambda it: it.header_offset):
        start = entry.header_offset
        # Its own header may be longer than the directory tells; what lies further off is none of it.
        longest = _HEADER + len(entry.filename.encode()) + len(entry.extra) + entry.compress_size + _GAP
        stop = min(following.get(start, end), start + longest)
        if first >= 0 and start - last <= _GAP:
            last = max(last, stop)
            continue
        if first >= 0:
            yield first, last
        first, last = start, stop
    if first >= 0:
        yield first, last


class _Parts(io.RawIOBase):
    """A file for ``zipfile``: what has been fetched, and what is touched is fetched."""

    def __init__(self, file: RemoteFile, size: int, tail: int) -> None:
        super().__init__()
        self._file = file
        if not size:  # nobody has told
            file.part(0, 1)
            size = file.size
        start, end = self._end(size, tail)
        if file.size != size:
            start, end = self._end(file.size, tail)
        self.size = file.size
        self._held: list[tuple[int, bytes]] = [(start, end)]
        self._at = 0

    def _end(self, size: int, tail: int) -> tuple[int, bytes]:
        start = max(0, size - max(tail, _END))
        return start, self._file.part(start, size - start) if size else b""

    def prepare(self, spans: Iterable[tuple[int, int]]) -> None:
        """Fetch these stretches, and drop what is held beside them."""
        held = [(start, self._read_at(start, stop - start)) for start, stop in spans]
        self._held = held

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        if at < 0:
            raise OSError("before the start of the file")
        self._at = at
        return at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self.size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        data = _plausible(self._read_at(self._at, wanted))
        self._at += len(data)
        return data

    def _read_at(self, start: int, size: int) -> bytes:
        for begin, data in self._held:
            if begin <= start and start + size <= begin + len(data):
                return data[start - begin : start - begin + size]
        _require_plausible_size(size)
        # The directory often begins just before what is held: fetch only what lacks.
        for begin, data in self._held:
            if start < begin <= start + size <= begin + len(data):
                fetched = self._file.part(start, begin - start) + data
                self._held.append((start, fetched))
                return fetched[:size]
        fetched = self._file.part(start, size)
        self._held.append((start, fetched))
        return fetched
