"""Zips from a fork's CI: over ranges and whole, as golden values and as logs, nothing is believed, written or unpacked.

What is well made comes out; of all else a sentence tells what is wrong, and no file appears.
"""

import copy
import io
import re
import stat
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import resident
from hostile import NAMES
from stores import Store

from runbook_lib.errors import RunbookError
from runbook_lib.failures import read_logs
from runbook_lib.golden.collect import GoldenCollection

GOLDEN, LOG = "golden_values_dev_dgx_h100.json", "logs/1/run/attempt_0/0/stderr.log"
VALUES = b'{"lm loss": {"values": {"1": 10.5}}}'
CAUSE = b'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: the cause\n'


@pytest.fixture
def store() -> Store:
    return Store()


def zipped(*members: tuple[str, bytes], change: Callable[[zipfile.ZipInfo], object] = lambda _: None) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")
        for name, data in members:
            entry = zipfile.ZipInfo("placeholder")
            entry.filename = entry.orig_filename = name.encode("utf-8", "replace").decode()
            entry.compress_type = zipfile.ZIP_DEFLATED
            change(entry)
            archive.writestr(entry, data)
    return buffer.getvalue()


def both(*more: tuple[str, bytes]) -> bytes:
    return zipped((GOLDEN, VALUES), (LOG, CAUSE), *more)


def poked(*changes: tuple[bytes, int, bytes]) -> bytes:
    """A zip of both files with other bytes behind each such signature."""
    data = bytearray(both())
    for signature, offset, value in changes:
        for found in re.finditer(signature, bytes(data)):
            data[found.start() + offset : found.start() + offset + len(value)] = value
    return bytes(data)


def mode(number: int) -> Callable[[zipfile.ZipInfo], object]:
    return lambda entry: setattr(entry, "external_attr", number << 16)


