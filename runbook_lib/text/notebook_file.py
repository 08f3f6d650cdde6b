"""The parameters declared in a notebook's parameters cell, and strict validation of their values."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.text.lists import did_you_mean


class BadParameter(Refused):
    """An unknown parameter, or a value of the wrong type; nothing was run."""


@dataclass(frozen=True)
class Parameter:
    """A parameter, declared as ``name: str = default  # help``, or with ``bool``."""

    name: str
    default: str | bool
    help: str = ""


def read_parameters(path: Path) -> tuple[Parameter, ...] | None:
    """Return the parameters of a notebook of this runbook; None for a foreign one.

    Raises RunbookError if it is no notebook, or its parameters are not plain assignments.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunbookError(f"The notebook {path} could not be read: {error.strerror}.") from error
    try:
        notebook = json.loads(content)
        is_foreign = not (notebook["metadata"].get("runbook") or {}).get("step")
        cells = [cell for cell in notebook["cells"] if "parameters" in cell["metadata"].get("tags", ())]
        code = "".join(cells[0]["source"]) if cells else ""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunbookError(f"{path} could not be read: it is not a Jupyter notebook of format 4.") from error
    try:
        return None if is_foreign else declared(code)
    except (SyntaxError, ValueError) as error:
        raise RunbookError(f"The parameters cell of {path} has not only plain values: {error}.") from error


def is_ours(path: Path) -> bool:
    """Return True for a notebook of this runbook, according to its metadata."""
    try:
        return read_parameters(path) is not None
    except RunbookError:
        return False


def resolve(name: str, parameters: Sequence[Parameter], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the notebook ``name``, with their declared types.

    Raises BadParameter for an undeclared name or a value of the wrong type.
    """
    known = {parameter.name: parameter for parameter in parameters}
    for given, value in arguments.items():
        if not known:
            raise BadParameter(
                f"The notebook {name} takes no parameters, but {given}={value!r} was passed. Nothing was run."
            )
        if given not in known:
            raise BadParameter(
                f"The notebook {name} has no parameter {given!r}{did_you_mean(given.lower(), known)}. Its parameters "
                f"are {', '.join(known)}. Nothing was run."
            )
    return {given: _typed(known[given], value) for given, value in arguments.items()}


def declared(code: str) -> tuple[Parameter, ...]:
    """Return the parameters that a cell declares.

    Raises SyntaxError for code that is not Python, and ValueError for a default that is not a plain value.
    """
    parameters = []
    lines = code.splitlines()
    for statement in ast.parse(code).body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            default = ast.literal_eval(statement.value)
            # The rest of the statement's last line can only be a comment.
            rest = lines[(statement.end_lineno or 1) - 1].encode()[statement.end_col_offset :].decode()
            parameters.append(Parameter(statement.target.id, default, rest.strip().removeprefix("#").strip()))
    return tuple(parameters)


def _typed(parameter: Parameter, value: Any) -> Any:
    name = parameter.name
    if type(value) is type(parameter.default):
        return value
    if isinstance(parameter.default, bool):
        problem = f"is {value!r}, but must be True or False: -p {name} True."
    elif type(value) is int and name.endswith("_id"):
        return str(value)  # papermill's -p converts an ID to a number, without loss
    elif isinstance(value, bool | None):
        problem = (
            f"is {value!r}, because papermill's -p, and YAML without quotes, convert that word. Pass it as text: "
            f"-r {name} {value}, or in YAML {name}: '{value}'."
        )
    elif isinstance(value, int | float):
        text = _likely_tag(value) if name == "tag" else "…"
        problem = (
            f"arrived as the number {value}: papermill's -p, and YAML without quotes (-f, -y, -b), take text that "
            "looks like a number for one, and lose zeros, underscores and exponents. Pass it as text: "
            f"-r {name} '{text}', or in YAML {name}: '{text}'."
        )
    else:
        problem = f"is {value!r}, but must be text."
    raise BadParameter(f"Parameter {name} {problem} Nothing was run.")


def _likely_tag(value: float) -> str:
    """Return the tag that was probably meant; a month lost its last zero, or was written without its first one."""
    year, _, month = str(value).partition(".")
    if type(value) is float and re.fullmatch("1[6-9]|[2-9][0-9]", year) and len(month) == 1:
        month = "10" if month == "1" else f"0{month}"
    return f"{year}.{month}" if month else year
