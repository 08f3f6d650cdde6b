"""Detection of an interactive session with this kernel, and of the notebook's file.

JupyterLab sets JPY_SESSION_NAME for its kernels, and VS Code sets a variable in the notebook's namespace.  papermill
sets nothing, and the engine says that it runs.  nbval's kernels inherit the name that pytest gives to the cell.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_VSCODE = "__vsc_ipynb_file__"
#: The environment variable that only JupyterLab's kernels have.
VARIABLE = "JPY_SESSION_NAME"
#: The variable with the fingerprint of a plan that a form has shown: the run leaves no record, and must plan the same.
SHOWN = "RUNBOOK_SHOWN"


def interactive() -> bool:
    """Return True in an interactive session, which shows a form and changes nothing without it."""
    if "RUNBOOK_ENGINE" in os.environ:
        return False
    return VARIABLE in os.environ or _VSCODE in _namespace()


def checked() -> bool:
    """Return True if nbval runs this notebook to check it, which changes nothing."""
    return bool(re.search(r"::Cell [0-9]+ \(", os.environ.get("PYTEST_CURRENT_TEST", "")))


def notebook(name: str) -> Path:
    """Return the path of the notebook with that name beside the open one."""
    current = os.environ.get(VARIABLE) or _namespace().get(_VSCODE)
    folder = Path(str(current)).parent if current else Path.cwd()
    return Path.cwd() / folder / f"{name}.ipynb"


def inputs() -> Sequence[str]:
    """Return the code of the cells that have run in this kernel."""
    cells: Sequence[str] = _namespace().get("In", ())
    return cells


def current_shell() -> Any:
    """Return the shell of this kernel; None outside of one."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


def _namespace() -> Mapping[str, Any]:
    """Return the notebook's variables; none outside a notebook."""
    shell = current_shell()
    return shell.user_ns if shell else {}
