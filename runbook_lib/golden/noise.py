"""The noise of each test's times, memory and zeros, learned from its past changes.

A test has few versions, so its variance is shrunk towards the usual one (SCALES).  The shift that a change
shares with the other files of its commit and platform is subtracted first.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from runbook_lib.golden.history import GoldenHistory
from runbook_lib.text.recipes.file_names import GoldenFileName

#: The minimum number of files for a platform's common shift, and the factor from median deviation to sigma.
COMMON, SIGMA = 4, 1.4826
#: The usual standard deviation of a test's change, and of a platform's common shift, by metric.
SCALES = {
    "iteration-time": 0.0288, "mem-allocated-bytes": 0.00265, "mem-max-allocated-bytes": 0.002, "num-zeros": 0.0168,
    "throughput": 0.15, "": 0.06,
}  # fmt: skip
SHIFTS = {
    "iteration-time": 0.0233, "mem-allocated-bytes": 0.01, "mem-max-allocated-bytes": 0.01, "num-zeros": 0.01, "": 0.05,
}  # fmt: skip
#: The weight of the prior, in numbers of changes.
_OF_PRIOR = 3.0
_FLOORS = {"mem-allocated-bytes": 0.004, "mem-max-allocated-bytes": 0.004, "num-zeros": 0.03}
_FLOOR = 0.015


@dataclass(frozen=True)
class NoiseModel:
    """Past changes by (file, metric), the oldest first, without the shift of their platform.

    ``losses``: by file and loss the past changes as multiples of their limits.
    """

    residuals: Mapping[tuple[str, str], Sequence[float]]
    losses: Mapping[tuple[str, str], Sequence[float]]

    def scale(self, file: str, metric: str) -> float:
        """Return the standard deviation of a test's change, robust and shrunk towards the usual one."""
        past, prior = self.residuals.get((file, metric), ()), SCALES.get(metric, SCALES[""])
        limit = 3 * max(prior, SIGMA * median(map(abs, past)) if len(past) >= COMMON else 0.0)
        total = sum(min(abs(change), limit) ** 2 for change in past)
        variance = (_OF_PRIOR * prior**2 + total) / (_OF_PRIOR + len(past))
        return max(math.sqrt(variance), _FLOORS.get(metric, _FLOOR))

    def similar(self, file: str, metric: str, change: float) -> tuple[int, int]:
        """Return the number of past changes of a test that were at least as large, in either direction, and of all."""
        past = self.residuals.get((file, metric), ())
        return sum(abs(residual) >= abs(change) for residual in past), len(past)


def platform_of(file: str) -> str:
    """Return the platform of a golden file, with the environment if it is not dev."""
    name = GoldenFileName.parse(file.rpartition("/")[2])
    if name is None:
        return ""
    return name.platform if name.environment == "dev" else f"{name.environment}_{name.platform}".rstrip("_")


def learn(history: GoldenHistory, renamed: Mapping[str, str]) -> NoiseModel:
    """Learn the noise of each test from the history; ``renamed`` maps old file names to new ones."""
    by_commit: dict[tuple[int, str, str], list[tuple[str, float]]] = defaultdict(list)
    losses: dict[tuple[str, str], list[float]] = defaultdict(list)
    for past in history.changes:
        file = renamed.get(past.file, past.file)
        for metric, excess in past.losses.items():
            losses[file, metric].append(excess)
        for metric, change in past.costs.items():
            by_commit[past.order, platform_of(past.file), metric].append((file, change))
    residuals: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (_, _, metric), changes in by_commit.items():
        shift = median(change for _, change in changes) if len(changes) >= COMMON else 0.0
        for file, change in changes:
            residuals[file, metric].append(change - shift)
    return NoiseModel(residuals, losses)
