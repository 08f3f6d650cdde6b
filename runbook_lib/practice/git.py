"""The practice forge's view of a bare git repository: branches, merges, history and files."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from runbook_lib.world.git import command
from runbook_lib.world.git.blobs import read_blobs
from runbook_lib.world.git.command import GitFailed

_MERGED = """\
tree {tree}
parent {base}
parent {head}
author Practice Forge <noreply@practice.invalid> {when}
committer Practice Forge <noreply@practice.invalid> {when}

Merge {head} into {base}
"""


@dataclass(frozen=True)
class BareRepository:
    """A bare repository, read again for every request: the forge notices a push by its effect."""

    path: Path

    def git(self, *arguments: str, stdin: str | None = None) -> str:
        """Return the output of a git command.  Raises GitFailed."""
        return command.git(self.path, *arguments, stdin=stdin)

    def tried(self, *arguments: str) -> str | None:
        """Return the output of a git command, or None if it fails."""
        try:
            return self.git(*arguments)
        except GitFailed:
            return None

    def resolve(self, revision: str) -> str | None:
        """Return the commit that a revision names, or None."""
        return self.tried("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")

    def tip(self, branch: str) -> str | None:
        """Return the newest commit of a branch, or None."""
        # Each request asks for it, and a file is read a hundred times as fast as git starts.
        try:
            return (self.path / "refs" / "heads" / branch).read_text().strip()
        except OSError:
            return self.resolve(f"refs/heads/{branch}")

    def contains(self, branch: str, commit: str) -> bool:
        """Return True if a commit is in the history of a branch."""
        return self.tried("merge-base", "--is-ancestor", commit, branch) is not None

    def log(self, base: str, head: str) -> list[str]:
        """Return the commits in the history of the head that are not in that of the base, oldest first."""
        return self.git("rev-list", "--reverse", f"{base}..{head}").split()


@lru_cache(maxsize=64)
def merge(repository: BareRepository, base: str, head: str) -> str | None:
    """Return the synthetic merge commit of a pull request, or None for a conflict.

    The same two commits always give the same merge commit: its dates are those of the head.
    """
    tree = repository.tried("merge-tree", "--write-tree", base, head)
    if tree is None:
        return None
    when = repository.git("show", "--no-patch", "--no-show-signature", "--format=%ct +0000", head)
    text = _MERGED.format(tree=tree, base=base, head=head, when=when)
    return repository.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text)


@lru_cache(maxsize=64)
def read_texts(repository: BareRepository, commit: str, *folders: str) -> Mapping[str, str]:
    """Return path → text of the named files, and of every file below the named folders, at a commit."""
    paths = repository.git("ls-tree", "-r", "-z", "--name-only", commit, "--", *folders).split("\0")
    blobs = read_blobs(repository.path, [(commit, path) for path in paths if path])
    return {path: blob[1] for (_, path), blob in blobs.items() if blob is not None}
