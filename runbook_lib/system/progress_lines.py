"""Lines of progress on a terminal: one line that is rewritten, not many."""

import os
import re
import shutil
import sys

#: A line of progress, and the control sequence that removes it from a terminal.
_PROGRESS = re.compile(r"\b[0-9]{1,9} of [0-9]{1,9}\b")
_LINE_UP = "\x1b[1A\x1b[2K"


class ProgressLines:
    """Printer of lines on standard error; on a terminal a line of progress replaces the previous one."""

    def __init__(self) -> None:
        self._terminal = sys.__stderr__ if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else None
        self._last = ""

    def write(self, text: str) -> None:
        """Print complete lines."""
        for line in text.splitlines(keepends=True):
            # Successive lines of progress differ only in their numbers; a line of two rows cannot be replaced.
            shape = ""
            if _PROGRESS.search(line) and len(line) <= shutil.get_terminal_size().columns:
                shape = re.sub("[0-9]", "", line)
            if self._terminal is not None and shape and shape == self._last:
                self._terminal.write(_LINE_UP)
            self._last = shape
            sys.stderr.write(line)
        sys.stderr.flush()
