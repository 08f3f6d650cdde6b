"""Every regular expression of the library, and the texts that are worst for it."""

import math
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]
from types import FrameType
from typing import Any

from regexes import CALLS, Use, uses

import runbook_lib

HERE = Path(runbook_lib.__file__).resolve().parent
#: How a pattern is tried: those that look for it anywhere try each place of a text.
_ANCHORED = {"match": "match", "fullmatch": "fullmatch"}
#: Patterns that a function gets, and tries at one place of a text.
_HANDED_ON = {"recipes.quarantine._COMMENT": "fullmatch", "recipes.quarantine._SOFT": "match"}
#: Characters of all kinds, one of which most classes hold.
_SAMPLES = "a0 .-_/\n\t\"'<>=*`@:;,()[]{}\\\x1b#|!~+A\r\x00é"
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
_ALTERNATIVES = 8  # of one part of a pattern, such as names, that are tried; the others are of the same kind
_MANY = 100  # repetitions that a bounded pattern may have without being looked at


@dataclass(frozen=True)
class Expression:
    """A pattern, where it stands, and how it is used."""

    place: str
    pattern: re.Pattern[Any]
    how: str


USES = uses(HERE)


def expressions() -> dict[str, Expression]:
    """All of them, by a name that tells the module and the order in it."""
    found: dict[tuple[str, int, str], Expression] = {}
    called = _calls()
    for use in USES:
        for text, flags in use.patterns:
            pattern = re.compile(text, flags)
            how = _how(called, use)
            found.setdefault((repr(text), pattern.flags, how), Expression(use.place, pattern, how))
    return {f"{it.place}-{number}": it for number, it in enumerate(found.values())}


def _calls() -> dict[str, set[str]]:
    """How named patterns are called, by their name, or by module and name where they are a module's own."""
    seen: dict[str, set[str]] = {}
    for file in HERE.rglob("*.py"):
        module = ".".join(file.relative_to(HERE).with_suffix("").parts)
        text = file.read_text()
        found = [*re.findall(r"\b(_?[A-Z][A-Z_0-9]*)\.(\w+)", text)]
        found += [(name, how) for how, name in re.findall(r"\bre\.(\w+)\((_?[A-Z][A-Z_0-9]*)\b", text)]
        for name, how in found:
            if how in CALLS:
                seen.setdefault(f"{module}.{name}" if name.startswith("_") else name, set()).add(how)
    return seen


def _how(called: Mapping[str, set[str]], use: Use) -> str:
    """Anchored only where all calls are; one that is handed on may be used in any way."""
    if not use.name:
        return use.how
    if use.place in _HANDED_ON:
        return _HANDED_ON[use.place]
    hows = called.get(use.place if use.name.startswith("_") else use.name, set())
    return _ANCHORED.get(next(iter(hows)), "search") if len(hows) == 1 else "search"


# -- texts that are worst -----------------------------------------------------------------------------------------


