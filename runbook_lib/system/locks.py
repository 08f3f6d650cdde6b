"""A lock on a file, which says who holds it: the archive's chain of a bump, and a checkout that is being changed.

The operating system keeps the lock and ends it with its process, however that ends: so what a dead process wrote into
the file holds nothing, whoever has its number now.  Where machines share a file system another's lock may not be seen
from here: then the file itself tells, and what it names is never taken for over.
"""

import errno
import fcntl
import json
import os
import shlex
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.system import provenance
from runbook_lib.system.atomic_files import cannot_write, private
from runbook_lib.system.clock import now, stamp

#: Seconds to wait for whoever holds a lock: the chain is changed in milliseconds, on a slow disk in a few seconds.
LIMIT = 60.0
_SAID_AFTER, _PAUSE, _LONGEST = 2.0, 0.01, 4096


def _nobody(_: str) -> None:
    """Hears nothing."""


@contextmanager
def locked(file: Path, doing: str = "", say: Callable[[str], object] = _nobody) -> Iterator[None]:
    """Hold an exclusive lock on the file.  It ends with this process, however that ends.

    ``doing`` is told, in the file, to whoever meets the lock; without it the file stays empty.  ``say`` is told what is
    waited for, once that takes some seconds.  Raises RunbookError, which names the holder and what to do, when the lock
    cannot be had within LIMIT.
    """
    try:
        # What somebody has laid there as a link must not be written through.
        handle = private(str(file), os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)
    except OSError as error:
        raise cannot_write(file, error) from error
    try:
        found = os.fstat(handle)
        if found.st_nlink > 1 or not stat.S_ISREG(found.st_mode):
            raise cannot_write(file, OSError(errno.ELOOP, os.strerror(errno.ELOOP)))
        _require_own(file, found.st_uid)
        _take(file, handle, say)
        if doing:
            _tell(file, handle, doing)
        try:
            yield
        finally:
            if doing:
                os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _require_own(file: Path, owner: int) -> None:
    """Raise RunbookError for a file that a stranger put there: they could keep it locked for ever.

    Who owns the folder is no stranger: root may work in a person's archive.
    """
    if owner not in (os.geteuid(), file.parent.stat().st_uid):
        raise RunbookError(
            f"The lock {file} belongs to another user (id {owner}), who could block every run with it. Nothing was "
            f"done. Remove it (`rm {shlex.quote(str(file))}`), or work in a folder that only you can write to."
        )


def _take(file: Path, handle: int, say: Callable[[str], object]) -> None:
    begun, said = time.monotonic(), False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder, elsewhere = _told(handle) or _by_the_system(handle), False
        except OSError as error:
            raise cannot_write(file, error) from error
        else:
            holder = _told(handle)
            elsewhere = holder is not None and not provenance.is_here(holder["process"])
            if not elsewhere:
                return
            fcntl.flock(handle, fcntl.LOCK_UN)
        waited = time.monotonic() - begun
        if waited > LIMIT:
            raise RunbookError(_sentence(file, holder, elsewhere))
        if waited > _SAID_AFTER and not said:
            said = True
            say(f"Waiting for {_named(holder)}, up to {LIMIT:.0f} seconds.\n")
        time.sleep(_PAUSE)


def _tell(file: Path, handle: int, doing: str) -> None:
    holder = {"process": provenance.process(), "user": provenance.user(), "since": stamp(now()), "doing": doing}
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(holder).encode(), 0)
    except OSError as error:
        raise cannot_write(file, error) from error


def _told(handle: int) -> dict[str, Any] | None:
    """What the file says of its holder; None where that is nothing."""
    try:
        found: dict[str, Any] = json.loads(os.pread(handle, _LONGEST, 0))
        process = found["process"]
        told = {name: str(found[name]) for name in ("user", "since", "doing")}
        return {"process": {"pid": int(process["pid"]), "host": str(process["host"])}, **told}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _by_the_system(handle: int) -> dict[str, Any] | None:
    """Who holds the lock, as Linux tells in proc(5); None elsewhere, and for a process that may not be seen."""
    import psutil  # type: ignore[import-untyped]

    place = os.fstat(handle)
    told = f"{os.major(place.st_dev):02x}:{os.minor(place.st_dev):02x}:{place.st_ino}"
    try:
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        held = (line for line in lines if line[1:2] == ["FLOCK"] and line[5:6] == [told])
        process = psutil.Process(int(next(held)[4]))
        since = stamp(datetime.fromtimestamp(process.create_time(), UTC))
        return {"process": provenance.describe(process), "user": process.username(), "since": since, "doing": ""}
    except (OSError, ValueError, StopIteration, psutil.Error):
        return None


def _named(holder: Mapping[str, Any] | None) -> str:
    if holder is None:
        return "another command"
    process = holder["process"]
    where = "" if provenance.is_here(process) else f" on {process['host']}"
    doing = f", {holder['doing']}" if holder["doing"] else ""
    return f"process {process['pid']}{where} ({holder['user']}{doing}, since {holder['since']})"


def _sentence(file: Path, holder: Mapping[str, Any] | None, elsewhere: bool) -> str:
    held = f"{file} is held by {_named(holder)} for more than {LIMIT:.0f} seconds, so nothing was done."
    if elsewhere:
        return (
            f"{held} Whether that machine still works on it cannot be seen from here. Look there; if it does not, "
            f"remove {file} and run the same command again."
        )
    if holder is None or not provenance.is_here(holder["process"]):
        return f"{held} See what it is (`fuser {file}`), end it if it hangs, and run the same command again."
    return (
        f"{held} Wait for its end, or end it (`kill {holder['process']['pid']}`: its record then says cancelled), and "
        "run the same command again: what was done is found and kept."
    )
