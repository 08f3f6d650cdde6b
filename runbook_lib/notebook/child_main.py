"""Main program of a run that a form started: ``NOTEBOOK`` as argument, the request on standard input as JSON."""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.notebook import begin, place
from runbook_lib.notebook.papermill import cancelled_by_signals
from runbook_lib.world.machine import startup


def main(notebook: str, parameters: Mapping[str, Any], shown: str) -> int:
    """Run the notebook and return the exit status, as papermill's."""
    startup.skip_notebook_formats()
    from papermill.exceptions import PapermillExecutionError

    try:
        with cancelled_by_signals():
            if shown:
                begin.lock(place.find(parameters["repo"]).checkout)
                os.environ |= {begin.LOCKED: "1", begin.SHOWN: shown}
                print("Computing the plan again: it must be the one that was shown.", file=sys.stderr, flush=True)
                _run(notebook, {**parameters, "mode": "preview"})
                del os.environ[begin.SHOWN]
            _run(notebook, parameters)
    except (PapermillExecutionError, KeyboardInterrupt):  # the engine has printed it
        return 1
    except RunbookError as error:
        print(f"papermill: {error}", file=sys.stderr)
        return 1
    return 0


def _run(notebook: str, parameters: Mapping[str, Any]) -> None:
    from papermill.execute import execute_notebook

    execute_notebook(
        notebook, None, dict(parameters), engine_name="runbook", progress_bar=False, stdout_file=sys.stderr,
        stderr_file=sys.stderr,
    )  # fmt: skip


if __name__ == "__main__":
    request = json.load(sys.stdin)
    sys.exit(main(sys.argv[1], request["parameters"], request["shown"]))
