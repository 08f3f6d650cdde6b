"""The command ``runbook``, as ``python -m runbook_lib``."""

import sys

from runbook_lib.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
