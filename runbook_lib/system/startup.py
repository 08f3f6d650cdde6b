"""The start of a process: inherited signals, and modules that it does without."""

import signal
import sys
import threading


def skip_httpx_command() -> None:
    """Keep httpx from importing the command of its name, with the colours and the parser of options that it needs."""
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]


def skip_notebook_formats() -> None:
    """Keep jsonschema, which validates notebooks, from checking formats that notebooks do not contain.

    Its checkers of URIs and durations take more than a second to import.
    """
    for module in ("rfc3987_syntax", "isoduration", "rfc3986_validator"):
        sys.modules.setdefault(module, None)  # type: ignore[arg-type]


def restore() -> None:
    """Restore the signals that this process and its children rely on.

    While SIGCHLD is ignored, failed children look successful to Python.  A run is cancelled by SIGTERM.
    SIGINT and SIGHUP stay ignored: nohup and a shell's background jobs ask for that.
    """
    if threading.current_thread() is threading.main_thread():  # Python allows this only there
        for number in (signal.SIGCHLD, signal.SIGTERM):
            if signal.getsignal(number) == signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
