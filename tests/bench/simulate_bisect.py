"""The real search against simulated runs: ``python tests/bench/simulate_bisect.py SCENARIO.toml --seeds N``."""

import argparse
import json
import math
import random
import statistics
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runbook_lib.bisect.model import MAX_RUNS
from runbook_lib.bisect.search import Conclusion, Point, Problem, Trial, advance
from runbook_lib.errors import RunbookError

Outcome = Literal["right", "wrong", "undecided"]
_DEFAULTS = {"components": [], "culprits": [], "higher_is_better": True, "budget": 40}


def _are_names(value: object) -> bool:
    return (
        isinstance(value, list | tuple) and all(isinstance(name, str) for name in value) and len({*value}) == len(value)
    )


def _are_numbers(values: Sequence[object]) -> bool:
    return all(type(value) in (int, float) and abs(value) < 1e100 for value in values)  # type: ignore[arg-type]


def _is_mode(value: object) -> bool:
    return (
        isinstance(value, list | tuple) and len(value) == 3 and _are_numbers(value) and value[1] >= 0 and value[2] > 0
    )


def _is_good(value: object) -> bool:
    return isinstance(value, dict) and _is_mode([value.get("mean"), value.get("cv"), 1])


def _is_bad(value: object) -> bool:
    modes = value.get("modes") if isinstance(value, dict) else None
    return isinstance(modes, list | tuple) and bool(modes) and all(map(_is_mode, modes))


_KEYS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "tags": (lambda value: _are_names(value) and len(value) > 1, "two or more different tags, the oldest first"),
    "components": (_are_names, "a list of different names"),
    "culprits": (_are_names, "a list of different names"),
    "changed_at": (lambda value: isinstance(value, str), "the first tag that has the change"),
    "higher_is_better": (lambda value: isinstance(value, bool), "true or false"),
    "budget": (lambda value: type(value) is int and 1 <= value <= MAX_RUNS, f"1 to {MAX_RUNS} runs"),
    "good": (_is_good, "{mean = …, cv = …}, with a cv of at least 0"),
    "bad": (_is_bad, "{modes = [[mean, cv, weight], …]}, with cvs of at least 0 and weights above 0"),
}


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
        values = {**_DEFAULTS, **data}
        for key, (is_valid, expected) in _KEYS.items():
            if key not in values:
                raise RunbookError(f"The scenario has no {key}; expected {expected}.")
            if not is_valid(values[key]):
                raise RunbookError(f"{key} is {str(values[key])[:80]!r}; expected {expected}.")
        tags, components, culprits = (tuple(values[key]) for key in ("tags", "components", "culprits"))
        if values["changed_at"] not in tags[1:]:
            raise RunbookError(f"changed_at is {values['changed_at']!r}; expected one of the tags after the first.")
        if unknown := sorted(set(culprits) - set(components)):
            raise RunbookError(f"culprits has {', '.join(unknown)}, which components does not have.")
        problem = Problem(tags, components, values["higher_is_better"], values["budget"])
        good = (values["good"]["mean"], values["good"]["cv"], 1.0)
        return cls(
            problem, culprits, tags.index(values["changed_at"]), (good,), tuple(map(tuple, values["bad"]["modes"]))
        )

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
