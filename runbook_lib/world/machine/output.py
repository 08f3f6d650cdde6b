"""The output of commands, without secrets and without control characters."""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import TextIO, cast

from runbook_lib.text.redact import Redactor
from runbook_lib.text.sanitize import visible


class _SafeStream:
    """A stream that writes complete lines as ``safe`` text: a single call may write only a part of a secret.

    All other attributes are those of the stream that it writes to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._line = stream, ""

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        lines, newline, self._line = (self._line + text).rpartition("\n")
        if newline:
            self._stream.write(safe(lines + newline))
        return len(text)

    def flush(self) -> None:
        """Write the incomplete line, such as a question to the user."""
        if self._line:
            self._stream.write(safe(self._line))
            self._line = ""
        self._stream.flush()


def safe(text: str) -> str:
    """Return the text without secrets and control characters; a JSON document stays one."""
    return Redactor(os.environ).text(visible(text))


@contextlib.contextmanager
def safe_output() -> Iterator[None]:
    """Show the output of the block only as ``safe`` text, and a traceback of this program too."""
    sys.excepthook = _show_traceback
    for stream in (sys.stdout, sys.stderr):  # characters that the terminal's encoding lacks
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    out, error = _SafeStream(sys.stdout), _SafeStream(sys.stderr)
    try:
        with contextlib.redirect_stdout(cast(TextIO, out)), contextlib.redirect_stderr(cast(TextIO, error)):
            yield
    finally:
        out.flush()
        error.flush()


def _show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.stderr.write(safe("".join(traceback.format_exception(kind, error, trace))))
