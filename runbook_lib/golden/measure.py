"""Measures of a metric's drift: the signed mean known to reviewers, and the largest change of a step."""

import math
from dataclasses import dataclass
from statistics import median

from runbook_lib.golden import ci_rules
from runbook_lib.golden.values import GoldenValues, Steps


@dataclass(frozen=True)
class Measure:
    """The drift of one metric of one file.

    ``avg_rel_diff`` is the signed mean of (old − new) / old over the ``n_steps`` shared steps with finite values and
    \\|old| ≥ 1e-12; ``max_abs`` is the maximum of its absolute value per step.  ``ratio`` is new to old as the metric
    is judged (times: median of the steady window; memory: the worse of median and maximum).  None if nothing can be
    compared.
    """

    file: str
    metric: str
    n_steps: int
    avg_rel_diff: float | None
    max_abs: float | None
    ratio: float | None = None


def measure(file: str, metric: str, old: Steps, new: Steps) -> Measure:
    """Measure one metric, as described in Measure."""
    before, after = _shared_values(old, new)
    ratio = _ratio(metric, old, new, before, after)
    differences = [(a - b) / a for a, b in zip(before, after, strict=True) if a >= 1e-12 or a <= -1e-12]
    if not differences:
        return Measure(file, metric, 0, None, None, ratio)
    mean = sum(differences) / len(differences)
    return Measure(file, metric, len(differences), mean, max(map(abs, differences)), ratio)


def _shared_values(old: Steps, new: Steps) -> tuple[list[float], list[float]]:
    """Return the old and new values of the shared steps, in order, if both are finite."""
    if list(old) == list(new):
        before, after = list(old.values()), list(new.values())
        if math.isfinite(sum(before)) and math.isfinite(sum(after)):
            return before, after
    before, after = [], []
    for step in sorted(old.keys() & new.keys()):
        if math.isfinite(old[step]) and math.isfinite(new[step]):
            before.append(old[step])
            after.append(new[step])
    return before, after


def _ratio(metric: str, old: Steps, new: Steps, before: list[float], after: list[float]) -> float | None:
    if not before:
        return None
    if "time" in metric:
        window = [step for step in ci_rules.steady_steps(old) if math.isfinite(new.get(step, math.inf))]
        if window:
            old_time, new_time = ci_rules.steady_time(old, window), ci_rules.steady_time(new, window)
        else:
            old_time, new_time = median(before), median(after)
        return new_time / old_time if old_time > 0 else None
    if metric.startswith("mem-") and min(before) > 0:
        return max(median(after) / median(before), max(after) / max(before))
    return None


def cost_changes(old: GoldenValues, new: GoldenValues) -> dict[str, float]:
    """Return the log ratio of new to old for each time, memory and number of zeros; positive for lower throughput."""
    changes: dict[str, float] = {}
    for metric in old.series.keys() & new.series.keys():
        before, after = _shared_values(old.series[metric], new.series[metric])
        if metric == "num-zeros" and before and min(*before, *after) >= 0:
            changes[metric] = math.log((median(after) + 1) / (median(before) + 1))
        elif ratio := _ratio(metric, old.series[metric], new.series[metric], before, after):
            changes[metric] = math.log(ratio)
    for metric in old.run_metrics.keys() & new.run_metrics.keys():
        numbers = ci_rules.typical(old.run_metrics[metric]), ci_rules.typical(new.run_metrics[metric])
        if None in numbers or not all(number and 0 < number < math.inf for number in numbers):
            continue
        change = math.log(numbers[1] / numbers[0])  # type: ignore[operator]
        if metric == "throughput":
            changes[metric] = -change
        elif metric.startswith("mem-") or "timing" in metric:
            changes[metric] = change
    return {metric: change for metric, change in sorted(changes.items()) if math.isfinite(change)}
