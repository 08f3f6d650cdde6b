"""Every regular expression of the library, the worst texts for it, and how its cost grows with their length."""

import ast
import dataclasses
import functools
import importlib
import math
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from types import FrameType
from typing import Any

import runbook_lib
from runbook_lib.failures.patterns import PITFALLS
from runbook_lib.text import redact
from runbook_lib.text.user_file import load_schema

ROOT = Path(runbook_lib.__file__).resolve().parent
_ANCHORED = ("match", "fullmatch")
_CALLS = (*_ANCHORED, "search", "sub", "subn", "split", "finditer", "findall", "compile")
#: Constants that are handed on to a function, which tries them at one place of a text.
_HANDED_ON = {"text.recipes.quarantine._COMMENT": "fullmatch", "text.recipes.quarantine._SOFT": "match"}


@dataclass(frozen=True)
class Expression:
    """A pattern, where it stands, and how it is used: one that is searched for is tried at each place of a text."""

    place: str
    pattern: re.Pattern[Any]
    how: str = "search"

    def use(self, text: str) -> None:
        """Look for it."""
        data: Any = text.encode("latin-1", "replace") if isinstance(self.pattern.pattern, bytes) else text
        if self.how != "search":
            getattr(self.pattern, self.how)(data)
            return
        for _ in self.pattern.finditer(data):
            pass


# -- what the library has -----------------------------------------------------------------------------------------


class Word(str):
    """What stands for a parameter or variable of a function in its pattern, whatever is done with it."""

    def __getattr__(self, name: str) -> "Word":
        return Word("word")

    def __call__(self, *_: object) -> "Word":
        return self

    def __getitem__(self, _: object) -> "Word":
        return self

    def __format__(self, _: str) -> str:
        return str(self)


class _Names(dict[str, Any]):
    def __missing__(self, name: str) -> Word:
        return Word("word")


def _of_schema(node: Any) -> Iterator[str]:
    for key, value in node.items() if isinstance(node, dict) else enumerate(node if isinstance(node, list) else ()):
        if key == "pattern" and isinstance(value, str):
            yield value
        yield from _of_schema(value)


#: Patterns that are texts in tables, with their flags, by package.
TABLES: Mapping[str, list[tuple[str, int]]] = {
    "pins": [(it, 0) for it in _of_schema(dict(load_schema("runbook_lib.pins", "base-image-pins.schema.json")))],
    "compute": [(it, 0) for it in _of_schema(dict(load_schema("runbook_lib.compute.slurm", "site.schema.json")))],
    "failures": [(it, re.M) for problem in PITFALLS for it in problem.patterns],
    "text": [(it, re.ASCII) for it in redact._FORMS.values()],
}


@functools.cache
def expressions(package: str) -> tuple[Expression, ...]:
    """All of a package, or of a module above them."""
    found = {text: Expression(package, re.compile(*text)) for text in TABLES.get(package, ())}
    for file in [*ROOT.glob(f"{package}.py"), *sorted((ROOT / package).rglob("*.py"))]:
        if "re." in (text := file.read_text()) and file.stem != "__main__":
            place = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            values = vars(importlib.import_module(f"{ROOT.name}.{place}"))
            for name, value in list(values.items()):
                how = _HANDED_ON.get(f"{place}.{name}") or _use(name, text)
                for it in _patterns(value):
                    found.setdefault((it.pattern, it.flags), Expression(f"{place}.{name}", it, how))
            for it in _of_calls(place, text, values):
                found.setdefault((it.pattern.pattern, it.pattern.flags), it)
    return tuple(found.values())


