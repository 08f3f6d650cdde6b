"""The life of a run's record: opened by the kernel, closed by it or by the engine, with the executed notebook."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runbook_lib.records import archive, step_record
from runbook_lib.records.chain import Ledger, read_predicate
from runbook_lib.records.pages import index, run
from runbook_lib.records.statement import CONTRIBUTIONS, EXECUTED, Identity, collect, record_id
from runbook_lib.system import clock, provenance
from runbook_lib.system.files import cannot_write, write
from runbook_lib.text.redact import Redactor

#: The variable that the engine sets for the kernel: then the engine closes the record, with the executed notebook.
ENGINE = "RUNBOOK_ENGINE"
#: A record's ID where a run prints it.
_PRINTED = re.compile(r"Record: ([0-9]{8}T[0-9]{6}Z-[A-Za-z0-9._-]+-[0-9a-f]{8})")


def open_run(root: Path, identity: Identity, name: str, parameters: Mapping[str, object]) -> Path:
    """Open the record of a run that starts now, close those of killed runs, and return its folder."""
    redactor = Redactor(os.environ)
    identity = Identity.from_json(redactor.data(identity.as_json()))  # its names become those of folders
    started = clock.now()
    predicate = {
        "id": record_id(started, name),
        "state": "running",
        "bump": identity.as_json(),
        "notebook": {"name": name, "sha256": None},
        "launcher": None,
        "engine": provenance.parent_process() if os.environ.get(ENGINE) else None,
        "library": provenance.library(),
        "requirements": provenance.requirements(),
        "who": provenance.who(os.environ),
        "process": provenance.process(),
        "started": clock.stamp(started),
        "ended": None,
        "parameters": {"given": dict(parameters), "resolved": dict(parameters)},
        "parent": None,
    }
    with Ledger.locked(root.joinpath(*identity.parts)) as ledger:
        archive.close_dead(ledger)
        return ledger.open(str(predicate["id"]), redactor.data(predicate))


def end(folder: Path, failure: Mapping[str, object] | None = None) -> None:
    """Note that a run has ended, and how if a cell failed; without the engine, close the record too."""
    contributions = collect(step_record.contributions(folder))
    if contributions.has_ended:
        return
    line = json.dumps({"kind": "end", "at": clock.stamp(clock.now()), "failure": Redactor(os.environ).data(failure)})
    file = folder / CONTRIBUTIONS
    try:
        with open(file, "a", encoding="ascii") as journal:
            journal.write(line + "\n")
    except OSError as error:
        raise cannot_write(file, error) from error
    if not os.environ.get(ENGINE):
        close(folder)


def close(folder: Path, notebook: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Close a record, with the executed notebook if there is one, and return what it says.

    A run that did not note its end was interrupted.  A record that is closed is left as it is.
    """
    with Ledger.locked(folder.parent) as ledger:
        predicate = read_predicate(folder)
        if folder.name not in ledger.open_ids:
            return predicate
        if notebook is not None:
            write(folder / EXECUTED, json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
        final = archive.kept_predicate(folder, predicate)
        run.write_report(folder, final)
        ledger.close(folder.name, final)
    index.write_index(folder.parents[len(Identity.from_json(predicate["bump"]).parts)])
    return final


def complete(notebook: Any, failure: Mapping[str, object] | None = None) -> tuple[dict[str, Any] | None, Path | None]:
    """Close the record that an executed notebook names, with the notebook; return its run and its folder.

    Returns None twice for a notebook that opened no record.
    """
    found = _PRINTED.search(json.dumps(notebook["cells"]))
    folders = [
        folder for form in ("*/*/*", "*/*/*/*") if found for folder in archive.default().glob(f"{form}/{found[1]}")
    ]
    if not folders:
        return None, None
    folder = folders[0]
    notebook["metadata"].setdefault("runbook", {})["record"] = folder.name
    return close(folder, notebook), folder


def redact(notebook: Any) -> None:
    """Remove the secrets of this environment, and of known forms, from a notebook."""
    redactor = Redactor(os.environ)
    for cell in notebook["cells"]:
        cell["source"] = redactor.text(cell["source"])
        for output in cell.get("outputs", ()):
            output.update(
                {
                    name: redactor.data(output[name])
                    for name in ("text", "data", "evalue", "traceback")
                    if name in output
                }
            )


def end_run(folder: Path | None) -> None:
    """Close the record of a run that has reached its end; in JupyterLab there is none."""
    if folder is not None:
        end(folder)
        if not os.environ.get(ENGINE):
            print("To add the executed notebook to its record: runbook audit add OUTPUT.ipynb")


def end_killed(folder: Path) -> None:
    """Close a record whose kernel ends without having closed it, unless the engine does."""
    if not os.environ.get(ENGINE):
        close(folder)
