"""Tells a test of every moment of a headless run, and goes on when the test says so: each Python of a run loads this.

A moment is just before something that is seen from outside: a file opened to be written, renamed, linked or removed, a
folder made, a program started.  MOMENTS names the test's socket, MOMENTS_WITHIN the folder whose files count.
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


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("open", "subprocess.Popen") and event not in _FILES:
        return
    if getattr(_mine, "busy", False) or not (what := _what(event, arguments)):
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
