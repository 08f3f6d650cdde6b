"""Every regular expression of the library, and the texts that are worst for it."""

import ast
import dataclasses
import importlib
import inspect
import math
import pkgutil
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]
from types import FrameType, ModuleType
from typing import Any

import runbook_lib

HERE = Path(runbook_lib.__file__).parent
#: How a pattern is tried: those that look for it anywhere try each place of a text.
_ANCHORED = {"match": "match", "fullmatch": "fullmatch"}
#: Patterns that a function gets, and tries at one place of a text.
_HANDED_ON = {"quarantine._COMMENT": "fullmatch", "quarantine._SOFT": "match"}
_CALLS = {"search", "match", "fullmatch", "sub", "subn", "split", "finditer", "findall", "compile"}
#: Characters of all kinds, one of which most classes hold.
_SAMPLES = "a0 .-_/\n\t\"'<>=*`@:;,()[]{}\\\x1b#|!~+A\r\x00é"
_DEFINED = (ast.FunctionDef, ast.ClassDef)
_MANY = 100  # repetitions that a bounded pattern may have without being looked at


@dataclass(frozen=True)
class Expression:
    """A pattern, where it stands, and how it is used."""

    place: str
    pattern: re.Pattern[Any]
    how: str


def expressions() -> dict[str, Expression]:
    """All of them, by a name that tells the module and the order in it."""
    found: dict[tuple[str, int, str], Expression] = {}
    used = _uses()
    for module in _modules():
        short = module.__name__.removeprefix("runbook_lib.")
        for name, pattern in _held(module):
            how = _how(used, short, name)
            found.setdefault((_text(pattern), pattern.flags, how), Expression(f"{short}.{name}", pattern, how))
        for line, written, flags, how in _written(module):
            try:
                pattern = re.compile(written, flags)
            except re.error:
                continue  # a part of one, which stands elsewhere
            key = (_text(pattern), pattern.flags, how)
            found.setdefault(key, Expression(f"{short}:{line}", pattern, how))
    return {f"{it.place}-{number}": it for number, it in enumerate(found.values())}


def _text(pattern: re.Pattern[Any]) -> str:
    return repr(pattern.pattern)


def _modules() -> Iterator[ModuleType]:
    for it in pkgutil.walk_packages([str(HERE)], "runbook_lib."):
        if not it.name.endswith(("__main__", ".kernel_main")):
            yield importlib.import_module(it.name)


def _held(module: ModuleType) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """What stands in a module's variables, and within their tuples, mappings and dataclasses."""

    def within(name: str, value: object, depth: int = 0) -> Iterator[tuple[str, re.Pattern[Any]]]:
        if isinstance(value, re.Pattern):
            yield name, value
        elif depth < 4 and isinstance(value, list | tuple | set | frozenset):
            for number, item in enumerate(value):
                yield from within(f"{name}[{number}]", item, depth + 1)
        elif depth < 4 and isinstance(value, Mapping):
            for key, item in value.items():
                yield from within(f"{name}[{str(key)[:20]}]", item, depth + 1)
        elif depth < 4 and dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                yield from within(f"{name}[{field.name}]", getattr(value, field.name), depth + 1)

    for name, value in list(vars(module).items()):
        if not name.startswith("__") and not isinstance(value, ModuleType):
            yield from within(name, value)


def _uses() -> dict[str, set[str]]:
    """How named patterns are called, by their name, or by module and name where they are a module's own."""
    seen: dict[str, set[str]] = {}
    for file in HERE.rglob("*.py"):
        module = ".".join(file.relative_to(HERE).with_suffix("").parts)
        text = file.read_text()
        found = [*re.findall(r"\b(_?[A-Z][A-Z_0-9]*)\.(\w+)", text)]
        found += [(name, how) for how, name in re.findall(r"\bre\.(\w+)\((_?[A-Z][A-Z_0-9]*)\b", text)]
        for name, how in found:
            if how in _CALLS:
                seen.setdefault(f"{module}.{name}" if name.startswith("_") else name, set()).add(how)
    return seen


def _how(used: Mapping[str, set[str]], module: str, name: str) -> str:
    """Anchored only where all calls are; one that is handed on may be used in any way."""
    plain = name.partition("[")[0]
    hows = used.get(f"{module}.{plain}" if plain.startswith("_") else plain, set())
    hows = {_HANDED_ON[f"{module}.{plain}"]} if f"{module}.{plain}" in _HANDED_ON else hows
    return _ANCHORED.get(next(iter(hows)), "search") if len(hows) == 1 else "search"


def _written(module: ModuleType) -> Iterator[tuple[int, Any, int, str]]:
    """Patterns that are written within calls of ``re``."""
    tree = ast.parse(inspect.getsource(module))
    named = {id(node) for outer in tree.body if not isinstance(outer, _DEFINED) for node in ast.walk(outer)}
    # What is compiled and used at once: re.compile(…).match(…).
    at_once = {id(node.value): node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if id(node) in named:
            continue  # a variable of the module, which is looked at for itself
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "re" and node.func.attr in _CALLS:
            written = _value(node.args[0], module)
            if written is not None:
                how = at_once.get(id(node), "search") if node.func.attr == "compile" else node.func.attr
                yield node.lineno, written, _flags(node), _ANCHORED.get(how, "search")


def _value(node: ast.expr, module: ModuleType) -> Any:
    """The text of a pattern; what is only known when it runs is taken to be an ``x``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(str(part.value))
            elif isinstance(part, ast.FormattedValue):
                known = getattr(module, part.value.id, None) if isinstance(part.value, ast.Name) else None
                parts.append(known if isinstance(known, str) else "x")
        return "".join(parts)
    return None


def _flags(node: ast.Call) -> int:
    given = [*node.args[1:], *(it.value for it in node.keywords if it.arg == "flags")]
    names = {it.attr for arg in given for it in ast.walk(arg) if isinstance(it, ast.Attribute)}
    flags = (getattr(re, name, 0) for name in names if name.isupper())
    return int(sum(int(flag) for flag in flags if isinstance(flag, re.RegexFlag)))


# -- texts that are worst -----------------------------------------------------------------------------------------


def attacks(pattern: re.Pattern[Any]) -> list[tuple[str, str, str]]:
    """What stands first, what is repeated, and what comes last, so that the match fails as late as can be."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    flags = pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    tree = _parser.parse(text, flags & ~re.DEBUG)
    found: dict[tuple[str, str, str], None] = {}
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
        if op in (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT):
            low, high, body = value
            if high == _constants.MAXREPEAT or high >= _MANY:
                yield before, _takes(body)
            yield from _repeats(body, before)
            before += _takes(body)[0] * min(low, 50)
            continue
        for inner in _inner(op, value):
            yield from _repeats(inner, before)
        before += _takes([(op, value)])[0]


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
        elif op in (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT):
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
_LIMIT = 0.1  # seconds of the processor for the probe, after which a match is taken to have no end


class Endless(Exception):
    """A match that did not end within its time."""


def exponent(it: Expression, attack: tuple[str, str, str], longest: int = _LONG) -> float:
    """The power of the text's length by which the cost grows; 0 where it is too small to tell, infinite without end.

    ``longest`` is the length of the longest text that is tried.
    """
    try:
        _probe(it, attack)
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


def _probe(it: Expression, attack: tuple[str, str, str]) -> None:
    """Try short texts, on which what has no end, or is cubic, shows.  Raises Endless.

    The timer makes the clock coarse, so nothing is measured while it runs.
    """
    previous = signal.signal(signal.SIGVTALRM, _stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, _LIMIT)
        for size in (100, _PROBE):
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
