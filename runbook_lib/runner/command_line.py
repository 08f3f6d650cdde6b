"""The command line that runs a notebook, for use in messages."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runbook_lib.records.statement import RUN, predicate_of
from runbook_lib.system import provenance
from runbook_lib.text.notebook_file import NotebookSource

if TYPE_CHECKING:
    from runbook_lib.pins.bump import Bump

#: The folder of the notebooks, relative to the project's root.
FOLDER = "runbooks"


def papermill(notebook: str, parameters: Mapping[str, object] | None = None, folder: str = FOLDER) -> str:
    """Return the command that runs a notebook with these parameters, ready to paste in the root of a clone.

    For an installed package the command works in any folder.  Text is passed with ``-r``, which does not convert
    ``26.10`` to a number; empty values are omitted.
    """
    words = ["environment/run", "papermill", f"{folder}/{notebook}.ipynb"]
    if provenance.IS_INSTALLED:
        words = ["runbook", "run", notebook if folder == FOLDER else f"{folder}/{notebook}.ipynb"]
    for name, value in (parameters or {}).items():
        if value not in ("", None):
            words += ["-r" if isinstance(value, str) else "-p", name, str(value)]
    return shlex.join(words)


def command(notebook: str, bump: "Bump", **changes: object) -> str:
    """Return the command that runs a notebook with the current run's parameters, overridden by ``changes``.

    Omits parameters that the notebook does not take, and default values.  Without a record of the current run, the
    parameters come from ``bump``.
    """
    parameters: dict[str, object] = {
        "tag": bump.target,
        "base": bump.base,
        "image_type": bump.image_type,
    }
    folder, displayed_folder = provenance.ROOT / FOLDER, FOLDER
    run = _current_run()
    if run.get("launcher"):
        given = run["parameters"]["given"]
        parameters |= {name: run["parameters"]["resolved"][name] for name in given}
        if Path(run["launcher"]["folder"]) != folder:
            folder = Path(run["launcher"]["folder"])
            displayed_folder = str(folder)
    parameters |= changes
    values = {}
    for parameter in NotebookSource.read(folder / f"{notebook}.ipynb").parameters:
        if parameters.get(parameter.name, parameter.default) != parameter.default:
            values[parameter.name] = parameters[parameter.name]
    # In the order in which they were passed.
    return papermill(notebook, {name: values[name] for name in parameters if name in values}, displayed_folder)


def review(bump: "Bump") -> str:
    """Return the command that shows the open decisions of a bump, card by card, and runs it with the answers."""
    words = ["runbook"] if provenance.IS_INSTALLED else ["environment/run", "runbook"]
    words += ["review", bump.target]
    return shlex.join(words)


def _current_run() -> Mapping[str, Any]:
    """Return the predicate of the current run's record; empty without one."""
    record = Path(os.environ.get("RUNBOOK_RECORD") or os.devnull, RUN)
    return predicate_of(record.read_bytes()) if record.is_file() else {}
