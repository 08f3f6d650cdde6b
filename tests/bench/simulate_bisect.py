"""The real search against simulated runs."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
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
        """Read a scenario."""
        values = {**_DEFAULTS, **data}
        tags, components, culprits = (tuple(values[key]) for key in ("tags", "components", "culprits"))
        problem = Problem(tags, dict.fromkeys(tags, components), values["higher_is_better"], values["budget"])
        good = (values["good"]["mean"], values["good"]["cv"], 1.0)
        bad = tuple((mean, cv, weight) for mean, cv, weight in values["bad"]["modes"])
        return cls(problem, culprits, tags.index(values["changed_at"], 1), (good,), bad)

    def run(self, point: Point, generator: random.Random) -> float:
        """Return one simulated value of a point."""
        is_bad = self.problem.tags.index(point.tag) >= self.changed and point.restored not in self.culprits
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
        ledger.append(Trial(answer, "value", scenario.run(answer, generator)))
    return answer, ledger
