"""Headless runs of the notebooks: ``python -m runbook_lib.run NOTEBOOK [-p NAME VALUE …]``."""

import sys

from runbook_lib.runner.execute import papermill

if __name__ == "__main__":
    sys.exit(papermill())
