"""What the practice CI measures: golden values as another base image would give them, and the comparison.

Pure and repeatable: the same text, kind and seed always give the same values.
"""

import json
import math
import random
from collections.abc import Iterator
from typing import Any, Literal

#: ``same``: only timings differ, within tolerance.  ``drift``: as a new CUDA and cuBLAS move them.
#: ``regression``: the loss diverges from the middle of the run on.
Kind = Literal["same", "drift", "regression"]

#: Metrics that CI compares within 5 %; all others must be equal.
APPROXIMATE = ("iteration-time", "mem-allocated-bytes", "mem-max-allocated-bytes", "throughput", "latency")
_TOLERANCE = 0.05


def on(text: str, kind: Kind, seed: str) -> str:
    """The text of a golden file as another image gives it; one that cannot be read comes back as it is."""
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
    """One metric, step by step; what is no finite number stays as it is."""
    level = 1 + chance.uniform(0.01, 0.03) * chance.choice((-1, 1)) if kind == "drift" else 1.0
    new: dict[str, Any] = {}
    for position, (step, value) in enumerate(values.items()):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            new[step] = value
            continue
        factor = 1.0
        if name == "iteration-time":
            factor = level * (1 + chance.uniform(-0.01, 0.01))
        elif name.startswith("mem-"):
            factor = level
        elif kind == "regression" and "loss" in name:
            factor = 1 + 0.04 * max(0, position - len(values) // 2)
        elif kind != "same":
            # The first steps agree best: differences in rounding grow with the steps.
            factor = 1 + chance.uniform(-2e-3, 2e-3) * min(1.0, (position + 1) / 20)
        new[step] = round(value * factor) if isinstance(value, int) else round(value * factor, 5)
    return new


def agrees(expected: str, actual: str) -> bool:
    """Whether CI would pass ``actual`` against the golden values ``expected``."""
    try:
        return _agrees("", json.loads(expected), json.loads(actual))
    except ValueError:
        return expected == actual


def _agrees(name: str, old: Any, new: Any) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        if old.keys() != new.keys():
            return False
        return all(_agrees(name if name in APPROXIMATE else key, old[key], new[key]) for key in old)
    if name in APPROXIMATE and all(isinstance(value, int | float) for value in (old, new)):
        return math.isclose(old, new, rel_tol=_TOLERANCE)
    return bool(old == new)


def complaints(path: str, text: str) -> list[str]:
    """What CI's linter says of a golden file: lines of its log, none for a good file.

    The rule is that of Megatron-LM's ``tools/check_golden_values.py``.
    """
    try:
        values = json.loads(text)
    except ValueError as error:
        return [f"Could not read {path}: {error}"]
    found = list(_non_finite("$", values))
    more = [f"  ... and {len(found) - 5} more"] if len(found) > 5 else []
    return [f"Found non-finite values in {path}:", *found[:5], *more] if found else []


def _non_finite(place: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _non_finite(f"{place}.{key}", each)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _non_finite(f"{place}[{number}]", each)
    else:
        word = value.lower().lstrip("+-") if isinstance(value, str) else ""
        if word in ("nan", "inf", "infinity") or (isinstance(value, float) and not math.isfinite(value)):
            yield f"  {place}: {value!r}"
