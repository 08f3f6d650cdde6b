"""The time to plan a quarantine in a full clone, against parsing the one recipe that holds the test, beside it.

    environment/run python tests/bench/bench_quarantine.py CLONE

or, with the clone named by MEGATRON_LM: ``environment/run pytest -n0 tests/bench/bench_quarantine.py``.
Target: planning a flip, from the clone's files to the edit, at most 2 times parsing that recipe, in the longest recipe.
Parsing is what the project's own parser does (``yaml.safe_load``).  For information: the ratio to libyaml's loader, and
both for the recipe of middle length, where the two git processes of a plan cost more than anything that is read.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from runbook_lib.git.checkout import Checkout
from runbook_lib.recipes import quarantine
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.targets import Target, resolve

PLAN = 2.0


def samples(checkout: Checkout, ref: str) -> list[tuple[str, str, Target]]:
    """The longest recipe and the one of middle length: path, text and the last test in it that can be flipped."""
    paths = checkout.git("ls-tree", "-r", "--name-only", ref, "--", recipes.FOLDER).splitlines()
    texts = {path: text for path, text in checkout.read(paths, ref).items() if text is not None}
    found = []
    for path, text in sorted(texts.items(), key=lambda it: -len(it[1])):
        rows = [row for row in recipes.rows(path, text) if not row.fixed and row.environments and row.platforms]
        rows = [row for row in rows if any(quarantine.gating(cell.value) for cell in row.scopes)]
        if rows:
            row = rows[-1]
            target = Target(row.case, row.platforms[0], row.environments[0], row.model, "it hangs")
            found.append((path, text, target))
    if not found:
        raise SystemExit(f"{checkout.path} has no recipe with a row that could be flipped.")
    return [found[0], found[len(found) // 2]]


def plan(checkout: Checkout, ref: str, target: Target) -> None:
    """Find the recipe by its text, choose the rows, and make the edit."""
    found = checkout.git("grep", "-z", "-l", "--fixed-strings", "-e", target.case, ref, "--", recipes.FOLDER)
    paths = [path.partition(":")[2] for path in found.split("\0") if path]
    texts = {path: text for path, text in checkout.read(paths, ref).items() if text is not None}
    settled = resolve(target, [row for path, text in texts.items() for row in recipes.rows(path, text)])
    edits = [quarantine.mark(path, text, [settled], 1, whole_rows=True) for path, text in texts.items()]
    assert [edit.before != edit.after for edit in edits].count(True) == 1


def measure(clone: Path, rounds: int = 15) -> list[tuple[str, float, float | None]]:
    """Name, median ratio and target (None: for information) of each comparison."""
    checkout = Checkout.open(clone)
    ref = checkout.resolve("HEAD")
    results: list[tuple[str, float, float | None]] = []
    for number, (path, text, target) in enumerate(samples(checkout, ref)):
        print(f"{path}, {len(text) / 1000:.0f} kB, {target}")
        median = medians(checkout, ref, path, text, target, rounds)
        print("  ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in median.items()))
        for name in ("plan", "edit"):
            for beside in ("safe_load", "libyaml"):
                goal = PLAN if (number, name, beside) == (0, "plan", "safe_load") else None
                length = "middle" if number else "longest"
                results.append((f"{name} : {beside}, {length}", median[name] / median[beside], goal))
    return results


def medians(checkout: Checkout, ref: str, path: str, text: str, target: Target, rounds: int) -> dict[str, float]:
    """Seconds by name; a round runs all of them in turn."""
    fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    runs: dict[str, Callable[[], object]] = {
        "plan": lambda: plan(checkout, ref, target),
        "edit": lambda: quarantine.mark(path, text, [target], 1, whole_rows=True),
        "safe_load": lambda: yaml.safe_load(text),
        "libyaml": lambda: yaml.load(text, fast),
    }
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clone", type=Path, help="a full clone of NVIDIA/Megatron-LM, with a work tree or bare")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    results = measure(options.clone, options.rounds)
    for name, ratio, target in results:
        verdict = "    " if target is None else "PASS" if ratio <= target else "FAIL"
        print(f"{verdict}  {name:26} {ratio:5.2f}" + ("" if target is None else f"  (at most {target:g})"))
    return 0 if all(target is None or ratio <= target for _, ratio, target in results) else 1


def test_planning_a_quarantine_is_quick() -> None:
    if not (clone := os.environ.get("MEGATRON_LM")):
        pytest.skip("set MEGATRON_LM to a clone of NVIDIA/Megatron-LM")
    assert [name for name, ratio, target in measure(Path(clone)) if target is not None and ratio > target] == []


if __name__ == "__main__":
    sys.exit(main())
