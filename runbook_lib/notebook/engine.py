"""papermill's engine ``runbook``: papermill's own, which adds the executed notebook to the record of its run.

papermill imports this module whenever it starts, so the library is imported while the kernel works.
"""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from papermill.engines import NBClientEngine

from runbook_lib.notebook import session

#: The variables that tell the kernel that the engine closes the record, and Python to import nothing from the current
#: folder.
_VARIABLES = ("RUNBOOK_ENGINE", "PYTHONSAFEPATH")
_LIBRARY = "runbook_lib.notebook.recording"
#: Of the kernel: it does not tell that it uses the loopback network, keeps no history, and takes no file in the current
#: folder for a module.
_ARGUMENTS = [
    "--IPKernelApp.log_level=ERROR",
    "--HistoryManager.enabled=False",
    "--InteractiveShellApp.ignore_cwd=True",
]
_PRACTICE = (
    "PRACTICE: without the parameter repo, this run uses the practice environment. Nothing leaves this machine. "
    "For a real bump, name your clone: -p repo PATH"
)
#: Called with the run and the folder of its record, if it opened one, and with the message of an error.
Report = Callable[[Mapping[str, Any] | None, Path | None, str], object]


class RunbookEngine(NBClientEngine):  # type: ignore[misc]
    """The engine.  ``report`` replaces the lines that it prints at the end."""

    report: Report | None = None

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **options: Any) -> None:
        """Run the notebook, and close its record however it ends."""
        from nbclient.exceptions import CellTimeoutError

        if not nb_man.nb.metadata.papermill.parameters.get("repo"):
            print(_PRACTICE, file=sys.stderr, flush=True)
        library = threading.Thread(target=import_module, args=(_LIBRARY,), daemon=True)
        message = ""
        earlier = {name: os.environ.get(name) for name in _VARIABLES}
        os.environ.update(dict.fromkeys(_VARIABLES, "1"))
        try:
            library.start()
            # A kernel that is asked to end often takes seconds, and has nothing left to do.
            super().execute_managed_notebook(
                nb_man, kernel_name, extra_arguments=_ARGUMENTS, shutdown_kernel="immediate", **options
            )
        except (CellTimeoutError, RuntimeError) as error:  # the latter from a kernel that died
            message = _add_error(nb_man.nb, error, options.get("execution_timeout"))
        finally:
            for name, value in earlier.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value
            library.join()
            cls._close(nb_man, message)

    @classmethod
    def _close(cls, nb_man: Any, message: str) -> None:
        from runbook_lib.notebook import recording

        if nb_man.pbar:
            nb_man.pbar.close()  # what follows begins a line
        run, folder = recording.complete(nb_man.nb)
        message = message or ("" if run else _last_error(nb_man.nb))
        if cls.report:
            cls.report(run, folder, message)
        else:
            _print_result(run, folder, message, to_error=not nb_man.output_path)


def _add_error(notebook: Any, error: Exception, limit: float | None) -> str:
    """Add an error to the cell that was running, so that papermill fails, and return its message.

    Raises an error that a running kernel's death does not explain.
    """
    from nbformat.v4 import new_output

    code = list(enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1))
    started = [item for item in code if item[1].metadata.papermill.get("start_time")]
    count, cell = started[-1] if started else code[0]
    name, sentence = type(error).__name__, f"The kernel died in cell {count}: it was killed or ran out of memory."
    if not started:
        sentence = f"The kernel did not start ({error})."
    elif name == "RuntimeError":
        raise error
    elif name == "CellTimeoutError":
        sentence = (
            f"Cell {count} did not finish within {limit:.0f} seconds and was stopped. If it needs more time, raise "
        )
        sentence += "the limit: --execution-timeout SECONDS."
    sentence += " Run the same command again: completed work is detected and kept."
    cell.outputs.append(new_output("error", ename=name, evalue=sentence, traceback=[sentence]))
    return sentence


def _last_error(notebook: Any) -> str:
    """Return the message of the cell that failed before there was a record."""
    for cell in reversed(notebook.cells):
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                line = f"{output.ename}: {output.evalue}"
                return str(output.evalue) if output.traceback == [line] else line  # a RunbookError
    # A plan that is computed again has none.
    return "" if os.environ.get(session.SHOWN) else "There is no record: the run ended before begin() opened one."


def _print_result(run: Mapping[str, Any] | None, folder: Path | None, message: str, *, to_error: bool) -> None:
    """Print the result, ``to_error`` if standard output is used for the notebook."""
    from runbook_lib.display import mark
    from runbook_lib.record import report
    from runbook_lib.world.machine.output import safe_output

    lines = [f"{mark('failed')}  {message}"] if message else []
    if run is not None:
        label = f"{mark(run['state'], run['warnings'])}  {run['notebook']['name']}: "
        lines.append(report.outcome(run, f"Record: {folder}", label).text)
        if run["bump"]["practice"]:
            lines.append(_PRACTICE)
    with safe_output():
        print(*lines, sep="\n", file=sys.stderr if to_error else sys.stdout, flush=True)
