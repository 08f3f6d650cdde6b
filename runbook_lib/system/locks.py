"""A lock on a file that contains its holder: for the chain of an archive, and for a checkout being changed.

The operating system releases the lock when its process ends, for any reason, so the note of a dead process locks
nothing.  If machines share a file system, a lock may be invisible from another machine.  In that case the note in the
file counts, and a lock that it attributes to another machine is never broken.

The package filelock is not used: it truncates the file, which erases another machine's note, and empties any file to
which somebody made a hard link of that name.
"""

import errno
import fcntl
import json
import os
import shlex
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from runbook_lib.errors import RunbookError
from runbook_lib.system import provenance
from runbook_lib.system.atomic_files import cannot_write, private
from runbook_lib.system.clock import now, stamp

#: Seconds to wait for a lock: the chain is changed in milliseconds, on a slow disk in a few seconds.
LIMIT = 60.0
#: Seconds after which waiting is reported, and between two attempts.
REPORT_AFTER, _PAUSE = 2.0, 0.01
#: Bytes that are read of a note.
_LONGEST_NOTE = 4096


@dataclass(frozen=True)
class LockHolder:
    """A process that holds a lock; ``doing`` is its purpose, empty if unknown."""

    pid: int
    host: str
    user: str
    since: str
    doing: str

    @property
    def is_here(self) -> bool:
        """True for a process of this machine."""
        return provenance.is_here({"host": self.host})

    def __str__(self) -> str:
        host = "" if self.is_here else f" on {self.host}"
        doing = f", {self.doing}" if self.doing else ""
        return f"process {self.pid}{host} ({self.user}{doing}, since {self.since[:10]} {self.since[11:16]} UTC)"


@contextmanager
def locked(file: Path, doing: str = "", say: Callable[[str], object] | None = None) -> Iterator[None]:
    """Hold an exclusive lock on the file until the block or this process ends.

    ``doing`` is written to the file for others who wait for the lock; without it the file stays empty.  ``say``
    receives a message if waiting takes several seconds.  Raises RunbookError, with the holder and advice, when the lock
    is not free within LIMIT seconds.
    """
    with ExitStack() as stack:
        try:
            # Do not follow links or wait for pipes.
            handle = private(str(file), os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)
            stack.callback(os.close, handle)
            _require_safe(file, os.fstat(handle))
            _acquire(file, handle, say)
            if doing:
                holder = {"user": provenance.user(), "since": stamp(now()), "doing": doing}
                note = {"process": provenance.process(), **holder}
                os.ftruncate(handle, 0)
                stack.callback(os.ftruncate, handle, 0)
                os.pwrite(handle, json.dumps(note).encode(), 0)
        except OSError as error:
            raise cannot_write(file, error) from error
        yield


def _require_safe(file: Path, status: os.stat_result) -> None:
    """Raise RunbookError for a link, a pipe, or a file of another user, who could lock it forever.

    The owner of the folder is trusted: root may work in a person's archive.
    """
    if status.st_nlink > 1 or not stat.S_ISREG(status.st_mode):
        raise cannot_write(file, OSError(errno.ELOOP, os.strerror(errno.ELOOP)))
    if status.st_uid not in (os.geteuid(), file.parent.stat().st_uid):
        raise RunbookError(
            f"The lock {file} belongs to another user (id {status.st_uid}), who could block every run with it. Nothing "
            f"was done. Remove it (`rm {shlex.quote(str(file))}`), or work in a folder that only you can write to."
        )


def _acquire(file: Path, handle: int, say: Callable[[str], object] | None) -> None:
    start = time.monotonic()
    while True:
        is_free = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_free = False
        holder = _read_note(handle)
        if is_free and (holder is None or holder.is_here):
            return
        if is_free:
            fcntl.flock(handle, fcntl.LOCK_UN)
        elif holder is None:
            holder = _system_holder(handle)
        waited = time.monotonic() - start
        if waited > LIMIT:
            raise RunbookError(_timeout_message(file, holder, is_invisible=is_free))
        if waited > REPORT_AFTER and say:
            say(f"Waiting for {holder or 'another command'}, up to {LIMIT:.0f} seconds.\n")
            say = None
        time.sleep(_PAUSE)


def _read_note(handle: int) -> LockHolder | None:
    """Return the holder in the file; None if there is none."""
    try:
        note = json.loads(os.pread(handle, _LONGEST_NOTE, 0))
        pid, host = int(note["process"]["pid"]), str(note["process"]["host"])
        return LockHolder(pid, host, str(note["user"]), str(note["since"]), str(note["doing"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _system_holder(handle: int) -> LockHolder | None:
    """Return the holder that Linux names (proc(5)); None on other systems, and for a process that is not visible."""
    import psutil  # type: ignore[import-untyped]

    status = os.fstat(handle)
    inode = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        pids = [int(fields[4]) for fields in locks if fields[1:2] == ["FLOCK"] and fields[5:6] == [inode]]
        process = psutil.Process(pids[0])
        since = stamp(datetime.fromtimestamp(process.create_time(), UTC))
        return LockHolder(process.pid, provenance.describe(process)["host"], process.username(), since, "")
    except (OSError, ValueError, IndexError, psutil.Error):
        return None


def _timeout_message(file: Path, holder: LockHolder | None, *, is_invisible: bool) -> str:
    """Return the error message; ``is_invisible`` is set for another machine's lock that only the note shows."""
    name = holder or "another command"
    reason = f"{file} has been locked by {name} for more than {LIMIT:.0f} seconds, so nothing was done."
    if is_invisible:
        return (
            f"{reason} This machine cannot see whether that process is still running. Check there; if it is not, "
            f"remove {file} and run the same command again."
        )
    if holder is None or not holder.is_here:
        return f"{reason} Find the process (`fuser {file}`), stop it if it hangs, and run the same command again."
    return (
        f"{reason} Wait until it ends, or stop it (`kill {holder.pid}`; its record will say cancelled), and run the "
        "same command again. Finished work is kept."
    )
