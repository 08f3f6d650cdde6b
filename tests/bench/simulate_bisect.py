"""The real search against simulated runs: ``python tests/bench/simulate_bisect.py SCENARIO.toml --seeds N``."""

import argparse
import json
import math
import random
import statistics
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runbook_lib.bisect.search import Conclusion, Point, Problem, Trial, advance

Outcome = Literal["right", "wrong", "undecided"]
_DEFAULTS = {"components": [], "culprits": [], "higher_is_better": True, "budget": 40}


@dataclass(frozen=True)
class Scenario:
    """A simulated change.  ``good`` and ``bad``: modes as (mean, coefficient of variation, weight)."""

    problem: Problem
    culprits: tuple[str, ...]
    changed: int
    good: tuple[tuple[float, float, float], ...]
    bad: tuple[tuple[float, float, float], ...]

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "Scenario":
        """Read a scenario; unknown keys are ignored.  Raises KeyError, TypeError or ValueError."""
        values = {**_DEFAULTS, **data}
        tags, components, culprits = (tuple(values[key]) for key in ("tags", "components", "culprits"))
        if unknown := sorted(set(culprits) - set(components)):
            raise ValueError(f"culprits has {', '.join(unknown)}, which components does not have")
        problem = Problem(tags, components, values["higher_is_better"], values["budget"])
        good = (values["good"]["mean"], values["good"]["cv"], 1.0)
        bad = tuple((mean, cv, weight) for mean, cv, weight in values["bad"]["modes"])
        return cls(problem, culprits, tags.index(values["changed_at"], 1), (good,), bad)

    def run(self, point: Point, generator: random.Random) -> float:
        """Return one simulated value of a point."""
        is_bad = self.problem.tags.index(point.tag) >= self.changed and not set(point.restored) & set(self.culprits)
        modes = self.bad if is_bad else self.good
        (mode,) = generator.choices(modes, [weight for _, _, weight in modes])
        return generator.gauss(mode[0], abs(mode[0]) * mode[1])

    def judge(self, conclusion: Conclusion) -> Outcome:
        """Compare a conclusion with the truth."""
        if conclusion.verdict not in ("culprit", "tag only"):
            return "undecided"
        step = self.problem.tags[self.changed - 1], self.problem.tags[self.changed]
        is_right = set(conclusion.culprits) == set(self.culprits) and conclusion.step == step
        return "right" if is_right else "wrong"


def search(scenario: Scenario, seed: int) -> tuple[Conclusion, list[Trial]]:
    """Search with simulated runs; return the conclusion and the ledger."""
    generator, ledger = random.Random(seed), list[Trial]()
    while isinstance(answer := advance(scenario.problem, ledger), Point):
        ledger.append(Trial(answer, scenario.run(answer, generator)))
    return answer, ledger


def simulate(scenario: Scenario, seeds: Sequence[int]) -> dict[str, int]:
    """Return how often the search is right, wrong and undecided, and the runs that it took."""
    result = {"version": 1, "seeds": len(seeds), "right": 0, "wrong": 0, "undecided": 0}
    runs = []
    for seed in seeds:
        conclusion, ledger = search(scenario, seed)
        result[scenario.judge(conclusion)] += 1
        runs.append(len(ledger))
    return result | {"median_runs": math.ceil(statistics.median(runs)), "most_runs": max(runs)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 for an invalid scenario."""
    parser = argparse.ArgumentParser(prog="python tests/bench/simulate_bisect.py", description=__doc__)
    parser.add_argument("scenario", type=Path, help="a TOML file; docs/bisect.md describes it")
    parser.add_argument("--seeds", type=int, default=100, help="number of simulated searches (default: 100)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error("--seeds must be at least 1")
    try:
        scenario = Scenario.read(tomllib.loads(options.scenario.read_text("utf-8")))
    except (OSError, KeyError, TypeError, ValueError) as error:
        print(f"{options.scenario} is not a scenario as docs/bisect.md describes it: {error!r}", file=sys.stderr)
        return 2
    result = simulate(scenario, range(options.first_seed, options.first_seed + options.seeds))
    if options.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{name:12} {number}" for name, number in result.items() if name != "version"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
