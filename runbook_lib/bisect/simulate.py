"""The real search against simulated runs: ``python -m runbook_lib.bisect.simulate SCENARIO.toml --seeds N``."""

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

from runbook_lib.bisect.model import MAX_RUNS
from runbook_lib.bisect.search import Conclusion, Point, Problem, Run, advance
from runbook_lib.errors import RunbookError

Outcome = Literal["right", "wrong", "undecided"]


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
        """Read a scenario; unknown keys are ignored.  Raises RunbookError for a key that is missing or invalid."""
        try:
            tags, components = tuple(map(str, data["tags"])), tuple(map(str, data.get("components", ())))
            culprits = tuple(map(str, data.get("culprits", ())))
            problem = Problem(tags, components, bool(data.get("higher_is_better", True)), int(data.get("budget", 40)))
            good = (float(data["good"]["mean"]), float(data["good"]["cv"]), 1.0)
            bad = tuple((float(mean), float(cv), float(weight)) for mean, cv, weight in data["bad"]["modes"])
            changed = tags.index(str(data["changed_at"]))
        except KeyError as error:
            raise RunbookError(f"The scenario has no {error}.") from None
        except (TypeError, ValueError) as error:
            raise RunbookError(f"The scenario is invalid: {error}.") from None
        numbers = [number for mode in (good, *bad) for number in mode]
        if not all(map(math.isfinite, numbers)) or min(weight for _, _, weight in [good, *bad]) <= 0:
            raise RunbookError("The scenario is invalid: means and noise must be finite, and weights positive.")
        if len({*tags}) < len(tags) or len({*components}) < len(components):
            raise RunbookError("The scenario is invalid: it names a tag or component twice.")
        if changed == 0 or not bad or not 1 <= problem.budget <= MAX_RUNS or set(culprits) - set(components):
            raise RunbookError(
                "The scenario is invalid: changed_at must not be the first tag, bad needs a mode, budget must be "
                f"1 to {MAX_RUNS}, and culprits must be among the components."
            )
        return cls(problem, culprits, changed, (good,), bad)

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


def search(scenario: Scenario, seed: int) -> tuple[Conclusion, list[Run]]:
    """Search with simulated runs; return the conclusion and the ledger."""
    generator, ledger = random.Random(seed), list[Run]()
    while isinstance(answer := advance(scenario.problem, ledger), Point):
        ledger.append(Run(answer, scenario.run(answer, generator)))
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
    parser = argparse.ArgumentParser(prog="python -m runbook_lib.bisect.simulate", description=__doc__)
    parser.add_argument("scenario", type=Path, help="a TOML file; docs/bisect.md describes it")
    parser.add_argument("--seeds", type=int, default=100, help="number of simulated searches (default: 100)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error("--seeds must be at least 1")
    try:
        scenario = Scenario.read(tomllib.loads(options.scenario.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        print(f"{options.scenario} could not be read: {error}", file=sys.stderr)
        return 2
    except RunbookError as error:
        print(f"{options.scenario}: {error}", file=sys.stderr)
        return 2
    result = simulate(scenario, range(options.first_seed, options.first_seed + options.seeds))
    if options.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{name:12} {number}" for name, number in result.items() if name != "version"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
