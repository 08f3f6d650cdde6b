"""Verification of an archive: files against records, and records against their chain."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from runbook_lib.display import count
from runbook_lib.errors import RunbookError
from runbook_lib.records.archive import bump_folders, place_of
from runbook_lib.records.chain import CHECKPOINTS, HEAD, LOCK, OPENING, head_bytes, read_head, sha256
from runbook_lib.records.pages.html import is_sealed
from runbook_lib.records.statement import RUN, STORY, Identity, parse_time, predicate_of
from runbook_lib.system.clock import now
from runbook_lib.system.provenance import is_alive

#: The maximum difference between the clocks of machines that share an archive.
_CLOCK_SKEW = timedelta(minutes=10)


@dataclass
class Counts:
    """The numbers of verified bumps, records and files."""

    bumps: int = 0
    records: int = 0
    running: int = 0
    #: Open records whose process has ended; the next run of the bump closes them.
    killed: int = 0
    files: int = 0
    #: Sentences about things that are neither evidence nor a problem.
    remarks: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        numbers = {noun: number for noun, number in vars(self).items() if isinstance(number, int)}
        parts = []
        for noun, number in numbers.items():
            if number or noun != "killed":
                parts.append(count(number, noun[:-1]) if noun.endswith("s") else f"{number} {noun}")
        return ", ".join(parts)


@dataclass(frozen=True)
class _ClosedRecord:
    """The hash of a closed record, its predecessor, and its end; None if its process was killed."""

    sha256: str
    previous: dict[str, str] | None
    end: datetime | None


@dataclass
class _BumpCheck:
    """The verification of one bump's folder.  ``closed`` maps IDs to records."""

    folder: Path
    problems: list[str]
    counts: Counts
    closed: dict[str, _ClosedRecord] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    opening: set[str] = field(default_factory=set)

    def problem(self, name: str, sentence: str) -> None:
        self.problems.append(_problem(self.folder / name, sentence))


def verify(archive: Path) -> tuple[list[str], Counts]:
    """Return an archive's problems, as sentences that begin with a file or folder, and the counts of what was verified.

    An open record is not a problem.  The bumps' pages are guarded only by their own seals, which are checked.
    Only git can tell whether a whole folder, or the newest records with an older head, were removed.
    """
    problems: list[str] = []
    counts = Counts()
    bumps = bump_folders(archive)
    for folder in bumps:
        counts.bumps += 1
        bump = _BumpCheck(folder, problems, counts)
        try:
            for entry in _evidence(folder, counts):
                if entry.is_dir() and not entry.is_symlink():
                    _check_record(bump, entry)
                else:
                    _check_file_beside_records(bump, entry)
        except OSError as error:
            problems.append(_unreadable(error, folder))
        _check_chain(bump)
    return [*problems, *_links_and_unreadable(archive, set(bumps))], counts


def _problem(path: Path, sentence: str) -> str:
    """Return a problem as one line: a name with line breaks is escaped."""
    name = str(path)
    return f"{name if name.isprintable() else ascii(name)}: {sentence}"


def _unreadable(error: OSError, folder: Path) -> str:
    return _problem(Path(error.filename or folder), f"cannot be read: {error.strerror}.")


def _links_and_unreadable(archive: Path, bumps: set[Path]) -> list[str]:
    """Return a problem for each folder outside the bumps that was not searched."""
    problems: list[str] = []
    for path, folders, _ in os.walk(
        archive, onerror=lambda error: problems.append(_unreadable(error, archive)), followlinks=False
    ):
        folder = Path(path)
        if folder in bumps:
            folders.clear()
        for name in sorted(folders):
            if (folder / name).is_symlink():
                problems.append(_problem(folder / name, "is a symbolic link to a folder, and was not followed."))
        folders[:] = [name for name in folders if name != ".git"]
    return problems


def _evidence(folder: Path, counts: Counts) -> list[Path]:
    """Return a folder's content without Jupyter's checkpoints, which get a remark."""
    entries = sorted(folder.iterdir())
    for entry in entries:
        if entry.name == CHECKPOINTS and entry.is_dir() and not entry.is_symlink():
            counts.remarks.append(
                _problem(entry, "contains Jupyter's copies of opened files. It is not evidence: remove it.")
            )
            entries.remove(entry)
            break
    return entries


def _check_file_beside_records(bump: _BumpCheck, entry: Path) -> None:
    if entry.name not in (HEAD, LOCK, STORY) or entry.is_symlink() or not entry.is_file():
        bump.problem(entry.name, "does not belong to the archive; it was added.")
    elif entry.name == LOCK and entry.stat().st_size:
        bump.problem(entry.name, "was changed: it is always empty.")
    elif entry.name == STORY and not is_sealed(entry.read_bytes(), place_of(bump.folder)):
        bump.problem(entry.name, "was changed since it was created, or belongs to another bump. Remove it: the next "
        "run of this bump creates it again from the records.")  # fmt: skip


