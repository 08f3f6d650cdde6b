"""How long a practice bump takes from opening the start page to *Ready to merge*, without CI, by clicks and keys.

    environment/run python tests/bench/bench_walk.py [REPEATS]

or ``environment/run pytest -n0 tests/bench/bench_walk.py``: at most 60 seconds and 12 inputs, with two idle cores.
"""

import runpy
import statistics
import sys
from contextlib import contextmanager
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "browser"), str(Path(__file__).resolve().parents[1])]

from lab import Tab  # noqa: E402 - of the browser's tests
from walk import Walk, walk  # noqa: E402

# Under pytest the name conftest stands for another file.
_fixtures = runpy.run_path(str(Path(__file__).resolve().parents[1] / "browser/conftest.py"))
server, browser = _fixtures["server"], _fixtures["browser"]

SECONDS, INPUTS = 60.0, 12


def measure(repeats: int = 3) -> Walk:
    """Print each walk, and return the most inputs and the median time."""
    walks = []
    for _ in range(repeats):
        with (
            contextmanager(server.__wrapped__)() as lab,
            contextmanager(browser.__wrapped__)() as chromium,
            chromium.new_context(viewport={"width": 1280, "height": 800}) as context,
        ):
            walks.append(walk(lab, Tab(lab, context.new_page())))
        print(walks[-1], flush=True)
    return Walk(max(each.inputs for each in walks), statistics.median(each.seconds for each in walks))


def test_a_bump_is_done_in_a_minute() -> None:
    median = measure()
    assert median.seconds <= SECONDS
    assert median.inputs <= INPUTS


if __name__ == "__main__":
    median = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
    passed = median.seconds <= SECONDS and median.inputs <= INPUTS
    print(f"{'PASS' if passed else 'FAIL'}  median {median}  (at most {INPUTS} and {SECONDS:g} s)")
    sys.exit(not passed)
