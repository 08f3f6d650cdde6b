"""Files: written completely or not at all, for their owner alone; those of a folder read without leaving it."""

import contextlib
import errno
import glob
import itertools
import os
import re
import secrets
import shlex
import stat
from pathlib import Path

from runbook_lib.errors import CannotTell, RunbookError

_REASONS = {
    errno.ENOSPC: "The disk is full. Free some space",
    errno.EDQUOT: "Your disk quota is used up. Free some space",
    errno.EROFS: "The file system is read-only. Name another archive with audit=FOLDER",
    errno.EACCES: "You may not write there. Name another archive with audit=FOLDER",
    errno.EPERM: "You may not write there. Name another archive with audit=FOLDER",
    errno.ENOTDIR: "A part of that path is a file. Name another place",
    errno.EEXIST: "A part of that path is a file. Name another place",
    errno.EISDIR: "That is a folder. Name a file",
    errno.ELOOP: "A link or a pipe is there, and nothing is written through it. Remove it",
    errno.ENAMETOOLONG: "The path is too long. Name another place",
}

#: Bytes of a file that is read into memory; the largest pin file is 60 KB, the largest golden file 1 MB.
LARGEST = 64 * 2**20

#: Of drafts; another machine that writes in the same folder may have a process of the same id.
_NUMBERS = itertools.count(secrets.randbits(32))


def private(path: str, flags: int) -> int:
    """Open a file that only its owner may read and write, whatever the umask: an opener, as ``open`` takes one.

    A link is not followed.  What an earlier version left readable by others is closed to them.
    """
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    _close(handle)
    return handle


