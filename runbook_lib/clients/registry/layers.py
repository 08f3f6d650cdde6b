"""The package databases in a layer: a tar archive, plain or gzip-compressed, which may be malicious."""

import gzip
import tarfile
import zlib
from typing import IO, Self

from runbook_lib.errors import CannotTell
from runbook_lib.images.packages import DPKG_STATUS, LayerDatabase, is_metadata, parse_dpkg, parse_metadata

_METADATA, _STATUS = 2**16, 2**26  # bytes of a file that are read
_HEADER = 2**20  # bytes of a header with a long name
_MOST = 2_000_000  # entries of a layer
_MOST_REMOVED = 200_000
_UNPACKED = 40  # times the bytes of the layer; software reaches 10
_LEAST_UNPACKED = 2**28
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


class _ArchiveEntry(tarfile.TarInfo):
    """An entry of a tar archive with headers of plausible size."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        entry = super().frombuf(buf, encoding, errors)
        is_header = not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk() or entry.isdev())
        if entry.size < 0 or (is_header and entry.size > _HEADER):
            raise tarfile.ReadError("a header is too large")
        return entry


class _Bounded:
    """A file for reading that ends with an error after ``limit`` bytes."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file = file
        self._left = limit

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise tarfile.ReadError("it unpacks to too many bytes")
        return data


def databases(file: IO[bytes], size: int) -> LayerDatabase:
    """Return the package databases in a layer of ``size`` bytes.  Raises CannotTell if it cannot be read."""
    start = file.read(4)
    file.seek(0)
    if start == _ZSTD:
        raise CannotTell("it is compressed with zstd")
    limit = max(_LEAST_UNPACKED, _UNPACKED * size)
    try:
        if start.startswith(_GZIP):
            with gzip.open(file) as unpacked:
                return _scan(_Bounded(unpacked, limit))  # type: ignore[arg-type]
        return _scan(_Bounded(file, limit))
    except (tarfile.TarError, EOFError, OSError, zlib.error, ValueError, OverflowError, RecursionError) as error:
        raise CannotTell(f"its content is invalid ({error})") from error


def _scan(file: _Bounded) -> LayerDatabase:
    dpkg: dict[str, str] | None = None
    pip: dict[str, tuple[str, str]] = {}
    removed, opaque = set[str](), set[str]()
    with tarfile.open(fileobj=file, mode="r|", tarinfo=_ArchiveEntry) as archive:  # type: ignore[call-overload]
        for count, entry in enumerate(archive):
            archive.members = []  # tarfile would keep all of them
            if count >= _MOST or len(removed) > _MOST_REMOVED:
                raise tarfile.ReadError("it has too many entries")
            path = entry.name.removeprefix("./").strip("/")
            folder, _, name = path.rpartition("/")
            if name == _OPAQUE:
                opaque.add(folder)
            elif name.startswith(_WHITEOUT):
                removed.add(f"{folder}/{name.removeprefix(_WHITEOUT)}".lstrip("/"))
            elif entry.isreg() and path == DPKG_STATUS and entry.size <= _STATUS:
                dpkg = parse_dpkg(_text(archive, entry, _STATUS))
            elif entry.isreg() and is_metadata(path):
                package = parse_metadata(_text(archive, entry, _METADATA))
                if package:
                    pip[path] = package
    return LayerDatabase(dpkg, pip, frozenset(removed), frozenset(opaque))


def _text(archive: tarfile.TarFile, entry: tarfile.TarInfo, limit: int) -> str:
    file = archive.extractfile(entry)
    return file.read(limit).decode("utf-8", "replace") if file else ""
