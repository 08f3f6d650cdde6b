"""A full disk: a sentence, nothing half-written, and the next run completes it."""

import builtins
import contextlib
import errno
import io
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import practised
import pytest
from bumping import bump_to
from small_runbooks import ROOT

from runbook_lib.checks import Evidence
from runbook_lib.errors import RunbookError
from runbook_lib.notebook import recording
from runbook_lib.record import archive, run_file
from runbook_lib.record.recorder import Recorder
from runbook_lib.record.run_file import Identity
from runbook_lib.record.verify import verify

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def full(folder: Path, first: int = 0) -> Iterator[list[str]]:
    """Let all writes of this process below the folder fail from the n-th on, if any; yields what was written to."""
    written: list[str] = []

    def strike(place: Any, act: Callable[[], object] = lambda: None) -> None:
        with contextlib.suppress(OSError):
            place = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else place
        if str(place).startswith(str(folder)):
            written.append(str(place))
            if first and len(written) >= first:
                act()
                raise FULL

    def struck(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(place: Any, *arguments: Any, **named: Any) -> Any:
            strike(place)
            return real(place, *arguments, **named)

        return call

    def opening(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            if set(mode) & set("wax+"):  # what is opened to be written is empty already when the disk turns out full
                strike(file, lambda: real(file, mode, *arguments, **named).close())
            return real(file, mode, *arguments, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "open", opening(builtins.open))
        patch.setattr(io, "open", opening(io.open))
        for name in ("mkdir", "rename", "replace", "write", "fsync"):
            patch.setattr(os, name, struck(getattr(os, name)))
        yield written


@dataclass
class Recording:
    """A record, opened, contributed to, and closed, as often as it takes, in an archive."""

    folder: Path
    run: Path = Path()

    def act(self) -> None:
        self.run = archive.begin(self.folder, Identity("o/r", "main", "dev", "26.04-py3", practice=False), "03-open-pr")
        step = Recorder("03-open-pr", bump_to(), "o/r", self.run)
        step.effect("edit", "a.yml", "old", "new")
        step.keep(Evidence(tables={"changes": [{"a": 1}] * 50}, diff="-old\n+new\n"))
        step.done("Done.")
        recording.end(self.run)

    def require_whole(self, *, completed: bool) -> None:
        """Nothing is half-written."""
        assert not self.folder.exists() or verify(self.folder)[0] == []
        assert not completed or run_file.read(self.run)["state"] == "done"


def test_every_write_may_meet_a_full_disk(tmp_path: Path) -> None:
    with full(tmp_path / "count") as counted:
        Recording(tmp_path / "count").act()
    assert len(counted) > 3
    for first in range(1, len(counted) + 1):
        recording = Recording(tmp_path / str(first))
        with full(recording.folder, first) as written, pytest.raises(RunbookError, match=r"(?i)disk is full|no space"):
            recording.act()
        assert len(written) >= first
        recording.require_whole(completed=False)
        recording.act()
        recording.require_whole(completed=True)


# -- a whole bump on a disk of its own --------------------------------------------------------------------------------

#: So many kilobytes are free, each in turn; a whole bump takes about 4,000.
FREE = sorted(random.Random(5).sample(range(1, 3000), 20))
_ALONE = ("unshare", "--map-root-user", "--mount")


def test_a_bump_on_a_full_disk(tmp_path: Path) -> None:
    """In a process of its own, which alone sees that disk."""
    if subprocess.run([*_ALONE, "mount", "-t", "tmpfs", "none", str(tmp_path)], capture_output=True).returncode:
        pytest.skip("this machine does not let users mount anything")
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests/trust")))
    words = [*_ALONE, sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def _fill(folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "none", str(folder)], check=True)
    filler, failed = folder / "filler", 0
    made = practised.template(folder / "made")
    with practised.world(made, folder / "w") as world:
        world.start(parameters={"tag": ""}).communicate()  # once, so that caches are there
        for kilobytes in FREE:
            filler.unlink(missing_ok=True)
            free = os.statvfs(folder)
            with filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - kilobytes * 1024)
            status, told = world.bump()
            print(kilobytes, status, told[-1000:])
            failed += status != 0
            filler.unlink()
            practised.at_any_moment(world)
        status, told = world.bump()
        assert (status, "Ready to merge" in told) == (0, True), told
        practised.at_the_end(world)
    assert failed > len(FREE) / 2


if __name__ == "__main__":
    _fill(Path(sys.argv[1]))
