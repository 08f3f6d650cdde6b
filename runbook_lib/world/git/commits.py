"""Commits: listed and compared in git's own trees, and made without a work tree, of exactly the planned contents.

No hook runs, no filter or line-ending setting applies, and the user's files, index and HEAD stay as they are.  If a
work tree has the branch checked out, its files follow.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runbook_lib.errors import Refused
from runbook_lib.text.edits import Edit, edited_paths
from runbook_lib.text.redact import Redactor
from runbook_lib.world.git import command
from runbook_lib.world.git.blobs import FOLDER, LINK, SUBMODULE, Entry, entries, sizes
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.command import GitFailed
from runbook_lib.world.machine.files import temporary_folder

#: These override a user's configuration, so that nothing hides a change and none of their programs is run.
_ALL = ("--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")
#: The limits of a commit's diff; a larger file is only named.
_MAX_FILES, _MAX_LINES, _MAX_BYTES = 40, 300, 200_000
_NO_BLOB = re.compile("0+")
_NEW_FILE = "100644"
_OTHER_MODES = {LINK: "a symbolic link", SUBMODULE: "a submodule", FOLDER: "a folder"}
_NO_HOOKS = {"core.hooksPath": os.devnull}


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


def file_versions(checkout: Checkout, commit: str, folder: str, limit: int) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the newest ``limit`` commits that change a folder, the oldest first: for each file its path and blob.

    The blob of a removed file is empty.  Raises RunbookError for a history that cannot be read.
    """
    options = ["--first-parent", "-m", "--raw", "--no-abbrev", "--no-renames", f"--max-count={limit}"]
    listed = checkout.git("log", *options, "-z", "--format=%x00%H", commit, "--", f":(top,literal){folder}")
    commits: list[tuple[str, list[tuple[str, str]]]] = []
    fields = iter(listed.split("\0"))
    for entry in fields:
        words = entry.split()
        if len(words) == 1:
            commits.append((words[0], []))
        elif words:
            blob = "" if _NO_BLOB.fullmatch(words[3]) else words[3]
            commits[-1][1].append((next(fields), blob))
    return commits[::-1]


def tree_with(checkout: Checkout, start: str, edits: Sequence[Edit]) -> str:
    """Return the ID of the tree of ``start``, a commit or tree, with these edits; file modes stay.

    Raises Refused for a path that is no ordinary file, or whose stored content is not its text (LFS, encryption), and
    for a file that differs from the edit's text before.
    """
    paths = edited_paths(edits)
    with temporary_folder() as folder:
        git = partial(checkout.git, index=folder / "index")
        git("read-tree", start)
        listed = entries(checkout.path, [(start, path) for path in paths])
        modes = {path: _file_mode(path, entry) for (_, path), entry in listed.items()}
        _refuse_converted(git("check-attr", "--cached", "-z", "filter", "--", *paths) if paths else "")
        texts = checkout.read(paths, start)
        if changed := [edit.path for edit in edits if _has_changed(edit, texts)]:
            names = ", ".join(changed)
            raise Refused(f"{names} has changed since the plan was made. Nothing was committed.", "Run again.")
        lines = []
        for edit in edits:
            blob = git("hash-object", "-w", "--no-filters", "--stdin", stdin=edit.after)
            lines.append(f"{modes[edit.source or edit.path]} {blob}\t{edit.path}\0")
            if edit.source:
                lines.append(f"0 {'0' * len(blob)}\t{edit.source}\0")
        git("update-index", "-z", "--index-info", stdin="".join(lines))
        return git("write-tree", "--missing-ok")  # what a partial clone lacks is not fetched


def _has_changed(edit: Edit, texts: Mapping[str, str | None]) -> bool:
    """Return whether a file differs from the edit's text before, or a file is where one moves to."""
    if edit.source and texts[edit.path] is not None:
        return True
    return texts[edit.source or edit.path] != edit.before


def _file_mode(path: str, entry: Entry | None) -> str:
    """Return the mode of a file, that of an ordinary one if it is new.  Raises Refused for anything but a file."""
    if entry and not (entry.is_file and entry.path == path):
        kind = _OTHER_MODES.get(entry.mode, "a file")
        raise Refused(f"{entry.path} is {kind}, so {path} cannot be committed. Nothing was committed.")
    return entry.mode if entry else _NEW_FILE


