"""Files of many commits, read by one git process without checking anything out.  Works in a bare clone as well."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runbook_lib.errors import CannotTell
from runbook_lib.world.git.command import git, output
from runbook_lib.world.machine.files import LARGEST

#: Characters not allowed in names passed to git; surrogates, except those that encode bytes that are not UTF-8.
_NO_NAME = re.compile("[\n\0\ud800-\udc7f\udd00-\udfff]")

#: Modes of entries of a tree.
FOLDER, LINK, SUBMODULE = "040000", "120000", "160000"


@dataclass(frozen=True)
class Entry:
    """An entry of a tree of a commit, by its path from the root."""

    path: str
    mode: str
    id: str

    @property
    def is_file(self) -> bool:
        """True for an ordinary file."""
        return self.mode.startswith("100")


#: What was read at commits, which never change, by clone, commit and path.  Each step of a bump reads the same files: a
#: bump takes a sixth of the time less.
_read: dict[tuple[Path, str, str], str | None] = {}
_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_LARGEST_KEPT, _MOST_KEPT = 100_000, 1000  # characters of a file, files


def read_files(place: Path, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str | None]:
    """Read ``(ref, path)`` pairs in the clone at ``place``: each file's text, or None if it does not exist.

    Texts are UTF-8 with surrogate escapes for other bytes, line ends untouched, so they can be written back as they
    were.  Equal blobs share one string.  Raises CannotTell when git cannot read the repository or a file's object is
    missing, and for a link or a text that is too large, as ``files.read_inside`` does for the work tree.
    """
    pairs = list(dict.fromkeys(wanted))
    found = {pair: _read.get((place, *pair)) for pair in pairs}
    listed = entries(place, [pair for pair in pairs if (place, *pair) not in _read])
    files = {}
    for pair, entry in listed.items():
        if entry and entry.mode == LINK:
            raise CannotTell(
                f"{pair[1]} in {pair[0]} of {place} is a symbolic link or below one, and links are never followed.",
                "Replace the link with a real file or folder, or use another commit.",
            )
        if entry and entry.path == pair[1] and entry.is_file:
            files[pair] = entry.id
    for pair, size in zip(files, sizes(place, files.values()), strict=True):
        if size > LARGEST:
            raise CannotTell(f"{pair[1]} in {pair[0]} of {place} is larger than {LARGEST >> 20} MB: it was not read.")
    objects = _objects(place, files.values())
    texts = {identity: content.decode("utf-8", "surrogateescape") for identity, content in objects.values()}
    if missing := [pair for pair, identity in files.items() if identity not in texts]:
        raise _missing(place, *missing[0])
    for pair in listed:
        found[pair] = text = texts[files[pair]] if pair in files else None
        is_small = text is None or len(text) < _LARGEST_KEPT
        if is_small and _COMMIT.fullmatch(pair[0]) and len(_read) < _MOST_KEPT:
            _read[(place, *pair)] = text
    return found


def entries(place: Path, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], "Entry | None"]:
    """Return what is at each path of a commit or tree, ``(ref, path)``, or at the part of it that is no folder.

    The trees are walked, since git itself returns the text of a link as if it were a file's, and calls a file absent
    whose object is missing.  A ref without a commit has no files.  Raises CannotTell for a folder whose object is
    missing, and for a commit's ID if the commit or its files are.
    """
    found: dict[tuple[str, str], Entry | None] = dict.fromkeys(wanted)
    folders = {pair: f"{pair[0]}^{{tree}}" for pair in found if pair[0]}
    depth = 0
    while folders:
        trees = {name: _tree(*tree) for name, tree in _objects(place, folders.values()).items()}
        deeper = {}
        for pair, name in folders.items():
            parts = pair[1].split("/")
            if name not in trees and (depth or _COMMIT.fullmatch(pair[0])):
                raise _missing(place, *pair)
            mode, identity = trees.get(name, {}).get(parts[depth], ("", ""))
            if mode == FOLDER and depth + 1 < len(parts):
                deeper[pair] = identity
            elif mode:
                found[pair] = Entry("/".join(parts[: depth + 1]), mode, identity)
        folders, depth = deeper, depth + 1
    return found


def _tree(identity: str, content: bytes) -> dict[str, tuple[str, str]]:
    """Return the mode and ID of each entry of a tree, by name."""
    listed, position, length = {}, 0, len(identity) // 2
    while (end := content.find(b"\0", position)) >= 0:
        mode, _, name = content[position:end].decode("utf-8", "surrogateescape").partition(" ")
        position = end + 1 + length
        listed[name] = mode.zfill(6), content[end + 1 : position].hex()
    return listed


def _missing(place: Path, ref: str, path: str) -> CannotTell:
    return CannotTell(
        f"{path} in {ref} of {place} could not be read: its object is missing in this clone.",
        f"Fetch it, for example with: git -C {shlex.quote(str(place))} fetch --refetch",
    )


def sizes(place: Path, ids: Iterable[str]) -> list[int]:
    """Return the bytes of each object; 0 for anything that this repository does not have."""
    names = list(ids)
    listed = output(place, "cat-file", "--batch-check=%(objectsize)", stdin=_lines(names)) if names else b""
    return [int(size) if size.isdigit() else 0 for size in listed.splitlines()]


def commits(place: Path, refs: Iterable[str]) -> dict[str, str | None]:
    """Return the full commit ID of each ref in the clone at ``place``, or None."""
    names = list(dict.fromkeys(refs))
    objects = _objects(place, [f"{name}^{{commit}}" for name in names])
    return {name: objects.get(f"{name}^{{commit}}", (None,))[0] for name in names}


def branch_first(place: Path, ref: str) -> tuple[str, str]:
    """Return ``ref``, or the full name of the branch and a note if there is a tag of that name too.

    git itself would read the tag first.  Raises CannotTell for a tag that is also a branch of several remotes.
    """
    tag = f"refs/tags/{ref}"
    if commits(place, [tag])[tag] is None:
        return ref, ""
    named = [full for full in branches(place) if re.fullmatch(rf"refs/(heads|remotes/[^/]+)/{re.escape(ref)}", full)]
    if not named:
        return ref, ""
    if len(named) > 1 and not named[0].startswith("refs/heads/"):
        listed = ", ".join(full.removeprefix("refs/remotes/") for full in named)
        raise CannotTell(
            f"{ref!r} is a tag, and a branch of several remotes: {listed}.", f"Name one of these, or {tag}."
        )
    return named[0], f"{ref} is a branch and a tag: the branch was read. The tag is {tag}."


def branches(place: Path) -> list[str]:
    """Return the full names of branches in version order, local ones first; of remotes without their HEADs."""
    options = ["--sort=version:refname", "--format=%(refname) %(symref)"]
    lines = git(place, "for-each-ref", *options, "refs/heads", "refs/remotes").splitlines()
    return [line.rstrip(" ") for line in lines if line.endswith(" ")]  # others name a target


def _objects(place: Path, names: Iterable[str]) -> dict[str, tuple[str, bytes]]:
    """Return the ID and the content of each existing object, by name."""
    names = list(dict.fromkeys(names))
    if not names:
        return {}
    out = output(place, "cat-file", "--batch", stdin=_lines(names))
    objects: dict[str, tuple[str, bytes]] = {}
    position = 0
    for name in names:
        head_end = out.index(b"\n", position)
        fields = out[position:head_end].split(b" ")
        position = head_end + 1
        if len(fields) != 3 or not fields[2].isdigit():  # "NAME missing", "NAME ambiguous"
            continue
        end = position + int(fields[2])
        objects[name] = (fields[0].decode(), out[position:end])
        position = end + 1
    return objects


def _lines(names: Sequence[str]) -> bytes:
    # The protocol has one line per name; no name of a ref or of a file that is read has a line feed.
    lines = (":" if _NO_NAME.search(name) else name for name in names)
    return "".join(f"{name}\n" for name in lines).encode("utf-8", "surrogateescape")


def read_objects(place: Path, ids: Sequence[str], largest: int) -> dict[str, bytes]:
    """Read the blobs with these IDs; those that are missing or too large are left out, and never read into memory."""
    small = [name for name, size in zip(ids, sizes(place, ids), strict=True) if size <= largest]
    return {name: content for name, (_, content) in _objects(place, small).items()}
