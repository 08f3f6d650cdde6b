"""Runs in a separate process, which outlives the form that started it, its kernel and the browser.

The process is the environment's ``papermill``.  If a plan was shown, it first computes it again.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.notebook import session
from runbook_lib.record import archive
from runbook_lib.world.machine import provenance

#: A run, as its record has it.
Run = Mapping[str, Any]
#: Number of bytes at the end of a run's output in which its last line is looked for.
_TAIL = 20_000
_CANCELLED_EARLY = "Cancelled before it started: nothing was done, and there is no record."


class FollowedRun:
    """A run in progress: one that this process has started, with its output, or one found in the archive.

    ``engine`` is the process that runs it, and ``folder`` the bump's.  The output goes to an unnamed file ``err``, so
    that none is left behind.
    """

    def __init__(
        self, folder: Path, engine: Run, process: "subprocess.Popen[bytes] | None" = None, err: int = -1
    ) -> None:
        self._folder, self._engine, self._process, self._err = folder, engine, process, err
        self._is_cancelled = False

    def read(self) -> Run | None:
        """Read the record that the process has opened; None before it exists."""
        return _find(self._folder, lambda run: provenance.is_same(_engine(run), self._engine))

    def has_ended(self, run: Run | None) -> bool:
        """Return True if the process has ended, or the record of a run that was found is closed."""
        if self._process:
            return self._process.poll() is not None
        return run is not None and "files" in run

    def last_line(self) -> str:
        """Return the last line that was printed, such as for what it waits; nothing if another process started it."""
        if not self._process:
            return ""
        size = os.fstat(self._err).st_size
        lines = os.pread(self._err, _TAIL, max(0, size - _TAIL)).decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def failure(self) -> str:
        """Return why there is no record, by what the process has printed."""
        if self._is_cancelled:
            return _CANCELLED_EARLY
        line = self.last_line() or "The run left no record and printed nothing."
        return line.removeprefix("papermill: ").removeprefix("✗ failed  ")

    def cancel(self) -> None:
        """Cancel the run, if it is on this machine.  Without a record it has done nothing and leaves none."""
        self._is_cancelled = True
        if provenance.is_here(self._engine) and provenance.is_alive(self._engine):
            with suppress(ProcessLookupError):
                os.kill(int(self._engine["pid"]), signal.SIGTERM)  # not SIGINT, which a process may ignore

    def close(self) -> None:
        """Wait until a process that was started here has ended, and discard its output."""
        if self._process:
            self._process.wait()
            os.close(self._err)


def _engine(run: Run) -> Run:
    return dict(run.get("engine") or run["process"])


def _find(bump: Path, is_it: Callable[[Run], bool]) -> Run | None:
    """Return the newest of a bump's runs of which this is true; None before it has a record."""
    return next(filter(is_it, reversed(archive.read_records(bump).readable)), None)


def start(notebook: Path, parameters: Mapping[str, object], folder: Path, *, shown: str = "") -> FollowedRun:
    """Start a run of a notebook in this environment without the variables of JupyterLab.

    ``folder`` is the bump's in the archive, ``shown`` the fingerprint of the plan that a person has seen.  Raises
    RunbookError if no process can be started.
    """

    environment = {name: value for name, value in os.environ.items() if name != session.VARIABLE}
    if shown:
        environment[session.SHOWN] = shown
    command = [sys.executable, "-P", "-m", "runbook_lib.notebook.papermill", str(notebook), "--no-progress-bar"]
    for name, value in parameters.items():
        command += ["-r" if isinstance(value, str) else "-p", name, str(value)]
    try:
        with tempfile.TemporaryFile() as err:
            # In its own session, so that signals to this kernel do not reach it.
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=err, stderr=err, start_new_session=True
            )
            engine = provenance.process(process.pid)
            return FollowedRun(folder, engine, process, os.dup(err.fileno()))
    except OSError as error:
        raise RunbookError(f"The run could not be started: {error}. Nothing was changed.") from error


def find_run(folder: Path) -> FollowedRun | None:
    """Return the newest run in progress on this machine of the bump with this folder in the archive."""
    run = _find(folder, lambda run: run["state"] == "running" and provenance.is_here(run["process"]))
    return FollowedRun(folder, _engine(run)) if run else None
