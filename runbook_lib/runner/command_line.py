"""How a run of a notebook is typed.  Pure."""

import shlex
from collections.abc import Mapping

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
