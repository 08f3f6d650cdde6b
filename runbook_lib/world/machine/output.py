"""The output of commands, without secrets and without control characters."""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any, TextIO

from runbook_lib.text.redact import Redactor
from runbook_lib.text.sanitize import visible


class _VisibleStream:
    """A stream that writes ``visible`` text to another stream, and delegates all other attributes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(visible(text))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


class _SafeStream(_VisibleStream):
    """A stream that writes complete lines as ``safe`` text: a single call may write only a part of a secret."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._line = ""

    def write(self, text: str) -> int:
        lines, newline, self._line = (self._line + text).rpartition("\n")
        if newline:
            self._write_safely(lines + newline)
        return len(text)

    def flush(self) -> None:
        """Write the incomplete line, such as a question to the user."""
        if self._line:
            self._write_safely(self._line)
            self._line = ""
        self._stream.flush()

    def _write_safely(self, text: str) -> None:
        self._stream.write(safe(text))


def safe(text: str) -> str:
    """Return the text without secrets and control characters; a JSON document stays one."""
    return Redactor(os.environ).text(visible(text))


@contextlib.contextmanager
def safe_output() -> Iterator[None]:
    """Show the output of the block only as ``safe`` text, and a traceback of this program too."""
    sys.excepthook = _show_traceback
    out, error = _SafeStream(sys.stdout), _SafeStream(sys.stderr)
    try:
        with _redirected(out, error):
            yield
    finally:
        out.flush()
        error.flush()


@contextlib.contextmanager
def visible_output() -> Iterator[None]:
    """Show the output of the block only as ``visible`` text."""
    with _redirected(_VisibleStream(sys.stdout), _VisibleStream(sys.stderr)):
        yield


@contextlib.contextmanager
def _redirected(out: Any, error: Any) -> Iterator[None]:
    """Print to these streams, and escape characters missing from the terminal's encoding."""
    for stream in (sys.stdout, sys.stderr):
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        yield


def _show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.stderr.write(safe("".join(traceback.format_exception(kind, error, trace))))
