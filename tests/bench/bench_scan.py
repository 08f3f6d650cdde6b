"""How fast logs are scanned for all rules, beside ``grep -cF`` with the same literals, on the same files.

    environment/run python tests/bench/bench_scan.py

or ``environment/run pytest -n0 tests/bench/bench_scan.py``.  Eight rank logs of 35 MB of progress, one with a traceback
at its end; the best of three turns each.
"""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runbook_lib.triage import read_logs
from runbook_lib.triage.patterns import literals

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import bench_triage  # noqa: E402

RANKS, SIZE, SLOWER = 8, 35 * 2**20, 2.0


def measure() -> float:
    """Print the seconds of both; return how many times as long ours takes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "logs")
        folder.mkdir()
        block = bench_triage.output(random.Random(1), SIZE // 16)
        for rank in range(RANKS):
            (folder / f"rank_{rank}.log").write_text(block * 16)
        with (folder / "rank_5.log").open("a") as log:
            log.write(bench_triage.FRAME.format("x") + "torch.OutOfMemoryError: CUDA out of memory.\n")
        words = Path(place, "literals")
        words.write_bytes(b"\n".join(literals().texts))
        logs = sorted(map(str, folder.iterdir()))
        ours = theirs = float("inf")
        for _ in range(3):
            started = time.perf_counter()
            failure = read_logs.diagnose_folder(folder)
            ours = min(ours, time.perf_counter() - started)
            assert (failure.kind, failure.rank) == ("out of memory", 5)
            started = time.perf_counter()
            subprocess.run(["grep", "-cF", "-f", str(words), *logs], capture_output=True, check=False)
            theirs = min(theirs, time.perf_counter() - started)
    print(f"grep {theirs:6.2f} s\nscan {ours:6.2f} s")
    return ours / theirs


def test_scanning_takes_at_most_twice_as_long_as_grep() -> None:
    assert measure() <= SLOWER


if __name__ == "__main__":
    print(f"{measure():.2f} times as long  (at most {SLOWER:g})")
