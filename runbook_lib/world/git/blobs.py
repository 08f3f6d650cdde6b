"""Files of many commits, read by one git process without checking anything out.  Works in a bare clone as well."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from runbook_lib.errors import CannotTell
from runbook_lib.world.git import command
from runbook_lib.world.machine.files import LARGEST

#: Characters not allowed in names passed to git; surrogates, except those that encode bytes that are not UTF-8.
_NO_NAME = re.compile("[\n\0\ud800-\udc7f\udd00-\udfff]")

_FOLDER, _SUBMODULE = b"40000", b"160000"  # modes of entries of a tree

Blob = tuple[str, str]

#: What was read at commits, which never change, by clone, commit and path: each step of a bump reads the same files.
_read: dict[tuple[Path, str, str], Blob | None] = {}
_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_LARGEST_KEPT, _MOST_KEPT = 100_000, 1000  # characters of a file, files


def read_blobs(place: Path, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Blob | None]:
    """Read ``(ref, path)`` pairs in the clone at ``place``: each file's blob ID and text, or None if it does not exist.

    Texts are UTF-8 with surrogate escapes for other bytes, line ends untouched, so they can be written back as they
    were.  Equal blobs share one string.  Raises CannotTell when git cannot read the repository or a file's object is
    missing, and for a link or a text that is too large, as ``files.read_inside`` does for the work tree.
    """
    pairs = list(dict.fromkeys(wanted))
    found = {pair: _read[(place, *pair)] for pair in pairs if (place, *pair) in _read}
    identities = _identities(place, [pair for pair in pairs if pair not in found])
    _refuse_unreadable(place, [pair for pair, identity in identities.items() if not identity])
    blobs: dict[str, Blob] = {}
    for identity, content in _objects(place, filter(None, identities.values())).values():
        blobs[identity] = (identity, content.decode("utf-8", "surrogateescape"))
    for pair, identity in identities.items():
        found[pair] = blob = blobs.get(identity)
        is_small = blob is None or len(blob[1]) < _LARGEST_KEPT
        if is_small and _COMMIT.fullmatch(pair[0]) and len(_read) < _MOST_KEPT:
            _read[(place, *pair)] = blob
    return found


def _identities(place: Path, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the blob ID for each pair, empty if there is no file.

    git returns the text of a link as if it were a file's.  If asked to follow links, it returns another object: so a
    path that is a link, or goes through one, is known.
    """
    if not pairs:
        return {}
    names = [f"{ref}:{path}" for ref, path in pairs]
    own, targets = _headers(place, names), _headers(place, names, "--follow-symlinks")
    ids = {}
    for (ref, path), plain, followed in zip(pairs, own, targets, strict=True):
        if plain != followed and not followed.startswith("notdir "):
            raise CannotTell(
                f"{path} in {ref} of {place} is a symbolic link or below one, and links are never followed. "
                "Replace the link with a real file or folder, or use another commit."
            )
        identity, _, rest = plain.partition(" ")
        kind, _, size = rest.partition(" ")
        if kind == "blob" and size.isdecimal() and int(size) > LARGEST:
            raise CannotTell(f"{path} in {ref} of {place} is larger than {LARGEST >> 20} MB, so it was not read.")
        ids[ref, path] = identity if kind == "blob" else ""
    return ids


