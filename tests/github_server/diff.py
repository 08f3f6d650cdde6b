"""The files of a diff, as GitHub shows them."""

from dataclasses import dataclass

from runbook_lib.practice.git import BareRepository


@dataclass(frozen=True)
class FileChange:
    """One file of a diff; ``additions`` and ``deletions`` are 0 for a binary file."""

    path: str
    status: str
    blob: str
    additions: int
    deletions: int


def file_changes(repository: BareRepository, commits: str) -> tuple[FileChange, ...]:
    """Return the files that differ since the head of ``base...head`` left the base."""
    statuses = {"A": "added", "D": "removed", "M": "modified", "T": "changed"}
    raw = iter(repository.git("diff", "-z", "--raw", "--abbrev=40", "--numstat", "--no-renames", commits).split("\0"))
    blobs: dict[str, tuple[str, str]] = {}
    changes: list[FileChange] = []
    for entry in raw:
        if entry.startswith(":"):
            _, _, old, new, letter = entry.split(" ")
            blobs[next(raw)] = (statuses[letter[0]], old if letter == "D" else new)
        elif entry:
            added, removed, path = entry.split("\t")
            # A binary file has "-" for both.
            changes.append(FileChange(path, *blobs[path], int(added.strip("-") or 0), int(removed.strip("-") or 0)))
    return tuple(changes)
