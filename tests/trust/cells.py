"""Run the code of a notebook without a kernel, which would cost seconds.

STOP says where this process stops itself: in which cell, at which of its moments, by which signal, alone or with the
programs that it has started, and how many seconds later; by signal 0 all that it writes from then on fails.  A moment
is just before something that is seen from outside: a file written, renamed, linked or removed, a folder made, a program
started, or a change of the practice forge.
"""

import errno
import json
import os
import sys
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.practice.forge import PracticeForge

ROOT = Path(__file__).resolve().parents[2]
#: About how many moments each cell of a bump has.
MOMENTS = {2: 30, 3: 60, 4: 40, 5: 30, 6: 60, 7: 400, 8: 20, 9: 20, 10: 30}
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
        self.now, self._struck = 0, False

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
        if self.now < self._cell or not (writes or event in _FILES):
            return
        self._left -= 1
        if self._left > 0 and self.now == self._cell:
            return
        if not self._signal:
            self._fill(event, arguments)
        elif not self._struck:
            self._struck = True
            if self._later:
                threading.Timer(self._later, self._strike).start()
            else:
                self._strike()

    def _strike(self) -> None:
        os.kill(self._whom, self._signal)

    def _fill(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Fail as on a full disk, where what is opened to be written is empty already."""
        path = str(arguments[0]) if arguments else ""
        if event in ("os.remove", "os.rmdir") or not path.startswith(os.getcwd()):  # the latter is on another disk
            return
        if event == "open" and str(arguments[1] or "").startswith("w") and os.path.exists(path):
            os.truncate(path, 0)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

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


def main(notebook: str, parameters: Mapping[str, object]) -> None:
    """Run it in this process, which it may stop."""
    stop = Stop(**json.loads(os.environ.get("STOP", '{"cell": 99, "moment": 1, "signal": 0, "group": 0, "later": 0}')))
    stop.watch(PracticeForge)
    sys.addaudithook(stop.hook)
    left: dict[str, Any] = {}
    try:
        for stop.now, code in enumerate(cells(notebook)):
            exec(code, left)
            left.update(parameters if stop.now == 0 else {})
    except RunbookError as error:
        sys.exit(f"failed: {error}")
