"""What a notebook contributes to the record of its run.

Whoever starts a headless run (run.py) owns its record and names the folder in RUNBOOK_RECORD.  In JupyterLab nothing
is kept: *Apply* starts a headless run.  A notebook that something else runs headlessly, such as another papermill,
opens a record by itself, which says that it is incomplete.
"""

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from runbook_lib.bump import Bump
from runbook_lib.checks import Check
from runbook_lib.errors import RunbookError
from runbook_lib.records.chain import Ledger
from runbook_lib.records.statement import CONTRIBUTIONS, PLACE, RUN, collect, failed_checks, predicate_of
from runbook_lib.system.atomic_files import cannot_write, private, write
from runbook_lib.system.clock import now, stamp
from runbook_lib.text.redact import Redactor

if TYPE_CHECKING:
    from runbook_lib.display import View

ELSEWHERE = "It was not started by this environment's papermill, so nothing but the notebook's own account was kept."


class Table(Protocol):
    """A pandas DataFrame, without the import."""

    def to_csv(self, *, index: bool) -> str:
        """All rows as CSV."""


class StepRecord:
    """The account of one run of a notebook.  Everything is written down at once, without secrets."""

    def __init__(
        self, name: str, bump: Bump, repository: str, folder: Path | None, records: Path | None = None
    ) -> None:
        self.name, self.bump = name, bump
        #: The record's folder; None in JupyterLab.
        self.folder = folder
        #: The bump's folder in the archive, with the records of all its runs.
        self.records = folder.parent if folder else records
        self._planned_commits: list[dict[str, str]] = []
        self._redactor = Redactor(os.environ)
        self._checks: list[Check] = []
        self._lines: list[str] = []
        # Without a tag a notebook shows where things stand, whatever it may do.
        self._add("begin", step=name, mode=bump.mode if bump.tag else "preview", repository=repository)

    def add_inputs(self, **values: object) -> None:
        """Inputs as they were resolved, such as ``digest``, ``base_commit``, ``head_commit``, ``merge_commit``."""
        self._add("given", values=values)

    def planned_commit(self, parent: str, changes: str) -> None:
        """A commit that is made next: on ``parent``, with changes of this fingerprint."""
        self._planned_commits.append({"parent": parent, "changes": changes})
        self.add_inputs(planned_commits=self._planned_commits)

    def effect(self, kind: str, target: str, before: object, after: object, url: str = "") -> None:
        """A change of the world: ``kind`` is edit, branch, commit, push, pull request, label, comment, issue …"""
        self._add("effect", effect=kind, target=target, before=before, after=after, url=url)

    def check(self, *checks: Check) -> None:
        """Something verified by reading the world again."""
        for check in checks:
            self._checks.append(check)
            self._add("check", name=check.name, status=check.status, detail=check.detail)

    def allowed(self, exception: str, reason: str) -> None:
        """An exception that the parameter ``allow`` names and that was needed."""
        self._add("exception", exception=exception, reason=reason)

    def warn(self, *sentences: str) -> None:
        """What a person should know although nothing failed."""
        for sentence in sentences:
            self._add("warning", sentence=sentence)

    def link(self, name: str, url: str) -> None:
        """An address that belongs to the run, such as that of the pull request."""
        if url:
            self._add("link", name=name, url=url)

    def table(self, name: str, rows: Table | Iterable[Mapping[str, object]]) -> None:
        """Keep all rows as ``<name>.csv`` in the record."""
        self._keep(f"{_file_name(name)}.csv", _csv(rows))

    def diff(self, text: str) -> None:
        """Keep the change as ``change.diff`` in the record, unless there is none."""
        if text:
            self._keep("change.diff", text)

    def would(self, sentence: str, *, publish: bool = False) -> None:
        """In a preview: one thing that applying would do, such as ``change 2 lines in 1 file``; in words, in order.

        ``publish`` marks what leaves the machine, and so is done only in a run that publishes.
        """
        self._add("planned", sentence=sentence, publish=publish)

    def decide(self, parameter: str, name: str, why: str, suggestion: str = "") -> None:
        """Something that only a person can decide: the entry ``name: reason`` of a parameter; ``why`` it is asked."""
        self._add("decision", parameter=parameter, name=name, why=why, suggestion=suggestion)

    def waiting(self, sentence: str, next: str = "") -> None:
        """The run ends well, but the step is not done: what it waits for, and the command or action that goes on."""
        self._add("waiting", sentence=sentence, next=next)

    def done(self, sentence: str, next: str = "") -> None:
        """What was done, or found done before, or in a preview would be done."""
        self._add("done", sentence=sentence, next=next)

    def show(self) -> "View":
        """Checks, warnings, outcome and what to run next, to look at."""
        from runbook_lib import display

        found = collect(self._lines).fields
        outcome, parts = found["outcome"], []
        if self._checks:
            parts.append(display.checks([Check(c["name"], c["status"], c["detail"]) for c in found["checks"]]))
        if found["warnings"]:
            parts.append(display.notes(found["warnings"], title="Warnings"))
        sentences = [outcome["sentence"] or "Nothing was done."]
        if outcome["next"]:
            sentences.append(f"Next: {outcome['next']}")
        sentences.append(f"Record: {self.folder}" if self.folder else "This preview in JupyterLab leaves no record.")
        return sum(parts[1:] + [display.note(text) for text in sentences], parts[0] if parts else display.View("", ""))

    def raise_if_failed(self) -> None:
        """Raise RunbookError that names the failed checks, if there are any."""
        failed = [check for check in self._checks if check.status == "failed"]
        if len(failed) == 1 and PLACE.search(failed[0].detail):
            # It is the sentence of a step that failed: that of its own check within, and no other around it.
            raise RunbookError(self._redactor.text(f"{failed[0].name}: {failed[0].detail}"))
        if failed:
            told = failed_checks(f"{check.name} ({check.detail.rstrip('.')})" for check in failed)
            raise RunbookError(self._redactor.text(told))

    def _add(self, kind: str, **fields: object) -> None:
        entry = {"kind": kind, "at": stamp(now()), **fields}
        line = json.dumps(self._redactor.data(_plain(entry)))
        self._lines.append(line)
        if self.folder is not None:
            file = self.folder / CONTRIBUTIONS
            try:
                with open(file, "a", encoding="ascii", opener=private) as out:
                    out.write(line + "\n")
            except OSError as error:
                raise cannot_write(file, error) from error

    def _keep(self, name: str, text: str) -> None:
        if self.folder is not None:
            write(self.folder / name, self._redactor.text(text))


