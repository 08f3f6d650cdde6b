"""Every regular expression of the library, the worst texts for it, and how its cost grows with their length."""

import ast
import importlib
import math
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import runbook_lib
from runbook_lib.failures import known_problems, patterns
from runbook_lib.pins import finders, known_sites
from runbook_lib.text import redact
from runbook_lib.text.user_file import load_schema

ROOT = Path(runbook_lib.__file__).resolve().parent
_ANCHORED = ("match", "fullmatch")
#: Patterns that a function gets, and tries at one place of a text.
_HANDED_ON = {"recipes.quarantine._COMMENT": "fullmatch", "recipes.quarantine._SOFT": "match"}
_CALLS = ("search", "match", "fullmatch", "sub", "subn", "split", "finditer", "findall", "compile")


@dataclass(frozen=True)
class Expression:
    """A pattern, where it stands, and how it is used: one that is searched for is tried at each place of a text."""

    place: str
    pattern: re.Pattern[Any]
    how: str = "search"


# -- what the library has -----------------------------------------------------------------------------------------

#: What stands for the parameters that functions put into their patterns.
_PARAMETERS: Mapping[str, Any] = {
    "after": "]", "before": "tag: ", "case": "gpt3_tp1", "name": "base-image-runbook:golden-values:",
    "place": SimpleNamespace(image="nvcr.io/nvidia/pytorch"), "escape": r"\\", "repository": "o/r", "run": 123,
    "pinned": SimpleNamespace(name="nvcr.io/nvidia/pytorch"), "self": SimpleNamespace(name="NAME"),
    "texts": ["a-secret", "b-secret"], "then": rf"[^\s…]{{0,200}}?{redact._CUT}", "value": "a-secret",
    "start": datetime(2026, 1, 2, tzinfo=UTC),
    "test": SimpleNamespace(case="gpt3_tp1"), "version": r"[0-9]{1,9}\.[0-9]{1,9}", "word": {"quote": '"'},
}  # fmt: skip


def _of_schema(node: Any) -> Iterator[str]:
    for key, value in node.items() if isinstance(node, dict) else enumerate(node if isinstance(node, list) else ()):
        if key == "pattern" and isinstance(value, str):
            yield value.removesuffix("$") + r"\Z"
        yield from _of_schema(value)


_SCHEMAS = (("pins", "base-image-pins"), ("compute.slurm", "site"))
_SITES = (*known_sites.MEGATRON_LM.pins, *known_sites.MEGATRON_BRIDGE.pins, *known_sites.ML_CONTAINERS.pins)
_RULES = (*patterns.LINES, *patterns.WORDS)
#: Patterns that are read from tables, with their flags, by where they are used.
TABLES: Mapping[str, list[tuple[str, int]]] = {
    "pins.known_sites._informational": [(it.finder.regex.pattern, 0) for it in _SITES if hasattr(it.finder, "regex")],
    "pins.known_sites._coupling": [(it.regex.pattern, 0) for it in known_sites.MEGATRON_LM.couplings],
    "pins.finders.literal_text": [(finders.literal_text("a {tag} b").regex.pattern, 0)],
    "text.user_file._in_bounds": [
        (it, 0) for package, name in _SCHEMAS
        for it in _of_schema(dict(load_schema(f"runbook_lib.{package}", f"{name}.schema.json")))
    ],
    "failures.known_problems.find": [(it, re.M) for problem in known_problems.PITFALLS for it in problem.patterns],
    "failures.patterns.LogPattern.regex": [(it.pattern, it.regex.flags & re.I) for it in _RULES],
    "failures.patterns.LogPattern.context": [(it.context_pattern, 0) for it in _RULES if it.context_pattern],
    "text.redact._compiled": [(it, re.ASCII) for it in redact._FORMS.values()],
    # A person's own, which is compiled here, and tried elsewhere within a limit of time.
    "text.untrusted_regex.validate": [("a", 0)],
}  # fmt: skip


