"""The life of a run's record: opened by the kernel, closed by it or by the engine, with the executed notebook."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.record import archive, run_file
from runbook_lib.record.recorder import Recorder
from runbook_lib.record.status import BumpStatus, bump_status
from runbook_lib.text.redact import Redactor
from runbook_lib.world import commands
from runbook_lib.world.machine import notify
from runbook_lib.world.machine.notify import Event

#: The variable that the engine sets for the kernel: then the engine closes the record, with the executed notebook.
ENGINE = "RUNBOOK_ENGINE"
#: The event of each state in which somebody has to do something.
_EVENTS: Mapping[str, Event] = {"waiting": "waiting", "ready": "ready", "failed": "failed", "interrupted": "failed"}


def close(folder: Path, notebook: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Close a record, with the executed notebook if there is one, commit it, and return what it says."""
    run = archive.close(folder, notebook)
    archive.commit(folder)
    if os.environ.get(notify.VARIABLE) and (warning := notify_of_change(folder)):
        print(warning, file=sys.stderr)
    return run


def complete(notebook: Any) -> tuple[dict[str, Any] | None, Path | None]:
    """Close the record that an executed notebook names, with the notebook; return its run and its folder.

    Removes the secrets of this environment, and of known forms, from its cells.  Returns None twice for a notebook that
    opened no record.
    """
    from nbformat import from_dict

    notebook["cells"] = from_dict(Redactor(os.environ).data(notebook["cells"]))
    folder = archive.find(archive.default(), run_file.printed_id(notebook))
    if folder is None:
        return None, None
    return close(folder, notebook), folder


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


def notify_of_change(folder: Path) -> str:
    """Notify if the run with this record has changed its bump's state; return a warning, if any."""
    runs = archive.read_records(folder.parent).readable
    status = bump_status(folder.parent, runs)
    before = bump_status(folder.parent, [run for run in runs if run["id"] != folder.name])
    event = _event(status)
    if status is None or event is None or event == _event(before):
        return ""
    return notify.notify(event, runs[-1]["bump"], status.sentence, commands.text(status.next), status.links)


def _event(status: BumpStatus | None) -> Event | None:
    """Return the event for a state; None if nobody has to do anything in that state."""
    if status is None or not status.tag or status.for_ci:
        return None
    return _EVENTS.get(status.state)