def _refuse_converted(attributes: str) -> None:
    """Raise Refused for a file that git stores as a pointer or encrypted; ``attributes`` is from ``git check-attr``."""
    fields = attributes.split("\0")
    for path, value in zip(fields[::3], fields[2::3], strict=False):
        if "lfs" in value or "crypt" in value:
            raise Refused(
                f"{path} is stored through git's filter {value!r}, so its text cannot be edited in a commit. Nothing "
                "was committed.",
                "Store it as plain text, or edit it by hand.",
            )


def merged_tree(checkout: Checkout, ours: str, theirs: str) -> str:
    """Return the ID of the tree of git's own merge of two commits.  Raises Refused for a conflict."""
    try:
        return checkout.git("merge-tree", "--write-tree", ours, theirs).partition("\n")[0]
    except GitFailed as error:
        raise Refused(
            f"{theirs[:10]} could not be merged into {ours[:10]} in {checkout.path}, and nothing was changed. "
            f"git says: {error.stderr}",
            "Merge it by hand, then run again.",
        ) from error


def is_clean_merge(checkout: Checkout, commit: Commit) -> bool:
    """Return True if a merge equals git's own merge of its parents; git before 2.38 cannot compute it (False)."""
    try:
        return merged_tree(checkout, *commit.parents) == commit.tree
    except Refused:
        return False


def create_commit(checkout: Checkout, tree: str, parents: Sequence[str], message: str) -> str:
    """Return the ID of a new commit, signed off, and signed if git is configured to sign; no branch has it yet.

    ``git commit-tree`` ignores ``commit.gpgSign`` by itself.
    """
    name, mail = checkout.identity()
    sign = []
    if checkout.git("config", "--type=bool", "--default=false", "--get", "commit.gpgSign") == "true":
        sign = ["-S"]
    # Parts of the message come from logs.
    text = f"{Redactor(os.environ).text(message).strip()}\n\nSigned-off-by: {name} <{mail}>\n"
    ancestors = [word for parent in parents for word in ("-p", parent)]
    try:
        return checkout.git("commit-tree", *sign, *ancestors, tree, stdin=text)
    except GitFailed as error:
        raise Refused(
            f"The commit in {checkout.path} was not made. git says: {error.stderr} The signing key may be the cause; "
            "fix it, then run again."
        ) from error


def move_branch(checkout: Checkout, branch: str, commit: str, old: str | None) -> None:
    """Move the branch from ``old`` (None: it does not exist) to the commit; work trees that have it follow.

    Raises Refused if a work tree cannot follow or the branch has moved meanwhile; then nothing has moved.
    """
    follow(checkout, branch, commit, old)
    ref = f"refs/heads/{branch}"
    try:
        expected = old or "0" * len(commit)
        checkout.git("update-ref", "-m", "commit", ref, commit, expected, settings=_NO_HOOKS)
    except GitFailed as error:
        raise Refused(
            f"The branch {branch} in {checkout.path} was not moved to {commit[:10]}. git says: {error.stderr}",
            "Run again: it is planned anew if somebody else has moved it.",
        ) from error


def follow(checkout: Checkout, branch: str, new: str, old: str | None, *options: str) -> None:
    """Let the files of work trees that have the branch follow it to ``new``, a commit or tree; ``-n`` only tries.

    Raises Refused if they cannot.
    """
    for folder in _work_trees(checkout, f"refs/heads/{branch}") if old is not None else ():
        try:
            command.git(folder, "read-tree", "-m", "-u", *options, str(old), new)
        except GitFailed as error:
            raise Refused(
                f"The branch {branch} is checked out in {folder}, whose files cannot follow it. git says: "
                f"{error.stderr} The branch was not moved. Commit, stash or finish what is there, then run again."
            ) from error


def _work_trees(checkout: Checkout, ref: str) -> list[Path]:
    """Return the folders of the work trees that have a branch checked out."""
    folders = []
    for entry in checkout.git("worktree", "list", "--porcelain").split("\n\n"):
        lines = entry.split("\n")
        is_gone = any(line.startswith("prunable") for line in lines)  # somebody has deleted its folder
        if f"branch {ref}" in lines and "bare" not in lines and not is_gone:
            folders.append(Path(lines[0].removeprefix("worktree ")))
    return folders
