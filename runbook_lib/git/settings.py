"""The settings allowed in somebody else's repository: with them git starts no program and reads no other file.

Configuration comes with a folder that was copied or unpacked, and git obeys it: core.sshCommand, core.fsmonitor,
filters, hooks.  An allow-list, because every release of git may add more of them.
"""

import os
import re
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.command import git

#: The setting that keeps git from using a folder that only looks like a repository.
NO_BARE = {"safe.bareRepository": "explicit"}
#: Complete names, as git lists them: lowercase except for the part between the dots.
_ALLOWED = (
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|safecrlf|quotepath|abbrev|compression|sharedrepository|longpaths|checkstat|trustctime|protecthfs|protectntfs"
    r"|untrackedcache|commentchar|sparsecheckout|sparsecheckoutcone)",
    r"extensions\.(objectformat|refstorage|worktreeconfig|preciousobjects|relativeworktrees|noop)",
    r"(user|author|committer)\.(name|email|signingkey|useconfigonly)",
    r"gpg\.(format|mintrustlevel|ssh\.allowedsignersfile|ssh\.revocationfile)",
    r"(commit|tag|push)\.(gpgsign|default|autosetupremote|followtags)",
    r"remote\..+\.(url|pushurl|fetch|push|tagopt|mirror|prune|gh-resolved)",
    r"remote\.pushdefault",
    r"branch\..+\.(remote|pushremote|merge|rebase|description)",
    r"branch\.(autosetupmerge|autosetuprebase)",
    r"submodule\..+\.(url|active|branch)",
    r"submodule\.active",
    r"http\..+",  # settings for servers, but none is contacted
    r"lfs\.(repositoryformatversion|.+\.(access|locksverify))",
    r"(pull|rebase|merge)\.(rebase|ff|autosquash|autostash|conflictstyle)",
    r"fetch\.(prune|prunetags)",
    r"gc\.(auto|autodetach)",
    r"maintenance\.(auto|strategy)",
    r"index\.(version|threads)",
    r"feature\.(manyfiles|experimental)",
    r"advice\..+",
    r"init\.defaultbranch",
)
_KNOWN = re.compile("|".join(_ALLOWED), re.IGNORECASE | re.DOTALL)
#: For a partial clone, which fetches missing objects when they are read.
_PARTIAL = re.compile(r"extensions\.partialclone|remote\..+\.(promisor|partialclonefilter)", re.IGNORECASE | re.DOTALL)


def repository_of(place: Path) -> Path | None:
    """Return the git directory that git would find for a folder; None if there is none.

    Raises RunbookError for one on which no program may be run: a bare repository within other files, or a link.
    """
    for folder in (place.resolve(), *place.resolve().parents):
        own = folder / ".git"
        try:
            own.lstat()
        except PermissionError as error:
            raise CannotTell(f"{folder} may not be read by this user. Run again as a user with permission.") from error
        except OSError:
            pass
        if own.is_symlink():
            raise RunbookError(f"{own} is a symbolic link, so nothing was read there. Replace it with its target.")
        if own.is_dir():
            return own
        if own.is_file():
            return (folder / _words(own).removeprefix("gitdir:").strip()).resolve()
        if all((folder / name).exists() for name in ("HEAD", "objects", "refs")):
            raise RunbookError(
                f"{folder} looks like a bare repository, whose settings git would use, so nothing was read there. "
                f"Give a copy of the records: cp -r {shlex.quote(str(place))} FOLDER"
            )
    return None


def refuse_archive(git_dir: Path) -> None:
    """Raise RunbookError for a repository whose settings or files make git do more than read."""
    common = _common(git_dir)
    for folder in dict.fromkeys((git_dir, common)):
        _refuse_special(folder)
    alternates = common / "objects" / "info" / "alternates"
    if alternates.exists():
        raise RunbookError(
            f"{alternates} refers to objects stored elsewhere, so nothing was read. Copy them here: "
            f"git --git-dir={shlex.quote(str(common))} repack -a -d && rm {shlex.quote(str(alternates))}"
        )
    for file, key in _keys(git_dir):
        if not _KNOWN.fullmatch(key):
            raise RunbookError(
                f"{file} sets {key}, which is none of the settings that an archive may have: such a setting can make "
                f"git run a program or leave things out. Nothing was verified. Remove it: git config --file "
                f"{shlex.quote(str(file))} --unset-all {shlex.quote(key)}"
            )


def refuse_fetching(place: Path) -> None:
    """Raise RunbookError for a partial clone whose settings select a program for fetching missing objects."""
    listed = git(place, "config", "--null", "--name-only", "--list").split("\0")
    if not any(map(_PARTIAL.fullmatch, listed)):
        return
    git_dir = Path(git(place, "rev-parse", "--absolute-git-dir"))
    for file, key in _keys(git_dir):
        # A proxy would receive the user's password.
        if key.startswith("http.") or not (_KNOWN.fullmatch(key) or _PARTIAL.fullmatch(key)):
            raise RunbookError(
                f"{place} is a partial clone: git fetches missing objects as they are read, and its setting {key} may "
                "choose a program or a proxy for that. Nothing was read. If it is yours, move it to your configuration "
                f"(git config --global) and remove it there: git config --file {shlex.quote(str(file))} --unset-all "
                f"{shlex.quote(key)}"
            )


def _keys(git_dir: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file of settings of a repository with each of its names; included files are not read."""
    for file in (_common(git_dir) / "config", git_dir / "config.worktree"):
        if file.is_symlink():
            raise RunbookError(f"{file} is a symbolic link, so nothing was read there. Replace it with a file.")
        if file.is_file():
            listed = git(Path("/"), "config", "--file", str(file), "--no-includes", "--null", "--name-only", "--list")
            yield from ((file, key) for key in listed.split("\0") if key)


def _common(git_dir: Path) -> Path:
    """Return the folder that a linked work tree shares with the main one."""
    shared = git_dir / "commondir"
    return (git_dir / _words(shared).strip()).resolve() if shared.is_file() else git_dir


def _words(file: Path) -> str:
    with file.open("rb") as stream:
        return os.fsdecode(stream.read(10_000)).rstrip("\n")


def _refuse_special(folder: Path) -> None:
    """Raise RunbookError if git would wait for a pipe or read a device."""
    for place, _, names in os.walk(folder):
        for name in names:
            file = Path(place, name)
            try:
                mode = file.stat().st_mode
            except OSError:  # a broken link
                continue
            if not (stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):  # git's own fsmonitor has a socket there
                raise RunbookError(f"{file} is a pipe or a device, so nothing was read. Remove it.")
