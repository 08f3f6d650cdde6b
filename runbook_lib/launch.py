"""Headless runs that a form starts: in a process of their own, which outlives the form, its kernel and the browser."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from runbook_lib import archive, provenance, session
from runbook_lib.errors import RunbookError

_TAIL = 20_000  # bytes of what a run said that are read back


class Launched:
    """A run that was started here.  What it says goes into files without a name, so that nothing is left behind."""

    def __init__(self, process: "subprocess.Popen[bytes]", out: int, err: int) -> None:
        self.pid = process.pid
        self._process, self._out, self._err = process, out, err

    @property
    def ended(self) -> bool:
        """Whether it has."""
        return self._process.poll() is not None

    @property
    def status(self) -> int | None:
        """The exit status; None as long as it runs."""
        return self._process.poll()

    def progress(self) -> str:
        """The last of what the notebook's cells have printed."""
        return _tail(self._err)

    def cancel(self) -> None:
        """End it as Ctrl-C does: its record says cancelled."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Forget what it said."""
        os.close(self._out)
        os.close(self._err)


def start(notebook: Path, parameters: Mapping[str, object], *, apply: bool) -> Launched:
    """Run a notebook headlessly with these values, in this environment without the session of JupyterLab.

    Raises RunbookError where no process can be started.
    """
    environment = {name: value for name, value in os.environ.items() if name not in session.VARIABLES}
    try:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            # A session of its own: what interrupts or ends this kernel does not end the run.
            process = subprocess.Popen(
                command_line(notebook, parameters, apply=apply), env=environment, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
            return Launched(process, os.dup(out.fileno()), os.dup(err.fileno()))
    except OSError as error:
        raise RunbookError(f"The run could not be started: {error}. Nothing was changed.") from error


def command_line(notebook: Path, parameters: Mapping[str, object], *, apply: bool) -> list[str]:
    """The command that runs a notebook headlessly with these values; text stays text (papermill's ``-r``)."""
    given = [
        part
        for name, value in parameters.items()
        for part in (("-p" if isinstance(value, bool) else "-r"), name, str(value))
    ]
    return [sys.executable, "-m", "runbook_lib.run", str(notebook), *given, "-p", "apply", str(apply)]


def going_on(root: Path) -> list[dict[str, Any]]:
    """The runs of an archive that are going on in a living process, oldest first; steps of a whole bump are not."""
    found = [run for folder in archive.bump_folders(root) for run in archive.predicates(folder)]
    return [run for run in found if run["state"] == "running" and run.get("parent") is None]


def cancel(run: Mapping[str, Any]) -> None:
    """End a run that ``going_on`` found, whoever started it.  Raises RunbookError where that may not be done."""
    if not provenance.is_alive(run["process"]):
        return
    try:
        os.kill(int(run["process"]["pid"]), signal.SIGINT)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise RunbookError(
            f"The run {run['id']} is {run['who']['user']}'s, and only they may cancel it (process "
            f"{run['process']['pid']} on {run['process']['host']})."
        ) from error


def _tail(file: int) -> str:
    size = os.fstat(file).st_size
    text = os.pread(file, _TAIL, max(0, size - _TAIL)).decode("utf-8", "replace")
    return text if size <= _TAIL else text.partition("\n")[2]