def write(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Replace the file in one step; ``durable`` waits until it is on the disk.

    A reader sees the old content or the new one.  Raises RunbookError when it cannot be written.
    """
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    draft = draft_of(path)
    try:
        try:
            with open(draft, "xb", opener=private) as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def create(path: Path, content: str) -> bool:
    """Make a file that was not there, in one step; False, and nothing is changed, where anything of the name is.

    Raises RunbookError when it cannot be written.
    """
    draft = draft_of(path)
    try:
        try:
            draft.write_text(content, "utf-8", errors="surrogateescape", newline="")
            os.link(draft, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK):
                raise
            return _create_without_link(path, content)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
    return True


def _create_without_link(path: Path, content: str) -> bool:
    """The same where the file system knows no second name of a file: a reader may see a part of it."""
    try:
        with path.open("x", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(content)
    except FileExistsError:
        return False
    return True


def read_file(path: Path) -> bytes:
    """The content of a regular file.  Raises OSError for anything else: a pipe, say, would be waited for."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read()


def read_inside(root: Path, path: str) -> bytes | None:
    """Return the content of a regular file below ``root``, or None where there is no file.

    No link is followed, neither for the file nor for a folder above it, wherever it points: git, too, sees a link as a
    text of its own.  Raises CannotTell for a link, a pipe or a device, a file of git's own, and one that is too large.
    """
    parts = path.split("/")
    if {"", ".", "..", ".git"} & {part.lower() for part in parts}:
        raise CannotTell(f"{path} is no file of the repository {root}, so it was not read. Correct the path.")
    with contextlib.ExitStack() as folders:
        try:
            folder = _opened(folders, str(root), None)
            for number, part in enumerate(parts):
                mode = os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode
                last = number == len(parts) - 1
                if stat.S_ISLNK(mode):
                    raise CannotTell(_link(root, "/".join(parts[: number + 1])))
                if stat.S_ISDIR(mode) == last:  # a folder in the place of the file, or a file in that of a folder
                    return None
                if last and not stat.S_ISREG(mode):
                    raise CannotTell(
                        f"{path} in {root} is a pipe, a socket or a device, so it was not read. Remove it."
                    )
                if last:
                    break
                folder = _opened(folders, part, folder)
            return _content(os.open(part, os.O_RDONLY | _SAFELY, dir_fd=folder), path)
        except (FileNotFoundError, ValueError):  # ValueError: a name that no file can have
            return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return None
            raise CannotTell(f"{path} in {root} could not be read: {error.strerror}. Correct that.") from error


_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _opened(folders: contextlib.ExitStack, name: str, within: int | None) -> int:
    """Open a folder until ``folders`` is closed; only the first may be a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    handle = os.open(name, flags if within is None else flags | os.O_NOFOLLOW, dir_fd=within)
    folders.callback(os.close, handle)
    return handle


def _content(handle: int, name: str) -> bytes:
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", name)
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise CannotTell(f"{name} is larger than {LARGEST >> 20} MB, so it was not read.")
    return content


def _link(root: Path, path: str) -> str:
    return (
        f"{path} in {root} is a symbolic link, which is never followed, so nothing was read through it. "
        f"Replace the link by a file or a folder of its own: git -C {shlex.quote(str(root))} log -- "
        f"{shlex.quote(path)} shows who made it."
    )


def read_given(path: Path) -> bytes:
    """Return the content of a file that a person named.

    What lies in a git checkout is read as ``read_inside`` reads it: the person chose the name, and somebody else what
    is there.  Raises OSError where it cannot be read, and CannotTell as ``read_inside``.
    """
    place = Path(os.path.abspath(path))
    root = next((folder for folder in place.parents if os.path.lexists(folder / ".git")), None)
    if root is None:
        return _content(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), str(path))
    content = read_inside(root, place.relative_to(root).as_posix())
    if content is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return content


def draft_of(path: Path) -> Path:
    """A new name beside the file, under which it is written before it takes the file's place."""
    return path.with_name(f".{path.name[:80]}.{os.getpid()}-{next(_NUMBERS) % 2**32:08x}.tmp")


def remove_left(folder: Path, name: str = "") -> None:
    """Remove the drafts in a folder, of one file or all, of processes that were killed."""
    for draft in folder.glob(f".{glob.escape(name[:80]) or '*'}.*.tmp"):
        told = re.fullmatch(r".*\.([0-9]{1,9})-[0-9a-f]{8}\.tmp", draft.name)
        if told and not _lives(int(told[1])):
            with contextlib.suppress(OSError):
                draft.unlink()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def make_folder(path: Path) -> None:
    """Make the folder and those above it, as ``private_folder`` does.  Raises RunbookError when it cannot be made."""
    try:
        private_folder(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def private_folder(path: Path) -> None:
    """Make the folder and those above it that are missing, all for their owner alone.  Raises OSError."""
    missing = list(itertools.takewhile(lambda folder: not folder.is_dir(), [path, *path.parents]))
    for folder in reversed(missing):
        # Path.mkdir gives only the last of several folders the mode.
        folder.mkdir(mode=0o700, exist_ok=True)


def close_to_others(folder: Path) -> None:
    """Take away everybody else's rights in a folder that an earlier version or another umask left open.

    A closed folder was closed with all that it holds, so it costs one look.  Links are not followed, and what belongs
    to another user stays as it is.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or not status.st_mode & 0o077 or status.st_uid != os.geteuid():
        return
    # The folder itself comes last: when this is interrupted, the next run does it again.
    for _, _, names, handle in os.fwalk(folder, topdown=False):
        for name in names:
            with contextlib.suppress(OSError):
                _close_file(name, handle)
        _close(handle)


def _close_file(name: str, folder: int) -> None:
    if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            _close(handle)
        finally:
            os.close(handle)


def _close(handle: int) -> None:
    status = os.fstat(handle)
    folder, file = stat.S_ISDIR(status.st_mode), stat.S_ISREG(status.st_mode)
    # A second name of a file may be a link that somebody laid to another file of ours.
    if status.st_uid == os.geteuid() and (folder or (file and status.st_nlink == 1)):
        os.fchmod(handle, stat.S_IMODE(status.st_mode) & ~0o077)


def cannot_write(path: Path, error: OSError) -> RunbookError:
    """The sentence for a failed write."""
    reason = _REASONS.get(error.errno or 0, f"The system says: {error.strerror or error}. Mend that")
    return RunbookError(f"{path} could not be written. {reason} and run the same command again.")
