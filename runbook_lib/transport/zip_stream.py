"""Members of a zip as streams: fetched in windows and unpacked as they come, so that their size costs no memory.

``zipfile`` reads the directory; the members are unpacked here, because several are read at a time, and because what
is not looked at need not be fetched.
"""

import os
import stat
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from runbook_lib.errors import CannotTell
from runbook_lib.transport import remote_zip
from runbook_lib.transport.ranges import RemoteFile
from runbook_lib.transport.remote_zip import Tail

#: Bytes.  The first window of a member, the others, and how much is unpacked at a time.
FIRST, _WINDOW, _CHUNK = 2**18, 2**20, 2**17
_LARGEST, _LARGEST_ALL = 4 * 2**30, 64 * 2**30  # unpacked bytes of a member, and of all: more are no logs
_HEADER = 30  # bytes of a member's own header, before its name


@dataclass(frozen=True)
class Entry:
    """A member; ``changed`` in seconds, ``packed`` and ``size`` in bytes."""

    name: str
    offset: int
    packed: int
    size: int
    deflated: bool
    changed: float


@dataclass(frozen=True)
class Archive:
    """The members that can be read.  ``fetch`` makes a reader of parts for one thread."""

    entries: tuple[Entry, ...]
    fetch: Callable[[], Callable[[int, int], bytes]]

    def stream(self, entry: Entry, first: int = FIRST) -> Iterator[bytes]:
        """A member's content in pieces; ``first`` bytes are fetched at once, more when they are asked for.

        Raises CannotTell where it is broken, else as RemoteFile does.
        """
        packed = self._packed(entry, first)
        try:
            yield from _inflated(packed, entry.size) if entry.deflated else packed
        except (zlib.error, struct.error) as error:
            raise CannotTell(f"{entry.name} cannot be unpacked ({error}).") from error

    def _packed(self, entry: Entry, first: int) -> Iterator[bytes]:
        fetch = self.fetch()
        # What stands before a member's content is known to a few bytes: the fields of the directory may be longer.
        guess = _HEADER + len(entry.name.encode()) + 64
        window = fetch(entry.offset, min(guess + entry.packed, first))
        if window[:4] != b"PK\3\4" or len(window) < _HEADER:
            raise CannotTell(f"{entry.name} is not where the archive's directory says.")
        name, extra = struct.unpack("<HH", window[26:30])
        at, stop = entry.offset + len(window), entry.offset + _HEADER + name + extra + entry.packed
        yield window[_HEADER + name + extra :][: entry.packed]
        while at < stop:
            window = fetch(at, min(_WINDOW, stop - at))
            if not window:
                raise CannotTell(f"{entry.name} ends before its end.")
            at += len(window)
            yield window


def _inflated(packed: Iterator[bytes], size: int) -> Iterator[bytes]:
    unpacking = zlib.decompressobj(-zlib.MAX_WBITS)
    total = 0
    for window in packed:
        while window and not unpacking.eof:
            piece = unpacking.decompress(window, _CHUNK)
            window = unpacking.unconsumed_tail
            total += len(piece)
            if total > size:
                raise CannotTell("It unpacks to more than the archive's directory says.")
            yield piece
    if not unpacking.eof:
        raise zlib.error("it ends too early")


@contextmanager
def remote(file: RemoteFile, size: int, tail: Tail) -> Iterator[Archive]:
    """A zip on a server, of ``size`` bytes (0: not known).  Raises as ``remote_zip.read`` does."""
    with remote_zip.understood(), remote_zip.opened(file, size, tail) as (opened, parts):
        if parts is None:
            assert opened.fp is not None
            yield _archive(opened, _local_parts(opened.fp))
        else:
            yield _archive(opened, lambda: file.again().part)


@contextmanager
def local(path: Path) -> Iterator[Archive]:
    """A zip on the disk.  Raises CannotTell and OSError."""
    with remote_zip.understood(), path.open("rb") as file, remote_zip.zipped(file) as opened:
        yield _archive(opened, _local_parts(file))


def _local_parts(file: IO[bytes]) -> Callable[[], Callable[[int, int], bytes]]:
    return lambda: lambda start, size: os.pread(file.fileno(), size, start)


def _archive(opened: zipfile.ZipFile, fetch: Callable[[], Callable[[int, int], bytes]]) -> Archive:
    entries = tuple(_entry(it) for it in opened.infolist() if _readable(it))
    if sum(max(it.size, it.packed) for it in entries) > _LARGEST_ALL:
        raise CannotTell(f"The archive unpacks to more than {_LARGEST_ALL // 2**30} GB.")
    return Archive(entries, fetch)


def _readable(it: zipfile.ZipInfo) -> bool:
    plain = it.compress_type in remote_zip.METHODS and max(it.file_size, it.compress_size) <= _LARGEST
    return plain and not (it.is_dir() or it.flag_bits & 0x1 or stat.S_ISLNK(it.external_attr >> 16))


def _entry(it: zipfile.ZipInfo) -> Entry:
    try:
        changed = time.mktime((*it.date_time, 0, 0, 0))
    except (ValueError, OverflowError):
        changed = 0.0
    deflated = it.compress_type == zipfile.ZIP_DEFLATED
    return Entry(it.filename, it.header_offset, it.compress_size, it.file_size, deflated, changed)
