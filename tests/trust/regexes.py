"""Every use of a regular expression in the library, with the patterns that it can have.

The source tells where they are used.  Patterns that are written out are read there.  The others are noted as they
are compiled, in a process that imports every module and then calls what computes patterns (`computed.py`).
What neither way tells is a problem, and the test that asks for it fails.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

#: What of ``re`` takes a pattern, and what of it does no harm.
CALLS = {"search", "match", "fullmatch", "sub", "subn", "split", "finditer", "findall", "compile"}
_HARMLESS = {"escape", "Pattern", "Match", "error", "RegexFlag", "NOFLAG"} | set(re.RegexFlag.__members__)
_OTHER_WAYS = {"re", "regex", "re2", "hyperscan", "pyre2", "_sre", "sre_compile", "sre_parse"}
#: Methods of pandas' ``.str`` that take a pattern, and others with an option ``regex``.
_PANDAS = {"contains", "match", "fullmatch", "extract", "extractall", "findall", "replace", "split", "rsplit", "count"}
_PANDAS_TOO = {"replace", "filter"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_ANCHORED = {"match": "match", "fullmatch": "fullmatch"}
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Use:
    """A place in the source: where its call begins and ends, in what function, and how a pattern is written there."""

    file: str
    span: tuple[int, int, int, int]
    function: str
    written: str
    how: str
    #: The variable that keeps what is compiled, if any.
    name: str = ""
    patterns: tuple[tuple[str | bytes, int], ...] = ()
    problem: str = ""

    @property
    def module(self) -> str:
        return self.file.removesuffix(".py").replace("/", ".")

    @property
    def place(self) -> str:
        return f"{self.module}.{self.name}" if self.name else f"{self.module}:{self.span[0]}"

    @property
    def key(self) -> str:
        """What `computed.py` knows it by: not by its line, which changes, but by what is written."""
        return f"{self.module}.{self.function}: {self.written}"


def uses(folder: Path, *, computed: bool = True) -> list[Use]:
    """All uses below a folder; with ``computed``, those whose patterns only show when the code runs are run."""
    found = [use for file in sorted(folder.rglob("*.py")) for use in _Source(file, folder).uses()]
    unknown = [use for use in found if not use.patterns and not use.problem]
    noted = _noted(folder, unknown) if computed else {}
    return [_with(use, noted) for use in found]


def _with(use: Use, noted: dict[str, list[Any]]) -> Use:
    """A use with what was noted for it: by its place, or by its key."""
    if use.patterns or use.problem:
        return use
    given = [*noted.get(f"{use.file}:{','.join(map(str, use.span))}", ()), *noted.get(use.key, ())]
    patterns = tuple((text.encode("latin-1") if binary else text, flags) for text, flags, binary in given)
    if not patterns:
        return replace(use, problem=f"{use.place}: what {use.written} is cannot be told; computed.py can run it")
    return replace(use, patterns=tuple(dict.fromkeys(patterns)))


def _noted(folder: Path, unknown: list[Use]) -> dict[str, list[Any]]:
    asked = json.dumps([(use.key, use.file, use.function, use.written) for use in unknown])
    command = [sys.executable, _HERE / "computed.py", folder]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    noted: dict[str, list[Any]] = json.loads(done.stdout)
    return noted


class _Source:
    """A module as a tree."""

    def __init__(self, file: Path, folder: Path) -> None:
        self._file = file.relative_to(folder).as_posix()
        self._tree = ast.parse(file.read_text())

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        return {child: parent for parent in ast.walk(self._tree) for child in ast.iter_child_nodes(parent)}

    def uses(self) -> Iterator[Use]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from self._imported(node)
            elif isinstance(node, ast.Name) and node.id == "re":
                yield from self._named(node)
            elif isinstance(node, ast.Call):
                yield from self._called(node)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[Use]:
        if isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] in _OTHER_WAYS and not {it.name for it in node.names} <= _HARMLESS:
                yield self._problem(node, "functions are taken out of their module: only `import re` can be followed")
            return
        for it in node.names:
            if it.name.partition(".")[0] in _OTHER_WAYS and (it.name, it.asname) != ("re", None):
                yield self._problem(node, "a module of regular expressions other than `re` by this name")

    def _named(self, name: ast.Name) -> Iterator[Use]:
        attribute = self._parents[name]
        if not isinstance(attribute, ast.Attribute) or not isinstance(name.ctx, ast.Load):
            yield self._problem(name, "`re` itself is handed on or replaced")
        elif attribute.attr in CALLS:
            call = self._parents[attribute]
            if isinstance(call, ast.Call) and call.func is attribute:
                yield self._use(call, attribute.attr, _argument(call, "pattern"))
            else:
                yield self._problem(attribute, "a function of `re` is handed on")
        elif attribute.attr not in _HARMLESS:
            yield self._problem(attribute, f"re.{attribute.attr} is not known here")

    def _called(self, call: ast.Call) -> Iterator[Use]:
        """Patterns that pandas gets, and ways to `re` by its name."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        named = any(isinstance(it, ast.Constant) and it.value in _OTHER_WAYS for it in call.args)
        if named and name in ("import_module", "__import__", "getattr"):
            yield self._problem(call, "a module of regular expressions by its name")
        options = {it.arg: it.value for it in call.keywords}
        regex = options.get("regex")
        off = isinstance(regex, ast.Constant) and not regex.value
        accessor = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "attr", "") == "str"
        if ((accessor and name in _PANDAS) or ("regex" in options and name in _PANDAS_TOO)) and not off:
            given = regex if name == "filter" else _argument(call, "pat")
            yield self._use(call, "search", given)

    def _use(self, call: ast.Call, how: str, given: ast.expr | None) -> Use:
        if given is None or isinstance(given, ast.Starred) or any(it.arg is None for it in call.keywords):
            return self._problem(call, "a call that hides its pattern")
        use = self._at(call, ast.unparse(given), _ANCHORED.get(self._at_once(call, how), "search"))
        if isinstance(given, ast.Constant) and isinstance(given.value, str | bytes):
            return replace(use, patterns=((given.value, _flags(call)),))
        return use

    def _at_once(self, call: ast.Call, how: str) -> str:
        """How a pattern is used that is compiled and used in one expression: re.compile(…).match(…)."""
        outer = self._parents[call]
        return outer.attr if how == "compile" and isinstance(outer, ast.Attribute) else how

    def _at(self, node: ast.AST, written: str, how: str) -> Use:
        above, name = [], ""
        at = node
        while at in self._parents:
            at = self._parents[at]
            above.append(at)
            if isinstance(at, ast.Assign | ast.AnnAssign) and not name:
                targets = at.targets if isinstance(at, ast.Assign) else [at.target]
                name = next((it.id for it in targets if isinstance(it, ast.Name)), "")
        functions = [it for it in above if isinstance(it, (*_FUNCTIONS, ast.ClassDef))]
        within = ".".join(getattr(it, "name", "lambda") for it in reversed(functions))
        place = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        return Use(self._file, place, within, written, how, "" if functions else name)

    def _problem(self, node: ast.AST, problem: str) -> Use:
        use = self._at(node, ast.unparse(node), "search")
        return replace(use, problem=f"{use.place}: {use.written}: {problem}")


def _argument(call: ast.Call, name: str) -> ast.expr | None:
    named = next((it.value for it in call.keywords if it.arg == name), None)
    return named or (call.args[0] if call.args else None)


def _flags(call: ast.Call) -> int:
    """The flags that a call names; all of them, since those of ``re`` are never mistaken for anything else."""
    given = [*call.args[1:], *(it.value for it in call.keywords)]
    names = {it.attr for arg in given for it in ast.walk(arg) if isinstance(it, ast.Attribute)}
    flags = re.NOFLAG
    for name in names & set(re.RegexFlag.__members__):
        flags |= re.RegexFlag[name]
    return int(flags)
