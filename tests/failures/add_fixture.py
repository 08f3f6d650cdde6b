"""Cut an entry of the corpus from a log: the lines around its evidence, without secrets, hosts, users and addresses.

    environment/run python tests/failures/add_fixture.py LOG [ID] >> tests/failures/corpus/ci_and_builds.txt

The head has the verdict of today.  Correct it where it is wrong, and read the lines before you commit them.
"""

import os
import re
import sys
from pathlib import Path

from runbook_lib.failures import read_logs
from runbook_lib.failures.log_lines import clean
from runbook_lib.text.redact import Redactor

BEFORE, AFTER, LONGEST = 15, 8, 600
_REMOVED = (
    (re.compile(r"/(home|Users)/[^/\s]+"), r"/\1/user"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b"), "10.0.0.1"),
    (re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+"), "user@example.org"),
    (re.compile(r"\b[0-9a-f]{32,64}\b"), "0" * 32),
)


def cut(path: Path, name: str) -> str:
    """Return the entry."""
    failure = read_logs.diagnose_folder(path)
    lines = [clean(raw)[:LONGEST] for raw in path.read_bytes().splitlines()]
    wanted: set[int] = set(range(max(0, len(lines) - AFTER), len(lines)))
    for clue in (*failure.clues[:3], *failure.consequences[:2]):
        wanted.update(range(max(0, clue.line - BEFORE), min(len(lines), clue.line + AFTER)))
    text = Redactor(os.environ).text("\n".join(lines[number] for number in sorted(wanted)))
    for expression, replacement in _REMOVED:
        text = expression.sub(replacement, text)
    root = failure.clues[0].text.strip()[:120] if failure.clues else failure.cause
    rank = "-" if failure.rank is None else failure.rank
    return f"=== {name} | {failure.kind} | {rank} | {root} | -\n{text}\n"


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    log = Path(sys.argv[1])
    print(cut(log, sys.argv[2] if len(sys.argv) == 3 else log.stem), end="")
