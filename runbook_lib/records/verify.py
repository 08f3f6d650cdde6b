"""Whether an archive is whole: each file as its record says, each record in its chain, and all that git knows of."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.records import git_history
from runbook_lib.records.archive import bump_folders, place_of
from runbook_lib.records.chain import HEAD, LOCK, OPENING, head_bytes, read_head, sha256
from runbook_lib.records.pages.html import is_sealed
from runbook_lib.records.statement import RUN, STORY, Identity, predicate_of, when
from runbook_lib.system.atomic_files import read_file
from runbook_lib.system.clock import now
from runbook_lib.system.provenance import is_alive

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
    #: Of its git history, if it has one: those that changed the archive.
    commits: int = 0
    #: Closed, and in no commit as they are.
    uncommitted: int = 0

    def __str__(self) -> str:
        may_lack = ("killed", "commits", "uncommitted")
        return ", ".join(f"{n} {noun}" for noun, n in vars(self).items() if n or noun not in may_lack)

    @property
    def unguarded(self) -> str:
        """What could be missing without a trace, as a sentence; empty where git would tell."""
        if not self.commits:
            return (
                "No git history guards it: a bump's folder, or its newest records with their head put back, could be "
                "gone without a trace. Keep the archive in git."
            )
        if self.uncommitted:
            told = "1 record is" if self.uncommitted == 1 else f"{self.uncommitted} records are"
            return f"{told} in no commit yet, so git does not guard {'it' if self.uncommitted == 1 else 'them'}."
        return ""


@dataclass(frozen=True)
class _Closed:
    """A closed record that can be read: its hash, the record that it names before it, and when it ended.

    That time is None where nobody watched the end: such a record was closed later, by another run.
    """

    sha256: str
    previous: dict[str, str] | None
    ended: datetime | None


@dataclass
class _Bump:
    """What verifying one bump's folder found."""

    folder: Path
    problems: list[str]
    counts: Counts
    #: By the record's id.
    closed: dict[str, _Closed] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    opening: set[str] = field(default_factory=set)

    def problem(self, name: str, sentence: str) -> None:
        self.problems.append(_sentence(self.folder / name if name else self.folder, sentence))


def verify(archive: Path, allowed_signers: Path | None = None) -> tuple[list[str], Counts]:
    """Problems, each a sentence that names folder and file, and what was looked at.

    A record that is open is none, and its process may live or not.  The story of a bump is made from the records, as
    the index is: that it was changed since is found, and nothing else vouches for either.  ``allowed_signers`` is a
    file of those who may sign for changes of the archive.  Raises RunbookError where git's history cannot be read.
    """
    problems: list[str] = []
    counts = Counts()
    bumps = bump_folders(archive)
    for folder in bumps:
        counts.bumps += 1
        bump = _Bump(folder, problems, counts)
        try:
            for entry in sorted(folder.iterdir()):
                if entry.is_dir() and not entry.is_symlink():
                    _record(bump, entry)
                else:
                    _beside(bump, entry)
        except OSError as error:
            bump.problems.append(_sentence(Path(error.filename or folder), f"cannot be read: {error.strerror}."))
        _chain(bump)
    problems += _elsewhere(archive, set(bumps))
    kept = git_history.look(archive, allowed_signers)
    counts.commits, counts.uncommitted = len(kept.commits), len(kept.uncommitted)
    return [*problems, *kept.problems], counts


def _sentence(place: Path, sentence: str) -> str:
    """What is said of a file or folder; a name that could pass for another line of the answer is spelled out."""
    name = str(place)
    return f"{name if name.isprintable() else ascii(name)}: {sentence}"


def _elsewhere(archive: Path, bumps: set[Path]) -> list[str]:
    """What stands where a bump's folder, or one above, could, and was not looked into."""
    problems: list[str] = []

    def unread(error: OSError) -> None:
        problems.append(_sentence(Path(error.filename), f"cannot be read: {error.strerror}."))

    for place, folders, _ in os.walk(archive, onerror=unread, followlinks=False):
        here = Path(place)
        if here in bumps:
            folders.clear()
        links = [here / name for name in sorted(folders) if (here / name).is_symlink()]
        problems += [_sentence(it, "is a link to a folder, which was not followed.") for it in links]
        folders[:] = [name for name in folders if name != ".git"]
    return problems


