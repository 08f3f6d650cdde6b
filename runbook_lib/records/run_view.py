"""A run as its record tells it, while it goes on and after: what a form follows and shows."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.records import archive, step_record
from runbook_lib.records.statement import EXECUTED, REPORT, collect
from runbook_lib.system import provenance

#: Tags of cells: the inputs, the form (what comes before it is the plan), and the values that are held back.
INPUTS, FORM, HELD_BACK = "inputs", "form", "held-back"
#: Characters of the images of one notebook that a form shows; the record has all.
_IMAGES = 300_000


@dataclass(frozen=True)
class Run:
    """A run: its record's folder, and what the record says of it.  ``steps`` are the runs that it started, in order.

    ``planned``: what a preview would do, and whether that leaves the machine.  ``decisions``: what only a person can
    decide.  Both are as ``StepRecord`` takes them.
    """

    folder: Path
    notebook: str
    state: str
    started: str
    sentence: str
    next: str
    planned: tuple[Mapping[str, Any], ...]
    decisions: tuple[Mapping[str, str], ...]
    links: Mapping[str, str]
    parameters: Mapping[str, Any]
    process: Mapping[str, Any]
    steps: tuple["Run", ...] = ()

    @property
    def ended(self) -> bool:
        """Whether its record is closed."""
        return self.state != "running"

    @property
    def diffs(self) -> tuple[str, ...]:
        """The changes of files that it and its steps show, each once."""
        texts = (_text(run.folder / "change.diff") for run in (self, *self.steps))
        return tuple(dict.fromkeys(filter(None, texts)))

    @property
    def fingerprint(self) -> str:
        """What the plan of a preview comes to: two with the same would do the same to the same lines."""
        return hashlib.sha256(json.dumps([*map(dict, self.planned), *self.diffs]).encode()).hexdigest()

    @property
    def report(self) -> Path:
        """The page of the record, once that is closed."""
        return self.folder / REPORT

    def shown(self, tag: str = "") -> str:
        """Return the outputs of the executed notebook that make the plan, as harmless HTML: those above its form.

        With ``tag``, only those of the cells that have it.
        """
        try:
            cells = json.loads((self.folder / EXECUTED).read_bytes())["cells"]
            return "\n".join(_plan(cells, tag))
        except (OSError, ValueError, KeyError, TypeError):
            return ""  # being written, or not written at all: the record's sentence stands


def _plan(cells: Sequence[Mapping[str, Any]], tag: str) -> Iterator[str]:
    from runbook_lib.records.pages import run as report

    for cell in cells:
        tags = cell["metadata"].get("tags", ())
        if FORM in tags:
            return
        if cell["cell_type"] != "code" or INPUTS in tags or (tag and tag not in tags):
            continue
        if shown := report.outputs(cell, images=_IMAGES):
            yield shown


def run(bump: Path, *, process: Mapping[str, Any] | None = None, name: str | None = None) -> Run | None:
    """The run of a bump's folder that a process (as ``provenance.process`` tells it) started, or of that name.

    None before it has a record.
    """
    if not bump.is_dir():
        return None
    found = list(archive.predicates(bump))
    own = [it for it in found if it.get("parent") is None or it["id"] == name]
    if name is not None:
        own = [it for it in own if it["id"] == name]
    if process is not None:
        own = [it for it in own if provenance.is_same(it["process"], process)]
    if not own:
        return None
    top = own[-1]
    # Of its own notebook is the preview that it began with, to see that the plan still holds.
    steps = [it for it in found if it.get("parent") == top["id"] and it["notebook"]["name"] != top["notebook"]["name"]]
    return _run(bump, top, [_run(bump, it) for it in steps])


def load(folder: Path) -> Run:
    """The run of a record's folder.  Raises RunbookError where there is none."""
    if (found := run(folder.parent, name=folder.name)) is None:
        raise RunbookError(f"There is no record in {folder}.")
    return found


def newest(bump: Path) -> Mapping[str, Run]:
    """The newest run of each notebook in a bump's folder."""
    if not bump.is_dir():
        return {}
    return {it["notebook"]["name"]: _run(bump, it) for it in archive.predicates(bump)}


def _run(bump: Path, predicate: Mapping[str, Any], steps: Sequence[Run] = ()) -> Run:
    folder = bump / predicate["id"]
    fields = predicate if predicate["state"] != "running" else collect(step_record.contributions(folder)).fields
    outcome = fields.get("outcome") or {}
    return Run(
        folder,
        predicate["notebook"]["name"],
        predicate["state"],
        predicate["started"],
        outcome.get("sentence", ""),
        outcome.get("next", ""),
        tuple(fields.get("planned", ())),
        tuple(fields.get("decisions", ())),
        fields.get("links", {}),
        (predicate.get("parameters") or {}).get("resolved", {}),
        predicate["process"],
        tuple(steps),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
