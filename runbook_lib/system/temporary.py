"""Folders for temporary files, which the next run removes if their own run was killed.

Each has a file that names its process, which keeps that file locked for its life.  Another process removes the folder
only if nobody has the lock, the process has ended, and it ran on this machine since its last start: in a folder that
machines or containers share, the lock of another may be invisible.
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
#: Seconds for the search for abandoned folders, and after which an empty one is abandoned.
LIMIT, _EMPTY = 1.0, 3600.0
_LONGEST_NOTE = 4096  # maximum size of the file with the process


class TemporaryFolder:
    """A new folder that only its owner can enter, in TMPDIR or in ``parent``.  Raises OSError."""

    def __init__(self, parent: str | None = None) -> None:
        parent = parent or tempfile.gettempdir()
        remove_abandoned(Path(parent))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self._lock = _mark(self.path)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the folder with its content.  May be called twice."""
        with contextlib.suppress(OSError), _opened(self.path) as handle:
            _remove(self.path, handle)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_abandoned(parent: Path) -> None:
    """Remove the temporary folders of this user whose process was killed, within LIMIT seconds."""
    deadline = time.monotonic() + LIMIT
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if time.monotonic() > deadline:
                return
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
                    _remove_if_abandoned(Path(entry.path))


def _mark(folder: Path) -> int | None:
    """Write the file that identifies this process, and return its lock; None if the file system has no locks.

    A folder without that file is removed only by its own process.
    """
    draft = folder / f".{OWNER}"
    handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, json.dumps({"machine": _machine(), "process": provenance.process()}).encode())
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(folder / OWNER)  # locked before anybody can find it
    except OSError:
        os.close(handle)
        draft.unlink(missing_ok=True)
        return None
    return handle


def _machine() -> str:
    """Return a name for this machine that changes with a restart, and differs between containers."""
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


def _remove_if_abandoned(folder: Path) -> None:
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
    """Return True if the process in the file has ended.  Raises BlockingIOError while it locks the file."""
    if not stat.S_ISREG(os.fstat(owner).st_mode):
        return False
    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    note = json.loads(os.pread(owner, _LONGEST_NOTE, 0))
    return bool(note["machine"] == _machine() and not provenance.is_alive(note["process"]))


def _remove(folder: Path, handle: int) -> None:
    """Remove the folder, opened as ``handle``, with its owner's file last, so that the next run can continue."""
    with os.scandir(handle) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, dir_fd=handle)
            elif entry.name != OWNER:
                os.unlink(entry.name, dir_fd=handle)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(OWNER, dir_fd=handle)
    folder.rmdir()
