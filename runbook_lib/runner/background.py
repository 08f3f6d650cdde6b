"""Headless runs that a form starts: in a process of their own, which outlives the form, its kernel and the browser."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.records import archive
from runbook_lib.records.statement import when
from runbook_lib.runner import session
from runbook_lib.system import provenance
from runbook_lib.system.clock import now

_TAIL = 20_000  # bytes of what a run said that are read back
#: Whether a run of another machine still lives cannot be seen from here; none takes so long.
_LONGEST = timedelta(days=1)


class Launched:
    """A run that was started here.  What it says goes into files without a name, so that nothing is left behind."""

    def __init__(self, process: "subprocess.Popen[bytes]", out: int, err: int) -> None:
        import psutil  # type: ignore[import-untyped]

        #: As a record's ``process``.
        self.process = provenance.describe(psutil.Process(process.pid))
        self.cancelled = False
        self._process, self._out, self._err = process, out, err

    @property
    def ended(self) -> bool:
        """Whether it has."""
        return self._process.poll() is not None

    def progress(self) -> str:
        """The last of what the notebook's cells have printed."""
        return _tail(self._err)

    def cancel(self) -> None:
        """End it: its record says cancelled.  Before it has a record it has done nothing, and leaves none."""
        self.cancelled = True
        with suppress(ProcessLookupError):
            # Not SIGINT, which a process may have been told to ignore when it was started.
            self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Wait for its end, and forget what it said."""
        self._process.wait()
        os.close(self._out)
        os.close(self._err)


def start(
    notebook: Path,
    parameters: Mapping[str, object],
    *,
    shown: str = "",
    env: Mapping[str, str] = os.environ,
) -> Launched:
    """Run a notebook headlessly with these values, in this environment without the session of JupyterLab.

    ``shown`` is the fingerprint of the plan that was shown.  Raises RunbookError where no process can be started.
    """
    environment = {name: value for name, value in env.items() if name not in session.VARIABLES}
    environment["RUNBOOK_SHOWN"] = shown
    try:
        # The values go in by a file without a name: what stands in a command line is everybody's to read.
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(json.dumps(parameters).encode())
            given.seek(0)
            # A session of its own: what interrupts or ends this kernel does not end the run.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "runbook_lib.run", str(notebook), "-f", "/dev/stdin"], env=environment,
                stdin=given, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
            return Launched(process, os.dup(out.fileno()), os.dup(err.fileno()))
    except OSError as error:
        raise RunbookError(f"The run could not be started: {error}. Nothing was changed.") from error


def going_on(root: Path) -> list[dict[str, Any]]:
    """The runs of an archive that are going on in a living process, oldest first; steps of a whole bump are not."""
    found = [run for folder in archive.bump_folders(root) for run in archive.predicates(folder)]
    return [run for run in found if run["state"] == "running" and run.get("parent") is None and _may_live(run)]


def require_alone(root: Path, *, practice: bool) -> None:
    """Refuse while another run of this archive goes on: it could change what a new one looks at."""
    going = [it for it in going_on(root) if bool(it["bump"]["practice"]) == practice]
    if going:
        it = going[-1]
        raise Refused(
            f"A run of {it['notebook']['name']} for {it['bump']['tag'] or 'no tag'} goes on since {it['started']} "
            f"(process {it['process']['pid']} on {it['process']['host']}, {it['who']['user']}). Nothing was "
            "started. Wait for its end, or cancel it where it was started; the start page shows it."
        )


def _may_live(run: Mapping[str, Any]) -> bool:
    if provenance.is_here(run["process"]):
        return provenance.is_alive(run["process"])
    return now() - when(run["started"]) < _LONGEST


def cancel(run: Mapping[str, Any]) -> None:
    """End a run that ``going_on`` found, whoever started it.  Raises RunbookError where that may not be done."""
    process = run["process"]
    if not provenance.is_here(process):
        raise Refused(
            f"The run {run['id']} is one of the machine {process['host']} (process {process['pid']} there): cancel it "
            "there. Nothing was done here."
        )
    if not provenance.is_alive(process):
        return
    try:
        os.kill(int(process["pid"]), signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise RunbookError(
            f"The run {run['id']} is {run['who']['user']}'s, and only they may cancel it (process {process['pid']})."
        ) from error


def _tail(file: int) -> str:
    size = os.fstat(file).st_size
    text = os.pread(file, _TAIL, max(0, size - _TAIL)).decode("utf-8", "replace")
    return text if size <= _TAIL else text.partition("\n")[2]
