"""The life of a run's record: opened by the kernel, closed by it or by the engine, with the executed notebook."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.notebook import notification
from runbook_lib.record import archive, journal, run_file
from runbook_lib.record.run_file import EXECUTED, JOURNAL, Identity
from runbook_lib.text.redact import Redactor
from runbook_lib.world.machine import clock, notify, provenance
from runbook_lib.world.machine.files import cannot_write, write

#: The variable that the engine sets for the kernel: then the engine closes the record, with the executed notebook.
ENGINE = "RUNBOOK_ENGINE"


def open_run(root: Path, identity: Identity, name: str, parameters: Mapping[str, object]) -> Path:
    """Open the record of a run that starts now, close those of killed runs, and return its folder."""
    engine = provenance.parent_process() if os.environ.get(ENGINE) else None
    return archive.begin(root, identity, name, parameters, engine=engine)


def end(folder: Path, failure: Mapping[str, object] | None = None) -> None:
    """Note that a run has ended, and how if a cell failed; without the engine, close the record too."""
    contributions = journal.collect(journal.lines(folder))
    if contributions.has_ended:
        return
    line = json.dumps({"kind": "end", "at": clock.stamp(clock.now()), "failure": Redactor(os.environ).data(failure)})
    file = folder / JOURNAL
    try:
        with open(file, "a", encoding="ascii") as lines:
            lines.write(line + "\n")
    except OSError as error:
        raise cannot_write(file, error) from error
    if not os.environ.get(ENGINE):
        close(folder)


def close(folder: Path, notebook: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Close a record, with the executed notebook if there is one, and return what it says.

    A run that did not note its end was interrupted.  A record that is closed is left as it is.
    """
    if notebook is not None and run_file.read(folder)["state"] == "running":
        write(folder / EXECUTED, archive.executed(notebook))
    run = archive.close(folder)
    archive.commit(folder)
    if os.environ.get(notify.VARIABLE) and (warning := notification.after_run(folder)):
        print(warning, file=sys.stderr)
    return run


def complete(notebook: Any) -> tuple[dict[str, Any] | None, Path | None]:
    """Close the record that an executed notebook names, with the notebook; return its run and its folder.

    Returns None twice for a notebook that opened no record.
    """
    folder = archive.find(archive.default(), run_file.printed_id(notebook))
    if folder is None:
        return None, None
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
    """Close a record whose kernel ends without having closed it, unless the engine does; where that fails, say so."""
    if not os.environ.get(ENGINE):
        try:
            close(folder)
        except RunbookError as error:
            print(error, file=sys.stderr)
