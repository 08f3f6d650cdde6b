"""The start of a process: inherited signals and standard streams, and modules that it will need."""

import importlib
import os
import signal
import sys
import threading


def preload(*modules: str) -> None:
    """Import modules that a process needs later in the background, while it waits for another process."""
    threading.Thread(target=lambda: list(map(importlib.import_module, modules)), daemon=True).start()


def skip_httpx_command() -> None:
    """Keep httpx from importing the command of its name, with the colours and the parser of options that it needs."""
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]


def restore() -> None:
    """Restore the signals and streams that this process and its children rely on.

    While SIGCHLD is ignored, failed children look successful to Python.  A run is cancelled by SIGTERM.
    SIGINT and SIGHUP stay ignored: nohup and a shell's background jobs ask for that.
    """
    if threading.current_thread() is threading.main_thread():  # Python allows this only there
        for number in (signal.SIGCHLD, signal.SIGTERM):
            if signal.getsignal(number) == signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _open_closed_streams()


def _open_closed_streams() -> None:
    """Open /dev/null for closed standard streams; otherwise the next opened file would take their place."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            os.set_inheritable(null, True)
        setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  (as long as the process lives)
