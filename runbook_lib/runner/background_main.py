"""Main program of a run that a form started: ``NOTEBOOK`` as argument, the request on standard input as JSON.

It does without papermill's command line, which takes longer to import than a kernel takes to start.
"""

import json
import sys
from pathlib import Path

from runbook_lib.runner import papermill

if __name__ == "__main__":
    request = json.load(sys.stdin)
    sys.exit(papermill.run_request(Path(sys.argv[1]), request["parameters"], shown=request["shown"]))
