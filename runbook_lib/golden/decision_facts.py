"""The facts for a decision on golden values: the numbers and the plot."""

import math
from collections.abc import Mapping
from statistics import median

from runbook_lib.display import Picture
from runbook_lib.golden import plots
from runbook_lib.golden.form import Judgement
from runbook_lib.golden.judge import Verdicts, least_deviation
from runbook_lib.golden.values import GoldenValues, Steps

_GIB = 2.0**30


def numbers(judgement: Judgement, old: GoldenValues, new: GoldenValues) -> str:
    """Return the change in numbers with units: the old and new values, the step outside the band, and the limit."""
    clauses = []
    for reason in judgement.reasons:
        metric = reason.metric
        before, after = old.series.get(metric, {}), new.series.get(metric, {})
        shared = [step for step in before if math.isfinite(before[step]) and math.isfinite(after.get(step, math.inf))]
        if not shared or reason.kind in ("gone", "steps"):
            clauses.append(f"{metric}: {reason.sentence}" if metric else reason.sentence)
            continue
        loss = judgement.losses.get(metric)
        if loss:
            last = max(shared)
            verb = "diverges from" if loss.diverges else "leaves its band at"
            clause = f"{metric} {before[last]:.4g} → {after[last]:.4g} at step {last}"
            if loss.leaves:
                clause += f", {verb} step {loss.leaves}; limit {loss.limits[loss.leaves]:.2%}"
            clauses.append(clause)
        else:
            clauses.append(_typical(metric, before, after, shared))
    return "; ".join(clauses)


def _typical(metric: str, before: Steps, after: Steps, steps: list[int]) -> str:
    later = steps[1:] if "time" in metric and len(steps) > 1 else steps  # the first step warms up
    old, new = (median(series[step] for step in later) for series in (before, after))
    ratio = f", ×{new / old:.2f}" if old > 0 else ""
    unit = ""
    if metric.startswith("mem-"):
        old, new, unit = old / _GIB, new / _GIB, " GiB"
    elif "time" in metric:
        unit = " s"
    return f"{metric} {old:.3g}{unit} → {new:.3g}{unit}{ratio}"


def plotted_metric(judgement: Judgement, old: GoldenValues, new: GoldenValues) -> str:
    """Return the worst metric of a file; empty if it has no steps."""
    metric = next((reason.metric for reason in judgement.reasons if reason.metric in old.series), "")
    return metric if new.series.get(metric) else ""


def plot(metric: str, judgement: Judgement, verdicts: Verdicts, old: GoldenValues, new: GoldenValues) -> Picture:
    """Plot the worst metric of a file with the band that it leaves."""
    before, after = old.series[metric], new.series[metric]
    loss = judgement.losses.get(metric)
    leaves = loss.leaves if loss else 0
    return plots.decision(judgement.file, metric, before, after, _band(judgement, verdicts, metric, before), leaves)


def _band(judgement: Judgement, verdicts: Verdicts, metric: str, before: Steps) -> Mapping[int, tuple[float, float]]:
    """Return the lowest and the highest value that would not be held back, by step."""
    if loss := judgement.losses.get(metric):
        sizes = {step: limit * abs(before[step]) for step, limit in loss.limits.items()}
        return {step: (before[step] - size, before[step] + size) for step, size in sizes.items()}
    deviation = verdicts.deviations.get((judgement.file, metric))
    if deviation is None:
        return {}
    limit = least_deviation(metric, deviation.scale, verdicts.threshold)
    low, high = (math.exp(deviation.shift + sign * limit) for sign in (-1, 1))
    return {step: (value * low, value * high) for step, value in before.items() if math.isfinite(value)}
