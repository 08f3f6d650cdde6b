"""The command ``runbook``.  A subcommand imports what it needs only when it runs, so that ``check`` stays fast."""

import argparse
import contextlib
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module

from runbook_lib.cli.parser import QUIET, parser
from runbook_lib.errors import RunbookError
from runbook_lib.system import startup
from runbook_lib.system.output import safe_output

#: The module and the function of each subcommand or action.  The function takes the parsed options and returns the
#: exit status.
_MODULES = {
    "status": ("runbook_lib.cli.audit", "command_status"),
    "audit add": ("runbook_lib.cli.audit", "command_add"),
    "audit verify": ("runbook_lib.cli.audit", "command_verify"),
    "check": ("runbook_lib.cli.check", "command"),
    "golden": ("runbook_lib.cli.golden", "command"),
    "image diff": ("runbook_lib.cli.image", "command_diff"),
    "image driver": ("runbook_lib.cli.image", "command_driver"),
    "image list": ("runbook_lib.cli.image", "command_list"),
    "lab": ("runbook_lib.cli.notebooks", "command_lab"),
    "pins find": ("runbook_lib.cli.pins", "command"),
    "practice": ("runbook_lib.cli.practice", "command"),
    "run": ("runbook_lib.cli.notebooks", "command_run"),
    "review": ("runbook_lib.cli.review", "command"),
    "watch": ("runbook_lib.cli.watch", "command"),
    "why": ("runbook_lib.cli.why", "command"),
}

#: The commands that exit with status 2 (cannot tell) after an error.
_VERDICTS = ("check", "golden", "image", "pins", "watch", "why")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.  A RunbookError is printed only as its message."""
    startup.restore()
    try:
        with safe_output():
            return _run(parser().parse_args(arguments))
    except BrokenPipeError:
        # The reader has closed the pipe (`runbook check | head`): keep the interpreter from reporting that on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # the status of a program killed by SIGPIPE


def _run(options: argparse.Namespace) -> int:
    try:
        action = f"{options.command} {getattr(options, 'action', '')}"
        module, function = _MODULES.get(action) or _MODULES[options.command]
        command = getattr(import_module(module), function)
        return _run_quietly(command, options) if _is_quiet(options) else int(command(options))
    except RunbookError as error:
        print(f"runbook {options.command}: {error}", file=sys.stderr)
        if options.verbose:
            traceback.print_exc()
        if options.command in ("check", "pins") and getattr(options, "json", False):
            print(json.dumps({"format": 1, "outcome": "cannot tell", "error": str(error)}, indent=2))
        return 2 if options.command in _VERDICTS else 1
    except ModuleNotFoundError as error:
        if not error.name or error.name.startswith("runbook_lib"):
            raise
        print(
            f"runbook {options.command}: This command needs {error.name}, which only the full installation has: "
            "pip install 'base-image-runbook[runbooks]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130  # the status of a program killed by SIGINT


def _is_quiet(options: argparse.Namespace) -> bool:
    """Return True for ``--quiet``, which may follow the notebook of ``runbook run`` among papermill's arguments."""
    quiet = bool(getattr(options, "quiet", False))
    return quiet or (options.command == "run" and not set(QUIET).isdisjoint(options.arguments))


def _run_quietly(command: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Run a command, and print its output only if the exit status is not 0."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = int(command(options))
    if status:
        print(output.getvalue(), end="")
    return status
