"""Tells a test of every moment of a headless run, and goes on when the test says so: each Python of a run loads this.

A moment is just before something that is seen from outside: a file opened to be written, renamed, linked or removed, a
folder made, a program started, a change on the practice forge, and before its answer.  MOMENTS names the test's socket,
MOMENTS_WITHIN the folder whose files count.
"""

import json
import os
import socket
import sys
import threading
from typing import Any

_WITHIN = os.environ.get("MOMENTS_WITHIN", "/")
_FILES = {"os.rename": 1, "os.link": 1, "os.remove": 0, "os.mkdir": 0, "os.rmdir": 0}
_mine = threading.local()


def _what(event: str, arguments: tuple[Any, ...]) -> str:
    if event == "open" and isinstance(arguments[0], str) and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
        path = arguments[0]
    elif event in _FILES:
        path = os.fsdecode(arguments[_FILES[event]])
    else:
        return " ".join(map(str, arguments[1])) if event == "subprocess.Popen" else ""
    return path if path.startswith(_WITHIN) else ""


#: The methods of the practice forge that change something.
_CHANGES = ("open_pull", "update_pull", "comment", "rerun_failed", "add_label", "file_issue", "withdraw_issue")


def _watch_forge() -> None:
    """Tell of changes on the practice forge, whose class is loaded once it opens its file."""
    forge = getattr(sys.modules.get("runbook_lib.practice.forge"), "PracticeForge", None)
    if forge is None or hasattr(forge, "watched"):
        return
    forge.watched = True
    for name in _CHANGES:
        setattr(forge, name, _watched(name, getattr(forge, name)))


def _watched(name: str, method: Any) -> Any:
    def call(*args: Any, **options: Any) -> Any:
        _tell("forge", f"change {name}")
        answer = method(*args, **options)
        _tell("forge", f"answer to {name}")
        return answer

    return call


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "sqlite3.connect":
        _watch_forge()
    if (event in ("open", "subprocess.Popen") or event in _FILES) and (what := _what(event, arguments)):
        _tell(event, what)


def _tell(event: str, what: str) -> None:
    if getattr(_mine, "busy", False):
        return
    _mine.busy = True
    try:
        if getattr(_mine, "socket", None) is None:
            _mine.socket = socket.socket(socket.AF_UNIX)
            _mine.socket.connect(os.environ["MOMENTS"])
        _mine.socket.sendall(json.dumps([event, what]).encode() + b"\n")
        _mine.socket.recv(1)
    except OSError:
        _mine.socket = None  # the test has ended
    except BaseException:
        _mine.socket = None  # interrupted: the answer will come too late
        raise
    finally:
        _mine.busy = False


if "MOMENTS" in os.environ and any(
    it.endswith(("runbook_lib.notebook.papermill", "ipykernel_launcher")) for it in sys.orig_argv
):
    sys.addaudithook(_hook)
