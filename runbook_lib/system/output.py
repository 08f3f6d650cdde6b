"""The output of commands, without secrets and without control characters."""

import contextlib
import os
import re
import sys
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any, TextIO

from runbook_lib.text.redact import Redactor
from runbook_lib.text.sanitize import visible

#: Characters for private use that stand for our own colours, because escape sequences in text are removed.
COLOUR_MARKS = {"red": "\ue0f1", "green": "\ue0f2", "yellow": "\ue0f3", "bold": "\ue0f4"}
END_MARK = "\ue0f0"
_SEQUENCES = str.maketrans(
    {"\ue0f0": "\x1b[0m", "\ue0f1": "\x1b[31m", "\ue0f2": "\x1b[32m", "\ue0f3": "\x1b[33m", "\ue0f4": "\x1b[1m"}
)

#: The colours of marks that report an outcome, and a line's beginning with one and its word.
OUTCOME_COLOURS = {"✓": "green", "✗": "red", "…": "yellow", "⚠": "yellow"}
_OUTCOME = re.compile(rf"^( *)([{''.join(OUTCOME_COLOURS)}] [a-z ]{{1,20}})(?=  )", re.MULTILINE)


def has_colour(stream: TextIO) -> bool:
    """Return True if the output to a stream may be coloured: only on a terminal, and never with NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _painted(match: re.Match[str]) -> str:
    colour = COLOUR_MARKS[OUTCOME_COLOURS[match[2][0]]]
    return f"{match[1]}{colour}{match[2]}{END_MARK}"


class _VisibleStream:
    """A stream that writes ``visible`` text to another stream, and delegates all other attributes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        text = visible(text)
        if has_colour(self._stream):
            text = _OUTCOME.sub(_painted, text)
            if not isinstance(self._stream, _VisibleStream):  # which would remove escape sequences
                text = text.translate(_SEQUENCES)
        return self._stream.write(text)

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
        text = safe(text)
        if self._stream.isatty():
            text = text.translate(_SEQUENCES)
        self._stream.write(text)


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
