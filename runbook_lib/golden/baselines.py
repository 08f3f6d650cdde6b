"""Performance baselines: expected throughput, latency and memory, which each family of tests compares by its own rules.

``baseline_values.json`` of a performance test is ``{platform: {batch: {metric: number}}}``.  CI fails a throughput that
is lower by TOLERANCE_PCT or higher by UPPER_TOLERANCE_PCT, and a latency that is higher by TOLERANCE_PCT
(``compare_to_baseline.py``).  ``baseline.json`` of ``common/moe_perf`` is ``{case: {metric: number}}`` with a maximum
ratio for each case (its ``__main__.py``).
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from runbook_lib.golden.ci_rules import load_settings
from runbook_lib.golden.measure import CHANGED, MISSING, Judgement, ReviewReason, measure
from runbook_lib.golden.values import BadGoldenFile, load

_THROUGHPUT = "throughput_tok_per_sec"
_METRICS = frozenset({
    _THROUGHPUT, "avg_latency_ms", "p50_latency_ms", "p99_latency_ms", "tpot_ms_per_tok",
    "forward_ms", "backward_ms", "max_allocated_bytes",
})  # fmt: skip
_RATIO, _DEFAULT_RATIO = "max_regression_ratio", 1.02
#: The default tolerances in per cent: worse, and a better throughput.
_WORSE, _BETTER = 10.0, 20.0

#: Numbers beyond these measure nothing, and their ratios would not be finite.
_SMALLEST, _LARGEST = 1e-100, 1e100

#: Numbers and settings by ``platform/batch/name``, or by ``case/name``.
Baseline = Mapping[str, float | str]


def parse(content: str | bytes) -> Baseline:
    """Parse a baseline of either family.  Raises BadGoldenFile for anything else."""
    found: dict[str, float | str] = {}
    _collect(load(content), "", found)
    return found


def _collect(data: Mapping[str, Any], place: str, found: dict[str, float | str]) -> None:
    for name, value in data.items():
        key = f"{place}{name}"
        if isinstance(value, dict):
            _collect(value, f"{key}/", found)
        elif type(value) in (int, float) and name in _METRICS | {_RATIO}:
            if not _SMALLEST < value < _LARGEST:
                raise BadGoldenFile(f"{key} is {value}, with which nothing can be compared")
            found[key] = float(value)
        elif type(value) in (int, float, str) and name not in _METRICS:
            found[key] = str(value)
        else:
            raise BadGoldenFile(f"{key} is neither a number nor a text")


def compare(file: str, old: Baseline | None, new: Baseline, config: str | None) -> Judgement:
    """Judge a baseline; values beyond CI's limits are decided with their platform.

    ``old`` is None for a new file, ``config`` the test's ``model_config.yaml``, if it has one.
    """
    if old is None:
        return Judgement(file, "refresh", notes=("the file is new",))
    if old == new:
        return Judgement(file, "unchanged", notes=("only the formatting changed",))
    options = load_settings(config)
    compared = options.get("METRICS")
    metrics = set(map(str, compared)) if isinstance(compared, list) and compared else _METRICS
    reasons = [ReviewReason(key, "the value is missing", MISSING, "gone") for key in sorted(old.keys() - new.keys())]
    measures, costs, ci = [], dict[str, float](), dict[str, str]()
    for key in sorted(old.keys() & new.keys()):
        before, after = old[key], new[key]
        metric = key.rpartition("/")[2]
        if metric not in _METRICS or isinstance(before, str) or isinstance(after, str):
            if before != after:
                reasons.append(ReviewReason(key, f"it changed from {before} to {after}", CHANGED))
            continue
        ratio = after / before
        costs[key] = -math.log(ratio) if metric == _THROUGHPUT else math.log(ratio)
        measures.append(measure(file, key, {1: before}, {1: after}))
        low, high = _limits(key, metric, old, options)
        if metric in metrics and not low <= ratio <= high:
            limit = f"below ×{low:g}" if ratio < low else f"above ×{high:g}"
            ci[key] = f"{key}: ×{ratio:.2f}; CI fails {limit}"
    notes = tuple(ci.values())[:3]
    return Judgement.of(file, reasons, measures=tuple(measures), ci=frozenset(ci), notes=notes, costs=costs)


def _limits(key: str, metric: str, old: Baseline, options: Mapping[str, Any]) -> tuple[float, float]:
    """Return the smallest and the largest ratio of new to old that CI accepts."""
    if not is_of_platform(key):
        own = old.get(f"{key.rpartition('/')[0]}/{_RATIO}", _DEFAULT_RATIO)
        return 0.0, own if isinstance(own, float) else _DEFAULT_RATIO
    worse, better = _per_cent(options, "TOLERANCE_PCT", _WORSE), _per_cent(options, "UPPER_TOLERANCE_PCT", _BETTER)
    return (1 - worse, 1 + better) if metric == _THROUGHPUT else (0.0, 1 + worse)


def is_of_platform(key: str) -> bool:
    """Return True for a value of a performance test, whose key begins with the platform."""
    return key.count("/") == 2


def _per_cent(options: Mapping[str, Any], name: str, default: float) -> float:
    value = options.get(name, default)
    return (value if type(value) in (int, float) and -_LARGEST < value < _LARGEST else default) / 100


def with_results(baseline: str | None, platform: str, results: str) -> str:
    """Return a baseline with the results of one platform, as CI records them; results that cannot be read unchanged."""
    try:
        data, measured = load(baseline or "{}"), load(results)
    except BadGoldenFile:
        return results
    return json.dumps({**data, platform: measured}, indent=2) + "\n"
