"""Replay of a record: run its notebook again, changing nothing, and compare the outputs with nbval."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from runbook_lib import notebooks
from runbook_lib.errors import CannotTell
from runbook_lib.records.chain import Ledger, read_predicate, sha256
from runbook_lib.records.statement import EXECUTED, RUN, Identity
from runbook_lib.runner import notebook, session
from runbook_lib.runner.command_line import FOLDER
from runbook_lib.runner.parameters import NotebookSource, resolve
from runbook_lib.system import provenance
from runbook_lib.text.redact import Redactor

if TYPE_CHECKING:
    from nbformat import NotebookNode

Outcome = Literal["holds", "changed", "cannot tell"]

#: The parameters that let a notebook change or wait for something; a replay overrides them.
_READ_ONLY = {"apply": False, "publish": False, "wait": False}
_APPLIED = "The run applied its plan, but a replay only previews, so this may not be a real change:"


@dataclass(frozen=True)
class ReplayedCell:
    """A code cell, with its number in the executed notebook; ``detail`` shows how its output differs."""

    cell: int
    outcome: Outcome
    source: str
    detail: str = ""


@dataclass(frozen=True)
class Replay:
    """The comparison of a record's outputs with today's."""

    record: Path
    cells: Sequence[ReplayedCell]

    @property
    def outcome(self) -> Outcome:
        """The result: ``cannot tell`` if a cell could not be run and no output before it has changed."""
        outcomes = [cell.outcome for cell in self.cells]
        if "changed" in outcomes:
            return "changed"
        return "cannot tell" if "cannot tell" in outcomes else "holds"

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as a document."""
        cells = [asdict(cell) for cell in self.cells]
        return {"version": 1, "record": str(self.record), "outcome": self.outcome, "cells": cells}


def replay(record: Path) -> Replay:
    """Run the notebook of a closed record again without changing anything, and compare its outputs.

    The cells come from this checkout's notebook, never from the record.  Raises CannotTell if the record is open,
    damaged or from another version of the notebook, or if nbval is not installed.
    """
    if find_spec("nbval") is None:
        raise CannotTell("A replay needs nbval, which is not installed: start it with environment/run.")
    run = read_predicate(record)
    try:
        source = _unchanged_source(record, run)
        resolved = run["parameters"]["resolved"]
        values = {name: resolved[name] for name in run["parameters"]["given"]}
        # The sync check changes nothing, and with `apply` it reads the current state.
        has_applied = bool(resolved.get("apply")) and source.name != notebooks.SYNC_CHECK
        if source.name != notebooks.SYNC_CHECK:
            values |= {name: value for name, value in _READ_ONLY.items() if name in resolved}
        stored = json.loads((record / EXECUTED).read_bytes())["cells"]
        cells, numbers = _notebook_with_outputs(source, resolve(source, values), stored)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CannotTell(f"{record} is damaged: {error!r}. Run `runbook audit verify` for details.") from error
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        # A copy, so that the notebook sees the bump's earlier runs but adds its own record elsewhere.
        bump = folder.joinpath("audit", *Identity.from_json(run["bump"]).parts)
        shutil.copytree(record.absolute().parent, bump, symlinks=True)
        opening = {**run, "id": f"{record.name}-replay", "state": "running", "process": provenance.process()}
        opening["launcher"] = {"name": "replay", "folder": str(source.path.parent)}
        with Ledger.locked(bump) as ledger:
            copy = ledger.open(opening["id"], opening)
        (folder / "replay.ipynb").write_text(json.dumps(cells), "utf-8")
        rules = files(__package__).joinpath("sanitize.cfg").read_text("utf-8")
        for archive in filter(None, (resolved.get("audit"), str(folder / "audit"))):
            rules = f"[archive]\nregex: {re.escape(archive)}\nreplace: ARCHIVE\n\n{rules}"
        (folder / "sanitize.cfg").write_text(rules, "utf-8")
        problems = _run_nbval(folder, copy)
    return Replay(record, _compared(cells["cells"], numbers, problems, has_applied=has_applied))


