"""The time of ``runbook check`` on a full clone, against ``git grep`` measured beside it, interpreter start excluded.

    environment/run python tests/bench/bench_check.py CLONE
Targets: a check at most 2 times ``git grep -n nvcr.io/nvidia/pytorch``, and 20 refs at most 1.8 times one.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.world.git import blobs
from runbook_lib.world.git.checkout import Checkout

GREP, REFS = 2.0, 1.8
_GREP = ("grep", "-n", "nvcr.io/nvidia/pytorch")
# Starts its clock as its first act, so that only the interpreter's own start is left out.
_CHILD = """
import time
start = time.perf_counter()
import os, sys
from runbook_lib.cli.__main__ import main
sys.stdout = open(os.devnull, "w")
status = main(["check", *sys.argv[1:]])
sys.stderr.write(f"{time.perf_counter() - start}\\n{status}")
"""


def check(clone: Path, *refs: str) -> float:
    """Seconds of one check in a fresh interpreter."""
    arguments = [part for ref in refs for part in ("--ref", ref)]
    # An installed library is compiled once, so the compiled modules are kept here too.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(clone), *arguments], env=env, stderr=subprocess.PIPE, text=True, check=True
    )
    seconds, status = done.stderr.splitlines()[-2:]
    assert status in ("0", "1", "2"), done.stderr
    return float(seconds)


def grep(clone: Path, *ref: str) -> float:
    """Seconds of one ``git grep``."""
    start = time.perf_counter()
    subprocess.run(["git", "-C", str(clone), *_GREP, *ref], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def many_refs(clone: Path, count: int = 20) -> list[str]:
    """Branches of the clone with pins, those with a matrix of their own first: nothing read for one helps another."""
    matrix = next(site.path for site in MEGATRON_LM.sites.pins if site.needs == "always")
    names = blobs.branches(clone)
    found = blobs.read_files(clone, [(name, matrix) for name in names])
    first: dict[str, str] = {}
    rest = []
    for name in names:
        if (text := found[name, matrix]) and first.setdefault(text, name) != name:
            rest.append(name)
    refs = [*first.values(), *rest][:count]
    if len(refs) < count:
        raise SystemExit(f"{clone} has only {len(refs)} branches with pins; this bench needs {count}.")
    return refs


def measure(clone: Path, rounds: int = 9) -> list[tuple[str, float, float]]:
    """Name, median ratio and target of each comparison; the parts of a round run one after the other."""
    place = Checkout.open(clone)
    refs = many_refs(place.path)
    runs: dict[str, Callable[[], float]] = {
        "git grep HEAD": lambda: grep(place.path, "HEAD"),
        "check HEAD": lambda: check(place.path, "HEAD"),
        "check 1 ref": lambda: check(place.path, refs[0]),
        "check 20 refs": lambda: check(place.path, *refs),
    }
    if not place.bare:
        runs["git grep"] = lambda: grep(place.path)
        runs["check"] = lambda: check(place.path)
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            seconds = run()
            if turn:  # the first round only warms the caches
                taken[name].append(seconds)
    median = {name: statistics.median(seconds) for name, seconds in taken.items()}
    for name, seconds in taken.items():
        print(
            f"{name:15} median {median[name] * 1000:6.1f} ms   ({min(seconds) * 1000:.1f} to {max(seconds) * 1000:.1f})"
        )
    compared = [("check HEAD", "git grep HEAD", GREP), ("check 20 refs", "check 1 ref", REFS)]
    if not place.bare:
        compared.insert(0, ("check", "git grep", GREP))
    return [(f"{one} / {other}", median[one] / median[other], target) for one, other, target in compared]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clone", type=Path, help="a full clone of NVIDIA/Megatron-LM, with a work tree or bare")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    results = measure(options.clone, options.rounds)
    for name, ratio, target in results:
        print(f"{'PASS' if ratio <= target else 'FAIL'}  {name:30} {ratio:5.2f}  (at most {target:g})")
    return 0 if all(ratio <= target for _, ratio, target in results) else 1


if __name__ == "__main__":
    sys.exit(main())
