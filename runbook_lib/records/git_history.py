"""What git keeps of an archive that lies in a git checkout: records that its history knows, and who signed for them.

Nothing within a bump's folder can tell that all of it, or its newest records, were taken away.  The commits can.
"""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.git import settings as git_settings
from runbook_lib.git.command import GitFailed, git
from runbook_lib.records.chain import OPENING
from runbook_lib.records.statement import RUN, predicate_of

#: Whatever the configuration says, a person's own too: no program is run, nothing is left out, and no kept summary of
#: the history is believed.
_SETTINGS = git_settings.NO_BARE | {
    "core.fsmonitor": "false", "core.hooksPath": os.devnull, "core.commitGraph": "false", "protocol.allow": "never",
    "log.showSignature": "false", "log.showRoot": "true", "log.follow": "false", "diff.relative": "false",
}  # fmt: skip
_CHANGE = re.compile(r"\n?:[0-7]{6} [0-7]{6} [0-9a-f]+ (?P<blob>[0-9a-f]+) [A-Z]")
_COMMIT = re.compile(r"\n?(?P<commit>[0-9a-f]{40}|[0-9a-f]{64})")
#: What git says of a signature (git-log(1), %G?); only "G" is one of a key that the file allows for that time.
_SIGNATURES = {
    "N": "is not signed with an SSH key",
    "B": "has a signature that does not fit it",
    "U": "is signed by a key that is not allowed, or was not at its time",
    "R": "is signed by a key that was revoked",
}


@dataclass(frozen=True)
class Kept:
    """What the commits up to HEAD hold of an archive; ``problems`` are sentences.

    ``commits`` are those that changed it.  ``uncommitted`` are the paths of closed records, within the archive, that
    HEAD does not hold as they are.
    """

    commits: tuple[str, ...] = ()
    uncommitted: tuple[str, ...] = ()
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Version:
    """A record's statement as a commit had it: whether it was closed, and its bytes."""

    commit: str
    content: bytes
    closed: bool


def look(archive: Path, allowed_signers: Path | None = None) -> Kept:
    """Hold the records of an archive, or of a part of one, against its git history; without one nothing is kept.

    With a file of allowed signers (ssh-keygen(1)) whoever changed the archive must have signed for that, and every
    closed record must be committed.  Raises RunbookError where the history or that file cannot be read.
    """
    if allowed_signers is not None and not allowed_signers.is_file():
        raise RunbookError(
            f"There is no file {allowed_signers}. Name one of allowed signers, with lines such as "
            "`ada@example.org ssh-ed25519 AAAA…`: runbook audit verify --allowed-signers FILE."
        )
    if allowed_signers is not None and shutil.which("ssh-keygen") is None:
        raise RunbookError("Verifying signatures needs ssh-keygen, which is not on PATH. Install OpenSSH's client.")
    if not _has_history(archive):
        if allowed_signers is not None:
            raise RunbookError(
                f"{archive} has no git history, so nobody signed for it. Give an archive that is kept in git, "
                "or leave --allowed-signers out."
            )
        return Kept()
    kept = Kept(_commits(archive), _uncommitted(archive))
    kept.problems.extend([*_cut_off(archive), *_lost(archive)])
    if allowed_signers is not None:
        unsigned = (f"{archive / it}: is in no commit as it is, so nobody signed for it." for it in kept.uncommitted)
        kept.problems.extend(unsigned)
        kept.problems.extend(_unsigned(archive, allowed_signers, kept.commits))
    return kept


def _git(archive: Path, *arguments: str, stdin: str | None = None, settings: dict[str, str] | None = None) -> str:
    # Replaced objects would answer in place of those that were signed.
    together = _SETTINGS | (settings or {})
    return git(archive, "--no-replace-objects", *arguments, stdin=stdin, settings=together, offline=True)


def _has_history(archive: Path) -> bool:
    try:
        git_dir = git_settings.repository_of(archive)
        if git_dir is None:
            return False
        git_settings.refuse_archive(git_dir)
        if _git(archive, "rev-parse", "--is-inside-work-tree") != "true":
            return False
        used = _git(archive, "rev-parse", "--absolute-git-dir")
    except FileNotFoundError:  # git is not on this machine
        return False
    except GitFailed as error:
        if "not a git repository" in error.stderr:
            return False
        raise  # such as a checkout of another user's, which git does not trust
    if Path(used).resolve() != git_dir.resolve():
        raise RunbookError(
            f"git takes {used} for the repository of {archive}, and {git_dir} is nearer. Remove the one that is none."
        )
    try:
        _git(archive, "rev-parse", "--verify", "--quiet", "HEAD")
    except GitFailed:  # nothing was committed yet
        return False
    return bool(_git(archive, "rev-list", "-1", "HEAD", "--", "."))


def _commits(archive: Path) -> tuple[str, ...]:
    """Those that changed the archive; a merge is one if what it holds is of none of its parents."""
    found = []
    for line in _git(archive, "rev-list", "--full-history", "--parents", "HEAD", "--", ".").splitlines():
        commit, *parents = line.split()
        merged = len(parents) > 1
        own = "diff-tree", "-c", "-r", "--no-renames", "--name-only", "--no-commit-id", commit, "--", "."
        if not merged or _git(archive, *own):
            found.append(commit)
    return tuple(found)


def _cut_off(archive: Path) -> Iterator[str]:
    shallow = _git(archive, "rev-parse", "--is-shallow-repository") == "true"
    grafts = Path(_git(archive, "rev-parse", "--path-format=absolute", "--git-path", "info/grafts"))
    if shallow or grafts.is_file():
        yield (
            f"{archive}: its git history is cut off, so what was removed before cannot be found. "
            + ("This is a shallow clone: `git fetch --unshallow` brings the rest." if shallow else f"Remove {grafts}.")
        )


