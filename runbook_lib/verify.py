"""Whether an archive is whole: every file as its record says, and every record in its bump's chain."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from runbook_lib.archive import bump_folders
from runbook_lib.errors import RunbookError
from runbook_lib.ledger import HEAD, LOCK, read_head, sha256
from runbook_lib.provenance import is_alive
from runbook_lib.statement import RUN, STORY, Identity, now, predicate_of, when

#: Clocks of machines that share an archive may differ by so much.
_CLOCKS = timedelta(minutes=10)


@dataclass
class Counts:
    """What was looked at."""

    bumps: int = 0
    records: int = 0
    running: int = 0
    #: Not closed yet although their process is gone; the next run of the bump closes them.
    killed: int = 0
    files: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{n} {noun}" for noun, n in vars(self).items() if n or noun != "killed")


@dataclass
class _Bump:
    """What verifying one bump's folder found."""

    folder: Path
    problems: list[str]
    counts: Counts
    #: Predicate and sha256 of each readable statement, by the record's id.
    closed: dict[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)

    def problem(self, name: str, sentence: str) -> None:
        self.problems.append(f"{self.folder / name if name else self.folder}: {sentence}")


def verify(archive: Path) -> tuple[list[str], Counts]:
    """Problems, each a sentence that names folder and file, and what was looked at.

    A record that is open is none, and its process may live or not.  The story of a bump is made from the records, as
    the index is: nothing vouches for either.
    """
    problems: list[str] = []
    counts = Counts()
    for folder in bump_folders(archive):
        counts.bumps += 1
        bump = _Bump(folder, problems, counts)
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                _record(bump, entry)
            elif entry.name not in (HEAD, LOCK, STORY) or entry.is_symlink():
                bump.problem(entry.name, "does not belong to the archive; it was added.")
        _chain(bump)
    return problems, counts


def _record(bump: _Bump, folder: Path) -> None:
    name = folder.name
    try:
        if (folder / RUN).is_symlink():
            raise ValueError("it is a link")
        content = (folder / RUN).read_bytes()
        predicate = predicate_of(content)
        document = json.loads(content)
        subjects = {str(s["name"]): str(s["digest"]["sha256"]) for s in document["subject"]}
    except FileNotFoundError:
        bump.problem(name, f"has no {RUN}: it is no record, or that was removed.")
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        bump.problem(f"{name}/{RUN}", f"cannot be read as the statement of a run: {error}.")
        return
    bump.counts.records += 1
    if predicate["state"] == "running":
        alive = _lives(predicate)
        bump.counts.running += alive
        bump.counts.killed += not alive
        bump.running.add(name)
    else:
        bump.closed[name] = (predicate, hashlib.sha256(content).hexdigest())
        _files(bump, folder, subjects)
    _place_and_time(bump, folder, predicate)


def _lives(predicate: Mapping[str, Any]) -> bool:
    try:
        return is_alive(predicate["process"])
    except (KeyError, TypeError, ValueError):
        return False  # it names no process


def _files(bump: _Bump, folder: Path, subjects: Mapping[str, str]) -> None:
    name = folder.name
    present = {entry.name: entry for entry in folder.iterdir() if entry.name != RUN}
    for missing in sorted(subjects.keys() - present.keys()):
        bump.problem(f"{name}/{missing}", "was removed.")
    for file in sorted(present):
        entry = present[file]
        if file not in subjects:
            bump.problem(f"{name}/{file}", "was added: the record does not name it.")
        elif entry.is_symlink() or not entry.is_file():
            bump.problem(f"{name}/{file}", "was replaced by something that is no file.")
        else:
            bump.counts.files += 1
            if sha256(entry) != subjects[file]:
                bump.problem(f"{name}/{file}", "was changed after the record was closed: its sha256 differs.")


def _place_and_time(bump: _Bump, folder: Path, predicate: Mapping[str, Any]) -> None:
    name = folder.name
    if predicate["id"] != name:
        bump.problem(name, f"was renamed: it is the record {predicate['id']}.")
    try:
        parts = Identity.from_json(predicate["bump"]).parts
        started = when(predicate["started"])
        ended = when(predicate["ended"]) if predicate.get("ended") else started
    except (KeyError, TypeError, ValueError) as error:
        bump.problem(f"{name}/{RUN}", f"does not say which bump it belongs to, or when it ran: {error}.")
        return
    if bump.folder.resolve().parts[-len(parts) :] != parts:
        bump.problem(name, f"does not belong here: it is a record of {'/'.join(parts)}.")
    if started > now() + _CLOCKS or ended > now() + _CLOCKS:
        bump.problem(name, "is from the future: a clock was wrong, or its times were changed.")
    if ended < started - _CLOCKS or not re.match(rf"{started:%Y%m%dT%H%M%SZ}-", name):
        bump.problem(name, "has times that contradict each other or its name.")


def _chain(bump: _Bump) -> None:
    """Walk from the last record to the first; each names the hash of the one before."""
    try:
        link, open_ids = read_head(bump.folder)
    except RunbookError as error:
        bump.problems.append(str(error))
        return
    for name in sorted(bump.running ^ set(open_ids)):
        if name in bump.running:
            bump.problem(name, f"says that it runs, but {HEAD} does not list it: it was added.")
        elif name in bump.closed:
            bump.problem(name, f"is closed, but {HEAD} lists it as open: either was changed, or its command was killed "
                         "at its very end; then the next run of this bump mends it.")  # fmt: skip
        else:
            bump.problem(name, f"is gone or unreadable, but {HEAD} lists it as open: it was removed.")
    unseen, named_by = dict(bump.closed), HEAD
    while link is not None:
        found = unseen.pop(link["record"], None)
        if found is None:
            what = "a second time" if link["record"] in bump.closed else "but it is gone or unreadable: it was removed"
            bump.problem(named_by, f"names the record {link['record']} before it, {what}.")
            break
        predicate, digest = found
        if digest != link["sha256"]:
            bump.problem(f"{link['record']}/{RUN}", f"was changed: its sha256 is not the one that {named_by} names.")
        named_by, link = link["record"], predicate.get("previous")
    for name in sorted(unseen.keys() - set(open_ids)):
        bump.problem(name, f"is not in the chain that ends at {HEAD}: it was added, or its successor removed.")
