"""Detection of an interactive session with this kernel, and of the notebook's file.

JupyterLab sets JPY_SESSION_NAME for its kernels, Voila sets SERVER_SOFTWARE, and VS Code sets a variable in the
notebook's namespace.  papermill and nbclient set nothing, and a headless run removes these variables.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_VSCODE = "__vsc_ipynb_file__"
#: Environment variables set only by interactive sessions.
VARIABLES = ("JPY_SESSION_NAME", "SERVER_SOFTWARE")


def interactive() -> bool:
    """Return True in an interactive session, which shows a form and changes nothing without it."""
    if "RUNBOOK_RECORD" in os.environ:
        return False
    is_voila = os.environ.get("SERVER_SOFTWARE", "").lower().startswith("voila")
    return is_voila or "JPY_SESSION_NAME" in os.environ or _VSCODE in _namespace()


def notebook(name: str) -> Path:
    """Return the path of the notebook with that name beside the open one."""
    current = os.environ.get("JPY_SESSION_NAME") or _namespace().get(_VSCODE)
    folder = Path(str(current)).parent if current else Path.cwd()
    return Path.cwd() / folder / f"{name}.ipynb"


def _namespace() -> Mapping[str, object]:
    """Return the notebook's variables; none outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell.user_ns if shell else {}