def _uncommitted(archive: Path) -> tuple[str, ...]:
    """Closed records, by the path of their statement, that HEAD does not hold byte by byte."""
    listed = (line.partition("\t") for line in _git(archive, "ls-tree", "-r", "-z", "HEAD", ".").split("\0"))
    blobs = {path: entry.split()[2] for entry, _, path in listed if entry and Path(path).name == RUN}
    held = dict(zip(blobs, _contents(archive, list(blobs.values())), strict=True))
    found = []
    for place, folders, _ in os.walk(archive, followlinks=False):
        folders[:] = sorted(it for it in folders if it != ".git" and not it.startswith(OPENING))
        file = Path(place, RUN)
        path = file.relative_to(archive).as_posix()
        content = _read(file)
        if content is not None and _closed(content) and held.get(path) != content:
            found.append(path)
    return tuple(found)


def _lost(archive: Path) -> Iterator[str]:
    """Records that a commit holds, and that are gone now, or were closed otherwise."""
    gone: dict[Path, str] = {}
    for path, versions in _history(archive).items():
        file = archive / path
        content = _read(file)
        closed = next((it for it in versions if it.closed and it.content != content), None)
        if content is None:
            bump, record = file.parent.parent, file.parent
            gone.setdefault(record if os.path.isdir(bump) else bump, versions[0].commit)
        elif closed is not None:
            yield f"{file}: was changed after it was closed: the commit {closed.commit[:12]} holds another."
    for place, commit in gone.items():
        yield f"{place}: is gone, but the commit {commit[:12]} holds it: it was removed, renamed or replaced."


def _history(archive: Path) -> dict[str, list[_Version]]:
    """Every version of every statement of a run in the history, newest first, by its path within the archive."""
    told = _git(
        archive, "log", "--full-history", "--diff-merges=separate", "--no-renames", "--no-ext-diff", "--raw",
        "--no-abbrev", "-z", "--relative", "--no-color", "--format=%H", "HEAD", "--", ".",
    )  # fmt: skip
    commit, blobs = "", dict[tuple[str, str], str]()
    parts = iter(told.split("\0"))
    for part in parts:
        if change := _CHANGE.fullmatch(part):
            path = next(parts)
            if Path(path).name == RUN and OPENING not in path and set(change["blob"]) != {"0"}:
                blobs.setdefault((path, change["blob"]), commit)
        elif found := _COMMIT.fullmatch(part):
            commit = found["commit"]
    versions: dict[str, list[_Version]] = {}
    for (path, _), content in zip(blobs, _contents(archive, [blob for _, blob in blobs]), strict=True):
        if (predicate := _predicate(content)) is not None:
            commit = blobs[path, _]
            versions.setdefault(path, []).append(_Version(commit, content, predicate["state"] != "running"))
    return versions


def _contents(archive: Path, blobs: list[str]) -> list[bytes]:
    """The bytes of these objects, in their order."""
    if not blobs:
        return []
    text = _git(archive, "cat-file", "--batch", stdin="\n".join(blobs) + "\n")
    told = text.encode("utf-8", "surrogateescape") + b"\n"
    found, at = [], 0
    for blob in blobs:
        end = told.index(b"\n", at)
        name, kind, *size = told[at:end].split()
        if name.decode() != blob or kind != b"blob" or not size:
            raise RunbookError(f"git cannot read {blob} of {archive}: {told[at:end].decode()}. Run `git fsck` there.")
        at = end + 1 + int(size[0]) + 1
        found.append(told[end + 1 : at - 1])
    return found


def _unsigned(archive: Path, allowed_signers: Path, commits: tuple[str, ...]) -> Iterator[str]:
    """Commits whose signature is none of an allowed key."""
    if not commits:
        return
    settings = _revoked() | {
        "gpg.ssh.allowedSignersFile": str(allowed_signers),
        # A checkout must not name the program that vouches for it; and other kinds of signature count for nothing.
        "gpg.ssh.program": "ssh-keygen",
        "gpg.program": "false",
        "gpg.openpgp.program": "false",
        "gpg.x509.program": "false",
    }
    told = _git(
        archive, "log", "--no-walk=unsorted", "--stdin", "--no-patch", "-z", "--format=%H %G? %an <%ae>",
        stdin="\n".join(commits) + "\n", settings=settings,
    )  # fmt: skip
    for line in filter(None, told.split("\0")):
        commit, sign, author = line.split(" ", 2)
        if sign != "G":
            what = _SIGNATURES.get(sign, "has a signature that cannot be verified")
            yield f"{archive}: the commit {commit[:12]} of {author} changed it and {what}."


def _revoked() -> dict[str, str]:
    """A person's own file of revoked keys, which no setting of the archive may replace."""
    try:
        return {"gpg.ssh.revocationFile": git(Path("/"), "config", "--get", "gpg.ssh.revocationFile")}
    except GitFailed:  # there is none
        return {}


def _read(file: Path) -> bytes | None:
    """The content; None where there is no such file, or something else."""
    try:
        return file.read_bytes() if file.is_file() and not file.is_symlink() else None
    except OSError:
        return None


def _predicate(content: bytes) -> dict[str, Any] | None:
    try:
        return predicate_of(content)
    except ValueError:
        return None


def _closed(content: bytes) -> bool:
    predicate = _predicate(content)
    return predicate is not None and predicate["state"] != "running"
