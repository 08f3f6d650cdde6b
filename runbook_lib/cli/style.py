"""Terminal colours: only on a terminal, and never with NO_COLOR."""

import os
import sys

from runbook_lib.system.output import COLOUR_MARKS, END_MARK

#: The colours of words that report an outcome.
_OUTCOMES = {"✓": "green", "✗": "red", "…": "yellow", "⚠": "yellow"}


def has_colour() -> bool:
    """Return True if standard output may be coloured."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str) -> str:
    """Return the text in a colour, or unchanged if colours are off."""
    return f"{COLOUR_MARKS[colour]}{text}{END_MARK}" if has_colour() else text


def by_mark(line: str) -> str:
    """Return a line in the colour of its leading mark."""
    colour = _OUTCOMES.get(line.lstrip()[:1])
    return paint(line, colour) if colour else line
