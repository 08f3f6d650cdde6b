"""The parameters declared in a notebook's parameters cell, and strict validation of their values."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.text.suggestions import did_you_mean


class BadParameter(Refused):
    """An unknown parameter, or a value of the wrong type; nothing was run."""


@dataclass(frozen=True)
class Parameter:
    """A parameter, declared as ``name: type = default  # help``."""

    name: str
    type: type
    default: Any
    help: str = ""


@dataclass(frozen=True)
class NotebookSource:
    """A stored notebook.  ``step`` is its name in this runbook, None for a foreign notebook."""

    step: str | None
    parameters: tuple[Parameter, ...]

    @classmethod
    def read(cls, path: Path) -> "NotebookSource":
        """Read a notebook.  Raises RunbookError if it is not one, or its parameters are not plain assignments."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise RunbookError(f"The notebook {path} could not be read: {error.strerror}.") from error
        try:
            notebook = json.loads(content)
            metadata = notebook["metadata"].get("runbook") or {}
            cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
            tagged = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
            texts = ["".join(cell["source"]) for cell in tagged[:1]]
            step = metadata.get("step")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RunbookError(f"{path} could not be read: it is not a Jupyter notebook of format 4.") from error
        parameters = _declared(texts[0], path) if texts and step else ()
        return cls(step, parameters)


def is_ours(path: Path) -> bool:
    """Return True for a notebook of this runbook, according to its metadata."""
    try:
        return NotebookSource.read(path).step is not None
    except RunbookError:
        return False


def resolve(name: str, parameters: Sequence[Parameter], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the notebook ``name``, with their declared types.

    Raises BadParameter for an undeclared name or a value of the wrong type.
    """
    known = {parameter.name: parameter for parameter in parameters}
    for given, value in arguments.items():
        if given not in known:
            raise BadParameter(_unknown(given, value, name, list(known)))
    return {given: _typed(known[given], value) for given, value in arguments.items()}


def declared(code: str) -> tuple[Parameter, ...]:
    """Return the parameters that a cell declares, each with its type.

    Raises SyntaxError for code that is not Python, and ValueError for a default that is not a plain value.
    """
    parameters = []
    lines = code.splitlines()
    for statement in ast.parse(code).body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            default = ast.literal_eval(statement.value)
            # The rest of the statement's last line can only be a comment.
            rest = lines[(statement.end_lineno or 1) - 1].encode()[statement.end_col_offset :].decode()
            comment = rest.strip().removeprefix("#").strip()
            parameters.append(Parameter(statement.target.id, type(default), default, comment))
    return tuple(parameters)


def _declared(code: str, path: Path) -> tuple[Parameter, ...]:
    try:
        return declared(code)
    except (SyntaxError, ValueError) as error:
        raise RunbookError(f"The parameters cell of {path} has not only plain values: {error}.") from error


def _unknown(name: str, value: object, notebook: str, known: list[str]) -> str:
    if not known:
        return f"The notebook {notebook} takes no parameters, but {name}={value!r} was passed. Nothing was run."
    listed = ", ".join(known)
    return (
        f"The notebook {notebook} has no parameter {name!r}{did_you_mean(name.lower(), known)}. Its parameters are "
        f"{listed}. Nothing was run."
    )


def _typed(parameter: Parameter, value: Any) -> Any:
    name, expected = parameter.name, parameter.type
    if type(value) is expected or expected is type(None):
        return value
    if expected is float and type(value) is int:
        return float(value)
    if expected is str and type(value) is int and name.endswith("_id"):
        return str(value)  # papermill's -p converts an ID to a number, without loss
    raise BadParameter(f"{_wrong_type(name, expected, value)} Nothing was run.")


def _wrong_type(name: str, expected: type, value: Any) -> str:
    shown = f"Parameter {name} is {value!r}"
    if expected is bool:
        return f"{shown}, but must be True or False: -p {name} True."
    if expected is str and isinstance(value, bool | None):
        text = f"Pass it as text: -r {name} {value}, or in YAML {name}: '{value}'"
        return f"{shown}, because papermill's -p, and YAML without quotes, convert that word. {text}"
    if expected is str and type(value) in (int, float):
        text = _likely_tag(value) if name == "tag" else "…"
        return (
            f"Parameter {name} arrived as the number {value}: papermill's -p, and YAML without quotes (-f, -y, -b), "
            "take text that looks like a number for one, and lose zeros, underscores and exponents. Pass it as text: "
            f"-r {name} '{text}', or in YAML {name}: '{text}'."
        )
    kind = {str: "text", int: "an integer", float: "a number"}.get(expected, f"a {expected.__name__}")
    return f"{shown}, but must be {kind}."


def _likely_tag(value: float) -> str:
    """Return the tag that was probably meant; a month lost its last zero, or was written without its first one."""
    year, _, month = str(value).partition(".")
    if type(value) is float and re.fullmatch("1[6-9]|[2-9][0-9]", year) and len(month) == 1:
        month = "10" if month == "1" else f"0{month}"
    return f"{year}.{month}" if month else year
