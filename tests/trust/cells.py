"""Run the code of a notebook without a kernel, which would cost seconds: ``python cells.py NOTEBOOK PARAMETERS``.

STOP says where this process stops itself: in which cell, at which of its moments, by which signal, alone or with the
programs that it has started, and how many seconds later.  A moment is just before something that is seen from outside:
a file written, renamed, linked or removed, a folder made, a program started, or a change of the practice forge.
"""

import json
import os
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_FILES = ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "subprocess.Popen", "forge")
#: The methods of the practice forge that change something.
_CHANGES = ("open_pull", "update_pull", "comment", "rerun_failed", "add_label", "file_issue", "withdraw_issue")


@cache
def cells(notebook: str) -> tuple[str, ...]:
    """The code of a notebook; its first cell holds the parameters."""
    read = json.loads((ROOT / "runbooks" / f"{notebook}.ipynb").read_text())
    code = [cell for cell in read["cells"] if cell["cell_type"] == "code"]
    code.sort(key=lambda cell: "parameters" not in cell["metadata"].get("tags", []))
    return tuple("".join(cell["source"]) for cell in code)


class Stop:
    """Counts the moments of a cell and stops this process at one, or at the first after it."""

    def __init__(self, cell: int, moment: int, signal: int, group: bool, later: float) -> None:
        self._cell, self._left, self._later = cell, moment, later
        self._signal, self._whom = signal, -os.getpid() if group else os.getpid()
        self.now = 0

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
        if self.now < self._cell or not (writes or event in _FILES):
            return
        self._left -= 1
        if self._left == 0 or (self.now > self._cell and self._left > 0):
            self._left = 0
            if self._later:
                threading.Timer(self._later, self._strike).start()
            else:
                self._strike()

    def _strike(self) -> None:
        os.kill(self._whom, self._signal)

    def watch(self, forge: type) -> None:
        """Count the changes of the practice forge, too."""
        for name in _CHANGES:
            setattr(forge, name, self._watched(getattr(forge, name)))

    def _watched(self, method: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self.hook("forge", ())
            answer = method(*args, **options)
            self.hook("forge", ())
            return answer

        return call


def main(notebook: str, parameters: str) -> None:
    from runbook_lib.errors import RunbookError
    from runbook_lib.practice.forge import PracticeForge

    stop = Stop(**json.loads(os.environ.get("STOP", '{"cell": 99, "moment": 1, "signal": 0, "group": 0, "later": 0}')))
    stop.watch(PracticeForge)
    sys.addaudithook(stop.hook)
    left: dict[str, Any] = {}
    try:
        for stop.now, code in enumerate(cells(notebook)):
            exec(code, left)
            left.update(json.loads(parameters) if stop.now == 0 else {})
    except RunbookError as error:
        sys.exit(f"failed: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
