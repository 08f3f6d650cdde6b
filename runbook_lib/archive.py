"""All records together: closing those whose process is gone, and telling where each bump stands."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from runbook_lib import provenance, record, report
from runbook_lib.errors import RunbookError
from runbook_lib.ledger import HEAD, LOCK, OPENING, Ledger, read
from runbook_lib.statement import RUN, STORY, Contributed, Identity, State, collect, now, stamp, when

#: The step whose success, beside that of the whole runbook, makes a bump ready.
_WHOLE, _LAST = "bump", "07-sync-check"
_KILLED = "The run ended without a word: its process was killed, or the machine went down."


@dataclass(frozen=True)
class BumpStatus:
    """Where a bump stands.

    ``state`` is ``ready`` when every step is done, ``in progress`` when those that ran are, else that of the step
    that holds it up: waiting, running, failed, killed, cancelled, incomplete, previewed.  ``started`` is the time of
    its first run, ``since`` that from which it has stood as it stands.  ``links`` maps names, such as ``pull request``,
    ``CI run`` and ``issue #12``, to addresses.  ``record`` is the folder of the record that tells its state, and
    ``story`` the file that tells the whole bump; both are paths on this machine, and absolute if the archive's was.
    """

    repository: str
    base: str
    image_type: str
    tag: str
    practice: bool
    state: str
    step: str
    sentence: str
    next: str
    since: str
    record: str
    started: str
    story: str
    links: Mapping[str, str]


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
        if HEAD in files or LOCK in files or any((here / name / RUN).is_file() for name in folders):
            found.append(here)
            folders.clear()
        else:
            folders[:] = sorted(name for name in folders if not name.startswith(".git"))
    return found


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
            final = record.concluded(folder, predicate)
        else:
            final = ended(predicate, collect(record.contributions(folder)), "killed", _KILLED, at=_last_sign(folder))
        report.write_report(folder, final)
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


def predicates(bump: Path) -> Iterator[dict[str, Any]]:
    """The readable records of a bump, oldest first; one whose process is gone shows as killed."""
    found = []
    for folder in bump.iterdir():
        if not folder.is_dir() or folder.is_symlink() or folder.name.startswith(OPENING):
            continue
        try:
            predicate = read(folder)
            if predicate["state"] == "running" and not provenance.is_alive(predicate["process"]):
                predicate |= {"state": "killed", "outcome": {"sentence": _KILLED, "next": ""}}
            Identity.from_json(predicate["bump"])
            for time in (predicate["started"], predicate.get("ended") or predicate["started"]):
                when(time)
            predicate["notebook"]["name"].isprintable()
        except (RunbookError, KeyError, TypeError, ValueError, AttributeError):
            continue  # being written, or damaged: for `verify` to tell
        found.append(predicate)
    yield from sorted(found, key=lambda p: (p["started"], p["id"]))


def status(archive: Path) -> list[BumpStatus]:
    """Where each bump of the archive stands, the one that was worked on last first."""
    found = []
    for bump in bump_folders(archive):
        runs = list(predicates(bump))
        if (one := bump_status(bump, runs)) is not None:
            found.append((runs[-1]["started"], one))
    return [one for _, one in sorted(found, key=lambda pair: str(pair[0]), reverse=True)]


def bump_status(bump: Path, runs: Sequence[Mapping[str, Any]]) -> BumpStatus | None:
    """Where one bump stands, from its records, oldest first."""
    applied = [run for run in runs if run["state"] != "previewed"]
    considered = applied or list(runs)
    if not considered:
        return None
    state, deciding = _deciding(considered)
    outcome = deciding.get("outcome") or {}
    return BumpStatus(
        **{**deciding["bump"], "tag": deciding["bump"]["tag"] or ""},
        state=state,
        step=deciding["notebook"]["name"],
        sentence=outcome.get("sentence", ""),
        next=outcome.get("next", ""),
        since=_since(considered, deciding),
        record=str(bump / deciding["id"]),
        started=str(considered[0]["started"]),
        story=str(bump / STORY),
        links=links(considered),
    )


def links(runs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What the runs, oldest first, link to, the newest address of each name, and the issues that they opened."""
    found: dict[str, str] = {}
    for run in runs:
        found |= {str(name): str(url) for name, url in (run.get("links") or {}).items()}
        for effect in run.get("effects") or ():
            if effect.get("effect") == "issue" and effect.get("url"):
                found[f"issue {effect['target']}"] = str(effect["url"])
    return found


