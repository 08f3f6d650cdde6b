"""A git repository on this machine: all reads and changes of it.

All work is done by the git command, with the engineer's own authentication, signing and hooks.
No call waits for a password or a pass phrase: there is no terminal, and every call has a time limit.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from runbook_lib.errors import NoSuchBranch, Refused, RunbookError, Unreachable
from runbook_lib.world.git import command
from runbook_lib.world.git.blobs import commits, read_files
from runbook_lib.world.git.command import GitFailed
from runbook_lib.world.git.remote_url import RemoteUrl
from runbook_lib.world.machine import files

_FETCHED_FROM = re.compile(r"^(\S+)\t(.*) \(fetch\)", re.MULTILINE)
_SLUG = re.compile(r"(?:^|[/:])(?P<slug>[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+?)(?:\.git)?/?$")


@dataclass(frozen=True)
class Checkout:
    """A clone: with a work tree, or bare (then it can be read, not edited).

    ``slug`` is ``owner/name`` on the forge where neither the environment nor a remote tells it.
    """

    path: Path
    bare: bool
    slug: str = ""

    @classmethod
    def open(cls, path: str | Path, slug: str = "") -> Self:
        """Find the repository that contains ``path``.  Raises RunbookError if there is none, or git is too old."""
        place = Path(os.path.expanduser(path)).absolute()  # which leaves the home of an unknown user as it is
        if not os.path.isdir(place):  # False for an impossible path too
            raise RunbookError(f"There is no folder {place}.", "Give the path of a git checkout.")
        command.require()
        try:
            bare = command.git(place, "rev-parse", "--is-bare-repository") == "true"
            top = command.git(place, "rev-parse", "--absolute-git-dir" if bare else "--show-toplevel")
        except GitFailed as error:
            raise RunbookError(
                f"{place} is not a git checkout. git reports: {error.stderr}", "Give the path of a clone."
            ) from error
        return cls(Path(top), bare, slug)

    # -- reading ------------------------------------------------------------------------------------------------

    def git(self, *arguments: str, **options: Any) -> str:
        """Run git here, with the options of ``command.output``.  Return what it prints, without the final newline."""
        return command.git(self.path, *arguments, **options)

    def resolve(self, ref: str) -> str:
        """Return the full commit ID of ``ref``.  Raises RunbookError if there is none."""
        commit = self._commit(ref)
        if commit is None:
            raise RunbookError(f"{ref!r} names no commit in {self.path}.", "Fetch it first, or correct the name.")
        return commit

    def branch_tip(self, branch: str) -> str | None:
        """Return the commit of a local branch; None if there is no such branch."""
        return self._commit(f"refs/heads/{branch}")

    def tracked_tip(self, remote: str, branch: str) -> str | None:
        """Return the commit that a remote's branch had when it was last fetched here."""
        return self._commit(f"refs/remotes/{remote}/{branch}")

    def has(self, commit: str) -> bool:
        """Return True if the commit is in this clone."""
        return self._commit(commit) is not None

    def _commit(self, name: str) -> str | None:
        return commits(self.path, [name])[name]

    def current_branch(self) -> str | None:
        """Return the branch that is checked out; None when HEAD is detached."""
        return self.git("branch", "--show-current") or None

    def read(self, paths: Iterable[str], ref: str | None = None) -> dict[str, str | None]:
        """Return texts by path, from a commit, or from the work tree if ``ref`` is None; None for a missing file.

        Bytes that are not UTF-8 become surrogate escapes, and line endings stay, so that texts can be written back
        unchanged. Raises CannotTell for a link, which is not followed, and for a special file, such as a pipe.
        """
        if ref is not None:
            texts = read_files(self.path, [(ref, path) for path in paths])
            return {path: text for (_, path), text in texts.items()}
        return {path: self._read_file(path) for path in paths}

    def _read_file(self, path: str) -> str | None:
        content = None if self.bare else files.read_inside(self.path, path)
        return None if content is None else content.decode("utf-8", "surrogateescape")

    def list_files(self, commit: str, *folders: str) -> list[str]:
        """Return the paths of all files of a commit, or of those in these folders."""
        listed = self.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, "--", *folders)
        return list(filter(None, listed.split("\0")))

    def uncommitted(self, paths: Sequence[str]) -> list[str]:
        """Return the paths that differ from HEAD in the index or the work tree."""
        listed = self.git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *paths)
        return sorted(entry[3:] for entry in listed.split("\0") if entry)

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Return True if ``newer`` contains ``older``; False also if this clone lacks one of them."""
        if None in commits(self.path, (older, newer)).values():
            return False
        return self.git("rev-list", "--max-count=1", "--end-of-options", older, f"^{newer}") == ""

    def merge_base(self, commit: str, base: str) -> str | None:
        """Return the best common ancestor of two commits, or None for unrelated ones (or in a shallow clone)."""
        try:
            return self.git("merge-base", "--end-of-options", commit, base)
        except GitFailed:
            return None

    def identity(self) -> tuple[str, str]:
        """Return the name and email address that a commit made here would have."""
        try:
            self.git("var", "GIT_AUTHOR_IDENT")
            name, _, rest = self.git("var", "GIT_COMMITTER_IDENT").partition(" <")
        except GitFailed as error:
            raise RunbookError(
                f"git does not know who commits in {self.path}.",
                "Set it with `git config user.name '…'` and `git config user.email '…'`.",
            ) from error
        return name, rest.partition(">")[0]

    # -- remotes ------------------------------------------------------------------------------------------------

    def remote_urls(self) -> dict[str, str]:
        """Return the fetch URL of each remote as configured, possibly with credentials."""
        return dict(_FETCHED_FROM.findall(self.git("remote", "-v")))

    def remote_url(self, remote: str, *, push: bool = False) -> str | None:
        """Return the URL of a remote, without credentials; None if there is no such remote."""
        try:
            return command.clean(command.addresses(self.path, remote, push=push)[0])
        except command.NoSuchRemote:
            return None

    def remote(self, name: str) -> RemoteUrl:
        """Return what the URL names that a push to this remote goes to.  Raises NoSuchRemote."""
        return RemoteUrl.parse(command.clean(command.addresses(self.path, name, push=True)[0]))

    def base_remote(self) -> str | None:
        """Return the remote that pull requests go to: that of GITHUB_REPOSITORY, else ``upstream``, else ``origin``."""
        return self._base()[0]

    def _base(self) -> tuple[str | None, str]:
        """Return that remote with its URL."""
        urls = self.remote_urls()
        slugs = {remote: match["slug"].lower() for remote, url in urls.items() if (match := _SLUG.search(url))}
        wanted = os.environ.get("GITHUB_REPOSITORY", "").lower()
        named = [remote for remote, slug in slugs.items() if slug == wanted]
        base = next((remote for remote in (*named, "upstream", "origin") if remote in urls), None)
        return base, command.clean(urls.get(base or "", ""))

    def repository(self) -> str:
        """Return ``owner/name`` on the forge: GITHUB_REPOSITORY, else from the remotes ``upstream`` and ``origin``."""
        if self.slug:
            return self.slug
        if slug := os.environ.get("GITHUB_REPOSITORY"):
            if not re.fullmatch(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+", slug):
                raise RunbookError(f"GITHUB_REPOSITORY is {slug!r}; expected owner/name.")
            return slug
        remote, url = self._base()
        if remote is None:
            raise RunbookError(
                f"{self.path} has no remote upstream or origin, so its repository on GitHub is not known.",
                "Set GITHUB_REPOSITORY=owner/name.",
            )
        return slug_of(url)

    def remote_tip(self, remote: str, branch: str) -> str | None:
        """Return the current commit of a branch on the remote; None if the remote has no such branch."""
        ref = f"refs/heads/{branch}"
        listed = self._remote_call(remote, "ls-remote", "--", remote, ref)
        return next((line.split("\t")[0] for line in listed.splitlines() if line.endswith(f"\t{ref}")), None)

    def fetch(self, remote: str, branch: str) -> str:
        """Fetch the branch's newest commit, without moving any ref, and return its ID."""
        tip = self.remote_tip(remote, branch)
        if tip is None:
            raise NoSuchBranch(
                f"The branch {branch!r} does not exist on the remote {remote!r} ({self.remote_url(remote)}).",
                "Give the name of a branch that it has.",
            )
        if not self.has(tip):
            self._fetch(remote, f"refs/heads/{branch}")
        return tip

    def fetch_pull(self, remote: str, number: int) -> None:
        """Fetch the head of a pull request, without moving any ref.  Raises Unreachable if the remote lacks it."""
        self._fetch(remote, f"refs/pull/{number}/head")

    def _fetch(self, remote: str, ref: str) -> None:
        self._remote_call(
            remote, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--refmap=",
            remote, ref,
        )  # fmt: skip

    def _remote_call(self, remote: str, *arguments: str) -> str:
        try:
            return self.git(*arguments, remote=remote)
        except GitFailed as error:
            raise Unreachable(
                f"The remote {remote!r} ({self.remote_url(remote)}) could not be read. git reports: {error.stderr}",
                "Check the URL, the network and your credentials; `git ls-remote` must work without prompting.",
            ) from error

    # -- changing -----------------------------------------------------------------------------------------------

    def require_work_tree(self) -> None:
        """Raise Refused in a bare repository."""
        if self.bare:
            raise Refused(
                f"{self.path} is a bare repository: there are no files to edit.", "Give a clone with a work tree."
            )

    def archive(self, commit: str, path: Path) -> None:
        """Write a commit's files to a tar archive that only the owner can read, complete or not at all."""
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self.git("archive", "--format=tar", f"--output={draft}", commit)
            draft.chmod(0o600)
            draft.replace(path)
        except OSError as error:
            raise files.cannot_write(path, error) from error

    def push(self, remote: str, branch: str, commit: str, *, replaces: str) -> None:
        """Push a commit as the branch, if that is still at ``replaces`` (empty: if there is no branch yet).

        So the push can remove only that one's commits.  Raises Refused if the remote refuses it.
        """
        ref = f"refs/heads/{branch}"
        lease = f"--force-with-lease={ref}:{replaces}"
        options = ("--quiet", "--no-follow-tags", "--recurse-submodules=no", lease)
        try:
            self.git("push", *options, "--", remote, f"{commit}:{ref}", remote=remote)
        except GitFailed as error:
            advice = "The commit is safe here; run again when you have permission to push."
            if "stale info" in error.stderr:
                advice = "The branch there has moved since it was read: run again."
            url = self.remote_url(remote, push=True)
            raise Refused(
                f"The remote {remote!r} ({url}) did not accept the branch {branch}. git reports: {error.stderr}",
                advice,
            ) from error


def slug_of(url: str) -> str:
    """Return ``owner/name`` on a forge from the URL of a remote (https, ssh, scp-like or a path)."""
    match = _SLUG.search(url)
    if match is None:
        raise RunbookError(
            f"The remote's URL {command.clean(url)!r} has no owner/name.", "Set GITHUB_REPOSITORY=owner/name."
        )
    return match["slug"]
