"""Whether a person sits before the kernel of a notebook, and which file that notebook is.

JupyterLab names the session of its kernels in JPY_SESSION_NAME, and Voila itself in SERVER_SOFTWARE; VS Code tells the
notebook's path in a variable of the kernel.  papermill and nbclient say nothing, and run.py takes all of that away.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_VSCODE = "__vsc_ipynb_file__"
#: The variables of the environment that tell of a person.
VARIABLES = ("JPY_SESSION_NAME", "SERVER_SOFTWARE")


def interactive() -> bool:
    """Whether a person sits before this notebook, so that a form is shown and nothing is changed without it."""
    if "RUNBOOK_RECORD" in os.environ:
        return False
    voila = os.environ.get("SERVER_SOFTWARE", "").lower().startswith("voila")
    return voila or "JPY_SESSION_NAME" in os.environ or _VSCODE in _namespace()


def notebook(name: str) -> Path:
    """The file of the notebook of that name, which stands beside the one that is open."""
    told = os.environ.get("JPY_SESSION_NAME") or _namespace().get(_VSCODE)
    here = Path(str(told)).parent if told else Path.cwd()
    return (here if here.is_absolute() else Path.cwd()) / f"{name}.ipynb"


def _namespace() -> Mapping[str, object]:
    """The variables of the notebook; empty outside of one."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell.user_ns if shell else {}
