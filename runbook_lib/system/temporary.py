"""Folders for temporary files that the next run removes where a run was killed.

Each has a file that names its process, which keeps that file locked for its life.  Another process removes the folder
only when nobody has the lock, the process is gone, and both are of this machine as it runs now: in a folder that
machines or containers share the lock of another may not be seen.
"""

import contextlib
import fcntl
import json
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from runbook_lib.system import provenance

PREFIX, OWNER = "runbook-", "owner"
#: Seconds for the search after what killed runs left, and after which an empty folder is nobody's.
LIMIT, _EMPTY = 1.0, 3600.0
_LONGEST = 4096


class TemporaryFolder:
    """A new folder that only its owner can enter, in TMPDIR or in ``place``.  Raises OSError."""

    def __init__(self, place: str | None = None) -> None:
        place = place or tempfile.gettempdir()
        remove_left(Path(place))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        self._lock = _mark(self.path)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove it with all that it holds.  May be called twice."""
        with contextlib.suppress(OSError), _opened(self.path) as handle:
            _remove(self.path, handle)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_left(place: Path) -> None:
    """Remove the temporary folders of this user whose process was killed, as far as a second suffices."""
    until = time.monotonic() + LIMIT
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if time.monotonic() > until:
                return
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
                    _remove_if_left(Path(entry.path))


def _mark(folder: Path) -> int | None:
    """Write the file that names this process, and return its lock; None where the file system has no locks.

    A folder without it is removed by its own process alone.
    """
    draft = folder / f".{OWNER}"
    handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, json.dumps({"machine": _machine(), "process": provenance.process()}).encode())
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(folder / OWNER)  # locked before anybody looks for it
    except OSError:
        os.close(handle)
        draft.unlink(missing_ok=True)
        return None
    return handle


def _machine() -> str:
    """This machine as it runs now: after a restart, and in another container, it is another one."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()} {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    return socket.gethostname()


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _remove_if_left(folder: Path) -> None:
    with _opened(folder) as handle:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return
        if not os.listdir(handle):
            if time.time() - status.st_mtime > _EMPTY:  # killed before it was marked
                folder.rmdir()
            return
        owner = os.open(OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
        try:
            if _has_ended(owner):
                _remove(folder, handle)
        finally:
            os.close(owner)


def _has_ended(owner: int) -> bool:
    """Whether the process that the file names has.  Raises BlockingIOError while it keeps the file locked."""
    if not stat.S_ISREG(os.fstat(owner).st_mode):
        return False
    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    named = json.loads(os.pread(owner, _LONGEST, 0))
    return bool(named["machine"] == _machine() and not provenance.is_alive(named["process"]))


def _remove(folder: Path, handle: int) -> None:
    """Remove what the folder, opened as ``handle``, holds: the owner's file last, so that the next run may go on."""
    with os.scandir(handle) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, dir_fd=handle)
            elif entry.name != OWNER:
                os.unlink(entry.name, dir_fd=handle)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(OWNER, dir_fd=handle)
    folder.rmdir()
