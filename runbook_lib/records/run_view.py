"""A run as described by its record, during and after the run.  Forms follow and show it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook_lib.checks import Next
from runbook_lib.record import report, run_file
from runbook_lib.record.archive import read_records
from runbook_lib.record.run_file import EXECUTED, REPORT
from runbook_lib.records.status import is_preview, with_steps
from runbook_lib.system import provenance

#: Tags of cells: the inputs, and the first one after the plan.
INPUTS, DONE = "inputs", "done"


@dataclass(frozen=True)
class RunView:
    """A run, its record's folder, and the runs that it started, in order.

    ``planned`` is the plan of a preview, and ``decisions`` are those that only a person can make, as recorded by
    ``StepRecord.would`` and ``StepRecord.decide``.  ``progress`` is the number of CI jobs that are ``done``, and their
    ``total``, while it follows CI.
    """

    folder: Path
    notebook: str
    state: str
    started: str
    sentence: str
    next: Next
    planned: tuple[Mapping[str, Any], ...]
    decisions: tuple[Mapping[str, Any], ...]
    links: Mapping[str, str]
    parameters: Mapping[str, Any]
    process: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    progress: Mapping[str, int] | None = None
    steps: tuple["RunView", ...] = ()
    prefix: str = ""

    def file(self, name: str) -> Path:
        """Return the path of a file that the run, or the step of a bump, has added to the record."""
        return self.folder / f"{self.prefix}{name}"

    @property
    def is_closed(self) -> bool:
        """True once the record is closed."""
        return self.state != "running"

    @property
    def diffs(self) -> tuple[str, ...]:
        """The distinct diffs of the run and its steps."""
        texts = [run_file.text(file) for file in sorted(self.folder.glob("*change.diff"))]
        return tuple(dict.fromkeys(filter(None, texts)))

    @property
    def fingerprint(self) -> str:
        """The sha256 of a preview's plan; two previews with the same fingerprint would make the same changes."""
        return hashlib.sha256(json.dumps([*map(dict, self.planned), *self.diffs]).encode()).hexdigest()

    @property
    def report(self) -> Path:
        """The record's page, which exists once the record is closed."""
        return self.folder / REPORT

    def plan_html(self) -> str:
        """Return the outputs of the plan's cells as harmless HTML."""
        parts: list[str] = []
        try:
            for cell in json.loads((self.folder / EXECUTED).read_bytes())["cells"]:
                tags = cell["metadata"].get("tags", ())
                if DONE in tags:
                    break
                if cell["cell_type"] == "code" and INPUTS not in tags:
                    parts += map(report.shown, cell["outputs"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""  # the notebook is still being written, or does not exist
        return "\n".join(filter(None, parts))


def find_run(
    bump: Path, *, record: str = "", engine: Mapping[str, Any] | None = None, mode: str = ""
) -> RunView | None:
    """Return the bump's run with this record ID, or the last that this process has started in this mode.

    Returns None before the run has a record.
    """
    if not bump.is_dir():
        return None
    predicates = read_records(bump).readable
    top = None
    for predicate in predicates:
        given = (predicate.get("parameters") or {}).get("given", {})
        own = predicate.get("engine")
        is_started = engine and own and provenance.is_same(own, engine) and given.get("mode", "") == mode
        if is_started or predicate["id"] == record:
            top = predicate
    if top is None:
        return None
    _, *steps = with_steps([top])
    return _run_view(bump, top, [_run_view(bump, step) for step in steps])


def newest(bump: Path, *, previews_last: bool = False) -> Mapping[str, RunView]:
    """Return the newest run of each notebook in a bump's folder.

    With ``previews_last`` a preview counts only for a notebook that was never run to apply anything.
    """
    if not bump.is_dir():
        return {}
    runs = with_steps(read_records(bump).readable)
    if previews_last:
        runs = sorted(runs, key=is_preview, reverse=True)
    return {run["notebook"]["name"]: _run_view(bump, run) for run in runs}


def _run_view(bump: Path, predicate: Mapping[str, Any], steps: Sequence[RunView] = ()) -> RunView:
    outcome = predicate.get("outcome") or {}
    return RunView(
        folder=bump / predicate["id"],
        notebook=predicate["notebook"]["name"],
        state=predicate["state"],
        started=predicate["started"],
        sentence=outcome.get("sentence", ""),
        next=Next.from_json(outcome.get("next")),
        planned=tuple(predicate.get("planned", ())),
        # Omit decisions already made.
        decisions=tuple(decision for decision in predicate.get("decisions", ()) if "question" in decision),
        links=predicate.get("links", {}),
        parameters=(predicate.get("parameters") or {}).get("resolved", {}),
        process=predicate["process"],
        warnings=tuple(predicate.get("warnings") or ()),
        progress=predicate.get("progress") if predicate["state"] == "running" else None,
        steps=tuple(steps),
        prefix=predicate.get("prefix", ""),
    )