def attacks(pattern: re.Pattern[Any]) -> list[tuple[str, str, str]]:
    """What stands first, what is repeated, and what comes last, so that the match fails as late as can be."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    flags = pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    tree = _parser.parse(text, flags & ~re.DEBUG)
    found: dict[tuple[str, str, str], None] = {}
    # What a match begins with, and what is written out within it, again and again: each begins a match anew.
    for part in dict.fromkeys(_fragments(tree)):
        found |= {("", part, "\x00"): None, ("", f"{part} ", ""): None}
    for before, pumps in _repeats(tree, ""):
        for pump in dict.fromkeys(pumps):
            for after in ("", "\x00", "\n\x00"):
                found |= {(before, pump, after): None, ("", before + pump, after): None}
    for letter in _SAMPLES:
        found |= {("", letter, "\x00"): None}
    return [it for it in found if it[1]]


def _repeats(tree: Any, before: str) -> Iterator[tuple[str, list[str]]]:
    """Each repetition within a pattern: the shortest text that leads there, and texts that it takes."""
    for op, value in tree:
        if op in _REPEATS:
            low, high, body = value
            if high == _constants.MAXREPEAT or high >= _MANY:
                yield before, _takes(body)
            yield from _repeats(body, before)
            before += _takes(body)[0] * min(low, 50)
            continue
        for inner in _inner(op, value):
            yield from _repeats(inner, before)
        before += _takes([(op, value)])[0]


def _fragments(tree: Any) -> Iterator[str]:
    """The shortest beginnings of a match, and the literal parts of a pattern."""
    before, literal = "", ""
    for op, value in tree:
        if op is _constants.LITERAL:
            literal += chr(value)
        else:
            if literal:
                yield from (before, literal)
            literal = ""
            bodies = [value[2]] if op in _REPEATS else _inner(op, value)[:_ALTERNATIVES]
            for inner in bodies:
                yield from _fragments(inner)
                yield from (before + part for part in _fragments(inner))
        before += _takes([(op, value)])[0]
    if literal:
        yield from (before, literal)


def _inner(op: Any, value: Any) -> list[Any]:
    if op is _constants.SUBPATTERN:
        return [value[3]]
    if op is _constants.BRANCH:
        return list(value[1])
    if op in (_constants.ASSERT, _constants.ASSERT_NOT):
        return [value[1]]
    if op is _constants.ATOMIC_GROUP:
        return [value]
    return []


def _takes(tree: Any) -> list[str]:
    """Some texts that a part of a pattern matches, the shortest first as far as that is simple."""
    found = [""]
    for op, value in tree:
        if op is _constants.LITERAL:
            more = [chr(value)]
        elif op in (_constants.NOT_LITERAL, _constants.ANY, _constants.IN):
            more = _class(op, value)
        elif op in _REPEATS:
            low, _, body = value
            more = [it * min(low, 50) for it in _takes(body)] if low else ["", *_takes(body)]
        elif op is _constants.BRANCH:
            more = [it for branch in value[1] for it in _takes(branch)[:2]]
        elif op is _constants.SUBPATTERN:
            more = _takes(value[3])
        elif op is _constants.ATOMIC_GROUP:
            more = _takes(value)
        else:  # a place or a look around, which takes nothing
            continue
        found = [one + other for one in found[:3] for other in more[:4]] or found
    return found[:8]


def _class(op: Any, value: Any) -> list[str]:
    def holds(letter: str) -> bool:
        if op is _constants.ANY:
            return letter != "\n"
        if op is _constants.NOT_LITERAL:
            return ord(letter) != value
        items, wrong = list(value), False
        if items and items[0][0] is _constants.NEGATE:
            items, wrong = items[1:], True
        return any(_is_of(letter, *it) for it in items) != wrong

    chosen = [letter for letter in _SAMPLES if holds(letter)]
    if not chosen and op is _constants.IN:
        kind, it = value[0]
        chosen = [chr(it if kind is _constants.LITERAL else it[0])]
    return [*chosen[:3], *(it for it in chosen[3:] if it in " \n-")][:5] or ["a"]


def _is_of(letter: str, kind: Any, value: Any) -> bool:
    if kind is _constants.LITERAL:
        return ord(letter) == value
    if kind is _constants.RANGE:
        return bool(value[0] <= ord(letter) <= value[1])
    tests: Mapping[Any, Callable[[str], bool]] = {
        _constants.CATEGORY_DIGIT: str.isdigit,
        _constants.CATEGORY_SPACE: str.isspace,
        _constants.CATEGORY_WORD: lambda it: it.isalnum() or it == "_",
        _constants.CATEGORY_NOT_DIGIT: lambda it: not it.isdigit(),
        _constants.CATEGORY_NOT_SPACE: lambda it: not it.isspace(),
        _constants.CATEGORY_NOT_WORD: lambda it: not (it.isalnum() or it == "_"),
    }
    return tests[value](letter)


#: A power above this is no longer linear, whatever the machine does beside.
FLAGGED = 1.7

# -- how the cost grows -------------------------------------------------------------------------------------------

_PROBE, _LONG = 1_000, 8_000  # characters
_TIMES = 4  #: So many times as long as the short text is the long one.
_CHEAP = 0.003  # seconds for the long text: what is quadratic takes many times that
_LIMIT = 0.3  # seconds of the processor for the probe, after which a match is taken to have no end


class Endless(Exception):
    """A match that did not end within its time."""


def exponent(it: Expression, attack: tuple[str, str, str], longest: int = _LONG) -> float:
    """The power of the text's length by which the cost grows; 0 where it is too small to tell, infinite without end.

    ``longest`` is the length of the longest text that is tried.
    """
    try:
        _probe(it, attack, longest)
    except Endless:
        return math.inf
    if _cost(it, _of_size(attack, longest), 1) < _CHEAP:
        return 0.0
    # Other processes only add to what is measured, so the least of several counts.
    found = math.inf
    for _ in range(3):
        few, many = (_cost(it, _of_size(attack, size), 3) for size in (longest // _TIMES, longest))
        found = min(found, math.log(max(many, 1e-7) / max(few, 1e-7), _TIMES))
        if found < FLAGGED:
            break
    return found


def _probe(it: Expression, attack: tuple[str, str, str], longest: int) -> None:
    """Try short texts, and then longer ones, on which what has no end, or is cubic, shows.  Raises Endless.

    The timer makes the clock coarse, so nothing is measured while it runs.
    """
    previous = signal.signal(signal.SIGVTALRM, _stop)
    try:
        for size in (100, _PROBE, 2 * _PROBE, 4 * _PROBE, longest):
            signal.setitimer(signal.ITIMER_VIRTUAL, _LIMIT)
            _cost(it, _of_size(attack, size), 1)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def _of_size(attack: tuple[str, str, str], size: int) -> str:
    before, pump, after = attack
    return before + pump * max(1, (size - len(before) - len(after)) // len(pump)) + after


def _cost(it: Expression, text: str, times: int) -> float:
    """The least of so many, in seconds of the processor."""
    data: Any = text.encode("latin-1", "replace") if isinstance(it.pattern.pattern, bytes) else text
    best = math.inf
    for _ in range(times):
        begin = time.thread_time()
        if it.how == "search":
            for _found in it.pattern.finditer(data):
                pass
        else:
            getattr(it.pattern, it.how)(data)
        best = min(best, time.thread_time() - begin)
    return best


def _stop(number: int, frame: FrameType | None) -> None:
    raise Endless
