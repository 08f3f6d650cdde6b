"""Lines of progress on a terminal: one line that is rewritten, not many."""

import math
import os
import re
import shutil
import sys

#: A line of progress: a count, or a state after an elapsed time.
_PROGRESS = re.compile(r"\s*(?:[0-9]{1,9} of [0-9]{1,9} [a-z ]{1,40}|[0-9]{1,9} (?:s|min)  .*)\n")
#: The control sequence that removes the previous line from a terminal.
_LINE_UP = "\x1b[1A\x1b[2K"


class ProgressLines:
    """Printer of lines on standard error; on a terminal the next line replaces a line of progress."""

    def __init__(self) -> None:
        self._terminal = sys.__stderr__ if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else None
        #: The height of the last line if it was a line of progress, else 0.
        self._rows = 0

    def write(self, text: str) -> None:
        """Print complete lines."""
        for line in text.splitlines(keepends=True):
            if self._terminal is not None:
                if self._rows:
                    sys.stderr.flush()
                    self._terminal.write(_LINE_UP * self._rows)
                    self._terminal.flush()
                self._rows = 0
                if _PROGRESS.fullmatch(line):
                    self._rows = math.ceil((len(line) - 1) / shutil.get_terminal_size().columns)
            sys.stderr.write(line)
        sys.stderr.flush()
