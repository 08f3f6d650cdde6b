"""Files that are written completely or not at all, only for their owner, and read without following links."""

import contextlib
import errno
import glob
import itertools
import os
import re
import shlex
import stat
from pathlib import Path

from runbook_lib.errors import CannotTell, RunbookError

_REASONS = {
    errno.ENOSPC: "The disk is full. Free some space",
    errno.EDQUOT: "Your disk quota is used up. Free some space",
    errno.EROFS: "The file system is read-only. Choose another archive with audit=FOLDER",
    errno.EACCES: "You have no permission to write there. Choose another archive with audit=FOLDER",
    errno.EPERM: "You have no permission to write there. Choose another archive with audit=FOLDER",
    errno.ENOTDIR: "A part of the path is a file. Choose another path",
    errno.EEXIST: "A part of the path is a file. Choose another path",
    errno.EISDIR: "That is a folder. Choose a file",
    errno.ELOOP: "It is a link or a pipe, and nothing is written through it. Remove it",
    errno.ENAMETOOLONG: "The path is too long. Choose another path",
}

#: Bytes of a file that is read into memory; the largest pin file is 60 KB, the largest golden file 1 MB.
LARGEST = 64 * 2**20

#: Numbers of drafts; a process on another machine that writes to the folder may have the same ID.
_NUMBERS = itertools.count(int.from_bytes(os.urandom(4)))


def private(path: str, flags: int) -> int:
    """Open a file that only its owner may read and write, without following links: an opener for ``open``."""
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    _close(handle)
    return handle


