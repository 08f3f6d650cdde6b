"""Commits and their changes in git's own trees: paths, modes and contents.  Changes nothing."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from runbook_lib.world.git.blobs import sizes
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.command import GitFailed

#: These override a user's configuration, so that nothing hides a change and none of their programs is run.
_ALL = ("--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")
#: The limits of a commit's diff; a larger file is only named.
_MAX_FILES, _MAX_LINES, _MAX_BYTES = 40, 300, 200_000


@dataclass(frozen=True)
class Commit:
    """A commit; ``author`` and ``title`` are unverified text from its author."""

    id: str
    parents: tuple[str, ...]
    tree: str
    author: str
    date: str
    title: str


@dataclass(frozen=True)
class TreeChange:
    """The entries of a path in the trees before and after a commit; mode and ID are zeros if there is no entry."""

    old_mode: str
    mode: str
    old_blob: str
    blob: str


def list_files(checkout: Checkout, commit: str, *folders: str) -> list[str]:
    """Return the paths of all files of a commit, or of those in these folders."""
    listed = checkout.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, "--", *folders)
    return list(filter(None, listed.split("\0")))


def list_commits(checkout: Checkout, base: str, head: str) -> tuple[Commit, ...]:
    """Return the commits that ``head`` contains and ``base`` does not, the oldest first."""
    names = "%H%x00%P%x00%T%x00%an <%ae>%x00%cs%x00%s"
    lines = checkout.git(
        "rev-list", "--topo-order", "--reverse", f"--format={names}", "--end-of-options", head, f"^{base}", "--"
    )
    commits = []
    for line in lines.split("\n"):
        if "\0" in line:
            commit, parents, tree, author, date, title = line.split("\0", 5)
            commits.append(Commit(commit, tuple(parents.split()), tree, author, date, title))
    return tuple(commits)


def tree_changes(checkout: Checkout, parent: str, commit: str) -> dict[str, TreeChange]:
    """Return the differences between two commits, by path."""
    raw = checkout.git("diff-tree", "-r", "-z", "--raw", "--no-abbrev", *_ALL, "--end-of-options", parent, commit, "--")
    fields = raw.split("\0")
    changes = {}
    for entry, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, mode, old_blob, blob, _ = entry.removeprefix(":").split(" ")
        changes[path] = TreeChange(old_mode, mode, old_blob, blob)
    return changes


def is_clean_merge(checkout: Checkout, commit: Commit) -> bool:
    """Return True if a merge equals git's own merge of its parents; git before 2.38 cannot compute it (False)."""
    try:
        merged = checkout.git("merge-tree", "--write-tree", *commit.parents)
    except GitFailed:
        return False
    return merged.partition("\n")[0] == commit.tree


def show_diff(checkout: Checkout, commit: Commit) -> str:
    """Return the diff of a commit against its first parent, with a line for each file that is too large for it.

    Every file counts as text, regardless of its attributes.  At most 300 lines of 40 files are shown.
    """
    parent = commit.parents[0] if commit.parents else checkout.git("hash-object", "-t", "tree", "--stdin", stdin="")
    changes = tree_changes(checkout, parent, commit.id)
    new = dict(zip(changes, sizes(checkout.path, [change.blob for change in changes.values()]), strict=True))
    old = sizes(checkout.path, [change.old_blob for change in changes.values()])
    small = [path for path, size in zip(changes, old, strict=True) if max(size, new[path]) <= _MAX_BYTES][:_MAX_FILES]
    lines: list[str] = []
    if small:
        literal = [f":(top,literal){path}" for path in small]
        text = checkout.git("diff-tree", "-r", "-p", "--text", "--no-color", "--submodule=short", "--src-prefix=a/",
                            "--dst-prefix=b/", *_ALL, parent, commit.id, "--", *literal)  # fmt: skip
        lines = text.split("\n") if text else []
    shown = lines[:_MAX_LINES]
    if len(lines) > _MAX_LINES:
        shown.append(f"\\ {len(lines) - _MAX_LINES} more lines")
    omitted = [path for path in changes if path not in small]
    shown += [f"\\ not shown: {path!r} ({new[path]} bytes)" for path in omitted[:_MAX_FILES]]
    if len(omitted) > _MAX_FILES:
        shown.append(f"\\ and {len(omitted) - _MAX_FILES} more files")
    return "\n".join(shown)


_NO_BLOB = re.compile("0+")


def file_versions(
    checkout: Checkout, commit: str, paths: Iterable[str], limit: int
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the newest ``limit`` commits that change ``paths``, the oldest first: for each file its path and blob.

    The blob of a removed file is empty.  Raises RunbookError for a history that cannot be read.
    """
    options = ["--first-parent", "-m", "--raw", "--no-abbrev", "--no-renames", f"--max-count={limit}"]
    specs = [f":(top,literal){path}" for path in paths]
    if not specs:
        return []  # for git log, no path means all of them
    listed = checkout.git("log", *options, "-z", "--format=%x00%H", commit, "--", *specs)
    commits: list[tuple[str, list[tuple[str, str]]]] = []
    fields = iter(listed.split("\0"))
    for entry in fields:
        words = entry.split()
        if len(words) == 1:
            commits.append((words[0], []))
        elif len(words) == 5 and words[0].startswith(":"):
            blob = "" if _NO_BLOB.fullmatch(words[3]) else words[3]
            commits[-1][1].append((next(fields), blob))
    return [(name, versions) for name, versions in reversed(commits) if versions]
