"""A git repository on this machine: everything that the runbook reads from it and does to it.

git itself does the work, by its command line, with the engineer's own authentication, signing and hooks.
No call waits for a password or a pass phrase: there is no terminal to ask on, and every call has a time limit.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from runbook_lib.errors import NoSuchBranch, Refused, RunbookError, Unreachable
from runbook_lib.git import command
from runbook_lib.git.blobs import read_blobs
from runbook_lib.git.command import GitFailed
from runbook_lib.system import atomic_files
from runbook_lib.text.edits import Edit
from runbook_lib.text.redact import Redactor

_NO_REMOTE = 2  #: What `git remote get-url` ends with where there is none of the name.
_FETCHED_FROM = re.compile(r"^(\S+)\t(.*) \(fetch\)", re.MULTILINE)
_SLUG = re.compile(r"(?:^|[/:])(?P<owner>[A-Za-z0-9][A-Za-z0-9-]*)/(?P<name>[A-Za-z0-9._-]+?)(?:\.git)?/?$")


@dataclass(frozen=True)
class Checkout:
    """A clone: with a work tree, or bare (then it can be read, and nothing in it be edited)."""

    path: Path
    bare: bool

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Find the repository that holds ``path``.  Raises RunbookError when there is none, or git is too old."""
        place = Path(path).expanduser().absolute()
        if not os.path.isdir(place):  # False, too, for what no path can be
            raise RunbookError(f"There is no folder {place}. Give the path of a git checkout.")
        command.require()
        with contextlib.suppress(GitFailed):
            return cls(Path(command.git(place, "rev-parse", "--show-toplevel")), bare=False)
        try:
            bare = command.git(place, "rev-parse", "--is-bare-repository") == "true"
            top = command.git(place, "rev-parse", "--absolute-git-dir" if bare else "--show-toplevel")
        except GitFailed as error:
            raise RunbookError(
                f"{place} is no git checkout. git says: {error.stderr} Give the path of a clone."
            ) from error
        return cls(Path(top), bare)

    # -- reading ------------------------------------------------------------------------------------------------

    def git(self, *arguments: str, stdin: str | None = None) -> str:
        """Run git here and return what it prints, without the final newline.  Raises GitFailed."""
        return command.git(self.path, *arguments, stdin=stdin)

    def resolve(self, ref: str) -> str:
        """The full commit id that ``ref`` names.  Raises RunbookError when it names none."""
        try:
            return self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        except GitFailed as error:
            raise RunbookError(
                f"{ref!r} names no commit in {self.path}. Fetch it first, or correct the name."
            ) from error

    def branch_tip(self, branch: str) -> str | None:
        """The commit of a local branch, if there is such a branch."""
        return self._tip(f"refs/heads/{branch}")

    def tracked_tip(self, remote: str, branch: str) -> str | None:
        """The commit that a remote's branch had when it was last fetched here."""
        return self._tip(f"refs/remotes/{remote}/{branch}")

    def _tip(self, ref: str) -> str | None:
        return self.git("for-each-ref", "--format=%(objectname)", "--count=1", ref) or None

    def current_branch(self) -> str | None:
        """The branch that is checked out; None when HEAD is detached."""
        return self.git("branch", "--show-current") or None

    def read(self, paths: Iterable[str], ref: str | None = None) -> dict[str, str | None]:
        """Texts by path, from a commit, or from the work tree when ``ref`` is None.  None where there is no file.

        Bytes that are no UTF-8 come as surrogate escapes and line ends as they are: a text written back is the same.
        Raises CannotTell for a link, which is not followed, and for what is no text, such as a pipe.
        """
        if ref is not None:
            wanted = [(ref, path) for path in paths]
            found = read_blobs(self.path, wanted)
            return {path: blob[1] if (blob := found[ref, path]) else None for _, path in wanted}
        return {path: self._read_file(path) for path in paths}

    def _read_file(self, path: str) -> str | None:
        content = None if self.bare else atomic_files.read_inside(self.path, path)
        return None if content is None else content.decode("utf-8", "surrogateescape")

    def uncommitted(self, paths: Sequence[str]) -> list[str]:
        """Those of the paths that differ, in index or work tree, from HEAD."""
        listed = self.git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *paths)
        return sorted(entry[3:] for entry in listed.split("\0") if entry)

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether ``newer`` contains ``older``."""
        return self.git("rev-list", "--max-count=1", "--end-of-options", older, f"^{newer}") == ""

    def merge_base(self, one: str, other: str) -> str | None:
        """The best common ancestor of two commits, or None for unrelated ones (or in a shallow clone)."""
        try:
            return self.git("merge-base", "--end-of-options", one, other)
        except GitFailed:
            return None

    def identity(self) -> tuple[str, str]:
        """Name and mail address that a commit made here would carry."""
        try:
            name, mail, _ = re.fullmatch(r"([^<>]*) <([^<>]*)> (.*)", self.git("var", "GIT_COMMITTER_IDENT")).groups()  # type: ignore[union-attr]
        except GitFailed as error:
            raise RunbookError(
                f"git does not know who commits in {self.path}. Set it with `git config user.name '…'` "
                "and `git config user.email '…'`."
            ) from error
        return name, mail

    # -- remotes ------------------------------------------------------------------------------------------------

    def remotes(self) -> list[str]:
        """The names of the remotes."""
        return self.git("remote").split()

    def remote_url(self, remote: str, *, push: bool = False) -> str | None:
        """The address of a remote, without credentials; None when there is no such remote."""
        try:
            return command.clean(self.git("remote", "get-url", *(["--push"] if push else []), "--", remote))
        except GitFailed as error:
            if error.status != _NO_REMOTE:
                raise
            return None

    def base_remote(self) -> str | None:
        """The remote that pull requests aim at: that of GITHUB_REPOSITORY, else ``upstream``, else ``origin``."""
        return self._base()[0]

    def _base(self) -> tuple[str | None, str]:
        """The same with its address."""
        urls = dict(_FETCHED_FROM.findall(self.git("remote", "-v")))
        wanted = f"/{os.environ.get('GITHUB_REPOSITORY', '/')}".lower()
        for name, url in urls.items() if len(urls) > 1 else ():
            if re.sub(r"(\.git)?/?$", "", url.replace(":", "/")).lower().endswith(wanted):
                return name, command.clean(url)
        name = next((name for name in ("upstream", "origin") if name in urls), None)
        return name, command.clean(urls.get(name or "", ""))

    def repository(self, env: Mapping[str, str] = os.environ) -> str:
        """``owner/name`` on the forge: GITHUB_REPOSITORY, else from the remotes ``upstream`` and ``origin``."""
        if slug := env.get("GITHUB_REPOSITORY"):
            if not re.fullmatch(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+", slug):
                raise RunbookError(f"GITHUB_REPOSITORY is {slug!r}; expected owner/name.")
            return slug
        remote, url = self._base()
        if remote is None:
            raise RunbookError(
                f"{self.path} has no remote upstream or origin, so its repository on GitHub is not known. "
                "Set GITHUB_REPOSITORY=owner/name."
            )
        return slug_of(url)

    def remote_tip(self, remote: str, branch: str, settings: Mapping[str, str] | None = None) -> str | None:
        """The commit that a branch has on the remote now; None when the remote has no such branch.

        ``settings`` as in ``git_command.git``.
        """
        ref = f"refs/heads/{branch}"
        listed = self._remote_call(remote, "ls-remote", "--", remote, ref, settings=settings)
        return next((line.split("\t")[0] for line in listed.splitlines() if line.endswith(f"\t{ref}")), None)

    def fetch(self, remote: str, branch: str) -> str:
        """Bring the branch's newest commit here, moving no ref, and return its id.

        Raises RunbookError when the remote has no such branch, Unreachable when the remote cannot be asked.
        """
        tip = self.remote_tip(remote, branch)
        if tip is None:
            raise NoSuchBranch(
                f"The branch {branch!r} does not exist on the remote {remote!r} ({self.remote_url(remote)}). "
                "Give the name of a branch that it has."
            )
        if not self.has(tip):
            self._remote_call(
                remote, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--refmap=",
                remote, f"refs/heads/{branch}",
            )  # fmt: skip
        return tip

    def has(self, commit: str) -> bool:
        """Whether the commit is in this clone."""
        return self.git("cat-file", "--batch-check", stdin=commit).endswith(tuple("0123456789"))

    def _remote_call(self, remote: str, *arguments: str, settings: Mapping[str, str] | None = None) -> str:
        try:
            return command.git(self.path, *arguments, settings=settings, remote=remote)
        except command.NoSuchRemote as error:
            raise RunbookError(
                f"{self.path} has no remote named {remote!r}; it has {', '.join(self.remotes()) or 'none'}. "
                "Add it with `git remote add`, or give another as remote."
            ) from error
        except GitFailed as error:
            raise Unreachable(
                f"The remote {remote!r} ({self.remote_url(remote)}) could not be asked. git says: {error.stderr} "
                "Check the address, the network and your credentials; `git ls-remote` must work without asking."
            ) from error

    # -- changing -----------------------------------------------------------------------------------------------

    def apply(self, edits: Sequence[Edit]) -> None:
        """Write the edits to the work tree: all of them or none.

        Refused when a file is no longer what the edit was made from, or is a link.  A run that is killed between
        two files leaves whole files; planning again finds what is still to do.
        """
        self.require_work_tree()
        for edit in edits:
            file = self.path / edit.path
            if file.is_symlink() or not file.resolve().is_relative_to(self.path.resolve()):
                raise Refused(f"{edit.path} is a link or lies outside {self.path}: it is not edited.")
            if self._read_file(edit.path) != edit.before:  # which refuses a link within the checkout, and git's own
                raise Refused(
                    f"{edit.path} in {self.path} is no longer what the plan was made from, so nothing was changed. "
                    "Run again to plan on what is there now."
                )
        drafts: list[tuple[Path, Path, Path | None]] = []  # of each file the new text, and the old one to go back to
        written: list[tuple[Path, Path | None]] = []
        try:
            for edit in edits:
                file = self.path / edit.path
                file.parent.mkdir(parents=True, exist_ok=True)
                drafts.append((file, _draft(file, edit.after), None))
                if edit.before is not None:
                    drafts[-1] = (*drafts[-1][:2], _draft(file, edit.before))
            for file, new, old in drafts:
                os.replace(new, file)
                written.append((file, old))
        except OSError as error:
            changed = _put_back(written)
            told = f"{', '.join(changed)} could not be put back: run again." if changed else "Nothing was changed."
            raise RunbookError(f"The edits could not be written to {self.path}: {error}. {told}") from error
        finally:
            for _, new, old in drafts:
                for draft in (new, old) if old else (new,):
                    with contextlib.suppress(OSError):
                        draft.unlink(missing_ok=True)

    def clear(self, paths: Iterable[str]) -> None:
        """Remove what runs that were killed have left beside these files, half written."""
        for folder in {(self.path / path).parent for path in paths}:
            if folder.resolve() == self.path.resolve() / folder.relative_to(self.path):  # through no link
                atomic_files.remove_drafts(folder)

    def require_work_tree(self) -> None:
        """Raise Refused in a bare repository."""
        if self.bare:
            raise Refused(
                f"{self.path} is a bare repository: there are no files to edit. Give a clone with a work tree."
            )

    def switch(self, branch: str, start: str | None = None) -> None:
        """Check out a branch, made at ``start`` when given.  git carries other uncommitted changes along or refuses."""
        self.require_work_tree()
        try:
            self.git("switch", "--quiet", *(["--no-track", "-c", branch, start] if start else [branch]))
        except GitFailed as error:
            raise Refused(
                f"The checkout {self.path} cannot be switched to the branch {branch}. git says: {error.stderr} "
                "Commit or stash what is in the way, then run again."
            ) from error

    def commit(self, paths: Sequence[str], message: str) -> str:
        """Commit exactly these files, signed off (and signed where git is set up so); the new commit's id."""
        self.identity()
        try:
            self.git("add", "--intent-to-add", "--", *paths)  # or git knows nothing of new files
            self.git("commit", "--quiet", "--signoff", "--file=-", "--only", "--", *paths, stdin=_public(message))
        except GitFailed as error:
            raise Refused(
                f"The commit in {self.path} was not made. git says: {error.stderr} "
                "A hook or the signing key may want attention; mend it, then run again."
            ) from error
        return self.resolve("HEAD")

    def empty_commit(self, message: str) -> str:
        """Commit nothing on the current branch, signed off, whatever else is staged; the new commit's id."""
        name, mail = self.identity()
        head, tree = self.resolve("HEAD"), self.git("rev-parse", "HEAD^{tree}")
        sign = ["-S"] if self._signs() else []
        signed_off = f"{_public(message)}\n\nSigned-off-by: {name} <{mail}>\n"
        made = self.git("commit-tree", *sign, "-p", head, tree, stdin=signed_off)
        self.git("update-ref", "-m", "commit: " + message.splitlines()[0], "HEAD", made, head)
        return made

    def _signs(self) -> bool:
        return self.git("config", "--type=bool", "--default=false", "--get", "commit.gpgsign") == "true"

    def merge(self, commit: str, message: str) -> str:
        """Merge a commit into the current branch, signed off; a conflict is undone and refused."""
        try:
            self.git("merge", "--quiet", "--no-ff", "--signoff", "-m", _public(message), commit)
        except GitFailed as error:
            if (Path(self.git("rev-parse", "--absolute-git-dir")) / "MERGE_HEAD").exists():
                self.git("merge", "--abort")
            raise Refused(
                f"{commit[:10]} could not be merged in {self.path}, and the branch is as it was. "
                f"git says: {error.stderr} Merge it by hand, then run again."
            ) from error
        return self.resolve("HEAD")

    def push(self, remote: str, branch: str, commit: str) -> None:
        """Push a commit as the branch, never by force.  Raises Refused when the remote refuses it."""
        if remote not in self.remotes():
            raise RunbookError(
                f"{self.path} has no remote named {remote!r} to push to; it has {', '.join(self.remotes())}."
            )
        try:
            self.git(
                "push",
                "--quiet",
                "--no-follow-tags",
                "--recurse-submodules=no",
                remote,
                f"{commit}:refs/heads/{branch}",
            )
        except GitFailed as error:
            raise Refused(
                f"The remote {remote!r} ({self.remote_url(remote, push=True)}) did not take the branch {branch}. "
                f"git says: {error.stderr} The commit is safe on the local branch; when you may push, run again."
            ) from error

    def push_commit(
        self, remote: str, commit: str, branch: str, *, seen: str | None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Make a branch of the remote name ``commit``, if it still names ``seen`` (None: if there is none yet).

        It may so take away what ``seen`` held, and nothing else.  ``settings`` as in ``git_command.git``.  Raises
        Refused when the remote refuses it, or has moved.
        """
        ref = f"refs/heads/{branch}"
        try:
            command.git(
                self.path, "push", "--quiet", "--no-follow-tags", "--recurse-submodules=no",
                f"--force-with-lease={ref}:{seen or ''}", "--", remote, f"{commit}:{ref}", settings=settings,
                remote=remote,
            )  # fmt: skip
        except GitFailed as error:
            moved = " It has moved since it was looked at: look again." if "stale info" in error.stderr else ""
            raise Refused(
                f"The remote {remote!r} ({self.remote_url(remote, push=True)}) did not take {commit[:10]} as {branch}. "
                f"git says: {error.stderr}{moved} When you may push, run again: what is there by then is found."
            ) from error


def slug_of(url: str) -> str:
    """``owner/name`` of a forge from the address of a remote (https, ssh, scp-like or a path)."""
    match = _SLUG.search(url)
    if match is None:
        raise RunbookError(
            f"The remote's address {command.clean(url)!r} names no owner/name. Set GITHUB_REPOSITORY=owner/name."
        )
    return f"{match['owner']}/{match['name']}"


def _public(message: str) -> str:
    """A commit's message as it may be pushed: parts of it come from logs."""
    return Redactor(os.environ).text(message)


def _put_back(written: Sequence[tuple[Path, Path | None]]) -> list[str]:
    """Give files the text that they had; the names of those that it cannot be done for."""
    changed = []
    for file, old in written:
        try:
            if old is None:
                file.unlink()
            else:
                os.replace(old, file)
        except OSError:
            changed.append(file.name)
    return changed


def _draft(file: Path, text: str) -> Path:
    """The text, safely on disk under another name in the same folder, with the file's mode."""
    draft = atomic_files.draft_of(file)
    try:
        with draft.open("xb") as stream:
            stream.write(text.encode("utf-8", "surrogateescape"))
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(draft, file.stat().st_mode & 0o7777 if file.exists() else 0o644)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise RunbookError(f"{file} could not be written: {error}. Nothing was changed.") from error
    return draft
