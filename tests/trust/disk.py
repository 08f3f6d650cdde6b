"""Disks that are full, read-only or broken: real ones, in memory, and writes in this process that fail when told to."""

import builtins
import errno
import io
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EROFS", "EIO")}


class Writes:
    """Counts the writes below a folder, and lets all from the n-th on fail; 0: none."""

    def __init__(self, folder: Path, first: int = 0, code: int = errno.ENOSPC) -> None:
        self._folder, self._first, self._code = str(folder), first, code
        self.count = 0

    def strike(self, place: Any) -> None:
        if isinstance(place, int):
            with suppress(OSError):
                place = os.readlink(f"/proc/self/fd/{place}")
        if not str(place).startswith(self._folder):
            return
        self.count += 1
        if self._first and self.count >= self._first:
            raise OSError(self._code, os.strerror(self._code), str(place))


class _File:
    """An open file whose writes may fail, with half of the text written."""

    def __init__(self, file: Any, place: Any, writes: Writes) -> None:
        self._file, self._place, self._writes = file, place, writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: Any) -> int:
        try:
            self._writes.strike(self._place)
        except OSError:
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            raise
        return int(self._file.write(data))


@contextmanager
def failing(folder: Path, first: int = 0, code: int = errno.ENOSPC) -> Iterator[Writes]:
    """Let all writes of this process below the folder fail from the n-th on."""
    writes = Writes(folder, first, code)
    real_open = builtins.open

    def opened(file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if not set(mode) & set("wax+"):
            return real_open(file, mode, *arguments, **named)
        place = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else file
        if not isinstance(file, int):
            writes.strike(place)
        return _File(real_open(file, mode, *arguments, **named), place, writes)

    def struck(real: Callable[..., Any], which: int = 0) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            writes.strike(arguments[which])
            return real(*arguments, **named)

        return call

    real_os_open = os.open

    def os_opened(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            writes.strike(path)
        return real_os_open(path, flags, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "open", opened)
        patch.setattr(io, "open", opened)
        patch.setattr(os, "open", os_opened)
        for name in ("mkdir", "rename", "replace", "write", "fsync"):
            patch.setattr(os, name, struck(getattr(os, name)))
        patch.setattr(os, "link", struck(os.link, 1))
        yield writes


def points(folder: Path, act: Callable[[], object]) -> int:
    """How many writes an act makes below a folder."""
    with failing(folder) as writes:
        act()
    return writes.count


@contextmanager
def small(folder: Path, size: str = "64m") -> Iterator[Path]:
    """A file system in memory; skips the test where none may be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip("no file system may be mounted here: " + done.stderr.decode().strip())
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def full(folder: Path, left: int = 0) -> Iterator[None]:
    """Fill it, but for some bytes."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(2**20))
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    os.truncate(filler, max(0, filler.stat().st_size - left))
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
