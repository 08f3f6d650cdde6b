"""The output of commands, without secrets and without control characters."""

import contextlib
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator
from itertools import groupby
from types import TracebackType
from typing import TextIO

from runbook_lib.text.redact import Redactor
from runbook_lib.text.sanitize import visible

_PRACTICE_TOKEN = re.compile(r"(?<![\w-])practice-(gitlab-)?token(?![\w-])")


class _Screen:
    """The output to both streams, collected in order until one of them is flushed.

    A secret is recognized by its context, and a single call of ``print`` may write only a part of it.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[TextIO, str]] = []

    def add(self, stream: TextIO, text: str) -> None:
        self._parts.append((stream, text))

    def show(self) -> None:
        parts, self._parts = self._parts, []
        for stream, run in groupby(parts, key=lambda part: part[0]):
            stream.write(safe("".join(text for _, text in run)))
            stream.flush()


class _Printed:
    """One of the two streams of a screen; everything except writing is delegated to the real stream."""

    def __init__(self, screen: _Screen, stream: TextIO) -> None:
        self._screen, self._stream = screen, stream

    def write(self, text: str) -> int:
        self._screen.add(self._stream, text)
        return len(text)

    def flush(self) -> None:
        self._screen.show()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def safe(text: str) -> str:
    """Return the text without secrets and control characters; a JSON document stays one."""
    redactor = Redactor(os.environ)
    document = _json(text)
    if document is not None:
        clean = redactor.data(document)
        return text if clean == document and text.isascii() else json.dumps(clean, indent=2) + "\n"
    # Users copy the practice environment's tokens: no pattern treats text that begins with < as a secret.
    text = _PRACTICE_TOKEN.sub(r"<\1practice>", text)
    # Again without colours, which may split a secret.
    text = redactor.text(visible(redactor.text(text)))
    return re.sub("<(gitlab-)?practice>", r"practice-\1token", text)


def _json(text: str) -> object:
    """Return the parsed text; None if it is not a JSON document."""
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


@contextlib.contextmanager
def safe_output() -> Iterator[None]:
    """Show the output of the block only as ``safe`` text, and a traceback of this program too."""
    screen = _Screen()
    for stream in (sys.stdout, sys.stderr):
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    sys.excepthook = _show_traceback
    try:
        with (
            contextlib.redirect_stdout(_Printed(screen, sys.stdout)),
            contextlib.redirect_stderr(_Printed(screen, sys.stderr)),
        ):
            yield
    finally:
        screen.show()


def _show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.stderr.write(safe("".join(traceback.format_exception(kind, error, trace))))
