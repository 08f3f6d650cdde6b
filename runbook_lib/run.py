"""Headless runs of the notebooks: ``python -m runbook_lib.run NOTEBOOK [-p NAME VALUE …]``."""

import sys

from runbook_lib.runner.papermill import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
