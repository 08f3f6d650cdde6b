"""Commits and what each of them changes, as git's own trees have it: paths, modes and contents.  Changes nothing."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runbook_lib.git.checkout import Checkout
from runbook_lib.git.command import GitFailed
from runbook_lib.text.edits import Edit, edited_paths

#: Set in whatever a person has configured: nothing hides a change, and no program of theirs is run.
_ALL = ("--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")
_NEW_FILE = "100644"
#: Of one commit this much is shown; a file with more bytes is only named.
_FILES, _LINES, _LARGEST = 40, 300, 200_000


@dataclass(frozen=True)
class Commit:
    """A commit; ``author`` and ``title`` are what whoever made it has written."""

    id: str
    parents: tuple[str, ...]
    tree: str
    author: str
    date: str
    title: str


@dataclass(frozen=True)
class Change:
    """A path's entry in the tree after a commit: a mode of zeros and no content where it is gone."""

    old_mode: str
    mode: str
    old_blob: str
    blob: str


def listed(checkout: Checkout, base: str, head: str) -> tuple[Commit, ...]:
    """Return the commits that ``head`` contains and ``base`` does not, the oldest first."""
    names = "%H%x00%P%x00%T%x00%an <%ae>%x00%cs%x00%s"
    lines = checkout.git(
        "rev-list", "--topo-order", "--reverse", f"--format={names}", "--end-of-options", head, f"^{base}", "--"
    )
    found = []
    for line in lines.split("\n"):
        if "\0" in line:
            commit, parents, tree, author, date, title = line.split("\0", 5)
            found.append(Commit(commit, tuple(parents.split()), tree, author, date, title))
    return tuple(found)


def changes(checkout: Checkout, parent: str, commit: str) -> dict[str, Change]:
    """Return what differs between two commits, by path."""
    raw = checkout.git("diff-tree", "-r", "-z", "--raw", "--no-abbrev", *_ALL, "--end-of-options", parent, commit, "--")
    fields = raw.split("\0")
    found = {}
    for entry, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, mode, old_blob, blob, _ = entry.removeprefix(":").split(" ")
        found[path] = Change(old_mode, mode, old_blob, blob)
    return found


def expected(checkout: Checkout, parent: str, edits: Sequence[Edit]) -> dict[str, Change]:
    """Return the changes of a commit on ``parent`` that makes these edits and nothing else, modes left as they are."""
    paths = edited_paths(edits)
    entries = checkout.git("ls-tree", "-z", "--full-tree", parent, "--", *paths) if paths else ""
    before = {}
    for entry in filter(None, entries.split("\0")):
        meta, _, path = entry.partition("\t")
        mode, _, blob = meta.split(" ")
        before[path] = (mode, blob)
    found = {}
    for edit in edits:
        none = "0" * len(parent)
        old_mode, old_blob = before.get(edit.path, ("000000", none))
        mode = old_mode if edit.path in before else _NEW_FILE
        blob = _blob(edit.after, parent)
        if blob != old_blob:
            found[edit.path] = Change(old_mode, mode, old_blob, blob)
    return found


def _blob(text: str, like: str) -> str:
    """The id of a text as git stores it, without any filter; ids of a repository are all as long as ``like``."""
    content = text.encode("utf-8", "surrogateescape")
    kind = "sha1" if len(like) == 40 else "sha256"
    return hashlib.new(kind, b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()


def fingerprint(made: Mapping[str, Change]) -> str:
    """Return the sha256 of changes: equal for equal paths, modes and contents, on the same parent."""
    entries = sorted((path, it.mode, it.blob) for path, it in made.items())
    return f"sha256:{hashlib.sha256(json.dumps(entries).encode()).hexdigest()}"


def is_clean_merge(checkout: Checkout, commit: Commit) -> bool:
    """Return whether a merge holds what git makes of its parents by itself.

    False for a conflict, and where this git cannot say: it needs 2.38.
    """
    try:
        merged = checkout.git("merge-tree", "--write-tree", *commit.parents)
    except GitFailed:
        return False
    return merged.partition("\n")[0] == commit.tree


def shown(checkout: Checkout, commit: Commit) -> str:
    """Return what a commit changes against its first parent as a diff, and in words what is not in that.

    Every file counts as text, whatever attributes say of it.  It ends after some hundred lines.
    """
    parent = commit.parents[0] if commit.parents else checkout.git("hash-object", "-t", "tree", "--stdin", stdin="")
    made = changes(checkout, parent, commit.id)
    sizes = _sizes(checkout, made.values())
    small = [path for path, it in made.items() if max(sizes[it.blob], sizes[it.old_blob]) <= _LARGEST][:_FILES]
    text = ""
    if small:
        literal = [f":(top,literal){path}" for path in small]
        text = checkout.git("diff-tree", "-r", "-p", "--text", "--no-color", "--submodule=short", "--src-prefix=a/",
                            "--dst-prefix=b/", *_ALL, parent, commit.id, "--", *literal)  # fmt: skip
    lines = text.split("\n") if text else []
    kept = lines[:_LINES]
    kept += [f"\\ {len(lines) - _LINES} more lines"] * (len(lines) > _LINES)
    left = [path for path in made if path not in small]
    kept += [f"\\ not shown: {path!r} ({sizes[made[path].blob]} bytes)" for path in left[:_FILES]]
    kept += [f"\\ and {len(left) - _FILES} more files"] * (len(left) > _FILES)
    return "\n".join(kept)


def _sizes(checkout: Checkout, made: Iterable[Change]) -> dict[str, int]:
    """The bytes of each content; none for what is no file of this repository."""
    blobs = list(dict.fromkeys(blob for it in made for blob in (it.old_blob, it.blob)))
    if not blobs:
        return {}
    told = checkout.git("cat-file", "--batch-check=%(objectsize)", stdin="\n".join(blobs)).split("\n")
    return {blob: int(size) if size.isdigit() else 0 for blob, size in zip(blobs, told, strict=True)}
