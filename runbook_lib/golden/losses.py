"""The change of a loss between two runs of one test: noise that grows with the steps, or a different training.

A new image changes the rounding of sums, so losses agree best at first, and the differences grow.  Past images show how
far (``priors.json``): the first steps have a constant envelope; the envelope of later steps grows with the square root
of the step.  Single steps of a long run are too noisy, so the mean over a window of steps has a separate limit, and
counts if a paired test shows that it differs from zero.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from runbook_lib.golden.ci_rules import RL_LOSS
from runbook_lib.golden.priors import PRIORS
from runbook_lib.golden.values import GoldenValues, Steps

_FIRST_STEPS, _STABLE_STEPS = 5, 100
#: Steps in a window, and the number of standard errors by which its mean must differ from zero.
_WINDOW, _ERRORS = 25, 4.0
#: Number of last steps that must all be outside the band for a loss to have diverged.
_DIVERGED = 3
#: Larger changes count as this, so that sums stay finite.
_LARGEST = 1e6


@dataclass(frozen=True)
class LossChange:
    """``excess``: the largest multiple of a limit, reached at ``step``, where the loss changed by ``size`` (relative).

    ``tail``: the mean change over the last tenth of the steps (at least 5).
    ``limits`` are by step.  ``leaves`` is the step at which the loss leaves its band, 0 if it never does; it
    ``diverges`` if it does not return.  ``old`` and ``new`` are the values by step.
    """

    excess: float
    step: int
    size: float
    tail: float
    limits: Steps = field(default_factory=dict)
    leaves: int = 0
    diverges: bool = False
    old: Steps = field(default_factory=dict, repr=False)
    new: Steps = field(default_factory=dict, repr=False)


def is_loss(metric: str) -> bool:
    """Return True if a metric is a loss with a value per step."""
    return "loss" in metric and "scale" not in metric


def loss_change(old: Steps, new: Steps, *, rl: bool = False) -> LossChange | None:
    """Measure the change of a loss over the shared steps; None if no shared step is finite.

    ``rl``: the test is a reinforcement-learning test, whose losses CI compares with a different tolerance.
    """
    steps, changes = _changes(old, new)
    if not steps:
        return None
    worst = (0.0, steps[0], 0.0)
    limits: dict[int, float] = {}
    outside: list[int] = []
    last_run = 0  # the number of consecutive steps outside the band, up to the current one
    for position, (step, change) in enumerate(zip(steps, changes, strict=True)):
        limit = RL_LOSS
        if not rl:
            limit = PRIORS.first_loss if position < _FIRST_STEPS else PRIORS.loss * math.sqrt(max(1.0, step / 100))
        limits[step] = limit
        excess = abs(change) / limit
        if excess > worst[0]:
            worst = excess, step, change
        last_run += 1
        if excess > 1:
            outside.append(step)
        else:
            last_run = 0
    if steps[-1] > _STABLE_STEPS and not rl:
        for start in range(0, len(steps) - _WINDOW + 1, _WINDOW // 2):
            mean, error = _mean_and_error(changes[start : start + _WINDOW])
            excess = abs(mean) / PRIORS.window_loss
            if abs(mean) > _ERRORS * error and excess > worst[0]:
                worst = excess, steps[start], mean
    diverges = last_run >= min(_DIVERGED, len(steps))
    leaves = 0
    if outside:
        leaves = outside[-last_run if diverges else 0]
    tail = changes[-max(5, len(changes) // 10) :]
    return LossChange(*worst, fmean(tail), limits, leaves, diverges, old, new)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return a mean and its standard error, 0 for a single value; much faster than ``statistics.stdev``."""
    mean, count = fmean(values), len(values)
    return mean, math.dist(values, [mean] * count) / math.sqrt(count * max(count - 1, 1))


def _changes(old: Steps, new: Steps) -> tuple[list[int], list[float]]:
    """Return the shared steps, in order, with the change relative to the old value.

    Values near zero count as a hundredth of the largest, because a ratio to them is meaningless.
    """
    steps = [step for step in sorted(old.keys() & new.keys()) if math.isfinite(old[step]) and math.isfinite(new[step])]
    floor = max((abs(old[step]) for step in steps), default=0.0) / 100 or 1e-12
    changes = [(new[step] - old[step]) / max(abs(old[step]), floor) for step in steps]
    return steps, [max(-_LARGEST, min(_LARGEST, change)) for change in changes]


def fingerprint(golden: GoldenValues) -> int:
    """Return a number that is equal for equal losses; 0 for a file without losses."""
    losses = [sorted(steps.items()) for metric, steps in sorted(golden.series.items()) if is_loss(metric)]
    return zlib.crc32(repr(losses).encode()) if losses else 0