def write(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Replace the file in one step; ``durable`` waits until it is on the disk.  Raises RunbookError."""
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
    """Write a new file in one step; return False, without a change, if something of the name exists."""
    draft = draft_of(path)
    try:
        try:
            draft.write_text(content, "utf-8", errors="surrogateescape", newline="")
            os.link(draft, path)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK):
                raise
            # On a file system without hard links readers may see an incomplete file.
            with path.open("x", encoding="utf-8", errors="surrogateescape", newline="") as file:
                file.write(content)
        finally:
            draft.unlink(missing_ok=True)
    except FileExistsError:
        return False
    except OSError as error:
        raise cannot_write(path, error) from error
    return True


def read_file(path: Path) -> bytes:
    """Return the content of a regular file.  Raises OSError for anything else: reading a pipe might never end."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return file.read()


def read_inside(root: Path, path: str) -> bytes | None:
    """Return the content of a regular file below ``root``, or None if there is no file.

    No link is followed, neither for the file nor for a folder above it, regardless of its target: git, too, treats a
    link as text.  Raises CannotTell for a link, a pipe or a device, for git's own files, and for a large file.
    """
    parts = path.split("/")
    if {"", ".", "..", ".git"} & {part.lower() for part in parts}:
        raise CannotTell(f"{path} is not a file of the repository {root}, so it was not read. Correct the path.")
    with contextlib.ExitStack() as folders:
        try:
            folder = _opened(folders, str(root), None)
            for number, part in enumerate(parts, 1):
                mode = os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode
                last = number == len(parts)
                if stat.S_ISLNK(mode):
                    raise CannotTell(_link(root, "/".join(parts[:number])))
                if stat.S_ISDIR(mode) == last:  # a folder instead of the file, or a file instead of a folder
                    return None
                if not last:
                    folder = _opened(folders, part, folder)
                elif not stat.S_ISREG(mode):
                    raise CannotTell(f"{path} in {root} is not a regular file, so it was not read. Remove it.")
            return _content(os.open(part, os.O_RDONLY | _SAFELY, dir_fd=folder), path)
        except (FileNotFoundError, ValueError):  # ValueError: a name that no file can have
            return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return None
            raise CannotTell(f"{path} in {root} could not be read: {error.strerror}.") from error


_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _opened(folders: contextlib.ExitStack, name: str, parent: int | None) -> int:
    """Open a folder, and close it with ``folders``; only the first folder may be a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    handle = os.open(name, flags if parent is None else flags | os.O_NOFOLLOW, dir_fd=parent)
    folders.callback(os.close, handle)
    return handle


def _content(handle: int, name: str) -> bytes:
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", name)
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise CannotTell(f"{name} is larger than {LARGEST >> 20} MB, so it was not read.")
    return content


def _link(root: Path, path: str) -> str:
    return (
        f"{path} in {root} is a symbolic link, which is never followed, so nothing was read through it. "
        f"Replace the link with a file or a folder: git -C {shlex.quote(str(root))} log -- "
        f"{shlex.quote(path)} shows who added it."
    )


def read_named(path: Path) -> bytes:
    """Return the content of a file that a person named.

    A file of a git checkout is read as ``read_inside`` reads it: the person chose the name, but somebody else the
    content.  Raises OSError if it cannot be read, and CannotTell as ``read_inside``.
    """
    absolute = Path(os.path.abspath(path))
    root = next((folder for folder in absolute.parents if os.path.lexists(folder / ".git")), None)
    if root is None:
        return _content(os.open(absolute, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), str(path))
    content = read_inside(root, absolute.relative_to(root).as_posix())
    if content is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return content


def draft_of(path: Path) -> Path:
    """Return a new name beside the file, for its content until it replaces the file."""
    return path.with_name(f".{path.name[:80]}.{os.getpid()}-{next(_NUMBERS) % 2**32:08x}.tmp")


def remove_drafts(folder: Path, name: str = "") -> None:
    """Remove drafts, of one file or all, that killed processes left in a folder."""
    for draft in folder.glob(f".{glob.escape(name[:80]) or '*'}.*.tmp"):
        import psutil  # type: ignore[import-untyped]  # hardly ever is there a draft

        match = re.fullmatch(r".*\.([0-9]{1,9})-[0-9a-f]{8}\.tmp", draft.name)
        if match and not psutil.pid_exists(int(match[1])):
            with contextlib.suppress(OSError):
                draft.unlink()


def make_folder(path: Path) -> None:
    """Create the folder and its parents like ``private_folder``.  Raises RunbookError on failure."""
    try:
        private_folder(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def private_folder(path: Path) -> None:
    """Create the folder and its missing parents, accessible only to their owner.  Raises OSError."""
    missing = list(itertools.takewhile(lambda folder: not folder.is_dir(), [path, *path.parents]))
    for folder in reversed(missing):
        # Path.mkdir applies the mode only to the last of several folders.
        folder.mkdir(mode=0o700, exist_ok=True)


def close_to_others(folder: Path) -> None:
    """Remove the permissions of others on a folder that an earlier version or a different umask left open.

    A closed folder was closed with its content, so that it costs one query.  Links are not followed, and files of
    another user are left unchanged.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or not status.st_mode & 0o077 or status.st_uid != os.geteuid():
        return
    # The folder itself comes last: after an interruption, the next run does it again.
    for _, _, names, handle in os.fwalk(folder, topdown=False):
        for name in names:
            with contextlib.suppress(OSError):
                _close_file(name, handle)
        _close(handle)


def make_read_only(folder: Path) -> None:
    """Remove the write permission on the files in a folder.  ``write`` still replaces them, and others' files stay."""
    with contextlib.ExitStack() as folders:
        handle = _opened(folders, str(folder), None)
        for name in os.listdir(handle):
            with contextlib.suppress(OSError):
                _close_file(name, handle, 0o377)


def _close_file(name: str, folder: int, rights: int = 0o077) -> None:
    if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            _close(handle, rights)
        finally:
            os.close(handle)


def _close(handle: int, rights: int = 0o077) -> None:
    """Remove these permissions on an open file or folder that belongs to this user."""
    status = os.fstat(handle)
    folder, file = stat.S_ISDIR(status.st_mode), stat.S_ISREG(status.st_mode)
    # A file with a second name may be a hard link that somebody else made to another of our files.
    if status.st_uid == os.geteuid() and (folder or (file and status.st_nlink == 1)):
        os.fchmod(handle, stat.S_IMODE(status.st_mode) & ~rights)


def cannot_write(path: Path, error: OSError) -> RunbookError:
    """Return the error for a failed write."""
    reason = _REASONS.get(error.errno or 0, f"{error.strerror or error}. Fix that")
    return RunbookError(f"{path} could not be written. {reason} and run the same command again.")