class _Scope(dict[str, Any]):
    """The names that a pattern is written with: what its function assigns, and parameters."""

    def __init__(self, module: ModuleType, function: ast.AST | None) -> None:
        super().__init__()
        self._globals = vars(module)
        self._assigned = {
            it.targets[0].id: it.value for it in (ast.walk(function) if function else ())
            if isinstance(it, ast.Assign) and isinstance(it.targets[0], ast.Name)
        }  # fmt: skip

    def __missing__(self, name: str) -> Any:
        if name in self._assigned:
            with suppress(NameError, KeyError, AttributeError, TypeError, RecursionError):
                return self.value(self._assigned[name])
        return _PARAMETERS[name] if name in _PARAMETERS else self._globals[name]

    def value(self, written: ast.AST) -> Any:
        return eval(ast.unparse(written), self._globals, self)  # of our own source


def expressions(package: str) -> tuple[Expression, ...]:
    """All of a package, or of a module above them.  Raises LookupError for one that nothing here tells."""
    found: dict[tuple[str | bytes, int, str], Expression] = {}
    for file in [*ROOT.glob(f"{package}.py"), *sorted((ROOT / package).rglob("*.py"))]:
        parts = file.relative_to(ROOT).with_suffix("").parts
        if "re." in (text := file.read_text()) and parts[-1] not in ("__main__", "kernel_main"):
            for it in _of_module(".".join(parts), ast.parse(text)):
                found.setdefault((it.pattern.pattern, it.pattern.flags, it.how), it)
    return tuple(found.values())


def _of_module(name: str, tree: ast.Module) -> Iterator[Expression]:
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for call in ast.walk(tree):
        how = ast.unparse(call.func).removeprefix("re.") if isinstance(call, ast.Call) else ""
        if not isinstance(call, ast.Call) or how not in _CALLS or not ast.unparse(call.func).startswith("re."):
            continue
        above = [at := call]
        while at in parents:
            above.append(at := parents[at])
        if how == "compile" and isinstance(above[1], ast.Attribute):
            how = above[1].attr
        functions = [it for it in above if isinstance(it, ast.FunctionDef | ast.ClassDef)]
        kept = next((ast.unparse(it.targets[0]) for it in above if isinstance(it, ast.Assign)), "")
        if kept and not functions and how == "compile":
            how = _uses(kept, ast.unparse(tree))
        place = ".".join([name, *(it.name for it in reversed(functions))])
        scope = _Scope(importlib.import_module(f"{ROOT.name}.{name}"), functions[0] if functions else None)
        flags = 0
        for it in (*call.args[1:], *(it.value for it in call.keywords)):
            if re.fullmatch(r"re\.[A-Z]+( \| re\.[A-Z]+)*", ast.unparse(it)):
                flags |= scope.value(it)
        try:
            found = TABLES[place] if place in TABLES else [(scope.value(call.args[0]), flags)]
        except (NameError, KeyError, AttributeError) as error:
            raise LookupError(f"{place}: what is {ast.unparse(call.args[0])}? Add it to TABLES.") from error
        for text, more in found:
            at = f"{place}.{kept}".rstrip(".")
            yield Expression(at, re.compile(text, more), _HANDED_ON.get(at, how if how in _ANCHORED else "search"))


def _uses(constant: str, text: str) -> str:
    """How a module uses its constant: anchored only where all uses are."""
    hows = set(re.findall(rf"\b{re.escape(constant)}\.(\w+)\(", text)) & set(_CALLS)
    return hows.pop() if len(hows) == 1 and constant.startswith("_") else "search"


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


def exponent(it: Expression, attack: tuple[str, str, str]) -> float:
    """The power of the text's length by which the cost grows; 0 where it is too small to tell, infinite without end."""
    try:
        _probe(it, attack)
    except Endless:
        return math.inf
    if _cost(it, _of_size(attack, _SHORT), 1) < _CHEAP:
        return 0.0
    # Other processes only add to what is measured, so the least of several counts.
    found = math.inf
    for _ in range(3):
        few, many = (_cost(it, _of_size(attack, size), 3) for size in (_SHORT, _LONG))
        found = min(found, math.log(max(many, 1e-7) / max(few, 1e-7), _LONG / _SHORT))
        if found < FLAGGED:
            break
    return found


def _probe(it: Expression, attack: tuple[str, str, str]) -> None:
    """Try longer and longer texts, on which what has no end, or is cubic, shows.  Raises Endless.

    The timer makes the clock coarse, so nothing is measured while it runs.
    """
    previous = signal.signal(signal.SIGVTALRM, _stop)
    try:
        for size in (100, 700, _SHORT):
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
