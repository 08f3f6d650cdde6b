"""The time of ``runbook pins discover`` on a full clone, against ``git grep`` measured beside it.

    environment/run python tests/bench/bench_discover.py CLONE …

or, with a clone named by MEGATRON_LM: ``environment/run pytest -n0 tests/bench/bench_discover.py``.
The targets: without history at most 3 times ``git grep -n`` for the names of the images, the interpreter's start
excluded, on HEAD and on the work tree where there is one; with history at most 10 seconds.  Beside them stands
``git grep -n -F``, which takes the names for no patterns and is several times quicker; it is shown, and not judged.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runbook_lib.git.checkout import Checkout
from runbook_lib.images.families import FAMILIES

TARGET, SECONDS = 3.0, 10.0
_NAMES = [part for family in FAMILIES for image in family.images for part in ("-e", image)]
# Starts its clock as its first act, so that only the interpreter's own start is left out.
_CHILD = """
import time
start = time.perf_counter()
import os, sys
from runbook_lib.cli.__main__ import main
sys.stdout = open(os.devnull, "w")
status = main(["pins", "discover", *sys.argv[1:]])
sys.stderr.write(f"{time.perf_counter() - start}\\n{status}")
"""


def discover(clone: Path, *options: str) -> float:
    """Seconds of one discovery in a fresh interpreter, the draft included."""
    command = [sys.executable, "-c", _CHILD, str(clone), *options]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True)
    seconds, status = done.stderr.splitlines()[-2:]
    assert status in ("0", "2"), done.stderr  # 2: large files are missing from a partial clone
    return float(seconds)


def grep(clone: Path, *options: str) -> float:
    """Seconds of one ``git grep -n``; options are further ones, and a ref."""
    start = time.perf_counter()
    subprocess.run(["git", "-C", str(clone), "grep", "-n", *_NAMES, *options], capture_output=True, check=True)
    return time.perf_counter() - start


def measure(clone: Path, rounds: int = 9) -> list[tuple[str, float, float]]:
    """Name, result and target of each comparison; the parts of a round run one after the other."""
    place = Checkout.open(clone)
    runs: dict[str, Callable[[], float]] = {
        "git grep HEAD": lambda: grep(place.path, "HEAD"),
        "git grep -F HEAD": lambda: grep(place.path, "-F", "HEAD"),
        "discover HEAD": lambda: discover(place.path, "--no-history", "--ref", "HEAD"),
    }
    if not place.bare:
        runs["git grep"] = lambda: grep(place.path)
        runs["git grep -F"] = lambda: grep(place.path, "-F")
        runs["discover"] = lambda: discover(place.path, "--no-history")
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            seconds = run()
            if turn:  # the first round only warms the caches
                taken[name].append(seconds)
    taken["history"] = [discover(place.path, "--ref", "HEAD") for _ in range(min(rounds, 3))]
    median = {name: statistics.median(seconds) for name, seconds in taken.items()}
    for name, seconds in taken.items():
        print(
            f"{name:16} median {median[name] * 1000:6.1f} ms   ({min(seconds) * 1000:.1f} to {max(seconds) * 1000:.1f})"
        )
    for name in [name for name in ("discover HEAD", "discover") if name in median]:
        quick = name.replace("discover", "git grep -F")
        print(f"      {name} / {quick}: {median[name] / median[quick]:.2f}, not judged")
    compared = [("discover HEAD", "git grep HEAD"), ("discover", "git grep")]
    judged = [(f"{one} / {other}", median[one] / median[other], TARGET) for one, other in compared if one in median]
    return [*judged, ("seconds with history", median["history"], SECONDS)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clone", type=Path, nargs="+", help="a full clone, with a work tree or bare")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    passed = True
    for clone in options.clone:
        print(clone)
        for name, result, target in measure(clone, options.rounds):
            print(f"{'PASS' if result <= target else 'FAIL'}  {name:30} {result:5.2f}  (at most {target:g})")
            passed = passed and result <= target
    return 0 if passed else 1


def test_discover_is_quick() -> None:
    if not (clone := os.environ.get("MEGATRON_LM")):
        pytest.skip("set MEGATRON_LM to a clone of NVIDIA/Megatron-LM")
    assert [name for name, result, target in measure(Path(clone)) if result > target] == []


if __name__ == "__main__":
    sys.exit(main())
