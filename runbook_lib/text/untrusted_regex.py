"""Search with a user's regular expression, by RE2: in time that is linear in the text, and in bounded memory.

RE2 has no look-around and no backreferences, which is how it keeps that promise; ``validate`` says what to write.
"""

import re
import time
from typing import Any

from runbook_lib.errors import CannotTell
from runbook_lib.text.lists import shorten

#: The groups of a pattern, of which it has one: around an image reference, or around a tag alone.
GROUPS = frozenset({"image", "tag"})
#: Seconds of the processor for all patterns and texts of this process: each search is linear, but there may be many.
LIMIT = 30.0
_spent = 0.0  # seconds
_MAX_PATTERN = 1000  # characters
_MAX_GROUPS, _MAX_STATES = 10, 1000  # of the compiled pattern: they multiply the time for a character
_MAX_TEXT = 1_000_000  # characters
_MAX_MATCHES = 10_000  # a pin has at most 1000


def validate(pattern: str) -> str:
    """Return the pattern's group, which is one of GROUPS.

    Raises CannotTell, with a clause on the pattern, unless RE2 accepts it, it is small, and it has one of the groups.
    """
    return _compile(pattern)[1]


def _compile(pattern: str) -> tuple[Any, str]:
    """Return the compiled pattern and its group.  Raises CannotTell, with a clause."""
    import re2  # only a pins file with a pattern needs it

    if len(pattern) > _MAX_PATTERN:
        raise CannotTell(f"it has {len(pattern)} characters, and at most {_MAX_PATTERN} are allowed")
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(f"(?m){_encodable(pattern)}", options)
    except re2.error as error:
        hint = ""
        if re.search(r"\(\?(?:[=!]|<[=!]|P=)|\\[1-9Z]|[+*?}]\+|\(\?[a-z]*x", pattern):
            hint = (
                ". RE2 has no look-around, backreference, possessive repetition, (?x) or \\Z: let the pattern match "
                "the text around the group instead, and write $ for the end of a line"
            )
        detail = error.args[0].decode("utf-8", "replace")
        raise CannotTell(f"it is not a valid RE2 expression: {detail}{hint}") from error
    if compiled.groups > _MAX_GROUPS:
        raise CannotTell(f"it has more than {_MAX_GROUPS} groups: write \\( for the character, (?:…) for the others")
    if compiled.programsize > _MAX_STATES:
        raise CannotTell("its repetitions are too many: write + or * in place of large numbers")
    chosen = [group for group in compiled.groupindex if group in GROUPS]
    if len(chosen) != 1:
        raise CannotTell("it has no group (?P<image>…) around the image reference, nor (?P<tag>…) around its tag")
    return compiled, chosen[0]


def spans(pattern: str, text: str) -> tuple[tuple[int, int], ...]:
    """Return the span of the pattern's group in each match; ``^`` and ``$`` match at the ends of each line.

    The pattern is one that ``validate`` accepts.  Raises CannotTell, with a sentence, when all searches have taken more
    than ``LIMIT``, for more than 10,000 matches, and for a text of more than 1,000,000 characters.
    """
    shown = repr(shorten(pattern, 80))
    if len(text) > _MAX_TEXT:
        raise CannotTell(f"the file has {len(text)} characters; a pattern is tried on at most {_MAX_TEXT}.")
    compiled, group = _compile(pattern)
    number = compiled.groupindex[group]
    before, result = time.thread_time(), list[tuple[int, int]]()
    for match in compiled.finditer(_encodable(text)):
        if match.start(number) >= 0:
            result.append(match.span(number))
        if len(result) > _MAX_MATCHES:
            raise CannotTell(f"the pattern {shown} matches more than {_MAX_MATCHES} times in this file.")
        before = _spend(before, shown)
    _spend(before, shown)
    return tuple(result)


def _spend(before: float, pattern: str) -> float:
    """Count the time since ``before``, and return the time now.  Raises CannotTell when it is used up."""
    global _spent
    now = time.thread_time()
    _spent += now - before
    if _spent > LIMIT:
        raise CannotTell(f"all patterns took more than {LIMIT:.3g} seconds, the last one {pattern}: make it shorter.")
    return now


def _encodable(text: str) -> str:
    """Return a text of the same length that UTF-8 can encode: bytes that were not text are replaced."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)