def overlapping(count: int, size: int) -> bytes:
    """Many names in the directory for the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"a" * size)
        entry = archive.filelist.pop()
        for number in range(count):
            other = copy.copy(entry)
            other.filename = (
                f"golden_values_dev_p{number}.json" if number % 2 else f"logs/1/a/attempt_0/{number}/stderr.log"
            )
            archive.filelist.append(other)
    return buffer.getvalue()


#: Signatures: of an entry of the directory, a member's own header, and the end of the directory.
ENTRY, OWN, END = rb"PK\x01\x02", rb"PK\x03\x04", rb"PK\x05\x06"
SHORT = (100).to_bytes(4, "little")
ZIP64 = struct.pack("<HHQQQ", 1, 24, 2**60, 2**60, 2**40)
ARCHIVES: dict[str, Callable[[], bytes]] = {
    **{f"name {name}": (lambda value=value: zipped(  # type: ignore[misc]
        (f"{value[:200]}/{GOLDEN}", VALUES), (f"{value[:200]}/{LOG}", CAUSE))) for name, value in NAMES.items()},
    "up": lambda: zipped((f"../../{GOLDEN}", VALUES), (f"../../{LOG}", CAUSE)),
    "backslashes": lambda: zipped((f"..\\..\\{GOLDEN}", VALUES)),
    "symbolic link": lambda: zipped((GOLDEN, b"/etc/passwd"), (LOG, b"/etc/passwd"), change=mode(stat.S_IFLNK | 0o777)),
    "twice": lambda: both((GOLDEN, b"{}"), (LOG, b"")),
    "overlapping": lambda: overlapping(200, 2 * 2**20),
    "overlapping a little": lambda: overlapping(2, 1000),
    "encrypted": lambda: poked((ENTRY, 8, b"\x01\x00"), (OWN, 6, b"\x01\x00")),
    "unknown compression": lambda: poked((ENTRY, 10, b"\x63\x00"), (OWN, 8, b"\x63\x00")),
    "crc": lambda: poked((ENTRY, 16, b"\0\0\0\0")),
    "size too small": lambda: poked((ENTRY, 24, b"\x01\0\0\0")),
    "size beyond 4 GB": lambda: poked((ENTRY, 24, b"\xfe\xff\xff\xff")),
    "place": lambda: poked((ENTRY, 42, SHORT)),
    "zip64 that lies": lambda: zipped((GOLDEN, VALUES), (LOG, CAUSE), change=lambda it: setattr(it, "extra", ZIP64)),
    "name in another field": lambda: zipped((GOLDEN, VALUES), change=lambda it: setattr(
        it, "extra", struct.pack("<HHBI", 0x7075, 12, 1, 0) + b"../a.js")),
    "size of the directory": lambda: poked((END, 12, b"\xff\xff\xff\x7f")),
    "an archive in the last comment": lambda: poked((END, 20, len(both()).to_bytes(2, "little"))) + both(),
    "before it": lambda: b"#!/bin/sh\n" * 100 + both(),
    "cut": lambda: both()[:-30],
    "lengths of its own header": lambda: (lambda it: it[:26] + b"\xff\xff\xff\xff" + it[30:])(both()),
}  # fmt: skip
#: Those that are well made, so that they must come out.
SOUND = {"before it"}


def golden(store: Store, data: bytes) -> GoldenCollection:
    store.contents[1] = data
    return resident.collected(store.forge, len(data), transport=store)


def cause(store: Store, data: bytes) -> str:
    store.contents[1] = data
    return resident.cause(store.forge, len(data), transport=store)


@pytest.mark.parametrize("ranged", [True, False])
@pytest.mark.parametrize("name", ARCHIVES)
def test_a_zip_from_a_fork(name: str, ranged: bool, store: Store, tmp_path: Path) -> None:
    store.ranges = ranged
    data = ARCHIVES[name]()
    (tmp_path / "a.zip").write_bytes(data)
    found = golden(store, data)
    failure = cause(store, data)
    try:
        told = read_logs.diagnose_folder(tmp_path / "a.zip").cause
    except RunbookError as error:
        told = str(error)
    assert told.strip()
    assert found.files or found.problems
    assert failure
    for it in found.files:
        assert it.path.startswith("tests/functional_tests/test_cases/gpt/a1/golden_values_")
        assert "/../" not in it.path
        assert it.path.isprintable()
    for problem in found.problems:
        assert problem.sentence.endswith(".")
        assert (problem.sentence + problem.file + problem.artifact).isprintable()
    if name in SOUND:
        assert [it.bytes for it in found.files] == [VALUES]
        assert "the cause" in failure
    assert {it.name for it in tmp_path.iterdir()} == {"a.zip"}


@pytest.mark.parametrize("name", ["overlapping", "overlapping a little"])
def test_members_that_share_their_bytes_are_not_unpacked(name: str, store: Store) -> None:
    store.ranges = True
    data = ARCHIVES[name]()
    assert "overlap" in golden(store, data).problems[0].sentence
    assert "overlap" in cause(store, data)


@pytest.mark.parametrize("ranged", [True, False])
@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR])
def test_a_link_or_a_folder_is_left_out(kind: int, ranged: bool, store: Store) -> None:
    """Even where its content would pass for a golden file and a log."""
    store.ranges = ranged
    folder = "/" if kind == stat.S_IFDIR else ""
    data = zipped((GOLDEN + folder, VALUES), (LOG + folder, CAUSE), change=mode(kind | 0o777))
    collection = golden(store, data)
    assert collection.files == ()
    assert collection.problems
    assert "the cause" not in cause(store, data)
    assert "the cause" in cause(store, both())


@pytest.mark.parametrize("name", ["../", "a/../../", "/", "/tmp/", "C:\\", "..\\", "./"])
def test_a_name_that_leaves_the_folder_is_refused(name: str, store: Store) -> None:
    """Even where nothing would be stored under it."""
    store.ranges = True
    collection = golden(store, zipped((f"{name}{GOLDEN}", VALUES)))
    assert collection.files == ()
    assert GOLDEN in "".join(problem.file for problem in collection.problems)
