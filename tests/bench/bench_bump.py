"""How long a practice bump takes up to its first wait, against papermill on an empty notebook: at most 1.7 times.

    environment/run python tests/bench/bench_bump.py [REPEATS]

or ``environment/run pytest -n0 tests/bench/bench_bump.py``.
Both are commands as a person types them, taken in turns.  Each bump is a new one, in an existing practice environment.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runbook_lib.practice.world import open_world

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1.7
EMPTY = {
    "cells": [],
    "metadata": {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    },
    "nbformat": 4,
    "nbformat_minor": 5,
}


def measure(repeats: int = 5) -> float:
    """Print the medians, and return their ratio."""
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        (work / "empty.ipynb").write_text(json.dumps(EMPTY))
        os.environ["PYTHONPATH"] = str(ROOT)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # papermill's modules are compiled, so may ours be
        os.environ["RUNBOOK_PRACTICE_HOME"] = str(work / "practice")
        bump(work, "first")
        empty, bumps = [], []
        for repeat in range(repeats):
            papermill = (sys.executable, "-m", "papermill", work / "empty.ipynb", work / "out.ipynb")
            empty.append(timed(*papermill, folder=work))
            bumps.append(bump(work, str(repeat)))
    for name, seconds in (("papermill on an empty notebook", empty), ("a bump up to its first wait", bumps)):
        print(f"{name:30} median {statistics.median(seconds):5.2f} s   ({min(seconds):.2f} to {max(seconds):.2f})")
    return statistics.median(bumps) / statistics.median(empty)


def bump(work: Path, name: str) -> float:
    """Seconds that a bump takes in a world that was just made: no branch, pull request or run of an earlier one."""
    shutil.rmtree(os.environ["RUNBOOK_PRACTICE_HOME"], ignore_errors=True)
    open_world()
    os.environ["RUNBOOK_AUDIT"] = str(work / f"audit-{name}")
    notebook = ROOT / "runbooks" / "bump.ipynb"
    return timed(
        sys.executable,
        "-P",
        "-m",
        "runbook_lib.notebook.papermill",
        notebook,
        work / "bump.ipynb",
        "-p",
        "tag",
        "26.05-py3",
        folder=work,
    )


def timed(*command: str | Path, folder: Path) -> float:
    """Seconds that a command takes; it must end well.

    Python ignores modules in the current folder, so it is not the clone.
    """
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return seconds


def test_the_bump_is_quick() -> None:
    assert measure() <= LIMIT


if __name__ == "__main__":
    measured = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    print(f"{'PASS' if measured <= LIMIT else 'FAIL'}  bump / papermill {measured:.2f}  (at most {LIMIT:g})")
    sys.exit(measured > LIMIT)