def _unchanged_source(record: Path, run: Mapping[str, Any]) -> NotebookSource:
    """Return this checkout's notebook, if it is the one that the record's run executed and its outputs are intact."""
    if run["state"] == "running" or not run.get("parameters"):
        raise CannotTell(f"{record} is not the closed record of a headless run, so it cannot be replayed.")
    subjects = json.loads((record / RUN).read_bytes())["subject"]
    digests = {subject["name"]: subject["digest"]["sha256"] for subject in subjects}
    executed = record / EXECUTED
    if not executed.is_file() or digests.get(EXECUTED) != sha256(executed):
        raise CannotTell(f"{executed} is missing or was changed since its record was closed: runbook audit verify.")
    name = run["notebook"]["name"]
    path = provenance.ROOT / FOLDER / f"{Path(name).name}.ipynb"
    if not path.is_file() or sha256(path) != run["notebook"]["sha256"]:
        commit = (run.get("library") or {}).get("commit") or "of that run"
        raise CannotTell(f"{name} has changed since it was run. Replay it at commit {commit}.")
    return NotebookSource.read(path)


def _notebook_with_outputs(
    source: NotebookSource, values: Mapping[str, Any], stored: Sequence[Mapping[str, Any]]
) -> tuple["NotebookNode", list[int]]:
    """Return the notebook with the stored outputs of the executed cells, and those cells' numbers."""
    fresh = notebook.prepared(source, values)
    outputs = [cell for cell in stored if cell["cell_type"] == "code" and not _is_injected(cell)]
    fresh_cells = [cell for cell in fresh.cells if cell.cell_type == "code"]
    if len(outputs) != sum(not _is_injected(cell) for cell in fresh_cells):
        raise ValueError(f"the cells of {EXECUTED} do not match its notebook")
    remaining = iter(outputs)
    cells = []
    numbers = []
    for cell in fresh_cells:
        if _is_injected(cell):
            cell.source += f"\nimport os\nos.chdir({str(source.path.parent)!r})"
            cell.execution_count = 0
            numbers.append(0)
        else:
            original = next(remaining)
            if original["execution_count"] is None:  # an earlier cell had failed
                break
            cell.outputs, cell.execution_count = original["outputs"], original["execution_count"]
            if any(output["output_type"] == "error" for output in cell.outputs):
                cell.metadata.setdefault("tags", []).append("raises-exception")
            numbers.append(cell.execution_count)
        cells.append(cell)
    fresh.cells = cells
    return fresh, numbers


def _is_injected(cell: Mapping[str, Any]) -> bool:
    return "injected-parameters" in cell["metadata"].get("tags", ())


def _run_nbval(folder: Path, record: Path) -> list[str]:
    """Return nbval's report for each cell of ``replay.ipynb``; empty if its output is the same."""
    env = {name: value for name, value in os.environ.items() if name not in session.VARIABLES}
    env |= {
        "RUNBOOK_AUDIT": str(folder / "audit"),
        "RUNBOOK_RECORD": str(record),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "",
    }
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(provenance.ROOT), env.get("PYTHONPATH"))))
    report = folder / "report.xml"
    process = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-p", "nbval.plugin", "-p", "no:cacheprovider", "-c", os.devnull,
         f"--rootdir={folder}", "--color=no", "--nbval", "--nbval-current-env",
         f"--nbval-sanitize-with={folder / 'sanitize.cfg'}", f"--junitxml={report}", str(folder / "replay.ipynb")],
        cwd=folder, env=env, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    if process.returncode not in (0, 1) or not report.is_file():
        raise CannotTell(f"nbval did not run: {(process.stderr or process.stdout).strip()[-500:]}")
    problems = []
    for case in ElementTree.parse(report).iter("testcase"):
        elements = [element for element in case if element.tag in ("failure", "error", "skipped")]
        problems.append("\n".join(element.text or element.get("message") or "failed" for element in elements))
    return problems


def _compared(
    cells: Sequence["NotebookNode"], numbers: Sequence[int], problems: Sequence[str], *, has_applied: bool
) -> list[ReplayedCell]:
    """Return the result of each cell; the results after a cell that could not be run are unknown."""
    redact = Redactor(os.environ).text
    compared = []
    has_failed = len(problems) != len(cells)
    for cell, number, problem in zip(cells, numbers, problems, strict=False):
        outcome: Outcome = "holds"
        reason, _, difference = problem.partition("Traceback:\n")
        has_failed |= bool(problem) and "Cell outputs differ" not in reason
        if has_failed:
            outcome = "cannot tell"
        elif problem and has_applied:
            outcome = "cannot tell"
            difference = f"{_APPLIED}\n{difference}"
        elif problem:
            outcome = "changed"
        if number:
            first_line = cell.source.strip().partition("\n")[0]
            compared.append(ReplayedCell(number, outcome, first_line, redact(difference.strip())))
    return compared
