"""Processes that have the library in memory already: importing it takes longer than most of what they do."""

import atexit
import multiprocessing
import os
import pkgutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from pathlib import Path
from unittest.mock import patch

from small_runbooks import ROOT, environ

_LIBRARY = [it.name for it in pkgutil.walk_packages([str(ROOT / "runbook_lib")], "runbook_lib.")]
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([*(it for it in _LIBRARY if "_main" not in it), "papermill.cli", "pytest"])


class Forked:
    """A process in a process group of its own, which calls a function; what it says goes to a file."""

    def __init__(
        self, say: Path, function: Callable[..., object], *given: object, cwd: Path, env: Mapping[str, str]
    ) -> None:
        self._say = say
        with patch.dict(os.environ, environ()):
            forkserver.ensure_running()  # which imports this checkout's library, once
        self._process = _CONTEXT.Process(target=_call, args=(say, cwd, dict(env), function, given))
        self._process.start()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def poll(self) -> int | None:
        """Its exit status once it has ended; that of a signal is negative."""
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def ended(self, seconds: float) -> tuple[int, str]:
        """Wait until it has ended; its exit status, and what it said."""
        self._process.join(seconds)
        status = self.poll()
        assert status is not None, "it did not end"
        return status, self._say.read_text(errors="replace")


def _call(
    say: Path, cwd: Path, env: Mapping[str, str], function: Callable[..., object], given: tuple[object, ...]
) -> None:
    os.setsid()
    with open(say, "wb") as file, open(os.devnull, "rb") as nothing:
        for mine, its in ((nothing, 0), (file, 1), (file, 2)):
            os.dup2(mine.fileno(), its)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    try:
        sys.exit(function(*given))
    except KeyboardInterrupt:
        sys.exit("interrupted")
    finally:
        atexit._run_exitfuncs()
