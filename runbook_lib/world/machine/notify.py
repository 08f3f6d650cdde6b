"""Notifications: the command in RUNBOOK_NOTIFY gets one JSON object on its standard input."""

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any, Literal

from runbook_lib.text.redact import Redactor
from runbook_lib.world.machine.clock import now, stamp
from runbook_lib.world.machine.subprocess_lines import complete

VARIABLE = "RUNBOOK_NOTIFY"
#: A bump starts to wait for a person, becomes ready to merge, or fails.
Event = Literal["waiting", "ready", "failed"]
_LIMIT = 30.0  # seconds


def notify(event: Event, bump: Mapping[str, Any], sentence: str, next_action: str, links: Mapping[str, str]) -> str:
    """Run the user's command, if there is one; return a warning if it failed, else an empty text."""
    if not (command := os.environ.get(VARIABLE, "").strip()):
        return ""
    document = {
        "version": 1, "event": event, "bump": dict(bump), "sentence": sentence, "next": next_action,
        "links": dict(links), "time": stamp(now()),
    }  # fmt: skip
    redactor = Redactor(os.environ)
    try:
        text = json.dumps(redactor.data(document))
        done = complete(shlex.split(command), os.environ, _LIMIT, f"{text}\n".encode())
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return redactor.text(f"The command in {VARIABLE} could not be run: {error}")
    if done.returncode:
        problem = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
        return redactor.text(f"The command in {VARIABLE} ended with exit status {done.returncode}. {problem}".strip())
    return ""
