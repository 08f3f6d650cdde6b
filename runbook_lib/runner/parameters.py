"""The parameters of a notebook: read from its parameters cell, and strict about what is given for them."""

import ast
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.system.atomic_files import read_file

Value = str | bool | int | float | None


class BadParameter(Refused):
    """A parameter that is unknown or has a value of the wrong type: nothing was run."""


@dataclass(frozen=True)
class Parameter:
    """A parameter as its cell declares it: ``name: type = default  # help``."""

    name: str
    type: type
    default: Any
    help: str = ""


@dataclass(frozen=True)
class Source:
    """A notebook as it is stored.  ``step`` is the name that makes it one of this runbook, None for any other.

    ``long``: its metadata say that its cells run other people's programs, such as a build, which may take hours.
    """

    path: Path
    content: bytes
    step: str | None
    parameters: tuple[Parameter, ...]
    long: bool = False

    @classmethod
    def read(cls, path: Path) -> "Source":
        """Read a notebook.  Raises RunbookError when it is none, or its parameters cell is not plain assignments."""
        try:
            content = read_file(path)
        except OSError as error:
            raise RunbookError(f"The notebook {path} could not be read: {error.strerror}.") from error
        try:
            notebook = json.loads(content)
            metadata = notebook["metadata"].get("runbook") or {}
            cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
            tagged = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
            texts = ["".join(cell["source"]) for cell in tagged[:1]]
            step, long = metadata.get("step"), metadata.get("long") is True
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RunbookError(f"{path} is not a notebook of Jupyter's format 4: it could not be read.") from error
        return cls(path, content, step, _declared(texts[0], path) if texts and step else (), long)

    @property
    def name(self) -> str:
        """The file's name without its ending, such as ``01-github-pin``."""
        return self.path.name.removesuffix(".ipynb")


def is_ours(path: Path) -> bool:
    """Whether the file is a notebook of this runbook, which its metadata say."""
    try:
        return Source.read(path).step is not None
    except RunbookError:
        return False


def resolve(source: Source, given: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters with their values: those given, in the declared type, and the defaults of the others.

    Raises BadParameter for a name that the notebook does not declare and for a value of another type.
    """
    declared = {parameter.name: parameter for parameter in source.parameters}
    for name in given:
        if name not in declared:
            raise BadParameter(_unknown(name, given[name], source, list(declared)))
    return {
        name: _typed(parameter, given[name]) if name in given else parameter.default
        for name, parameter in declared.items()
    }


def _declared(code: str, path: Path) -> tuple[Parameter, ...]:
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        raise RunbookError(f"The parameters cell of {path} is not Python: {error.msg}, line {error.lineno}.") from error
    found = []
    lines = code.splitlines()
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name, value = statement.target.id, statement.value
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name, value = statement.targets[0].id, statement.value
        else:
            continue
        try:
            default = ast.literal_eval(value) if value is not None else None
        except ValueError as error:
            raise RunbookError(f"The default of the parameter {name} in {path} is not a plain value.") from error
        # What follows the statement on its last line can only be a comment.
        rest = lines[(statement.end_lineno or 1) - 1].encode()[statement.end_col_offset :].decode()
        found.append(Parameter(name, type(default), default, rest.strip().removeprefix("#").strip()))
    return tuple(found)


def _unknown(name: str, value: object, source: Source, known: list[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, n=1)
    if not known:
        return f"The notebook {source.name} takes no parameters, but {name}={value!r} was given. Nothing was run."
    hint = f"Did you mean {near[0]}?" if near else f"It knows {', '.join(known)}."
    return f"The notebook {source.name} has no parameter {name!r}. {hint} Nothing was run."


def _typed(parameter: Parameter, value: Any) -> Any:
    name, wanted = parameter.name, parameter.type
    if type(value) is wanted or wanted is type(None):
        return value
    if wanted is float and type(value) is int:
        return float(value)
    if wanted is str and type(value) is int and name.endswith("_id"):
        return str(value)  # papermill's -p makes a number of a run id; none is lost by that
    raise BadParameter(f"{_wrong(name, wanted, value)} Nothing was run.")


def _wrong(name: str, wanted: type, value: Any) -> str:
    shown = f"The parameter {name} was given {value!r}"
    if wanted is bool:
        return f"{shown}, but takes True or False: -p {name} True."
    if wanted is str and isinstance(value, bool | None):
        return f"{shown}, which papermill's -p makes of that word, but takes text: -r {name} {value} keeps it as text."
    if wanted is str and type(value) is float:
        return (
            f"The parameter {name} arrived as the number {value}, and may have been {_spelled(value)}: papermill's -p "
            f"makes numbers of what looks like one. -r keeps text as it is: {_example(name, value)}."
        )
    if wanted is str and type(value) is int:
        return (
            f"The parameter {name} arrived as the number {value}; leading zeros, underscores or an exponent may have "
            f"been lost: papermill's -p makes numbers of what looks like one. -r keeps text: {_example(name, value)}."
        )
    kind = {str: "text", int: "a whole number", float: "a number"}.get(wanted, f"a {wanted.__name__}")
    return f"{shown}, but takes {kind}."


def _spelled(value: float) -> str:
    text = repr(value)
    year, _, month = text.partition(".")
    if len(year) == 2 and month == "1":
        return f"{text}0, {text} or {year}.01"  # October, or a sloppy January
    if len(year) == 2 and len(month) == 1 and month != "0":
        return f"{text} or {year}.0{month}"
    return f"{text}0 or {text}" if month.isdigit() else "a commit id"


def _example(name: str, value: float) -> str:
    if name != "tag":
        return f"-r {name} '…'"
    year, _, month = str(value).partition(".")
    if month:
        month = "10" if month == "1" else month.zfill(2)
    return f"-r {name} {year}.{month}-py3" if month else f"-r {name} {year}-py3"