def _patterns(value: object, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    """The patterns that a constant is or holds."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 5 and type(value).__module__.startswith(ROOT.name) and dataclasses.is_dataclass(value):
        for name in (*(it.name for it in dataclasses.fields(value)), "regex", "context"):
            yield from _patterns(getattr(value, name, None), depth + 1)
    elif depth < 5 and isinstance(value, dict | list | tuple | set | frozenset):
        for item in (*value.keys(), *value.values()) if isinstance(value, dict) else value:
            yield from _patterns(item, depth + 1)


def _of_calls(place: str, text: str, values: Mapping[str, Any]) -> Iterator[Expression]:
    """The patterns that functions write where they use them."""
    uses = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
            uses[node.value] = node.attr
        how = ast.unparse(node.func).removeprefix("re.") if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and how in _CALLS and ast.unparse(node.func) == f"re.{how}":
            written = eval(ast.unparse(node.args[0]), dict(values), _Names(values))  # of our own source
            others = [ast.unparse(it) for it in (*node.args[1:], *(it.value for it in node.keywords))]
            if not isinstance(written, Word):
                flags = [eval(it, dict(values)) for it in others if re.fullmatch(r"re\.[A-Z]+( \| re\.[A-Z]+)*", it)]
                compiled = re.compile(written, *flags)
                how = uses.get(node, "search") if how == "compile" else how
                yield Expression(place, compiled, how if how in _ANCHORED else "search")


def _use(constant: str, text: str) -> str:
    """How a module uses its constant: anchored only where all uses are."""
    hows = set(re.findall(rf"\b{re.escape(constant)}\.(\w+)\(", text)) & set(_CALLS)
    return hows.pop() if len(hows) == 1 and hows <= set(_ANCHORED) and constant.startswith("_") else "search"


# -- texts that are worst -----------------------------------------------------------------------------------------

#: Characters of all kinds, one of which most classes hold.
_SAMPLES = "a0 .-_/\n\t\"'<>=*`@:;,()[]{}\\\x1b#|!~+A\r\x00é"
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
_MANY = 100  # repetitions that a bounded pattern may have without being looked at


def attacks(pattern: re.Pattern[Any]) -> list[tuple[str, str, str]]:
    """What stands first, what is repeated, and what comes last, so that the match fails as late as can be."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = _parser.parse(text, pattern.flags & (re.I | re.M | re.S | re.X | re.A))
    found: dict[tuple[str, str, str], None] = {}
    # What a match begins with, and what is written out within it, again and again: each begins a match anew.
    for part in _fragments(tree):
        found |= {("", part, "\x00"): None, ("", f"{part} ", ""): None}
    for before, pump in _repeats(tree, ""):
        for after in ("", "\x00", "\n\x00"):
            found |= {(before, pump, after): None, ("", before + pump, after): None}
    found |= {("", letter, "\x00"): None for letter in _SAMPLES}
    return [it for it in found if it[1]]


def _repeats(tree: Any, before: str) -> Iterator[tuple[str, str]]:
    """For each repetition within a pattern the shortest text that leads there, and each of some texts that it takes."""
    for op, value in tree:
        bodies = _bodies(op, value)
        if op in _REPEATS and value[1] >= _MANY:
            yield from ((before, pump) for pump in _takes(value[2]))
        for body in bodies:
            yield from _repeats(body, before)
        before += _takes([(op, value)], tree)[0]


def _fragments(tree: Any) -> Iterator[str]:
    """The shortest beginnings of a match, and the literal parts of a pattern."""
    before, literal = "", ""
    for op, value in [*tree, (None, None)]:
        if op is _constants.LITERAL:
            literal += chr(value)
            continue
        if literal:
            yield from (before + literal, literal)
            before, literal = before + literal, ""
        for body in _bodies(op, value)[:8]:  # of names that are alternatives, the others are of the same kind
            for part in _fragments(body):
                yield from (part, before + part)
        before += _takes([(op, value)], tree)[0]


def _bodies(op: Any, value: Any) -> list[Any]:
    """The patterns within a part of a pattern."""
    if op in _REPEATS:
        return [value[2]]
    if op is _constants.SUBPATTERN:
        return [value[3]]
    if op is _constants.BRANCH:
        return list(value[1])
    if op in (_constants.ASSERT, _constants.ASSERT_NOT):
        return [value[1]]
    return [value] if op is _constants.ATOMIC_GROUP else []


def _takes(parts: Any, tree: Any = None) -> list[str]:
    """Some texts that a part of a pattern matches, the shortest first as far as that is simple."""
    found = [""]
    for op, value in parts:
        bodies = _bodies(op, value)
        if op is _constants.LITERAL:
            more = [chr(value)]
        elif op in (_constants.NOT_LITERAL, _constants.ANY, _constants.IN):
            more = _letters(op, value, tree or parts)
        elif op in _REPEATS:
            low = min(value[0], 50)
            more = [it * low for it in _takes(bodies[0])] if low else ["", *_takes(bodies[0])]
        elif bodies and op not in (_constants.ASSERT, _constants.ASSERT_NOT):
            more = [it for body in bodies for it in _takes(body)[: 8 // len(bodies) + 1]]
        else:  # a place or a look around, which takes nothing
            continue
        found = [one + other for one in found[:3] for other in more[:4]] or found
    return found[:8]


def _letters(op: Any, value: Any, tree: Any) -> list[str]:
    """Some characters of a class."""
    of_class = _compiler.compile(_parser.SubPattern(tree.state, [(op, value)]))
    chosen = [letter for letter in _SAMPLES if of_class.fullmatch(letter)]
    if not chosen and op is _constants.IN:
        kind, it = value[0]
        chosen = [chr(it if kind is _constants.LITERAL else it[0])]
    return [*chosen[:3], *(it for it in chosen[3:] if it in " \n-")][:5] or ["a"]


#: A power above this is no longer linear, whatever the machine does beside.
FLAGGED = 1.7

# -- how the cost grows -------------------------------------------------------------------------------------------

_SHORT, _LONG = 2_000, 8_000  # characters
_CHEAP = 0.002  # seconds for the short text: what is quadratic takes many times that
_LIMIT = 0.3  # seconds of the processor for the short text, after which a match is taken to have no end


class Endless(Exception):
    """A match that did not end within its time."""


def exponent(use: Callable[[str], object], attack: tuple[str, str, str]) -> float:
    """The power of the text's length by which the cost grows; 0 where it is too small to tell, infinite without end."""
    try:
        _probe(use, attack)
    except Endless:
        return math.inf
    if _cost(use, _of_size(attack, _SHORT), 1) < _CHEAP:
        return 0.0
    # Other processes only add to what is measured, so the least of several counts.
    found = math.inf
    for _ in range(3):
        few, many = (_cost(use, _of_size(attack, size), times) for size, times in ((_SHORT, 3), (_LONG, 1)))
        found = min(found, math.log(max(many, 1e-7) / max(few, 1e-7), _LONG / _SHORT))
        if found < FLAGGED:
            break
    return found


def _probe(use: Callable[[str], object], attack: tuple[str, str, str]) -> None:
    """Try longer and longer texts, on which what has no end, or is cubic, shows.  Raises Endless.

    The timer makes the clock coarse, so nothing is measured while it runs.
    """
    previous = signal.signal(signal.SIGVTALRM, _stop)
    try:
        for size in (100, 700):
            signal.setitimer(signal.ITIMER_VIRTUAL, _LIMIT)
            use(_of_size(attack, size))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def _of_size(attack: tuple[str, str, str], size: int) -> str:
    before, pump, after = attack
    return before + pump * max(1, (size - len(before) - len(after)) // len(pump)) + after


def _cost(use: Callable[[str], object], text: str, times: int) -> float:
    """The least of so many, in seconds of the processor."""
    best = math.inf
    for _ in range(times):
        begin = time.thread_time()
        use(text)
        best = min(best, time.thread_time() - begin)
    return best


def _stop(number: int, frame: FrameType | None) -> None:
    raise Endless
