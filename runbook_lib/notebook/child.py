"""Runs in a separate process, which outlives the form that started it, its kernel and the browser.

The process runs the notebook with papermill, after a preview if a plan was shown: it must still be the same plan.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.notebook import session
from runbook_lib.record import archive
from runbook_lib.record.run_file import Identity
from runbook_lib.system import provenance

#: A run, as its record has it.
Run = Mapping[str, Any]
#: Number of bytes shown from the end of a run's output.
_TAIL = 20_000
_CANCELLED_EARLY = "Cancelled before it started: nothing was done, and there is no record."


class StartedRun:
    """A run that this process started.  Its output goes to unnamed files, so that none are left behind."""

    def __init__(self, process: "subprocess.Popen[bytes]", err: int, folder: Path) -> None:
        import psutil  # type: ignore[import-untyped]

        self._engine = provenance.describe(psutil.Process(process.pid))
        self._process, self._err, self._folder = process, err, folder
        self._is_cancelled = False

    def read(self) -> Run | None:
        """Read the record opened by the process; None before it exists."""
        return _find(
            self._folder, lambda run: bool(run.get("engine")) and provenance.is_same(run["engine"], self._engine)
        )

    def has_ended(self, _run: Run | None) -> bool:
        """Return True if the process has ended."""
        return self._process.poll() is not None

    def output(self) -> str:
        """Return the last lines printed by the cells."""
        size = os.fstat(self._err).st_size
        text = os.pread(self._err, _TAIL, max(0, size - _TAIL)).decode("utf-8", "replace")
        return text if size <= _TAIL else text.partition("\n")[2]

    def failure(self) -> str:
        """Return the last line printed by the process."""
        if self._is_cancelled:
            return _CANCELLED_EARLY
        lines = self.output().strip().splitlines() or ["The run left no record and printed nothing."]
        return lines[-1].removeprefix("papermill: ").removeprefix("✗ failed  ")

    def cancel(self) -> None:
        """Cancel the run.  If it has not opened a record yet, it has done nothing and leaves none."""
        self._is_cancelled = True
        with suppress(ProcessLookupError):
            # Not SIGINT, which a process may ignore from the start.
            self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Wait until the process has ended, and discard its output."""
        self._process.wait()
        os.close(self._err)


class AttachedRun:
    """A run of this bump started elsewhere, from its open record in the bump's ``folder``."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run, self._folder = run, folder

    def read(self) -> Run | None:
        """Read the record by its id."""
        return _find(self._folder, lambda run: bool(run["id"] == self._run["id"]))

    def has_ended(self, run: Run | None) -> bool:
        """Return True if the record is closed."""
        return run is not None and run["state"] != "running"

    def output(self) -> str:
        """Return nothing: the output belongs to whoever started the run."""
        return ""

    def failure(self) -> str:
        """Return the message that the record has disappeared."""
        return "The record of the run has disappeared."

    def cancel(self) -> None:
        """Send its process a signal, if it is on this machine."""
        process = self._run.get("engine") or self._run["process"]
        if provenance.is_here(process) and provenance.is_alive(process):
            with suppress(ProcessLookupError):
                os.kill(int(process["pid"]), signal.SIGTERM)

    def close(self) -> None:
        """Do nothing: the process belongs to whoever started it."""


FollowedRun: TypeAlias = StartedRun | AttachedRun


def _find(bump: Path, is_it: Callable[[Run], bool]) -> Run | None:
    """Return the newest of a bump's runs of which this is true; None before it has a record."""
    runs = archive.read_records(bump).readable if bump.is_dir() else []
    return next(filter(is_it, reversed(runs)), None)


def start(
    notebook: Path,
    parameters: Mapping[str, object],
    folder: Path,
    *,
    shown: str = "",
    env: Mapping[str, str] = os.environ,
) -> StartedRun:
    """Start a run of a notebook in this environment without the variables of JupyterLab.

    ``folder`` is the bump's in the archive, ``shown`` the fingerprint of the plan that a person has seen.  Raises
    RunbookError if no process can be started.
    """
    environment = {name: value for name, value in env.items() if name != session.VARIABLE}
    try:
        with tempfile.TemporaryFile() as request, tempfile.TemporaryFile() as err:
            request.write(json.dumps({"parameters": parameters, "shown": shown}).encode())
            request.seek(0)
            # In its own session, so that signals to this kernel do not reach it.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "runbook_lib.notebook.child_main", str(notebook)], env=environment,
                stdin=request, stdout=err, stderr=err, start_new_session=True,
            )  # fmt: skip
            return StartedRun(process, os.dup(err.fileno()), folder)
    except OSError as error:
        raise RunbookError(f"The run could not be started: {error}. Nothing was changed.") from error


def find_run(root: Path, folder: Path) -> AttachedRun | None:
    """Return the newest run in progress of a bump; ``folder`` is the bump's folder in the archive ``root``."""
    for run in reversed(active_runs(root)):
        if root.joinpath(*Identity.from_json(run["bump"]).parts) == folder:
            return AttachedRun(run, folder)
    return None


def active_runs(root: Path) -> list[dict[str, Any]]:
    """Return an archive's runs that are active on this machine."""
    runs = [run for folder in archive.bump_folders(root) for run in archive.read_records(folder).readable]
    return [run for run in runs if run["state"] == "running" and provenance.is_here(run["process"])]


def require_no_other_run(root: Path, *, practice: bool) -> None:
    """Raise Refused while another run in this archive is active: it could change data that a new one reads."""
    for run in active_runs(root):
        if bool(run["bump"]["practice"]) == practice:
            raise Refused(
                f"A run of {run['notebook']['name']} for {run['bump']['tag'] or 'no tag'} has been active since "
                f"{run['started']} (process {run['process']['pid']}). Nothing was started. Wait until it has "
                "finished, or cancel it where it was started; the start page shows it."
            )
