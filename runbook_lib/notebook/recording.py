"""The life of a run's record: opened by the kernel, closed by it or by the engine, with the executed notebook."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.notebook import notification
from runbook_lib.record import archive, run_file
from runbook_lib.record.recorder import Recorder
from runbook_lib.text.redact import Redactor
from runbook_lib.world.machine import notify

#: The variable that the engine sets for the kernel: then the engine closes the record, with the executed notebook.
ENGINE = "RUNBOOK_ENGINE"


def close(folder: Path, notebook: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Close a record, with the executed notebook if there is one, commit it, and return what it says."""
    run = archive.close(folder, notebook)
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
    """Remove the secrets of this environment, and of known forms, from the cells of a notebook."""
    from nbformat import from_dict

    notebook["cells"] = from_dict(Redactor(os.environ).data(notebook["cells"]))


def end(record: Recorder, failure: Mapping[str, object] | None = None) -> None:
    """End the run of this kernel, and close its record unless the engine does; in JupyterLab there is none."""
    if record.run["state"] == "running":
        record.end(failure)
        if record.folder and not os.environ.get(ENGINE):
            close(record.folder)


def end_killed(folder: Path) -> None:
    """Close a record whose kernel ends without having closed it, unless the engine does; where that fails, say so."""
    try:
        if not os.environ.get(ENGINE) and "files" not in run_file.read(folder):
            close(folder)
    except RunbookError as error:
        print(error, file=sys.stderr)