def _deciding(runs: Sequence[Mapping[str, Any]]) -> tuple[str, Mapping[str, Any]]:
    """The state of a bump, and the record that it is taken from."""
    top = next((run for run in reversed(runs) if run.get("parent") is None), runs[-1])
    if top["notebook"]["name"] == _WHOLE and top["state"] == "done":
        return "ready", top
    latest = {run["notebook"]["name"]: run for run in runs}
    steps = [latest[name] for name in sorted(latest) if name != _WHOLE]
    holding = next((run for run in steps if run["state"] != "done"), None)
    if top["state"] not in ("done", "waiting") or (holding is None and top["state"] == "waiting"):
        return top["state"], top
    if holding is not None:
        return holding["state"], holding
    return ("ready" if _LAST in latest else "in progress"), top


def _since(runs: Sequence[Mapping[str, Any]], deciding: Mapping[str, Any]) -> str:
    """When the step first had this outcome: running it again does not shorten the wait."""
    since = deciding["started"]
    same = [run for run in runs if run["notebook"]["name"] == deciding["notebook"]["name"]]
    for run in reversed(same):
        if (run["state"], run.get("outcome")) != (deciding["state"], deciding.get("outcome")):
            break
        since = run["started"]
    return str(since)


# -- the commands ------------------------------------------------------------------------------------------------


def command_status(options: argparse.Namespace) -> int:
    """``runbook status``."""
    archive = _existing(options.audit)
    bumps = status(archive) if archive.is_dir() else []
    if options.json:
        print(json.dumps([asdict(bump) for bump in bumps], indent=2))
        return 0
    if not bumps:
        print(f"There is no bump in {archive}. Start one: papermill runbooks/bump.ipynb -p tag 26.04-py3")
    for bump in bumps:
        world = " (practice)" if bump.practice else ""
        print(f"{bump.repository} {bump.base} {bump.image_type} {bump.tag or 'no tag'}{world}: {bump.state}")
        print(f"  {bump.step}: {bump.sentence or 'nothing said yet'}")
        print(f"  since {_ago(bump.since)}")
        if bump.next:
            print(f"  next: {bump.next}")
        print(f"  record: {bump.record}")
    return 0


def command_audit(options: argparse.Namespace) -> int:
    """``runbook audit verify``: 0 when the archive is whole, 1 when it is not."""
    from runbook_lib.verify import verify

    archive = _existing(options.dir)
    if not archive.is_dir():
        raise RunbookError(f"There is no archive {archive}. Give its folder: runbook audit verify DIR.")
    problems, counts = verify(archive)
    if not counts.bumps:  # looking at nothing proves nothing
        raise RunbookError(f"No record was found in {archive}. Give the folder of the archive, or one above its bumps.")
    for problem in problems:
        print(problem, file=sys.stderr)
    whole = f"not whole: {len(problems)} problem{'s' * (len(problems) != 1)}" if problems else "whole"
    print(f"{archive} is {whole}. Looked at {counts}.")
    return 1 if problems else 0


def _existing(named: str) -> Path:
    return Path(named).expanduser().absolute() if named else default()


def _ago(since: str) -> str:
    seconds = (now() - when(since)).total_seconds()
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{since} ({seconds / size:.0f} {unit} ago)"
    return f"{since} (just now)"
