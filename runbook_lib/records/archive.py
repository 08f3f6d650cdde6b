"""All records together: closing those whose process is gone, and telling where each bump stands."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.records import step_record
from runbook_lib.records.chain import HEAD, LOCK, OPENING, Ledger, read
from runbook_lib.records.pages import run
from runbook_lib.records.statement import RUN, Contributed, Identity, State, collect, when
from runbook_lib.records.status import BumpStatus, bump_status, newest_first
from runbook_lib.system import provenance
from runbook_lib.system.clock import now, stamp

_OUTCOME = ("sentence", "next")
_KILLED = "The run ended without a word: its process was killed, or the machine went down."


def default(notebook: Path | None = None) -> Path:
    """The archive when no parameter names one: $RUNBOOK_AUDIT, else ``audit/`` beside the notebook's folder."""
    if named := os.environ.get("RUNBOOK_AUDIT"):
        return Path(named).expanduser().absolute()
    return (notebook.absolute().parent.parent if notebook else provenance.ROOT) / "audit"


def bump_folders(archive: Path) -> list[Path]:
    """The folders of the archive, or of the part of one, that hold records.  Links are not followed."""
    found = []
    for place, folders, files in os.walk(archive, followlinks=False):
        here = Path(place)
        if HEAD in files or LOCK in files or any(os.path.isfile(here / name / RUN) for name in folders):
            found.append(here)
            folders.clear()
        else:
            folders[:] = sorted(name for name in folders if name != ".git")
    return found


def place_of(bump: Path) -> str:
    """Where a bump's folder lies, as its story says: in the folders of repository and base."""
    return "/".join(bump.resolve().parts[-3:])


def close_dead(ledger: Ledger) -> list[str]:
    """Close the open records whose process is gone, and return their ids."""
    closed = []
    for name in list(ledger.open_ids):
        try:
            predicate = ledger.read(name)
        except RunbookError:
            continue  # for `verify` to tell
        if provenance.is_alive(predicate["process"]):
            continue
        folder = ledger.folder / name
        if predicate.get("launcher") is None:
            final = step_record.concluded(folder, predicate)
        else:
            final = ended(
                predicate, collect(step_record.contributions(folder)), "killed", _KILLED, at=_last_sign(folder)
            )
        run.write_report(folder, final)
        ledger.close(name, final)
        closed.append(name)
    return closed


def ended(
    predicate: Mapping[str, Any],
    contributed: Contributed,
    state: State,
    sentence: str = "",
    *,
    at: datetime | None = None,
    error: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The predicate of a run that has ended, with the sentence that says why if the notebook's own does not hold."""
    fields = dict(contributed.fields)
    if sentence:
        fields["outcome"] = {"sentence": sentence, "next": ""}
    return {**predicate, **fields, "state": state, "error": error, "ended": stamp(at or now())}


def _last_sign(folder: Path) -> datetime:
    """When something was last written there: the best answer to when a killed run ended."""
    newest = max(file.stat().st_mtime for file in [folder, *folder.iterdir()])
    return datetime.fromtimestamp(newest, tz=now().tzinfo)


@dataclass(frozen=True)
class Runs:
    """The records of a bump: the predicates of the readable ones, oldest first, and the names of the others."""

    readable: list[dict[str, Any]]
    unreadable: list[str]


def runs(bump: Path) -> Runs:
    """Read the records of a bump; one whose process is gone shows as killed, an open one with what it did so far."""
    found = Runs([], [])
    for folder in sorted(bump.iterdir()):
        if not folder.is_dir() or folder.is_symlink() or folder.name.startswith(OPENING):
            continue
        try:
            predicate = read(folder)
            if predicate["state"] == "running":
                predicate |= collect(step_record.contributions(folder)).fields
                if not provenance.is_alive(predicate["process"]):
                    predicate |= {"state": "killed", "outcome": {"sentence": _KILLED, "next": ""}}
            _must_be_sound(predicate, folder)
        except (RunbookError, OSError, KeyError, TypeError, ValueError, AttributeError):
            found.unreadable.append(folder.name)  # `audit verify` tells what is wrong with it
        else:
            found.readable.append(predicate)
    found.readable.sort(key=lambda p: (p["started"], p["id"]))
    return found


def predicates(bump: Path) -> Iterator[dict[str, Any]]:
    """The readable records of a bump, oldest first; one whose process is gone shows as killed."""
    yield from runs(bump).readable


def _must_be_sound(predicate: Mapping[str, Any], folder: Path) -> None:
    """Raise one of Python's own errors for a predicate of another shape than its readers rely on."""
    if predicate["id"] != folder.name:  # pages and people would be led elsewhere by it
        raise ValueError(f"the record in {folder} calls itself {predicate['id']!r}")
    Identity.from_json(predicate["bump"])
    for time in (predicate["started"], predicate.get("ended") or predicate["started"]):
        when(time)
    outcome, parameters = predicate.get("outcome") or {}, predicate.get("parameters") or {}
    for text in (predicate["state"], predicate["notebook"]["name"], *(outcome.get(it) or "" for it in _OUTCOME)):
        text.isprintable()
    for name in ("inputs", "links", "who", "library"):
        dict(predicate.get(name) or {})
    dict((predicate.get("who") or {}).get("ci") or {})
    dict(parameters.get("resolved") or {})
    for name in ("effects", "checks", "exceptions"):
        for entry in predicate.get(name) or ():
            entry.items()
    list(predicate.get("warnings") or ())


def status(archive: Path) -> list[BumpStatus]:
    """Where each bump of the archive stands, the one that was worked on last first."""
    found = []
    for bump in bump_folders(archive.absolute()):
        read_runs = runs(bump)
        if (one := bump_status(bump, read_runs.readable, read_runs.unreadable)) is not None:
            found.append(one)
    return newest_first(found)
