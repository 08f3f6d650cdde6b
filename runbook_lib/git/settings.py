"""The settings allowed in a partial clone: with them git starts no program when it fetches missing objects."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from runbook_lib.errors import RunbookError
from runbook_lib.git.command import git

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
