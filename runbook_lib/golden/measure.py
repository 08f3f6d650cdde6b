"""The change of a metric between two runs of one test: mean drift, a ratio for costs, and limits for losses.

A Judgement is the verdict on one file.

A new image changes the rounding of sums, so losses agree best at first, and the differences grow: the envelope that
past images kept is constant at first, and later grows with the square root of the step.  Single steps of a long run are
too noisy, so the mean over a window of steps has a separate limit, and counts if it surely differs from zero.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from statistics import fmean, median
from typing import Any, Literal, get_args

from runbook_lib.decisions import DIVERGENCE, LOST
from runbook_lib.golden import ci_rules
from runbook_lib.golden.values import GoldenValues, Steps

#: The relative changes of a loss, at a step up to 100 and of the mean over a window of steps, that past images kept.
LOSS, WINDOW_LOSS = 0.001, 0.002
_STABLE_STEPS = 100
#: Steps in a window, and the number of standard errors by which its mean must differ from zero.
_WINDOW, _ERRORS = 25, 4.0
#: Number of last steps that must all be outside the band for a loss to have diverged.
_DIVERGED = 3
#: Larger changes count as this, so that sums stay finite.
_LARGEST = 1e6


Verdict = Literal["refused", "held back", "ambiguous", "refresh", "renamed", "unchanged"]
#: The most urgent first.
VERDICTS: Sequence[Verdict] = get_args(Verdict)
#: Verdicts that prevent a file from being written until a person, or another run, has decided.
STOPPED = ("ambiguous", "held back", "refused")
#: Weights of reasons without a limit.
MISSING, CHANGED = 2.0, 1.5


@dataclass(frozen=True)
class Measure:
    """The drift of one metric of one file.

    ``avg_rel_diff`` is the signed mean of (old − new) / old over the ``n_steps`` shared steps with finite values and
    |old| ≥ 1e-12; ``max_abs`` is the maximum of its absolute value per step.  None if nothing can be compared.
    """

    file: str
    metric: str
    n_steps: int
    avg_rel_diff: float | None
    max_abs: float | None

    @property
    def is_hidden(self) -> bool:
        """True if the signed mean hides that a step changed by much."""
        return self.avg_rel_diff is not None and abs(self.avg_rel_diff) < 1e-3 and (self.max_abs or 0.0) > 0.05


@dataclass(frozen=True)
class LossChange:
    """``excess``: the largest multiple of a limit, reached at ``step``, where the loss changed by ``size`` (relative).

    ``limits`` are by step.  ``leaves`` is the step at which the loss leaves its band, 0 if it never does; it
    ``diverges`` if it does not return.  ``old`` and ``new`` are the values by step.
    """

    excess: float
    step: int
    size: float
    limits: Steps = field(default_factory=dict)
    leaves: int = 0
    diverges: bool = False
    old: Steps = field(default_factory=dict, repr=False)
    new: Steps = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ReviewReason:
    """A reason for a person's review; ``weight`` is the multiple of the limit, and determines the order of display.

    ``kind`` is equal for reasons that may have a common cause in many files.  ``ambiguous``: another run would decide.
    """

    metric: str
    sentence: str
    weight: float = 1.0
    kind: str = ""
    ambiguous: bool = False


@dataclass(frozen=True)
class Judgement:
    """The verdict on one file.  ``ci``: the metrics for which CI would fail it.

    ``costs`` are log ratios of new to old for times, memory and zeros, positive if worse.
    ``group``: the decision on many files that this one waits for.  ``accepted``: the reason why a person accepted the
    file.
    """

    file: str
    verdict: Verdict
    reasons: tuple[ReviewReason, ...] = ()
    measures: tuple[Measure, ...] = ()
    ci: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    accepted: str = ""
    costs: Mapping[str, float] = field(default_factory=dict)
    losses: Mapping[str, LossChange] = field(default_factory=dict)
    group: str = ""

    @classmethod
    def of(cls, file: str, reasons: Iterable[ReviewReason], **more: Any) -> "Judgement":
        """Return the judgement of a changed file, which is held back if a reason was found."""
        found = tuple(reasons)
        return cls(file, "held back" if found else "refresh", found, **more)

    @property
    def danger(self) -> str:
        """The danger of accepting the file: its loss diverges, or it lost a metric or steps; empty if there is none."""
        if any(change.diverges and change.excess > 1 for change in self.losses.values()):
            return DIVERGENCE
        is_lost = any(reason.kind in ("gone", "steps") for reason in self.reasons)
        return LOST if is_lost else ""

    @property
    def weight(self) -> float:
        """The weight of the worst reason."""
        return max((reason.weight for reason in self.reasons), default=0.0)

    @property
    def sentence(self) -> str:
        """All reasons, the worst first."""
        return "; ".join(f"{reason.metric}: {reason.sentence}".removeprefix(": ") for reason in self.reasons)


def shared_steps(old: Steps, new: Steps) -> list[int]:
    """Return the steps with finite values on both sides, in order."""
    return [step for step in sorted(old.keys() & new.keys()) if math.isfinite(old[step]) and math.isfinite(new[step])]


def measure(file: str, metric: str, old: Steps, new: Steps) -> Measure:
    """Measure one metric, as described in Measure."""
    steps = [step for step in shared_steps(old, new) if abs(old[step]) >= 1e-12]
    differences = [(old[step] - new[step]) / old[step] for step in steps]
    if not differences:
        return Measure(file, metric, 0, None, None)
    return Measure(file, metric, len(steps), sum(differences) / len(steps), max(map(abs, differences)))


def cost_changes(old: GoldenValues, new: GoldenValues) -> dict[str, float]:
    """Return the log ratio of new to old for each time, memory and number of zeros; positive for lower throughput."""
    changes: dict[str, float] = {}
    for metric in old.series.keys() & new.series.keys():
        changes[metric] = _cost(metric, old.series[metric], new.series[metric])
    for metric in old.run_metrics.keys() & new.run_metrics.keys():
        before, after = ci_rules.typical(old.run_metrics[metric]), ci_rules.typical(new.run_metrics[metric])
        if metric == "throughput":
            changes[metric] = -_log_ratio(before, after)
        elif metric.startswith("mem-") or "timing" in metric:
            changes[metric] = _log_ratio(before, after)
    return {metric: change for metric, change in sorted(changes.items()) if math.isfinite(change)}


def _log_ratio(old: float | None, new: float | None) -> float:
    """Return NaN if there is no ratio."""
    return math.log(new / old) if old and new and 0 < old < math.inf and 0 < new / old < math.inf else math.nan


def _cost(metric: str, old: Steps, new: Steps) -> float:
    """Return the log ratio as a metric is judged: time in the steady window, the worse of median and peak memory."""
    is_time, is_memory = "time" in metric, metric.startswith("mem-")
    steps = shared_steps(old, new) if is_time or is_memory or metric == "num-zeros" else []
    if is_time:
        steps = [step for step in ci_rules.steady_steps(old) if step in steps] or steps
    if not steps:
        return math.nan
    before, after = [old[step] for step in steps], [new[step] for step in steps]
    if is_time:
        return _log_ratio(median(before), median(after))
    if is_memory:
        if min(before) <= 0:
            return math.nan
        return max(_log_ratio(median(before), median(after)), _log_ratio(max(before), max(after)))
    if min(*before, *after) < 0:
        return math.nan
    return _log_ratio(median(before) + 1, median(after) + 1)


def is_loss(metric: str) -> bool:
    """Return True if a metric is a loss with a value per step."""
    return "loss" in metric and "scale" not in metric


def loss_change(old: Steps, new: Steps, *, rl: bool = False) -> LossChange | None:
    """Measure the change of a loss over the shared steps; None if no shared step is finite.

    Values near zero count as a hundredth of the largest, because a ratio to them is meaningless.  ``rl``: the test is a
    reinforcement-learning test, whose losses CI compares with a different tolerance.
    """
    steps = shared_steps(old, new)
    if not steps:
        return None
    floor = max(abs(old[step]) for step in steps) / 100 or 1e-12
    changes = [(new[step] - old[step]) / max(abs(old[step]), floor) for step in steps]
    changes = [max(-_LARGEST, min(_LARGEST, change)) for change in changes]
    limits = {step: ci_rules.RL_LOSS if rl else LOSS * math.sqrt(max(1.0, step / 100)) for step in steps}
    found = [(abs(change) / limits[step], step, change) for step, change in zip(steps, changes, strict=True)]
    worst = max(found, key=itemgetter(0))
    if steps[-1] > _STABLE_STEPS and not rl:
        for start in range(0, len(steps) - _WINDOW + 1, _WINDOW // 2):
            mean, error = _mean_and_error(changes[start : start + _WINDOW])
            if abs(mean) > _ERRORS * error:
                worst = max(worst, (abs(mean) / WINDOW_LOSS, steps[start], mean), key=itemgetter(0))
    outside = [step for excess, step, _ in found if excess > 1]
    last_inside = max((step for excess, step, _ in found if excess <= 1), default=-math.inf)
    end = [step for step in outside if step > last_inside]
    diverges = len(end) >= min(_DIVERGED, len(steps))
    leaves = next(iter(end if diverges else outside), 0)
    return LossChange(*worst, limits, leaves, diverges, old, new)


def loss_changes(old: GoldenValues, new: GoldenValues, *, rl: bool = False) -> dict[str, LossChange]:
    """Measure the change of each loss that both have."""
    changes = {}
    for metric, steps in old.series.items():
        if is_loss(metric) and (change := loss_change(steps, new.series.get(metric, {}), rl=rl)):
            changes[metric] = change
    return changes


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return a mean and its standard error, 0 for a single value; much faster than ``statistics.stdev``."""
    mean, count = fmean(values), len(values)
    return mean, math.dist(values, [mean] * count) / math.sqrt(count * max(count - 1, 1))
