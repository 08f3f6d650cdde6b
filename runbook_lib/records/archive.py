"""The archive: the bumps' folders with their records, abandoned records, and each bump's status."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import platformdirs

from runbook_lib.errors import RunbookError
from runbook_lib.records import step_record, timeline
from runbook_lib.records.chain import CHECKPOINTS, HEAD, LOCK, OPENING, Ledger, read_predicate
from runbook_lib.records.pages import run
from runbook_lib.records.statement import RUN, Contributions, Identity, State, collect, parse_time
from runbook_lib.records.status import BumpStatus, bump_status, outcome_sentence
from runbook_lib.system import provenance
from runbook_lib.system.clock import now, stamp

_INTERRUPTED = "The run was interrupted: its process was stopped, or the machine went down."
_KILLED = "The run ended without reporting a result: its process was killed, or the machine went down."


def default(notebook: Path | None = None) -> Path:
    """Return the archive to use if no parameter names one.

    $RUNBOOK_AUDIT, else ``audit/`` in the notebooks' clone, else the user's data folder: never a folder in an installed
    package.
    """
    if variable := os.environ.get("RUNBOOK_AUDIT"):
        return Path(variable).expanduser().absolute()
    root = notebook.absolute().parent.parent if notebook else provenance.ROOT
    if provenance.IS_INSTALLED and not (root / "pyproject.toml").is_file():
        root = platformdirs.user_data_path("base-image-runbook")
    return root / "audit"


def bump_folders(archive: Path) -> list[Path]:
    """Return the folders that contain records in an archive or a part of it.  Links are not followed."""
    bumps = []
    for path, folders, files in os.walk(archive, followlinks=False):
        folder = Path(path)
        if HEAD in files or LOCK in files or any(os.path.isfile(folder / name / RUN) for name in folders):
            bumps.append(folder)
            folders.clear()
        else:
            folders[:] = sorted(name for name in folders if name != ".git")
    return bumps


def place_of(bump: Path) -> str:
    """Return the folders of repository, base and bump, to which a story's seal binds it."""
    return "/".join(bump.resolve().parts[-3:])


def close_dead(ledger: Ledger) -> list[str]:
    """Close the open records whose process has ended, and return their IDs."""
    closed = []
    for record in reversed(ledger.open_ids):  # steps before their parent run
        folder = ledger.folder / record
        try:
            predicate = read_predicate(folder)
        except RunbookError:
            continue  # `audit verify` reports it
        if is_active(predicate):
            continue
        contributions = collect(step_record.contributions(folder))
        if predicate.get("launcher") is None:
            final = kept_predicate(folder, predicate)
        else:
            # The best estimate of when the run ended is the last write to its record.
            newest = max(file.stat().st_mtime for file in [folder, *folder.iterdir()])
            at = datetime.fromtimestamp(newest, tz=now().tzinfo)
            final = final_predicate(ledger.folder, predicate, contributions, "killed", _KILLED, at=at)
        run.write_report(folder, final)
        ledger.close(record, final)
        closed.append(record)
    return closed


def is_active(predicate: Mapping[str, Any]) -> bool:
    """Return True while the process of an open record lives, or the engine that has to close it."""
    processes = [predicate["process"], predicate.get("engine")]
    return any(provenance.is_alive(process) for process in processes if process)


def kept_predicate(folder: Path, predicate: Mapping[str, Any]) -> dict[str, Any]:
    """Return the predicate of a run whose record its kernel has kept; without an end it was interrupted."""
    contributions = collect(step_record.contributions(folder))
    state, sentence = contributions.state, ""
    if not contributions.has_ended:
        state, sentence = "interrupted", _INTERRUPTED
    return final_predicate(
        folder.parent, predicate, contributions, state, sentence, error=contributions.fields["error"]
    )


