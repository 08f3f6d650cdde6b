"""How far one metric of a golden file moved: the mean that reviewers know, and measures that nothing hides from."""

import math
from dataclasses import dataclass
from statistics import median

from runbook_lib.golden import ci_rules
from runbook_lib.golden.values import Steps


@dataclass(frozen=True)
class Measure:
    """How far one metric of one file moved.

    ``avg_rel_diff`` is the signed mean of (old − new) / old over the ``n_steps`` shared steps with finite values and
    \\|old| ≥ 1e-12; the median and the maximum are of its absolute value per step.  ``last_shift`` is the relative
    change of the mean over the last tenth of the shared steps (at least 5): positive when the new values are larger.
    ``ratio`` is new to old as the metric is judged (times: median of the steady window; memory: the worse of median and
    maximum).  None where nothing can be compared.
    """

    file: str
    metric: str
    n_steps: int
    avg_rel_diff: float | None
    median_abs: float | None
    max_abs: float | None
    last_shift: float | None
    ratio: float | None = None


def measure(file: str, metric: str, old: Steps, new: Steps) -> Measure:
    """The measures of one metric; see Measure."""
    pairs = _pairs(old, new)
    diffs = [(a - b) / a for a, b in pairs if a >= 1e-12 or a <= -1e-12]
    sizes = sorted(map(abs, diffs))
    tail = pairs[-max(5, len(pairs) // 10) :]
    base = sum(a for a, _ in tail)
    shift = (sum(b for _, b in tail) - base) / abs(base) if abs(base) >= 1e-12 else None
    if not diffs:
        return Measure(file, metric, 0, None, None, None, shift, _ratio(metric, old, new, pairs))
    half = len(sizes) // 2
    middle = sizes[half] if len(sizes) % 2 else (sizes[half - 1] + sizes[half]) / 2
    mean = sum(diffs) / len(diffs)
    return Measure(file, metric, len(diffs), mean, middle, sizes[-1], shift, _ratio(metric, old, new, pairs))


def _pairs(old: Steps, new: Steps) -> list[tuple[float, float]]:
    if old.keys() == new.keys() and list(old) == list(new):
        pairs = list(zip(old.values(), new.values(), strict=True))
        if math.isfinite(sum(old.values())) and math.isfinite(sum(new.values())):
            return pairs
    isfinite = math.isfinite
    shared = sorted(old.keys() & new.keys())
    return [(old[step], new[step]) for step in shared if isfinite(old[step]) and isfinite(new[step])]


def _ratio(metric: str, old: Steps, new: Steps, pairs: list[tuple[float, float]]) -> float | None:
    if not pairs:
        return None
    if "time" in metric:
        window = [step for step in ci_rules.steady_steps(old) if math.isfinite(new.get(step, math.inf))]
        before = ci_rules.steady_time(old, window) if window else median(a for a, _ in pairs)
        after = ci_rules.steady_time(new, window) if window else median(b for _, b in pairs)
        return after / before if before > 0 else None
    if metric.startswith("mem-"):
        olds, news = [a for a, _ in pairs], [b for _, b in pairs]
        return max(median(news) / median(olds), max(news) / max(olds)) if min(olds) > 0 else None
    return None
