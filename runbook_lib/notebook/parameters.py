"""The parameters of the notebook that runs in this kernel: those that it declares, and those that were passed.

papermill inserts a cell with the values, and only warns about a name that the notebook does not declare.
"""

import ast
import os
from collections.abc import Mapping, Sequence
from typing import Any

from runbook_lib.notebook.session import current_shell
from runbook_lib.text import notebook_file
from runbook_lib.text.notebook_file import BadParameter, Parameter
from runbook_lib.text.redact import Redactor

#: The first line of papermill's cell.
_INJECTED = "# Parameters\n"


def passed(notebook: str) -> dict[str, Any]:
    """Return the parameters that were passed to this notebook, with their declared types.

    Raises BadParameter for a name that it does not declare, a value of another type, or one with a secret in it.
    """
    shell = current_shell()
    return read(notebook, shell.user_ns.get("In", ())) if shell else {}


def read(notebook: str, cells: Sequence[str]) -> dict[str, Any]:
    """Return the parameters passed in the cells that have run so far, as ``passed``."""
    declared: tuple[Parameter, ...] = ()
    for code in cells:
        if code.startswith(_INJECTED):
            values = notebook_file.resolve(notebook, declared, _assigned(code))
            _require_no_secrets(values)
            return values
        declared = _declared(code) or declared
    return {}


def _require_no_secrets(values: Mapping[str, Any]) -> None:
    redactor = Redactor(os.environ)
    for name, value in values.items():
        if redactor.data(value) != value:
            raise BadParameter(
                f"The parameter {name} has a secret in it: the value of a variable, a token or a password. papermill "
                "writes parameters into the executed notebook, so remove that file. Secrets come from environment "
                "variables, such as GITHUB_TOKEN. Nothing was run."
            )


def _declared(code: str) -> tuple[Parameter, ...]:
    try:
        return notebook_file.declared(code)
    except (SyntaxError, ValueError):
        return ()  # another cell than that of the parameters


def _assigned(code: str) -> dict[str, Any]:
    """Return what papermill's cell assigns."""
    values = {}
    for statement in ast.parse(code).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            try:
                values[name] = ast.literal_eval(statement.value)
            except ValueError:  # such as float("nan")
                values[name] = float("nan")
    return values
