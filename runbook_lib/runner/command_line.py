"""How a run of a notebook is typed.  Pure."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from runbook_lib.bump import Bump
from runbook_lib.records.statement import RUN, predicate_of
from runbook_lib.runner import command_line
from runbook_lib.runner.parameters import Source
from runbook_lib.system import provenance

#: Where the notebooks stand, from the project's root.
FOLDER = "runbooks"


def papermill(notebook: str, given: Mapping[str, object] | None = None, folder: str = FOLDER) -> str:
    """The command that runs a notebook with these parameters, as it can be pasted in the project's root.

    Text is given with ``-r``, which keeps ``26.10`` as it is; what is empty is left out.
    """
    told = (
        f" {'-r' if isinstance(value, str) else '-p'} {name} {shlex.quote(str(value))}"
        for name, value in (given or {}).items()
        if value not in ("", None)
    )
    return f"environment/run papermill {shlex.quote(f'{folder}/{notebook}.ipynb')}{''.join(told)}"


def command(notebook: str, bump: Bump, **more: object) -> str:
    """The command that runs a notebook as this run was: with the parameters that were given to it, and ``more``.

    Only what that notebook takes and what is not its default; without a record of the run, what ``bump`` knows.
    """
    given: dict[str, object] = {"tag": str(bump.tag or ""), "base": bump.base, "image_type": bump.image_type}
    folder, shown = provenance.ROOT / command_line.FOLDER, command_line.FOLDER
    record = Path(os.environ.get("RUNBOOK_RECORD") or os.devnull, RUN)
    run = predicate_of(record.read_bytes()) if record.is_file() else {}
    if run.get("launcher"):
        told = run["parameters"]
        given |= {name: told["resolved"][name] for name in told["given"]}
        if (place := Path(run["launcher"]["folder"])) != folder:
            folder, shown = place, str(place)
    defaults = {it.name: it.default for it in Source.read(folder / f"{notebook}.ipynb").parameters}
    kept = {name: value for name, value in (given | more).items() if defaults.get(name, value) != value}
    return command_line.papermill(notebook, kept, shown)
