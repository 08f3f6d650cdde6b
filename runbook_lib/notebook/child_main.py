"""Main program of a run that a form started: ``NOTEBOOK`` as argument, the request on standard input as JSON."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.notebook import begin, place
from runbook_lib.notebook.papermill import cancelled_by_signals
from runbook_lib.records import run_view
from runbook_lib.system import startup

_CHANGED = (
    "The plan has changed since it was shown, because the checkout, its remote or CI has changed. Nothing was done. "
    "Preview again."
)


def main(notebook: str, parameters: Mapping[str, Any], shown: str) -> int:
    """Run the notebook and return the exit status, as papermill's."""
    startup.restore()
    startup.skip_notebook_formats()
    from papermill.exceptions import PapermillExecutionError

    try:
        with cancelled_by_signals():
            if shown:
                begin.lock(place.find(parameters["repo"]).checkout)
                os.environ[begin.LOCKED] = "1"
                print("Computing the plan again: it must be the one that was shown.", file=sys.stderr, flush=True)
                _require_plan(_run(notebook, {**parameters, "mode": "preview"}), shown)
            _run(notebook, parameters)
    except (PapermillExecutionError, KeyboardInterrupt):  # the engine has printed it
        return 1
    except RunbookError as error:
        print(f"papermill: {error}", file=sys.stderr)
        return 1
    return 0


def _run(notebook: str, parameters: Mapping[str, Any]) -> Path | None:
    """Run the notebook, and return the folder of its record."""
    from papermill.execute import execute_notebook

    execute_notebook(
        notebook, None, dict(parameters), engine_name="runbook", progress_bar=False, stdout_file=sys.stderr,
        stderr_file=sys.stderr,
    )  # fmt: skip
    from runbook_lib.notebook.engine import RunbookEngine

    return RunbookEngine.record


def _require_plan(record: Path | None, shown: str) -> None:
    run = run_view.find_run(record.parent, record=record.name) if record else None
    if run is None or run.fingerprint != shown:
        raise Refused(_CHANGED)


if __name__ == "__main__":
    request = json.load(sys.stdin)
    sys.exit(main(sys.argv[1], request["parameters"], request["shown"]))