def _plain(value: object) -> Any:
    """As JSON has it: sets sorted, anything unknown as its text."""

    def default(item: object) -> object:
        return sorted(map(str, item)) if isinstance(item, set | frozenset) else str(item)

    return json.loads(json.dumps(value, default=default))


def _csv(rows: Table | Iterable[Mapping[str, object]]) -> str:
    if hasattr(rows, "to_csv"):
        return rows.to_csv(index=False)
    listed = list(rows)
    out = io.StringIO()
    names = list(dict.fromkeys(key for row in listed for key in row))
    writer = csv.DictWriter(out, fieldnames=names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    return out.getvalue()


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:80] or "table"


def close_incomplete(folder: Path) -> None:
    """Close a record that a notebook opened by itself, at the end of its kernel."""
    with Ledger.hold(folder.parent) as ledger:
        if folder.name in ledger.open_ids:
            predicate = predicate_of((folder / RUN).read_bytes())
            ledger.close(folder.name, concluded(folder, predicate))


def concluded(folder: Path, predicate: Mapping[str, Any]) -> dict[str, Any]:
    """The predicate of an ended run that nobody but its notebook kept an account of."""
    lines = contributions(folder)
    outcome = collect(lines).fields
    outcome["outcome"]["sentence"] = f"{outcome['outcome']['sentence']} {ELSEWHERE}".strip()
    return {**predicate, **outcome, "state": "incomplete", "ended": stamp(now())}


def contributions(folder: Path) -> list[str]:
    """The lines that a notebook contributed so far."""
    try:
        return (folder / CONTRIBUTIONS).read_text(encoding="ascii", errors="replace").split("\n")
    except FileNotFoundError:
        return []
