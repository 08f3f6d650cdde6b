"""The git history of an archive: records that it contains, and the signatures of its commits.

Only the history can reveal that a bump's folder, or its newest records, were removed.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from runbook_lib.errors import RunbookError
from runbook_lib.git import settings as git_settings
from runbook_lib.git.command import GitFailed, git
from runbook_lib.records.chain import OPENING
from runbook_lib.records.statement import RUN, predicate_of

#: Overrides of any configuration: run no programs, omit nothing, and use no cached summary of the history.
_SETTINGS = git_settings.NO_BARE | {
    "core.fsmonitor": "false", "core.hooksPath": os.devnull, "core.commitGraph": "false", "protocol.allow": "never",
    "log.showSignature": "false", "log.showRoot": "true", "log.follow": "false", "diff.relative": "false",
}  # fmt: skip
_CHANGE = re.compile(r"\n?:[0-7]{6} [0-7]{6} [0-9a-f]+ (?P<blob>[0-9a-f]+) [A-Z]")
_COMMIT = re.compile(r"\n?(?P<commit>[0-9a-f]{40}|[0-9a-f]{64})")
#: Git's letters for a signature (git-log(1), %G?).  Only "G" is from a key that was allowed at that time.
_SIGNATURES = {
    "N": "is not signed with an SSH key",
    "B": "has a bad signature",
    "U": "is signed by a key that is not allowed, or was not allowed at that time",
    "R": "is signed by a revoked key",
}


@dataclass(frozen=True)
class ArchiveHistory:
    """The commits up to HEAD that changed an archive, and problems as sentences.

    ``uncommitted`` are the paths within the archive of closed records that are in no commit in their present form.
    """

    commits: tuple[str, ...] = ()
    uncommitted: tuple[str, ...] = ()
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _RecordVersion:
    """A record's statement as of a commit."""

    commit: str
    content: bytes
    is_closed: bool


_Versions: TypeAlias = dict[str, list[_RecordVersion]]


def check_history(archive: Path, allowed_signers: Path | None = None) -> ArchiveHistory:
    """Compare the records in an archive, or in a part of it, with its git history, if it has one.

    With a file of allowed signers (ssh-keygen(1)), every commit that changed the archive must be signed, and every
    closed record committed.  Raises RunbookError if the history or that file cannot be read.
    """
    has_history = _has_history(archive)
    if allowed_signers is not None:
        if not allowed_signers.is_file():
            raise RunbookError(
                f"{allowed_signers} does not exist. Pass a file of allowed signers, with lines such as "
                "`ada@example.org ssh-ed25519 AAAA…`: runbook audit verify --allowed-signers FILE."
            )
        if shutil.which("ssh-keygen") is None:
            raise RunbookError("Verifying signatures needs ssh-keygen, which is not on PATH. Install OpenSSH's client.")
        if not has_history:
            raise RunbookError(
                f"{archive} has no git history, so its signatures cannot be verified. Commit the archive to git, "
                "or omit --allowed-signers."
            )
    if not has_history:
        return ArchiveHistory()
    versions = _history(archive)
    history = ArchiveHistory(_commits(archive), _uncommitted(archive, versions))
    history.problems.extend([*_truncation(archive), *_missing_records(archive, versions)])
    if allowed_signers is not None:
        for path in history.uncommitted:
            history.problems.append(f"{archive / path}: is not in any commit in this state, so it is unsigned.")
        history.problems.extend(_unsigned(archive, allowed_signers, history.commits))
    return history


def _git(archive: Path, *arguments: str, stdin: str | None = None, settings: dict[str, str] | None = None) -> str:
    # git replace could substitute other objects for the signed ones.
    settings = _SETTINGS | (settings or {})
    return git(archive, "--no-replace-objects", *arguments, stdin=stdin, settings=settings, offline=True)


def _has_history(archive: Path) -> bool:
    try:
        git_dir = git_settings.repository_of(archive)
        if git_dir is None:
            return False
        git_settings.refuse_archive(git_dir)
        if _git(archive, "rev-parse", "--is-inside-work-tree") != "true":
            return False
        used = _git(archive, "rev-parse", "--absolute-git-dir")
    except FileNotFoundError:  # git is not installed
        return False
    except GitFailed as error:
        if "not a git repository" in error.stderr:
            return False
        raise  # for example a checkout owned by another user, which git does not trust
    if Path(used).resolve() != git_dir.resolve():
        raise RunbookError(
            f"git uses {used} as the repository of {archive}, but {git_dir} is nearer. Remove the one that is not its "
            "repository."
        )
    try:
        _git(archive, "rev-parse", "--verify", "--quiet", "HEAD")
    except GitFailed:  # nothing is committed yet
        return False
    return bool(_git(archive, "rev-list", "-1", "HEAD", "--", "."))


def _commits(archive: Path) -> tuple[str, ...]:
    """Return the commits that changed the archive, including merges that differ from all their parents."""
    commits = []
    for line in _git(archive, "rev-list", "--full-history", "--parents", "HEAD", "--", ".").splitlines():
        commit, *parents = line.split()
        combined_diff = "diff-tree", "-c", "-r", "--no-renames", "--name-only", "--no-commit-id", commit, "--", "."
        if len(parents) < 2 or _git(archive, *combined_diff):
            commits.append(commit)
    return tuple(commits)


