"""Search with a user's regular expression, within limits of time and memory.

Python's ``re`` backtracks without a limit and cannot be interrupted, so the ``regex`` package matches: it stops after
``LIMIT`` seconds, and its stack does not grow beyond 1 GB. Neither holds while it compiles a pattern, which takes
memory for each repetition that a pattern requires and time for each level of groups; both are bounded here.
"""

import math
import re
from collections.abc import Mapping, Sequence

from runbook_lib.errors import CannotTell
from runbook_lib.text.lists import shorten

#: The groups of a pattern, of which it has one: around an image reference, a part of its tag, or its digest.
GROUPS = frozenset({"image", "tag", "month", "version", "digest"})
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
    chosen = [group for group in named_groups(pattern) if group in GROUPS]
    if len(chosen) != 1:
        raise CannotTell(
            "it has no group (?P<image>…) around the image reference, nor (?P<tag>…), (?P<month>…), (?P<version>…) or "
            "(?P<digest>…)"
        )
    return chosen[0]


def named_groups(pattern: str) -> tuple[str, ...]:
    """Return the names of a pattern's groups.  Raises CannotTell, with a clause, for one that ``validate`` refuses."""
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
    return tuple(groups)


def spans(pattern: str, text: str) -> tuple[tuple[int, int], ...]:
    """Return the span of the pattern's group in each match; ``^`` and ``$`` match at the ends of each line.

    Raises CannotTell, with a sentence, for a pattern that ``validate`` refuses, and as ``matches`` does.
    """
    spans_by_group = matches(pattern, text)
    group = validate(pattern)
    return tuple(spans[group] for spans in spans_by_group if group in spans)


def matches(pattern: str, text: str, limit: float | None = None) -> tuple[Mapping[str, tuple[int, int]], ...]:
    """Return for each match the spans of the named groups that take part in it.

    Raises CannotTell, with a sentence, for a pattern that ``named_groups`` refuses, for a search that takes longer than
    ``limit`` (default: ``LIMIT``), needs too much memory or has more than 10,000 matches, and for a text of more than
    1,000,000 characters.
    """
    shown, limit = repr(shorten(pattern, 80)), limit or LIMIT
    if len(text) > _MAX_TEXT:
        raise CannotTell(f"the file has {len(text)} characters; a pattern is tried on at most {_MAX_TEXT}.")
    try:
        names = named_groups(pattern)
    except CannotTell as error:
        raise CannotTell(f"the pattern {shown} cannot be used: {error}.") from error
    import regex  # 15 ms, which only a pins file with a pattern needs

    result: list[Mapping[str, tuple[int, int]]] = []
    try:
        for match in regex.finditer(pattern, text, regex.MULTILINE, timeout=limit):
            result.append({name: match.span(name) for name in names if match.start(name) >= 0})
            if len(result) > _MAX_MATCHES:
                raise CannotTell(f"the pattern {shown} matches more than {_MAX_MATCHES} times in this file.")
    except regex.error as error:
        raise CannotTell(f"the pattern {shown} cannot be used: {error}.") from error
    except TimeoutError as error:
        raise CannotTell(
            f"the pattern {shown} took longer than {limit:.1g} seconds on this file: it backtracks too much. Avoid "
            "nested repetitions, such as (a+)+, and several .* in a row."
        ) from error
    except MemoryError as error:
        raise CannotTell(f"the pattern {shown} needs too much memory on this file.") from error
    return tuple(result)


def matching(pattern: str, names: Sequence[str]) -> frozenset[str]:
    """Return the names that match a pattern accepted by ``named_groups``.

    Raises CannotTell, with a clause, if that takes longer than about ``LIMIT`` seconds for all names together.
    """
    import regex

    limit = max(LIMIT / max(len(names), 1), 0.001)
    try:
        return frozenset(name for name in names if regex.search(pattern, name, timeout=limit))
    except (regex.error, TimeoutError, MemoryError) as error:
        shown = shorten(pattern, 80)
        raise CannotTell(f"the pattern {shown!r} takes too long on the names of files, or cannot be used") from error