def _beside(bump: _Bump, entry: Path) -> None:
    """A file beside the records."""
    if entry.name not in (HEAD, LOCK, STORY) or entry.is_symlink() or not entry.is_file():
        bump.problem(entry.name, "does not belong to the archive; it was added.")
    elif entry.name == LOCK and entry.stat().st_size:
        bump.problem(entry.name, "was changed: it never holds anything.")
    elif entry.name == STORY and not is_sealed(entry.read_bytes(), place_of(bump.folder)):
        bump.problem(entry.name, "was changed since it was made, or is another bump's. Remove it: the next run of this "
                     "bump makes it again from the records.")  # fmt: skip


def _record(bump: _Bump, folder: Path) -> None:
    name = folder.name
    if name.startswith(OPENING):
        bump.opening.add(name.removeprefix(OPENING))
        bump.problem(name, "was being opened when its command was killed or its disk was full; the next run of this "
                     "bump mends it.")  # fmt: skip
        return
    try:
        if (folder / RUN).is_symlink():
            raise ValueError("it is a link")
        content = read_file(folder / RUN)
        predicate = predicate_of(content)
        document = json.loads(content)
        subjects = {str(s["name"]): str(s["digest"]["sha256"]) for s in document["subject"]}
        previous = _link(predicate.get("previous"))
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
        bump.closed[name] = _Closed(hashlib.sha256(content).hexdigest(), previous, _end(predicate))
        _files(bump, folder, subjects)
    _place_and_time(bump, folder, predicate)


def _link(previous: Any) -> dict[str, str] | None:
    """Raises KeyError or TypeError for what names no record."""
    return None if previous is None else {name: str(previous[name]) for name in ("record", "sha256")}


def _end(predicate: Mapping[str, Any]) -> datetime | None:
    try:
        return None if predicate["state"] == "killed" else when(predicate["ended"])
    except (KeyError, TypeError, ValueError):
        return None  # told with the other times


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
    file = bump.folder / HEAD
    if file.is_file() and file.read_bytes() != head_bytes(link, open_ids):
        bump.problem(HEAD, "was changed: it does not stand as it is written.")
    for name in sorted(bump.running ^ (set(open_ids) - bump.opening)):
        if name in bump.running:
            bump.problem(name, f"says that it runs, but {HEAD} does not list it: it was added.")
        elif name in bump.closed:
            bump.problem(name, f"is closed, but {HEAD} lists it as open: either was changed, or its command was killed "
                         "at its very end; then the next run of this bump mends it.")  # fmt: skip
        else:
            bump.problem(name, f"is gone or unreadable, but {HEAD} lists it as open: it was removed.")
    unseen, named_by = dict(bump.closed), HEAD
    later: tuple[str, datetime] | None = None
    while link is not None:
        found = unseen.pop(link["record"], None)
        if found is None:
            what = "a second time" if link["record"] in bump.closed else "but it is gone or unreadable: it was removed"
            bump.problem(named_by, f"names the record {link['record']} before it, {what}.")
            break
        if found.sha256 != link["sha256"]:
            which = f"was changed, or {HEAD} was" if named_by == HEAD else "was changed"
            bump.problem(f"{link['record']}/{RUN}", f"{which}: its sha256 is not the one that {named_by} names.")
        if later and found.ended and later[1] < found.ended - _CLOCKS:
            bump.problem(later[0], f"ended before {link['record']} did, which was closed before it: a clock was wrong, "
                         "or its times were changed.")  # fmt: skip
        later = (link["record"], found.ended) if found.ended else later
        named_by, link = link["record"], found.previous
    for name in sorted(unseen.keys() - set(open_ids)):
        bump.problem(name, f"is not in the chain that ends at {HEAD}: it was added, or its successor removed.")