def _check_record(bump: _BumpCheck, folder: Path) -> None:
    name = folder.name
    if name.startswith(OPENING):
        bump.opening.add(name.removeprefix(OPENING))
        bump.problem(name, "was being opened when its command was killed or the disk was full; the next run of this "
        "bump repairs it.")  # fmt: skip
        return
    try:
        if (folder / RUN).is_symlink():
            raise ValueError("it is a link")
        content = (folder / RUN).read_bytes()
        predicate = predicate_of(content)
        statement = json.loads(content)
        subjects = {str(subject["name"]): str(subject["digest"]["sha256"]) for subject in statement["subject"]}
        previous = predicate.get("previous")
        if previous is not None:
            previous = {"record": str(previous["record"]), "sha256": str(previous["sha256"])}
    except FileNotFoundError:
        bump.problem(name, f"has no {RUN}: it is not a record, or the file was removed.")
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        bump.problem(f"{name}/{RUN}", f"cannot be read as the statement of a run: {error}.")
        return
    bump.counts.records += 1
    if predicate["state"] == "running":
        alive = _has_live_process(predicate)
        bump.counts.running += alive
        bump.counts.killed += not alive
        bump.running.add(name)
        _check_place_and_time(bump, folder, predicate)
    else:
        _check_files(bump, folder, subjects)
        end = _check_place_and_time(bump, folder, predicate)
        if predicate["state"] == "killed":
            end = None
        bump.closed[name] = _ClosedRecord(hashlib.sha256(content).hexdigest(), previous, end)


def _has_live_process(predicate: Mapping[str, Any]) -> bool:
    try:
        return is_alive(predicate["process"])
    except (KeyError, TypeError, ValueError):
        return False  # it does not name a process


def _check_files(bump: _BumpCheck, folder: Path, subjects: Mapping[str, str]) -> None:
    name = folder.name
    present = {entry.name: entry for entry in _evidence(folder, bump.counts) if entry.name != RUN}
    for missing in sorted(subjects.keys() - present.keys()):
        bump.problem(f"{name}/{missing}", "was removed.")
    for file, entry in sorted(present.items()):
        if file not in subjects:
            bump.problem(f"{name}/{file}", "was added: the record does not name it.")
        elif entry.is_symlink() or not entry.is_file():
            bump.problem(f"{name}/{file}", "was replaced by something that is not a file.")
        else:
            bump.counts.files += 1
            if sha256(entry) != subjects[file]:
                bump.problem(f"{name}/{file}", "was changed after the record was closed: its sha256 differs.")


def _check_place_and_time(bump: _BumpCheck, folder: Path, predicate: Mapping[str, Any]) -> datetime | None:
    """Check where and when a record was made, and return the end of its run; None if it cannot be read."""
    name = folder.name
    if predicate["id"] != name:
        bump.problem(name, f"was renamed: it is the record {predicate['id']}.")
    try:
        parts = Identity.from_json(predicate["bump"]).parts
        start = parse_time(predicate["started"])
        end = parse_time(predicate.get("ended") or predicate["started"])
    except (KeyError, TypeError, ValueError) as error:
        bump.problem(f"{name}/{RUN}", f"does not contain its bump and times: {error}.")
        return None
    if bump.folder.resolve().parts[-len(parts) :] != parts:
        bump.problem(name, f"does not belong here: it is a record of {'/'.join(parts)}.")
    if max(start, end) > now() + _CLOCK_SKEW:
        bump.problem(name, "is from the future: a clock was wrong, or its times were changed.")
    if end < start - _CLOCK_SKEW or not re.match(rf"{start:%Y%m%dT%H%M%SZ}-", name):
        bump.problem(name, "has times that contradict each other or its name.")
    return end


def _check_chain(bump: _BumpCheck) -> None:
    """Compare the open records with ``head``, and follow the chain from the last record to the first."""
    try:
        link, open_ids = read_head(bump.folder)
    except RunbookError as error:
        bump.problems.append(str(error))
        return
    file = bump.folder / HEAD
    if file.is_file() and file.read_bytes() != head_bytes(link, open_ids):
        bump.problem(HEAD, "was changed: it is not in the written form.")
    for name in sorted(bump.running ^ (set(open_ids) - bump.opening)):
        if name in bump.running:
            bump.problem(name, f"claims to be running, but {HEAD} does not list it: it was added.")
        elif name in bump.closed:
            bump.problem(name, f"is closed, but {HEAD} lists it as open: either was changed, or its command was killed "
                         "at its very end; then the next run of this bump repairs it.")  # fmt: skip
        else:
            bump.problem(name, f"is missing or unreadable, but {HEAD} lists it as open: it was removed.")
    unchained = dict(bump.closed)
    named_by = HEAD
    end: datetime | None = None
    ending = ""
    while link is not None:
        name = link["record"]
        record = unchained.pop(name, None)
        if record is None:
            problem = "a second time" if name in bump.closed else "but it is missing or unreadable: it was removed"
            bump.problem(named_by, f"names the record {name} as its predecessor, {problem}.")
            break
        if record.sha256 != link["sha256"]:
            changed = f"was changed, or {HEAD} was" if named_by == HEAD else "was changed"
            bump.problem(f"{name}/{RUN}", f"{changed}: its sha256 differs from the one in {named_by}.")
        if end and record.end and end < record.end - _CLOCK_SKEW:
            bump.problem(ending, f"ended before {name} did, which was closed before it: a clock was wrong, or its "
                         "times were changed.")  # fmt: skip
        if record.end:
            end, ending = record.end, name
        named_by, link = name, record.previous
    for name in sorted(unchained.keys() - set(open_ids)):
        bump.problem(name, f"is not in the chain that ends at {HEAD}: it was added, or its successor removed.")
