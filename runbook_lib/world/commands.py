"""The command line that runs a notebook, for use in messages."""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from runbook_lib import notebooks
from runbook_lib.model import AGAIN, Next
from runbook_lib.text.notebook_file import read_parameters
from runbook_lib.world.machine import provenance

if TYPE_CHECKING:
    from runbook_lib.pins.bump import Bump

#: The folder of the notebooks, relative to the project's root.
FOLDER = "runbooks"


def papermill(notebook: str, parameters: Mapping[str, object]) -> str:
    """Return the command that runs a notebook with these parameters, ready to paste in the root of a clone.

    For an installed package the command works in any folder.  Text is passed with ``-r``, which does not convert
    ``26.10`` to a number; empty values are omitted.
    """
    words = ["environment/run", "papermill", f"{FOLDER}/{notebook}.ipynb"]
    if provenance.IS_INSTALLED:
        words = ["runbook", "run", notebook]
    for name, value in parameters.items():
        if value not in ("", None):
            words += ["-r" if isinstance(value, str) else "-p", name, str(value)]
    return shlex.join(words)


def parameters(notebook: str, bump: "Bump", changes: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters for a notebook: those that were passed to this run, and these changes.

    Omits parameters that the notebook does not take, and default values.
    """
    given: dict[str, object] = {"tag": bump.target, "base": bump.base, "image_type": bump.image_type}
    given |= {**bump.given, **changes}
    values = {}
    for parameter in read_parameters(provenance.ROOT / FOLDER / f"{notebook}.ipynb") or ():
        if given.get(parameter.name, parameter.default) not in (parameter.default, None):
            values[parameter.name] = given[parameter.name]
    # In the order in which they were passed.
    return {name: values[name] for name in given if name in values}


def command(notebook: str, bump: "Bump", **changes: object) -> str:
    """Return the command that runs a notebook with the parameters that were passed to this run, and these changes."""
    return papermill(notebook, parameters(notebook, bump, changes))


def resolve(following: Next, notebook: str, bump: "Bump") -> Next:
    """Return what comes next after a run of ``notebook``, with all parameters: a bump goes on with itself."""
    name = following.notebook
    if name == AGAIN or (name in notebooks.STEPS and notebook == notebooks.BUMP):
        name = notebook
    if name == notebooks.REVIEW:
        return Next(following.because, name, {"tag": bump.target})
    return Next(following.because, name, parameters(name, bump, following.parameters) if name else {})


def text(following: Next) -> str:
    """Return what comes next after a run, with the command to paste at its end."""
    name, command = following.notebook, ""
    if name == notebooks.REVIEW:
        runbook = ["runbook"] if provenance.IS_INSTALLED else ["environment/run", "runbook"]
        command = shlex.join([*runbook, name, str(following.parameters["tag"])])
    elif name:
        command = papermill(name, following.parameters)
    return f"{following.because} {command}".strip()
