"""The command ``runbook``.  A command's module is imported only when it is needed, so that ``check`` stays fast."""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from runbook_lib.cli.command import CANNOT_TELL, ClosedPipe, print_json
from runbook_lib.errors import RunbookError
from runbook_lib.world.machine.output import safe_output

#: The module of each command or group, and what the help says of it.
_COMMANDS = {
    "check": ("check", "check that all pins of the base image agree"),
    "run": ("notebooks", "run a notebook headlessly"),
    "lab": ("notebooks", "open the notebooks in JupyterLab"),
    "status": ("bumps", "show the status of each bump"),
    "review": ("bumps", "make the decisions that a bump waits for, card by card"),
    "why": ("why", "name the root cause of a failure"),
    "golden": ("golden", "judge changes of golden values"),
    "pins": ("pins", "find the pins of a repository"),
    "image": ("image", "show what a new image changes, and which drivers support it"),
    "audit": ("bumps", "verify an archive of records, or add a notebook to one"),
    "watch": ("watch", "propose a newer tag for the pins"),
}
_EPILOG = """\b
Examples, first a bump in practice on this machine:
  runbook run bump -p tag 26.05-py3 -p wait True
  runbook review 26.05-py3
  runbook status
  runbook check ~/Megatron-LM --ref main --ref 'origin/core_r*'

`runbook COMMAND --help` shows the options and an example of a command."""


class _Commands(click.Group):
    """The commands, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"runbook_lib.cli.{_COMMANDS[cmd_name][0]}")
        found: click.Command = getattr(module, cmd_name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in _COMMANDS.items()])


def _show_version(context: click.Context, _: click.Parameter, given: bool) -> None:
    if not given:
        return
    from runbook_lib.world.machine.provenance import library

    about = library()
    version = f"base-image-runbook {about['version']}"
    if about["commit"]:
        version += f" (commit {about['commit'][:12]}{', changed' if about['dirty'] else ''})"
    print(f"{version}, Python {about['python']}")
    context.exit()


@click.group("runbook", cls=_Commands, epilog=_EPILOG)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
    help="Show the version, and the commit of a checkout.",
)  # fmt: skip
def runbook() -> None:
    """Move a repository's pins of its base image to a new one, and show the status."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0 yes, 1 no, 2 cannot tell, also for errors and wrong usage."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        with safe_output():
            return _run(given)
    except (BrokenPipeError, ClosedPipe):
        # The interpreter would report it again on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
        return 141  # the status of a program killed by SIGPIPE


def _run(arguments: list[str]) -> int:
    try:
        return int(runbook.main(arguments, "runbook", standalone_mode=False) or 0)
    except click.Abort:
        return 130  # the status of a program killed by SIGINT
    except click.ClickException as error:
        error.show()
        message, fix = error.format_message(), "Read the help: runbook COMMAND --help"
    except (RunbookError, OSError, ModuleNotFoundError) as error:
        if (known := _explained(error)) is None:
            raise
        print(f"runbook: {known}", file=sys.stderr)
        message, fix = known.message, known.fix
    if "--json" in arguments:
        print_json({"error": {"message": message, "fix": fix}})
    return CANNOT_TELL


def _explained(error: Exception) -> RunbookError | None:
    """Return an error that its reader can fix; None for any other."""
    if isinstance(error, RunbookError):
        return error
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        fix = "Raise the limit, for example with `ulimit -n 1024`, and run again."
        return RunbookError("too many files are open.", fix)
    if isinstance(error, FileNotFoundError) and error.filename is None:  # of os.getcwd
        return RunbookError("the current folder has been deleted.", "Change to another one, and run again.")
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("runbook_lib"):
        fix = "Install all of it: pip install 'base-image-runbook[runbooks]'"
        return RunbookError(f"This command needs {error.name}, which only the full installation has.", fix)
    return None


if __name__ == "__main__":
    sys.exit(main())
