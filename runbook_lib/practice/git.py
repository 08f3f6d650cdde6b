"""The practice forge's view of a bare git repository: branches, merges, history and files."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from runbook_lib.errors import RunbookError
from runbook_lib.world.git.blobs import read_files
from runbook_lib.world.git.checkout import Checkout
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
class BareRepository(Checkout):
    """A bare repository, read again for every request: the forge notices a push by its effect."""

    bare: bool = True

    def find(self, revision: str) -> str | None:
        """Return the commit that a revision names, or None."""
        with suppress(RunbookError):
            return self.resolve(revision)
        return None

    def tip(self, branch: str) -> str | None:
        """Return the newest commit of a branch, or None."""
        # Each request asks for it, and a file is read a hundred times as fast as git starts.
        with suppress(OSError):
            return (self.path / "refs" / "heads" / branch).read_text().strip()
        return self.branch_tip(branch)

    def log(self, base: str, head: str) -> list[str]:
        """Return the commits in the history of the head that are not in that of the base, oldest first."""
        return self.git("rev-list", "--reverse", f"{base}..{head}").split()


@lru_cache(maxsize=64)
def merge(repository: BareRepository, base: str, head: str) -> str | None:
    """Return the synthetic merge commit of a pull request, or None for a conflict.

    The same two commits always give the same merge commit: its dates are those of the head.
    """
    try:
        tree = repository.git("merge-tree", "--write-tree", base, head)
    except GitFailed:
        return None
    when = repository.git("show", "--no-patch", "--no-show-signature", "--format=%ct +0000", head)
    text = _MERGED.format(tree=tree, base=base, head=head, when=when)
    return repository.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text)


@lru_cache(maxsize=64)
def read_texts(repository: BareRepository, commit: str, *folders: str) -> Mapping[str, str]:
    """Return path → text of the named files, and of every file below the named folders, at a commit."""
    paths = repository.git("ls-tree", "-r", "-z", "--name-only", commit, "--", *folders).split("\0")
    texts = read_files(repository.path, [(commit, path) for path in paths if path])
    return {path: text for (_, path), text in texts.items() if text is not None}