def _truncation(archive: Path) -> Iterator[str]:
    """Yield a problem if the history does not go back to its beginning."""
    shallow = _git(archive, "rev-parse", "--is-shallow-repository") == "true"
    grafts = Path(_git(archive, "rev-parse", "--path-format=absolute", "--git-path", "info/grafts"))
    if shallow or grafts.is_file():
        remedy = "Run `git fetch --unshallow` in this shallow clone." if shallow else f"Remove {grafts}."
        yield f"{archive}: its git history is truncated, so earlier removals cannot be detected. {remedy}"


def _uncommitted(archive: Path, history: _Versions) -> tuple[str, ...]:
    """Return the paths of the statements of closed records that are in no commit in their present form."""
    uncommitted = []
    for folder, folders, _ in os.walk(archive, followlinks=False):
        folders[:] = sorted(name for name in folders if name != ".git" and not name.startswith(OPENING))
        file = Path(folder, RUN)
        path = file.relative_to(archive).as_posix()
        content = _read(file)
        is_committed = any(version.content == content for version in history.get(path, ()))
        if content is not None and _is_closed(content) and not is_committed:
            uncommitted.append(path)
    return tuple(uncommitted)


def _missing_records(archive: Path, history: _Versions) -> Iterator[str]:
    """Yield a problem for each record in the history that is now missing or was closed with different content."""
    missing: dict[Path, str] = {}
    for path, versions in history.items():
        file = archive / path
        content = _read(file)
        changed = next((version for version in versions if version.is_closed and version.content != content), None)
        if content is None:
            record = file.parent
            missing.setdefault(record if os.path.isdir(record.parent) else record.parent, versions[0].commit)
        elif changed is not None:
            yield f"{file}: was changed after it was closed: it differs from commit {changed.commit[:12]}."
    for folder, commit in missing.items():
        yield f"{folder}: is missing, but commit {commit[:12]} contains it: it was removed, renamed or replaced."


def _history(archive: Path) -> _Versions:
    """Return all versions of each statement in the history, newest first, by path within the archive."""
    log = _git(
        archive, "log", "--full-history", "--diff-merges=separate", "--no-renames", "--no-ext-diff", "--raw",
        "--no-abbrev", "-z", "--relative", "--no-color", "--format=%H", "HEAD", "--", ".",
    )  # fmt: skip
    commit = ""
    #: The newest commit that contains each path and blob.
    commits: dict[tuple[str, str], str] = {}
    parts = iter(log.split("\0"))
    for part in parts:
        if change := _CHANGE.fullmatch(part):
            path = next(parts)
            if Path(path).name == RUN and OPENING not in path and set(change["blob"]) != {"0"}:
                commits.setdefault((path, change["blob"]), commit)
        elif header := _COMMIT.fullmatch(part):
            commit = header["commit"]
    versions: _Versions = {}
    contents = _contents(archive, [blob for _, blob in commits])
    for ((path, _), commit), content in zip(commits.items(), contents, strict=True):
        is_closed = _is_closed(content)
        if is_closed is not None:
            versions.setdefault(path, []).append(_RecordVersion(commit, content, is_closed))
    return versions


def _contents(archive: Path, blobs: list[str]) -> list[bytes]:
    """Return the contents of these objects, in the same order."""
    if not blobs:
        return []
    text = _git(archive, "cat-file", "--batch", stdin="\n".join(blobs) + "\n")
    batch = text.encode("utf-8", "surrogateescape") + b"\n"
    contents = []
    start = 0
    for blob in blobs:
        end = batch.index(b"\n", start)
        name, kind, *size = batch[start:end].split()
        if name.decode() != blob or kind != b"blob" or not size:
            answer = batch[start:end].decode()
            raise RunbookError(f"git cannot read {blob} in {archive}: {answer}. Run `git fsck` there.")
        start = end + 1 + int(size[0]) + 1
        contents.append(batch[end + 1 : start - 1])
    return contents


def _unsigned(archive: Path, allowed_signers: Path, commits: tuple[str, ...]) -> Iterator[str]:
    """Yield a problem for each commit without a valid signature by an allowed key."""
    if not commits:
        return
    settings = {
        "gpg.ssh.allowedSignersFile": str(allowed_signers),
        # A checkout must not choose the program that verifies it, and only SSH signatures are accepted.
        "gpg.ssh.program": "ssh-keygen",
        "gpg.program": "false",
        "gpg.openpgp.program": "false",
        "gpg.x509.program": "false",
    }
    with contextlib.suppress(GitFailed):  # not set
        # The archive must not override the user's own file of revoked keys.
        settings["gpg.ssh.revocationFile"] = git(Path("/"), "config", "--get", "gpg.ssh.revocationFile")
    log = _git(
        archive, "log", "--no-walk=unsorted", "--stdin", "--no-patch", "-z", "--format=%H %G? %an <%ae>",
        stdin="\n".join(commits) + "\n", settings=settings,
    )  # fmt: skip
    for line in filter(None, log.split("\0")):
        commit, sign, author = line.split(" ", 2)
        if sign != "G":
            problem = _SIGNATURES.get(sign, "has a signature that cannot be verified")
            yield f"{archive}: commit {commit[:12]} by {author} changed it and {problem}."


def _read(file: Path) -> bytes | None:
    """Return the content of a regular file; None if there is none."""
    try:
        return file.read_bytes() if file.is_file() and not file.is_symlink() else None
    except OSError:
        return None


def _is_closed(content: bytes) -> bool | None:
    """Return whether this is the statement of a closed record; None for content that is not a statement."""
    try:
        return bool(predicate_of(content)["state"] != "running")
    except ValueError:
        return None
