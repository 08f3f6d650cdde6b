"""What all commands share: the option ``--json``, and errors as one message."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from runbook_lib.errors import RunbookError

CANNOT_TELL = 2
#: The status of a program killed by SIGPIPE.
_CLOSED_PIPE = 141

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for errors too.")


class Command(click.Command):
    """A command that returns its exit status: 0 yes, 1 no, 2 cannot tell, also after an error."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.  A RunbookError is printed only as its message."""
        try:
            return super().invoke(ctx)
        except RunbookError as error:
            message = str(error)
        except ModuleNotFoundError as error:
            if not error.name or error.name.startswith("runbook_lib"):
                raise
            message = missing(error.name)
        except BrokenPipeError:
            raise click.exceptions.Exit(closed_pipe()) from None
        print(f"{ctx.command_path}: {message}", file=sys.stderr)
        if ctx.params.get("as_json"):
            print(json.dumps({"version": 1, "error": {"message": message}}, indent=2))
        return CANNOT_TELL


def command(name: str, example: str, **settings: Any) -> Callable[[Callable[..., int]], click.Command]:
    """Make a command of a function that returns the exit status; its docstring and ``example`` are the help."""
    return click.command(name, cls=Command, epilog=f"Example: {example}", **settings)


def missing(module: str) -> str:
    """Return the message for a module that only the full installation has."""
    return (
        f"This command needs {module}, which only the full installation has: pip install 'base-image-runbook[runbooks]'"
    )


def closed_pipe() -> int:
    """Return the exit status after the reader has closed the pipe (``runbook check | head``).

    The interpreter would report it again on exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    return _CLOSED_PIPE
