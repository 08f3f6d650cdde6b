"""The measurements of the practice CI: golden values as produced by another base image, and their comparison.

This module is pure and repeatable: the same text, kind and seed always give the same values.
"""

import json
import math
import random
from typing import Any, Literal

#: ``same``: only timings differ, within tolerance.  ``drift``: as a new CUDA and cuBLAS move them.
#: ``regression``: the loss diverges from the middle of the run on.  ``slower``: drift, and each step takes longer.
Kind = Literal["same", "drift", "regression", "slower"]

#: Metrics that CI compares within a tolerance, which no image exceeds here; all others must be equal.
_APPROXIMATE = ("iteration-time", "mem-allocated-bytes", "mem-max-allocated-bytes", "throughput", "latency")
#: The factor by which a step takes longer in a slower image.
_SLOWER = 1.55


def remeasure(text: str, kind: Kind, seed: str) -> str:
    """Return the text of a golden file as produced by another image; an unreadable text stays unchanged."""
    try:
        values = json.loads(text)
    except ValueError:
        return text
    if not isinstance(values, dict):
        return text
    chance = random.Random(seed)
    for name, metric in values.items():
        if isinstance(metric, dict) and isinstance(metric.get("values"), dict):
            metric["values"] = _series(name, metric["values"], kind, chance)
    indent = 4 if text.startswith("{\n") else None
    return json.dumps(values, indent=indent) + ("\n" if text.endswith("\n") else "")


def _series(name: str, values: dict[str, Any], kind: Kind, chance: random.Random) -> dict[str, Any]:
    """Return one metric, step by step; anything except a finite number stays unchanged."""
    level = 1.0
    if kind == "drift":
        level += chance.uniform(0.01, 0.03) * chance.choice((-1, 1))
    new: dict[str, Any] = {}
    for position, (step, value) in enumerate(values.items()):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            new[step] = value
            continue
        factor = 1.0
        if name == "iteration-time":
            factor = level * (1 + chance.uniform(-0.01, 0.01)) * (_SLOWER if kind == "slower" else 1.0)
        elif name.startswith("mem-"):
            factor = level
        elif kind == "regression" and "loss" in name:
            factor = 1 + 0.04 * max(0, position - len(values) // 2)
        elif kind != "same":
            # The first steps agree best: differences in rounding increase with the steps.
            factor = 1 + chance.uniform(-2e-4, 2e-4) * min(1.0, (position + 1) / 20)
        digits = None if isinstance(value, int) else 5
        new[step] = round(value * factor, digits)
    return new


def agrees(expected: str, actual: str) -> bool:
    """Return True if ``actual`` passes the comparison of CI with the golden values ``expected``."""
    try:
        return bool(_exact(json.loads(expected)) == _exact(json.loads(actual)))
    except ValueError:
        return expected == actual


def _exact(values: Any) -> Any:
    """Return the values without those that CI compares within a tolerance."""
    if not isinstance(values, dict):
        return values
    return {name: _exact(value) for name, value in values.items() if name not in _APPROXIMATE}
