"""Terminal colours: only on a terminal, and never with NO_COLOR."""

import sys

from runbook_lib.system.output import COLOUR_MARKS, END_MARK, OUTCOME_COLOURS, has_colour


def paint(text: str, colour: str) -> str:
    """Return the text in a colour, or unchanged if colours are off."""
    return f"{COLOUR_MARKS[colour]}{text}{END_MARK}" if has_colour(sys.stdout) else text


def by_mark(line: str) -> str:
    """Return a line in the colour of its leading mark."""
    colour = OUTCOME_COLOURS.get(line.lstrip()[:1])
    return paint(line, colour) if colour else line
