"""The environment's ``papermill``: papermill's own command, with the engine ``runbook`` for the runbook's notebooks.

The executed notebook is kept in the record, so that an output path can be omitted.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.notebook import session
from runbook_lib.text.notebook_file import is_ours
from runbook_lib.text.redact import Redactor
from runbook_lib.world.machine import startup
from runbook_lib.world.machine.files import cannot_write

_FAILED, _USAGE, _INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status: 0 done, waiting or previewed; 1 failed; 2 incorrect usage."""
    startup.skip_notebook_formats()
    import click
    from nbformat import ValidationError
    from papermill import cli
    from papermill.exceptions import PapermillException, PapermillExecutionError

    try:
        context = cli.papermill.make_context("papermill", list(arguments))
        notebook = context.params["notebook_path"] or ""
        if context.params["help_notebook"] or not notebook or (Path(notebook).exists() and not is_ours(Path(notebook))):
            return int(cli.papermill.main(list(arguments), "papermill", standalone_mode=False) or 0)
        context.params["engine"] = context.params["engine"] or "runbook"
        if context.get_parameter_source("log_level") == click.core.ParameterSource.DEFAULT:
            context.params["log_level"] = "WARNING"  # the paths are printed at the end
        for name in ("stdout_file", "stderr_file"):  # what cells print, such as for what they wait
            context.params[name] = context.params[name] or sys.stderr
        _end_on_signals()
        with tempfile.TemporaryDirectory(prefix="runbook-") as folder:
            # The record has the executed notebook.
            context.params["output_path"] = context.params["output_path"] or str(Path(folder, Path(notebook).name))
            if os.environ.get(session.SHOWN):
                _plan_again(context)
            context.command.invoke(context)
    except click.exceptions.Exit as end:
        return int(end.exit_code)
    except click.ClickException as error:
        error.show()
        return int(error.exit_code)
    except PapermillExecutionError:  # the engine has printed it
        return _FAILED
    except (PapermillException, ValidationError, RunbookError, OSError, ValueError, TypeError) as error:
        told = str(error)
        if isinstance(error, OSError) and error.filename is None:  # papermill does not name what it could not write
            told = str(cannot_write(context.params["output_path"], error))
        print(f"papermill: {Redactor(os.environ).text(told)}", file=sys.stderr)
        return _FAILED if isinstance(error, RunbookError) else _USAGE
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _plan_again(context: Any) -> None:
    """Compute the plan that a form has shown once more, while nobody else changes the checkout: it must be the same."""
    from runbook_lib.notebook import place  # it imports the practice environment

    place.lock(place.RunTarget(dict(context.params["parameters_raw"])).checkout)
    os.environ[place.LOCKED] = "1"
    print("Computing the plan again: it must be the one that was shown.", file=sys.stderr, flush=True)
    given = context.params["parameters_raw"]
    context.params["parameters_raw"] = (*given, ("mode", "preview"))
    context.command.invoke(context)
    context.params["parameters_raw"] = given
    del os.environ[session.SHOWN]


def _end_on_signals() -> None:
    """Let SIGTERM and SIGHUP end the run like Ctrl-C, so that its record is closed; nohup's SIGHUP stays ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