def final_predicate(
    bump: Path,
    predicate: Mapping[str, Any],
    contributions: Contributions,
    state: State,
    sentence: str = "",
    *,
    at: datetime | None = None,
    error: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the predicate of a finished run, including the work of its steps in the folder ``bump``.

    ``sentence`` replaces the outcome that the notebook reported.
    """
    fields = dict(contributions.fields)
    if sentence:
        fields["outcome"] = {"sentence": sentence, "next": ""}
    final = {**predicate, **fields, "state": state, "error": error, "ended": stamp(at or now())}
    if predicate.get("parent") is None:
        final |= _with_steps(final, read_records(bump).readable)
    return final


def steps_of(run: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the steps of a run: its child runs, except for the preview that it compared its plan with."""
    name = run["notebook"]["name"]
    return [step for step in records if step.get("parent") == run["id"] and step["notebook"]["name"] != name]


def _with_steps(run: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of a run that its steps add to; empty if it has no steps.

    ``decisions`` begin with those that people have made; open ones name a ``parameter``.
    """
    steps = steps_of(run, records)
    if not steps:
        return {}
    inputs: dict[str, Any] = {}
    links: dict[str, str] = {}
    effects = list(run["effects"])
    rows = []
    for step in steps:
        source = {"step": step["notebook"]["name"], "record": step["id"]}
        for key, value in (step.get("inputs") or {}).items():
            if value and key != "planned_commits":  # which proves something only in the commit's own record
                inputs[key] = value
        links |= step.get("links") or {}
        effects += [{**effect, **source} for effect in step.get("effects") or ()]
        rows.append(source | {"state": step["state"], "sentence": outcome_sentence(step)})
    made = [asdict(decision) for decision in timeline.decisions([*steps, run])]
    return {
        "inputs": inputs | run["inputs"],
        # A bump leaves out a step's link to an earlier commit's run.
        "links": run["links"] or links,
        "effects": effects,
        "decisions": [*made, *run["decisions"]],
        "steps": rows,
    }


@dataclass(frozen=True)
class BumpRecords:
    """A bump's records: the predicates of the readable ones, oldest first, and the names of the unreadable ones."""

    readable: list[dict[str, Any]]
    unreadable: list[str]


def read_records(bump: Path) -> BumpRecords:
    """Read a bump's records.

    An open record includes the contributions so far; if its process has ended, its state is ``killed``.
    """
    readable = []
    unreadable = []
    for folder in sorted(bump.iterdir()):
        if not folder.is_dir() or folder.is_symlink() or folder.name.startswith((OPENING, CHECKPOINTS)):
            continue
        try:
            predicate = read_predicate(folder)
            if predicate["state"] == "running":
                predicate |= collect(step_record.contributions(folder)).fields
                if not is_active(predicate):
                    predicate |= {"state": "killed", "outcome": {"sentence": _KILLED, "next": ""}}
            _require_valid(predicate, folder)
        except (RunbookError, OSError, KeyError, TypeError, ValueError, AttributeError):
            unreadable.append(folder.name)  # `audit verify` reports the reason
        else:
            readable.append(predicate)
    readable.sort(key=lambda predicate: (predicate["started"], predicate["id"]))
    return BumpRecords(readable, unreadable)


def _require_valid(predicate: Mapping[str, Any], folder: Path) -> None:
    """Raise one of Python's own errors for a predicate whose fields do not have the types that readers expect."""
    if predicate["id"] != folder.name:  # otherwise links would lead to another record
        raise ValueError(f"the record in {folder} has the id {predicate['id']!r}")
    Identity.from_json(predicate["bump"])
    parse_time(predicate["started"])
    parse_time(predicate.get("ended") or predicate["started"])
    outcome = predicate.get("outcome") or {}
    texts = [predicate["state"], predicate["notebook"]["name"], outcome.get("sentence"), outcome.get("next")]
    for text in texts:
        (text or "").isprintable()
    for name in ("inputs", "links", "who", "library", "parameters"):
        dict(predicate.get(name) or {})
    dict((predicate.get("who") or {}).get("ci") or {})
    dict((predicate.get("parameters") or {}).get("resolved") or {})
    for name in ("effects", "checks", "exceptions"):
        for entry in predicate.get(name) or ():
            entry.items()
    list(predicate.get("warnings") or ())


def status(archive: Path) -> list[BumpStatus]:
    """Return the status of each bump in the archive, most recently active first."""
    statuses = []
    for folder in bump_folders(archive.absolute()):
        records = read_records(folder)
        if bump := bump_status(folder, records.readable, records.unreadable):
            statuses.append(bump)
    return sorted(statuses, key=lambda bump: bump.active, reverse=True)