def _refuse_unreadable(place: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Raise CannotTell if a folder lists one of these files that git does not find: its object is missing."""
    folders: dict[str, None] = {}
    pairs = [(ref, path) for ref, path in pairs if ref and not _NO_NAME.search(ref + path)]
    for ref, path in pairs:
        parts = path.split("/")
        folders |= dict.fromkeys(f"{ref}:{'/'.join(parts[:depth])}" for depth in range(len(parts)))
    trees: dict[str, Mapping[bytes, bytes]] = {}
    for name, (identity, content) in _objects(place, folders).items():
        trees[name] = _entries(content, len(identity) // 2)
    for ref, path in pairs:
        if _is_listed(trees, ref, path.split("/")):
            raise CannotTell(
                f"{path} in {ref} of {place} could not be read: its object is missing in this clone.",
                f"Fetch it, for example with: git -C {shlex.quote(str(place))} fetch --refetch",
            )


def _is_listed(trees: Mapping[str, Mapping[bytes, bytes]], ref: str, parts: Sequence[str]) -> bool:
    """Return True if a folder of the commit lists the file, or a folder above it that has no tree itself."""
    for depth, part in enumerate(parts):
        entries = trees.get(f"{ref}:{'/'.join(parts[:depth])}")
        if entries is None:
            return depth > 0
        mode = entries.get(part.encode("utf-8", "surrogateescape"))
        if depth == len(parts) - 1:
            return mode not in (None, _FOLDER, _SUBMODULE)
        if mode != _FOLDER:
            return False
    return False


def _entries(tree: bytes, length: int) -> dict[bytes, bytes]:
    """Return the mode of each entry of a tree, by name; ``length`` is the number of bytes of an object's ID."""
    entries, position = {}, 0
    while (end := tree.find(b"\0", position)) >= 0:
        mode, _, name = tree[position:end].partition(b" ")
        entries[name] = mode
        position = end + 1 + length
    return entries


def _headers(place: Path, names: Sequence[str], *options: str) -> list[str]:
    """Return git's line for each name: ID, kind and size; that it is missing; or where its links end."""
    out = _git(place, "cat-file", "--batch-check", *options, stdin=_lines(names))
    headers, position = [], 0
    for _ in names:
        end = out.index(b"\n", position)
        headers.append(out[position:end].decode("utf-8", "surrogateescape"))
        position = end + 1
        # The end of the links is another line, which may hold line feeds.
        if ends := re.fullmatch(r"(?:symlink|dangling|loop|notdir) ([0-9]{1,9})", headers[-1]):
            position += int(ends[1]) + 1
    return headers


def commits(place: Path, refs: Iterable[str]) -> dict[str, str | None]:
    """Return the full commit ID of each ref in the clone at ``place``, or None."""
    names = list(dict.fromkeys(refs))
    objects = _objects(place, [f"{name}^{{commit}}" for name in names])
    return {name: objects.get(f"{name}^{{commit}}", (None,))[0] for name in names}


def branch_first(place: Path, ref: str) -> tuple[str, str]:
    """Return the full name of the branch ``ref`` if there is one, else ``ref``; and a note if there is a tag too.

    git itself would read a tag first.  Raises CannotTell for a tag that is also a branch of several remotes.
    """
    local, tag = f"refs/heads/{ref}", f"refs/tags/{ref}"
    known = commits(place, [local, tag])
    branch = local
    if known[local] is None:
        if known[tag] is None:
            return ref, ""
        remote = [full for full in branches(place) if full.split("/", 3)[3:] == [ref]]
        if len(remote) > 1:
            listed = ", ".join(full.removeprefix("refs/remotes/") for full in remote)
            raise CannotTell(
                f"{ref!r} is a tag, and a branch of several remotes: {listed}.", f"Name one of these, or {tag}."
            )
        if not remote:
            return ref, ""
        branch = remote[0]
    if known[tag] is None:
        return branch, ""
    return branch, f"{ref} is a branch and a tag: the branch was read. The tag is {tag}."


def branches(place: Path) -> list[str]:
    """Return the full names of local and remote-tracking branches in version order, without the remotes' HEADs."""
    options = ["--sort=version:refname", "--format=%(refname) %(symref)"]
    listed = _git(place, "for-each-ref", *options, "refs/heads", "refs/remotes")
    lines = listed.decode("utf-8", "surrogateescape").splitlines()
    return [line.rstrip(" ") for line in lines if line.endswith(" ")]  # others name a target


def _objects(place: Path, names: Iterable[str]) -> dict[str, tuple[str, bytes]]:
    """Return the ID and the content of each existing object, by name."""
    names = list(dict.fromkeys(names))
    if not names:
        return {}
    out = _git(place, "cat-file", "--batch", stdin=_lines(names))
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


def _git(place: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    try:
        return command.output(place, *arguments, stdin=stdin)
    except command.GitFailed as error:
        raise CannotTell(f"git could not read the repository {place}: {error.stderr}") from error


def read_objects(place: Path, ids: Sequence[str], largest: int) -> dict[str, bytes]:
    """Read the blobs with these IDs, in one process; blobs that are missing or too large are left out."""
    contents = {}
    for name, (_, content) in _objects(place, ids).items():
        if len(content) <= largest:
            contents[name] = content
    return contents
