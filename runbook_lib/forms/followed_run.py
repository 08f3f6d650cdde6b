"""A headless run followed by a form: started by the form, or already in progress when the form opened."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from runbook_lib.record.run_file import Identity
from runbook_lib.records import run_view
from runbook_lib.records.run_view import RunView
from runbook_lib.runner import background

_CANCELLED_EARLY = "Cancelled before it started: nothing was done, and there is no record."


class StartedRun:
    """A run started by this form; its record is below the bump's ``folder``."""

    def __init__(self, process: background.BackgroundRun, folder: Path) -> None:
        self._process, self._folder = process, folder

    def read(self) -> RunView | None:
        """Read the record opened by the process; None before it exists."""
        return run_view.find_run(self._folder, process=self._process.process)

    def has_ended(self, run: RunView | None) -> bool:
        """Return True if the record is closed, or the process has ended."""
        return (run is not None and run.is_closed) or self._process.has_exited

    def output(self) -> str:
        """Return the last lines printed by the cells."""
        return self._process.progress()

    def failure(self) -> str:
        """Return the last line printed by the process."""
        if self._process.is_cancelled:
            return _CANCELLED_EARLY
        lines = self.output().strip().splitlines()
        if not lines:
            return "The run left no record and printed nothing."
        return lines[-1].removeprefix("papermill: ")

    def cancel(self) -> None:
        """Send the process SIGTERM."""
        self._process.cancel()

    def close(self) -> None:
        """Wait for the process, and close its output."""
        self._process.close()


class AttachedRun:
    """A run of this bump started elsewhere, from the ``predicate`` of its open record."""

    def __init__(self, predicate: Mapping[str, Any], folder: Path) -> None:
        self._predicate, self._folder = predicate, folder

    def read(self) -> RunView | None:
        """Read the record by its id."""
        return run_view.find_run(self._folder, record=str(self._predicate["id"]))

    def has_ended(self, run: RunView | None) -> bool:
        """Return True if the record is closed."""
        return run is not None and run.is_closed

    def output(self) -> str:
        """Return nothing: the output belongs to whoever started the run."""
        return ""

    def failure(self) -> str:
        """Return the message that the record has disappeared."""
        return "The record of the run has disappeared."

    def cancel(self) -> None:
        """Send the process a signal, if it is on this machine."""
        background.cancel(self._predicate)

    def close(self) -> None:
        """Do nothing: the process belongs to whoever started it."""


FollowedRun: TypeAlias = StartedRun | AttachedRun


def find_run(archive: Path, folder: Path) -> AttachedRun | None:
    """Return the newest run in progress of a bump; ``folder`` is the bump's folder in the archive."""
    for predicate in reversed(background.active_runs(archive)):
        if archive.joinpath(*Identity.from_json(predicate["bump"]).parts) == folder:
            return AttachedRun(predicate, folder)
    return None
