"""A disk that is full at any write: a sentence, nothing half-written, and the next run completes it."""

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bumping import bump_to

from runbook_lib.errors import RunbookError
from runbook_lib.notebook import recording
from runbook_lib.record import archive, run_file
from runbook_lib.record.recorder import Recorder
from runbook_lib.record.run_file import Identity
from runbook_lib.record.verify import verify


class Writes:
    """Counts the writes below a folder, and lets all from the n-th on fail; 0: none."""

    def __init__(self, folder: Path, first: int) -> None:
        self._folder, self._first = str(folder), first
        self.count = 0

    def strike(self, place: Any) -> None:
        if isinstance(place, int):
            with suppress(OSError):
                place = os.readlink(f"/proc/self/fd/{place}")
        if not str(place).startswith(self._folder):
            return
        self.count += 1
        if self._first and self.count >= self._first:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place))


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
def full(folder: Path, first: int = 0) -> Iterator[Writes]:
    """Let all writes of this process below the folder fail from the n-th on."""
    writes = Writes(folder, first)
    real_open = builtins.open

    def opened(file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if not set(mode) & set("wax+"):
            return real_open(file, mode, *arguments, **named)
        place = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else file
        if not isinstance(file, int):
            writes.strike(place)
        return _File(real_open(file, mode, *arguments, **named), place, writes)

    def struck(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            writes.strike(arguments[0])
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
        yield writes


@dataclass
class Recording:
    """A record, opened, contributed to, and closed, as often as it takes, in an archive."""

    folder: Path
    run: Path = Path()

    def act(self) -> None:
        identity = Identity("o/r", "main", "dev", "26.04-py3", practice=False)
        self.run = archive.begin(self.folder, identity, "03-open-pr")
        step = Recorder("03-open-pr", bump_to(), "o/r", self.run)
        step.add_inputs(digest="sha256:1")
        step.effect("edit", "a.yml", "old", "new")
        step.table("changes", [{"a": 1}] * 50)
        step.diff("-old\n+new\n")
        step.done("Done.")
        recording.end(self.run)

    def require_whole(self, *, completed: bool) -> None:
        """Nothing is half-written."""
        assert not self.folder.exists() or verify(self.folder)[0] == []
        assert not completed or run_file.read(self.run)["state"] == "done"


def test_every_write_may_meet_a_full_disk(tmp_path: Path) -> None:
    counted = Recording(tmp_path / "count" / "audit")
    with full(counted.folder) as writes:
        counted.act()
    total = writes.count
    assert total > 3
    counted.require_whole(completed=True)
    for first in range(1, total + 1):
        recording = Recording(tmp_path / str(first) / "audit")
        refused = pytest.raises(RunbookError, match=r"(?i)disk is full|no space")
        with full(recording.folder, first) as writes, refused:
            recording.act()
        assert writes.count >= first, f"write {first}: not reached"
        recording.require_whole(completed=False)
        recording.act()
        recording.require_whole(completed=True)
