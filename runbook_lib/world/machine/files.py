"""Files that are written completely or not at all, folders for their owner alone, locks, and files of a checkout."""

import errno
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

from runbook_lib.errors import CannotTell, RunbookError

_REASONS = {
    errno.ENOSPC: "The disk is full. Free some space",
    errno.EDQUOT: "Your disk quota is used up. Free some space",
    errno.EROFS: "The file system is read-only. Choose another archive with RUNBOOK_AUDIT=FOLDER",
    errno.EACCES: "You have no permission to write there. Choose another archive with RUNBOOK_AUDIT=FOLDER",
    errno.EPERM: "You have no permission to write there. Choose another archive with RUNBOOK_AUDIT=FOLDER",
    errno.ENOTDIR: "A part of the path is a file. Choose another path",
    errno.EEXIST: "A part of the path is a file. Choose another path",
    errno.EISDIR: "That is a folder. Choose a file",
    errno.ENAMETOOLONG: "The path is too long. Choose another path",
}

#: Bytes of a file that is read into memory; the largest pin file is 60 KB, the largest golden file 1 MB.
LARGEST = 64 * 2**20
#: Seconds after which waiting for a lock is reported, and seconds to wait for it.
REPORT_AFTER, LIMIT = 2.0, 60.0
#: The names of drafts, which replace a file when they are complete.
_PREFIX, _SUFFIX = ".runbook-", ".tmp"


def write(path: Path, content: str | bytes) -> None:
    """Replace the file in one step, when the new content is on the disk.  Raises RunbookError."""
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    try:
        handle, name = tempfile.mkstemp(_SUFFIX, _PREFIX, path.parent)
        draft = Path(name)
        try:
            with open(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def is_draft(name: str) -> bool:
    """Return True for the name of a draft of a file or folder."""
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


@contextmanager
def temporary_folder(place: Path | None = None) -> Iterator[Path]:
    """Yield a folder with the name of a draft, removed at the end; by default among the system's temporary files.

    Raises RunbookError for an OSError.
    """
    try:
        with tempfile.TemporaryDirectory(_SUFFIX, _PREFIX, place) as folder:
            yield Path(folder)
    except OSError as error:
        raise cannot_write(place or Path(os.environ.get("TMPDIR", "/tmp")), error) from error


def remove_drafts(folder: Path) -> None:
    """Remove drafts that killed processes left in a folder; no other process may be writing there."""
    for draft in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        draft.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Create the folder and its missing parents, accessible only to their owner.  Raises RunbookError."""
    missing = list(takewhile(lambda folder: not folder.is_dir(), [path, *path.parents]))
    try:
        for folder in reversed(missing):  # Path.mkdir applies the mode only to the last of several folders
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path | str, error: OSError) -> RunbookError:
    """Return the error for a failed write."""
    reason = _REASONS.get(error.errno or 0, f"{error.strerror or error}. Fix that")
    return RunbookError(f"{path} could not be written. {reason} and run the same command again.")


@contextmanager
def locked(file: Path, say: Callable[[str], object] = str) -> Iterator[None]:
    """Hold an exclusive lock on the file until the block or this process ends.

    ``say`` receives a message if waiting takes several seconds.  Raises RunbookError when the lock is not free within
    LIMIT seconds.
    """
    from filelock import FileLock, Timeout  # takes 60 ms to import, and only the full installation has it

    lock = FileLock(file, mode=0o600)
    try:
        try:
            lock.acquire(REPORT_AFTER)
        except Timeout:
            say(f"Waiting for another command, which has locked {file}, up to {LIMIT:.0f} seconds.\n")
            lock.acquire(LIMIT)
    except Timeout as error:
        raise RunbookError(
            f"{file} has been locked by another command for more than {LIMIT:.0f} seconds, so nothing was done. A run "
            "with wait=True may take hours.",
            "Wait until it ends, or stop it (its process: `fuser "
            f"{shlex.quote(str(file))}`), and run the same command again. Finished work is kept.",
        ) from error
    except OSError as error:
        raise cannot_write(file, error) from error
    try:
        yield
    finally:
        lock.release()


def read_inside(root: Path, path: str) -> bytes | None:
    """Return the content of a file below ``root``, or None if there is no file.

    No link is followed, regardless of its target: git, too, treats a link as text.  Raises CannotTell for a link, for a
    path outside, for git's own files, and for a large file.
    """
    inside = Path(os.path.realpath(root))
    try:
        actual = Path(os.path.realpath(root / path))
        is_link = actual != inside / path or actual.is_symlink()  # the latter if it leads to itself
        if is_link or not actual.is_relative_to(inside) or ".git" in path.lower().split("/"):
            raise CannotTell(
                f"{path} in {root} is a symbolic link, below one, or no file of the repository, so it was not read.",
                f"Replace a link with a file or a folder: git -C {shlex.quote(str(root))} log -- {shlex.quote(path)} "
                "shows who added it.",
            )
        return read_bounded(actual) if actual.is_file() else None
    except ValueError:  # a name that no file can have
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise CannotTell(f"{path} in {root} could not be read: {error.strerror}.") from error


def read_named(path: Path) -> bytes:
    """Return the content of a file that a person named.

    A file of a git checkout is read as ``read_inside`` reads it: the person chose the name, but somebody else the
    content.  Raises OSError if it cannot be read, and CannotTell as ``read_inside``.
    """
    absolute = Path(os.path.abspath(path))
    root = next((folder for folder in absolute.parents if (folder / ".git").exists()), None)
    if root is None:
        return read_bounded(absolute)
    content = read_inside(root, absolute.relative_to(root).as_posix())
    if content is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return content


def read_bounded(file: Path) -> bytes:
    """Return the content of a file of at most LARGEST bytes.  Raises OSError, and CannotTell for a larger one."""
    if file.stat().st_size > LARGEST:
        raise CannotTell(f"{file} is larger than {LARGEST >> 20} MB, so it was not read.")
    return file.read_bytes()
