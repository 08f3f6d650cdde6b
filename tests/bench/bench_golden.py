"""The time of comparing all golden files of a full clone at two commits, against reading and JSON-parsing them.

    environment/run python tests/bench/bench_golden.py CLONE [OLD NEW]

or, with the clone named by MEGATRON_LM: ``environment/run pytest -n0 tests/bench/bench_golden.py``.
Targets: at most 1.5 and 2 times.  Both are measured in this process, in turns.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runbook_lib.golden import summary
from runbook_lib.golden.diff import compare, of_revision

#: Two commits, and the ratio that they may take: a bump, where nearly all files are equal, and half a year, where
#: nearly all differ.
PAIRS = (("5fe3f06658^", "5fe3f06658", 1.5), ("f5b2ec0130", "d98e8a64", 2.0))


def read_and_parse(clone: Path, *refs: str) -> None:
    """Do what any comparison has to do: read both sides' files from git, and parse each once."""
    for ref in refs:
        for content in of_revision(clone, ref).contents.values():
            if content.strip():
                json.loads(content)


def judged(clone: Path, *refs: str) -> None:
    """Do all that ``runbook golden diff`` does, but for printing."""
    verdicts = compare(*(of_revision(clone, ref) for ref in refs))
    summary.markdown(verdicts)
    summary.rows(verdicts.judgements)


def seconds(function: Callable[..., None], *arguments: object) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def measure(clone: Path, pairs: tuple[tuple[str, str, float], ...] = PAIRS, rounds: int = 5) -> bool:
    """Print the ratios and whether they meet the target."""
    met = True
    for old, new, target in pairs:
        pair = (old, new)
        times = [(seconds(read_and_parse, clone, *pair), seconds(judged, clone, *pair)) for _ in range(rounds)]
        ratio = statistics.median(ours / plain for plain, ours in times)
        plain, ours = (statistics.median(side) for side in zip(*times, strict=True))
        verdict = "PASS" if ratio <= target else "FAIL"
        print(
            f"{verdict} {old}..{new}: compared in {ours:.2f} s, read and parsed in {plain:.2f} s: "
            f"{ratio:.2f} times (at most {target})"
        )
        met = met and ratio <= target
    return met


def test_comparison(megatron_lm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        assert measure(megatron_lm)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clone", nargs="?", default=os.environ.get("MEGATRON_LM"), help="a full clone of Megatron-LM")
    parser.add_argument("commits", nargs="*", help="two commits; without them, two pairs with known contrast")
    options = parser.parse_args()
    if not options.clone or len(options.commits) not in (0, 2):
        parser.error("name a clone, or set MEGATRON_LM, and no commits or two")
    chosen = ((*options.commits, PAIRS[-1][-1]),) if options.commits else PAIRS
    sys.exit(0 if measure(Path(options.clone), chosen) else 1)
