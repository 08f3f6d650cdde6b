"""The noise of each test's times, memory and zeros, learned from past changes of the test and its family.

A test has few versions, so its variance is shrunk towards that of its family (the tests of one model folder), and the
family's towards the prior: empirical Bayes, with robust estimates.  The shift that a change shares with the other files
of its commit and platform is subtracted first.  The probability of a change is the share of past changes that were as
many standard deviations out, because their tails are far heavier than those of a normal distribution.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from runbook_lib.golden.history import GoldenHistory, PastChange
from runbook_lib.golden.priors import PRIORS
from runbook_lib.recipes.file_names import GoldenFileName

#: The minimum number of files for a platform's common shift, and the factor from median deviation to sigma.
COMMON, SIGMA = 4, 1.4826
#: The distance in standard deviations between two entries of PRIORS.tails.
TAIL_STEP = 0.5
#: The weights, in numbers of changes, of a family's estimate and of the prior for a family.
_OF_FAMILY, _OF_PRIOR = 3.0, 20.0
#: A loss that moved by this many limits is a different training, whose times say nothing about noise.
_OTHER_TRAINING = 20.0
_FLOORS = {"mem-allocated-bytes": 0.004, "mem-max-allocated-bytes": 0.004, "num-zeros": 0.03}
_FLOOR = 0.015


@dataclass(frozen=True)
class NoiseModel:
    """Past changes by (file, metric), the oldest first, without the shift of their platform.

    ``families``: the standard deviation of each family by (model, metric).
    ``losses``: by file and loss the past changes as multiples of their limits; ``marks``: by file the fingerprints of
    its losses, the oldest first.
    """

    residuals: Mapping[tuple[str, str], Sequence[float]]
    families: Mapping[tuple[str, str], float]
    losses: Mapping[tuple[str, str], Sequence[float]]
    marks: Mapping[str, Sequence[int]]

    def scale(self, file: str, metric: str) -> float:
        """Return the standard deviation of a test's change."""
        past = self.residuals.get((file, metric), ())
        return shrunk(past, self.family(file, metric), metric)

    def family(self, file: str, metric: str) -> float:
        """Return the standard deviation of a change in the family of a test."""
        return self.families.get((family_of(file), metric)) or prior_scale(file, metric)

    def similar(self, file: str, metric: str, change: float) -> tuple[int, int]:
        """Return the number of past changes of a test that were at least as large, in either direction, and of all."""
        past = self.residuals.get((file, metric), ())
        return sum(abs(residual) >= abs(change) for residual in past), len(past)

    def returns(self, file: str, metric: str, change: float) -> bool:
        """Return True if the change returns to an earlier level of a test, other than its last."""
        tolerance, level = self.scale(file, metric), 0.0
        for residual in reversed(self.residuals.get((file, metric), ())):
            level -= residual
            if abs(level) > 2 * tolerance and abs(change - level) <= max(2 * tolerance, 0.1 * abs(change)):
                return True
        return False


def family_of(file: str) -> str:
    """Return the family of a golden file's test: its model."""
    return file.partition("/")[0]


def platform_of(file: str) -> str:
    """Return the platform of a golden file, with the environment if it is not dev."""
    name = GoldenFileName.parse(file.rpartition("/")[2])
    if name is None:
        return ""
    return name.platform if name.environment == "dev" else f"{name.environment}_{name.platform}".rstrip("_")


def prior_scale(file: str, metric: str) -> float:
    """Return the usual standard deviation of a metric in a family."""
    of_metric = PRIORS.scales.get(metric, PRIORS.scales[""])
    return PRIORS.families.get(metric, {}).get(family_of(file), of_metric)


def shrunk(changes: Sequence[float], family: float, metric: str) -> float:
    """Return the standard deviation of a test with these past changes, shrunk towards its family's."""
    limit = 3 * max(family, SIGMA * median(map(abs, changes)) if len(changes) >= 4 else 0.0)
    total = sum(min(abs(change), limit) ** 2 for change in changes)
    variance = (_OF_FAMILY * family**2 + total) / (_OF_FAMILY + len(changes))
    return max(math.sqrt(variance), _FLOORS.get(metric, _FLOOR))


def learn(history: GoldenHistory, renamed: Mapping[str, str]) -> NoiseModel:
    """Learn the noise of each test from the history; ``renamed`` maps old file names to new ones."""
    by_commit: dict[tuple[int, str, str], list[tuple[str, float]]] = defaultdict(list)
    losses: dict[tuple[str, str], list[float]] = defaultdict(list)
    marks: dict[str, list[int]] = defaultdict(list)
    for past in history.changes:
        file = renamed.get(past.file, past.file)
        marks[file].append(past.mark)
        for metric, excess in past.losses.items():
            losses[file, metric].append(excess)
        if not is_other_training(past):
            for metric, change in past.costs.items():
                by_commit[past.order, platform_of(past.file), metric].append((file, change))
    residuals: dict[tuple[str, str], list[float]] = defaultdict(list)
    of_family: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (_, _, metric), changes in by_commit.items():
        shift = common_shift([change for _, change in changes])
        for file, change in changes:
            residuals[file, metric].append(change - shift)
            of_family[family_of(file), metric].append(abs(change - shift))
    families = {}
    for (family, metric), sizes in of_family.items():
        prior = prior_scale(f"{family}/", metric)
        variance = (_OF_PRIOR * prior**2 + len(sizes) * (SIGMA * median(sizes)) ** 2) / (_OF_PRIOR + len(sizes))
        families[family, metric] = math.sqrt(variance)
    return NoiseModel(residuals, families, losses, marks)


def is_other_training(past: PastChange) -> bool:
    """Return True if a past change moved a loss so far that the test has trained differently since."""
    return max(past.losses.values(), default=0.0) > _OTHER_TRAINING


def common_shift(changes: list[float]) -> float:
    """Return the robust location of the changes of one platform; 0 for few files."""
    return median(changes) if len(changes) >= COMMON else 0.0


def probability(z: float) -> float:
    """Return the probability of noise beyond z standard deviations, by Student's t with PRIORS.degrees (odd)."""
    angle = math.atan(z / math.sqrt(PRIORS.degrees))
    term = total = math.cos(angle)
    for factor in range(3, PRIORS.degrees, 2):
        term *= (factor - 1) / factor * math.cos(angle) ** 2
        total += term
    return max(0.5 - (angle + math.sin(angle) * total) / math.pi, sys.float_info.min)


def observed_tail(z: float, metric: str) -> float:
    """Return the observed one-sided share of past changes beyond z standard deviations, from the priors."""
    shares = PRIORS.tails.get(metric, PRIORS.tails[""])
    position = abs(z) / TAIL_STEP
    index = min(int(position), len(shares) - 2)
    fraction = min(position - index, 1.0)
    share: float = shares[index] ** (1 - fraction) * shares[index + 1] ** fraction
    return share if z >= 0 else 1 - share
