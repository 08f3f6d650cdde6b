"""Search with a user's regular expression, within limits of time and memory.

Python's ``re`` backtracks without a limit and cannot be interrupted, so the ``regex`` package matches: it stops after
``LIMIT`` seconds, and its stack does not grow beyond 1 GB. Neither holds while it compiles a pattern, which takes
memory for each repetition that a pattern requires and time for each level of groups; both are bounded here.
"""

import math
import re

from runbook_lib.errors import CannotTell
from runbook_lib.text.lists import shorten

#: The groups of a pattern, of which it has one: around an image reference, or around a tag alone.
GROUPS = frozenset({"image", "tag"})
#: Seconds of processor time for all matches in one text.
LIMIT = 10.0
_MAX_PATTERN = 1000  # characters
_MAX_TEXT = 1_000_000  # characters
_MAX_MATCHES = 10_000  # a pin has at most 1000
_MAX_GROUPS = 10
_MAX_REPEATED = 1000  # the required repetitions of a pattern, multiplied
_TOKEN = re.compile(r"(?s)\\.|(?P<group>\()|(?P<brace>\{(?:(?P<least>[0-9]{0,9})(?:,[0-9]{0,9})?\})?)")


def validate(pattern: str) -> str:
    """Return the pattern's group, which is one of GROUPS.

    Raises CannotTell, with a clause on the pattern, unless it is valid in Python and within the limits.
    """
    if len(pattern) > _MAX_PATTERN:
        raise CannotTell(f"it has {len(pattern)} characters, and at most {_MAX_PATTERN} are allowed")
    try:
        groups = re.compile(pattern, re.MULTILINE).groupindex
    except (re.error, RecursionError, OverflowError) as error:
        raise CannotTell(f"it is not a valid Python regular expression: {error}") from error
    tokens = list(_TOKEN.finditer(pattern))
    if any(token["brace"] and token["least"] is None for token in tokens):
        raise CannotTell("it has a { that does not start a repetition such as {2,5}: write \\{ for the character")
    if sum(bool(token["group"]) for token in tokens) > _MAX_GROUPS:
        raise CannotTell(f"it has more than {_MAX_GROUPS} groups: write \\( for the character")
    if math.prod(int(token["least"] or 1) or 1 for token in tokens) > _MAX_REPEATED:
        raise CannotTell(f"its repetitions require more than {_MAX_REPEATED} characters: write + or {{1,}} instead")
    chosen = [group for group in groups if group in GROUPS]
    if len(chosen) != 1:
        raise CannotTell("it has no group (?P<image>…) around the image reference, nor (?P<tag>…) around its tag")
    return chosen[0]


def spans(pattern: str, text: str) -> tuple[tuple[int, int], ...]:
    """Return the span of the pattern's group in each match; ``^`` and ``$`` match at the ends of each line.

    Raises CannotTell, with a sentence, for a pattern that ``validate`` refuses, for a search that takes longer than
    ``LIMIT``, needs too much memory or has more than 10,000 matches, and for a text of more than 1,000,000 characters.
    """
    shown = repr(shorten(pattern, 80))
    if len(text) > _MAX_TEXT:
        raise CannotTell(f"the file has {len(text)} characters; a pattern is tried on at most {_MAX_TEXT}.")
    try:
        group = validate(pattern)
    except CannotTell as error:
        raise CannotTell(f"the pattern {shown} cannot be used: {error}.") from error
    import regex  # 15 ms, which only a pins file with a pattern needs

    result: list[tuple[int, int]] = []
    try:
        for match in regex.finditer(pattern, text, regex.MULTILINE, timeout=LIMIT):
            if match.start(group) >= 0:
                result.append(match.span(group))
            if len(result) > _MAX_MATCHES:
                raise CannotTell(f"the pattern {shown} matches more than {_MAX_MATCHES} times in this file.")
    except regex.error as error:
        raise CannotTell(f"the pattern {shown} cannot be used: {error}.") from error
    except TimeoutError as error:
        raise CannotTell(
            f"the pattern {shown} took longer than {LIMIT:.1g} seconds on this file: it backtracks too much. Avoid "
            "nested repetitions, such as (a+)+, and several .* in a row."
        ) from error
    except MemoryError as error:
        raise CannotTell(f"the pattern {shown} needs too much memory on this file.") from error
    return tuple(result)
