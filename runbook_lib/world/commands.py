"""The command line that runs a notebook, for use in messages."""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from runbook_lib.system import provenance
from runbook_lib.text.notebook_file import NotebookSource

if TYPE_CHECKING:
    from runbook_lib.pins.bump import Bump

#: The folder of the notebooks, relative to the project's root.
FOLDER = "runbooks"


def papermill(notebook: str, parameters: Mapping[str, object] | None = None) -> str:
    """Return the command that runs a notebook with these parameters, ready to paste in the root of a clone.

    For an installed package the command works in any folder.  Text is passed with ``-r``, which does not convert
    ``26.10`` to a number; empty values are omitted.
    """
    words = ["environment/run", "papermill", f"{FOLDER}/{notebook}.ipynb"]
    if provenance.IS_INSTALLED:
        words = ["runbook", "run", notebook]
    for name, value in (parameters or {}).items():
        if value not in ("", None):
            words += ["-r" if isinstance(value, str) else "-p", name, str(value)]
    return shlex.join(words)


def command(notebook: str, bump: "Bump", **changes: object) -> str:
    """Return the command that runs a notebook with the parameters that were passed to this run, and these changes.

    Omits parameters that the notebook does not take, and default values.
    """
    parameters: dict[str, object] = {"tag": bump.target, "base": bump.base, "image_type": bump.image_type}
    parameters |= {**bump.given, **changes}
    values = {}
    for parameter in NotebookSource.read(provenance.ROOT / FOLDER / f"{notebook}.ipynb").parameters:
        if parameters.get(parameter.name, parameter.default) != parameter.default:
            values[parameter.name] = parameters[parameter.name]
    # In the order in which they were passed.
    return papermill(notebook, {name: values[name] for name in parameters if name in values})


def review(bump: "Bump") -> str:
    """Return the command that shows the open decisions of a bump, card by card, and runs it with the answers."""
    words = ["runbook"] if provenance.IS_INSTALLED else ["environment/run", "runbook"]
    words += ["review", bump.target]
    return shlex.join(words)
