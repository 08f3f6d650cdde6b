"""The golden values of the practice environment: invented ones, what another image makes of them, and a comparison.

This module is pure and repeatable: the same seed always gives the same values.
"""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_STEPS = 50


def invent(path: str) -> str:
    """Return the text of a golden file: four spaces, no newline at the end, like the real ones.

    The metrics are ``lm loss``, zeros, seconds and bytes of each step.
    """
    # Only random() gives the same numbers in every version of Python, and only + - * / do on every machine.
    draw = random.Random(path).random
    level, zeros, pace, memory = draw() * 0.1, 1500 + 900 * draw(), 0.08 + 0.1 * draw(), int(2e9 + 6e9 * draw())
    first = 1 + _STEPS * path.endswith("_2nd.json")
    steps = range(first, first + _STEPS)
    found: dict[str, list[float]] = {name: [] for name in ("lm loss", "num-zeros", "iteration-time")}
    for step in steps:
        found["lm loss"].append(round(10.85 + level - 1.4 * step / (step + 60) + 0.02 * draw(), 5))
        found["num-zeros"].append(float(round(zeros + 14 * step + 120 * draw())))
        found["iteration-time"].append(round((3.1 if step == first else pace) * (1 + 0.03 * draw()), 5))
    found["mem-allocated-bytes"] = [float(memory)] * _STEPS
    found["mem-max-allocated-bytes"] = [float(memory * 4)] + [float(memory * 4 + 96616448)] * (_STEPS - 1)
    frame = {"start_step": first, "end_step": steps[-1], "step_interval": 1}
    metrics = {
        name: {**frame, "values": dict(zip(map(str, steps), numbers, strict=True))} for name, numbers in found.items()
    }
    return json.dumps(metrics, indent=4)


def remeasure(text: str, how: Mapping[str, Any], seed: str) -> str:
    """Return the text of a golden file as produced by another image; an unreadable text stays unchanged.

    ``how`` is what the scenario says: ``noise`` of each step, a ``level`` of time and memory, a loss that ``diverges``
    from the middle of the run on, and factors of ``time`` and ``throughput``.
    """
    found, chance = _metrics(text), random.Random(seed)
    for name, metric in found.items():
        if name == "throughput" and isinstance(metric, list):
            found[name] = [_scaled(value, how.get(name, 1.0)) for value in metric]
        elif isinstance(metric, dict) and "values" in metric:
            factors = _factors(name, len(metric["values"]), how, chance)
            metric["values"] = {step: _scaled(value, next(factors)) for step, value in metric["values"].items()}
    return json.dumps(found, indent=4) if found else text


def _scaled(value: Any, factor: float) -> Any:
    """Return a number at another level; what real files hold besides, such as ``"nan"``, stays."""
    return round(value * factor, 5) if isinstance(value, int | float) else value


def _factors(name: str, steps: int, how: Mapping[str, Any], chance: random.Random) -> Iterator[float]:
    """Yield by how much one metric differs at each step."""
    level = 1 + chance.uniform(0.01, 0.03) * chance.choice((-1, 1)) if "level" in how else 1.0
    noise, diverges = how.get("noise", 0.0), how.get("diverges", 0.0) * ("loss" in name)
    for position in range(steps):
        if name == "iteration-time":
            yield level * (1 + chance.uniform(-0.01, 0.01)) * how.get("time", 1.0)
        elif name.startswith("mem-"):
            yield level
        else:
            # The first steps agree best: differences in rounding increase with the steps.
            varied = chance.uniform(-noise, noise) * min(1.0, (position + 1) / 20)
            yield 1 + varied + diverges * max(0, position - steps // 2)


def differ(expected: str, actual: str, metrics: Iterable[str]) -> bool:
    """Return True if any of these metrics differ between two golden files."""
    before, after = _metrics(expected), _metrics(actual)
    return any(before.get(metric) != after.get(metric) for metric in metrics)


def _metrics(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        return {}
