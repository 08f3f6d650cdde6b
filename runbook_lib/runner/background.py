"""Headless runs in a separate process, which outlives the form that started it, its kernel and the browser."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.record import archive
from runbook_lib.runner import session
from runbook_lib.system import provenance

#: Number of bytes shown from the end of a run's output.
_TAIL = 20_000


class BackgroundRun:
    """A run that this process started.  Its output goes to unnamed files, so that none are left behind."""

    def __init__(self, process: "subprocess.Popen[bytes]", out: int, err: int) -> None:
        import psutil  # type: ignore[import-untyped]

        #: The process as a record describes it.
        self.process = provenance.describe(psutil.Process(process.pid))
        self.is_cancelled = False
        self._process, self._out, self._err = process, out, err

    @property
    def has_exited(self) -> bool:
        """True once the process has ended."""
        return self._process.poll() is not None

    def progress(self) -> str:
        """Return the last lines printed by the notebook's cells."""
        size = os.fstat(self._err).st_size
        text = os.pread(self._err, _TAIL, max(0, size - _TAIL)).decode("utf-8", "replace")
        return text if size <= _TAIL else text.partition("\n")[2]

    def cancel(self) -> None:
        """Cancel the run.  If it has not opened a record yet, it has done nothing and leaves none."""
        self.is_cancelled = True
        with suppress(ProcessLookupError):
            # Not SIGINT, which a process may ignore from the start.
            self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Wait until the process has ended, and discard its output."""
        self._process.wait()
        os.close(self._out)
        os.close(self._err)


def start(
    notebook: Path,
    parameters: Mapping[str, object],
    *,
    shown: str = "",
    env: Mapping[str, str] = os.environ,
) -> BackgroundRun:
    """Start a headless run of a notebook, in this environment without the variables of JupyterLab.

    ``shown`` is the fingerprint of the plan that a person has seen.  Raises RunbookError if no process can be
    started.
    """
    environment = {name: value for name, value in env.items() if name != session.VARIABLE}
    try:
        with tempfile.TemporaryFile() as values, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            values.write(json.dumps({"parameters": parameters, "shown": shown}).encode())
            values.seek(0)
            # In its own session, so that signals to this kernel do not reach it.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "runbook_lib.runner.background_main", str(notebook)], env=environment,
                stdin=values, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
            return BackgroundRun(process, os.dup(out.fileno()), os.dup(err.fileno()))
    except OSError as error:
        raise RunbookError(f"The run could not be started: {error}. Nothing was changed.") from error


def active_runs(root: Path) -> list[dict[str, Any]]:
    """Return the predicates of an archive's runs that are active on this machine, without the steps of a bump."""
    active = []
    for folder in archive.bump_folders(root):
        for run in archive.read_records(folder).readable:
            if run["state"] == "running" and run.get("parent") is None and _is_active(run["process"]):
                active.append(run)
    return active


def require_no_other_run(root: Path, *, practice: bool) -> None:
    """Raise Refused while another run in this archive is active: it could change data that a new one reads."""
    for run in active_runs(root):
        if bool(run["bump"]["practice"]) == practice:
            raise Refused(
                f"A run of {run['notebook']['name']} for {run['bump']['tag'] or 'no tag'} has been active since "
                f"{run['started']} (process {run['process']['pid']}). Nothing was started. Wait until it has "
                "finished, or cancel it where it was started; the start page shows it."
            )


def _is_active(process: Mapping[str, Any]) -> bool:
    return provenance.is_here(process) and provenance.is_alive(process)


def cancel(run: Mapping[str, Any]) -> None:
    """Cancel an active run, whichever process started it."""
    process = run["process"]
    if _is_active(process):
        with suppress(ProcessLookupError):
            os.kill(int(process["pid"]), signal.SIGTERM)
