"""Golden values: the JSON files that Megatron-LM's functional tests compare a run with, in all their formats.

*Training* format: ``{metric: {start_step, end_step, step_interval, values: {"1": 10.96, …}}}``; ``values`` is a list in
a few old files.  *Inference* format: ``{"0": {"generated_text": …, "generated_tokens": […], "logprobs": […], …}}``
beside numbers such as ``throughput``, or the same without the outer key.  ``{}`` and an empty file exist as well.
"""

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runbook_lib.errors import RunbookError

#: Maximum size in bytes and nesting depth of a golden file: Megatron-LM's largest has 3 MB, the deepest 5 levels.
MAX_BYTES, MAX_DEPTH = 64 * 2**20, 32
#: Maximum number of values and names in a golden file, at up to 150 bytes of memory each; Megatron-LM's largest has
#: 100,000.
MAX_VALUES = 1_000_000
_STEP = re.compile("[0-9]{1,12}")

#: The strings that collectors write for NaN and infinity.  Megatron-LM's lint refuses them in a changed file.
_NOT_FINITE = frozenset({"nan", "inf", "infinity"})
_REQUEST_FIELDS = frozenset({"input_prompt", "generated_text", "generated_tokens", "logprobs", "latency"})
_CONTAINERS = frozenset({dict, list})
_JSON_TYPES = {
    type(None): "null", bool: "a Boolean", str: "a string", int: "a number", float: "a number", list: "a list",
    dict: "an object",
}  # fmt: skip

Steps = Mapping[int, float]


class BadGoldenFile(RunbookError):
    """A golden file that cannot be read; the message is a clause without the file's name, which the caller knows."""


@dataclass(frozen=True)
class GoldenValues:
    """The content of one golden file.

    ``series``: values by metric and step; a step that was not observed is infinite, as in CI.  ``requests``: the fields
    of each inference request, by key ("" without an outer key).  ``run_metrics``: numbers and lists for the complete
    run.  ``not_finite``: the places of values that are NaN or infinite.  ``unobserved``: by metric, the steps for which
    the collector found no value: it wrote the string "nan" there, and a bare ``NaN`` for a value that is NaN.
    ``full``: the metrics marked with ``value_precision: full``; others are rounded.  ``blank``: the file is empty.
    """

    series: Mapping[str, Steps] = field(default_factory=dict)
    requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    run_metrics: Mapping[str, Any] = field(default_factory=dict)
    not_finite: tuple[str, ...] = ()
    unobserved: Mapping[str, frozenset[int]] = field(default_factory=dict)
    full: frozenset[str] = frozenset()
    blank: bool = False

    @property
    def empty(self) -> bool:
        """True if the file has no values."""
        return not (self.series or self.requests or self.run_metrics)


def parse(content: str | bytes) -> GoldenValues:
    """Parse a golden file of any format; an empty file is *blank*.  Raises BadGoldenFile for anything else."""
    if len(content) <= MAX_BYTES and not content.strip():
        return GoldenValues(blank=True)
    data = load(content)
    series: dict[str, Steps] = {}
    requests: dict[str, Mapping[str, Any]] = {}
    run_metrics: dict[str, Any] = {}
    places: list[str] = []
    unobserved: dict[str, frozenset[int]] = {}
    if not _REQUEST_FIELDS.isdisjoint(data) and dict not in map(type, data.values()):
        requests[""] = data
        _search(data, "", places)
        return GoldenValues(requests=requests, not_finite=tuple(places))
    for name, value in data.items():
        if isinstance(value, dict) and "values" in value:
            series[name] = _steps(name, value)
            if not _all_finite(series[name].values()):
                missing = _unobserved(series[name], value["values"])
                if missing:
                    unobserved[name] = missing
                for step, number in series[name].items():
                    if not math.isfinite(number) and step not in missing:
                        places.append(f"{name} at step {step}")
        elif isinstance(value, dict):
            requests[name] = value
            _search(value, name, places)
        elif type(value) in (list, int, float):
            run_metrics[name] = value
            _search(value, name, places)
        else:
            raise BadGoldenFile(f"{name!r} is {_JSON_TYPES[type(value)]}, not values by step, a request or a number")
    full = frozenset(name for name in series if data[name].get("value_precision") == "full")
    return GoldenValues(series, requests, run_metrics, tuple(places), unobserved, full)


def load(content: str | bytes) -> dict[str, Any]:
    """Return the object in a JSON text.  Raises BadGoldenFile for anything else.

    If a key occurs twice, the last value counts, as in CI.
    """
    if len(content) > MAX_BYTES:
        raise BadGoldenFile(f"it has {len(content):,} bytes or characters, more than {MAX_BYTES:,}")
    try:
        text = content if isinstance(content, str) else content.decode()
        text.encode()  # a byte that is not UTF-8 may stand in a text as half a character
    except UnicodeError as error:
        raise BadGoldenFile(f"it is not UTF-8: {error}") from error
    if text.count(",") + text.count("[") + text.count("{") > MAX_VALUES:
        raise BadGoldenFile(f"it has more than {MAX_VALUES:,} values")
    try:
        data = json.loads(text)
        if isinstance(data, str):  # a line of JSONL, which CI's inference test accepts
            data = json.loads(data)
        if not isinstance(data, dict):
            raise BadGoldenFile(f"it contains {_JSON_TYPES[type(data)]}, not an object of metrics")
        _require_shallow(data)
    except json.JSONDecodeError as error:
        raise BadGoldenFile(f"it is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise BadGoldenFile(f"it is nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:  # an integer of thousands of digits
        raise BadGoldenFile("it contains a number with too many digits") from error
    return data


def _require_shallow(container: dict[str, Any] | list[Any], levels: int = MAX_DEPTH) -> None:
    if not levels:
        raise BadGoldenFile(f"it is nested deeper than {MAX_DEPTH} levels")
    for value in container.values() if isinstance(container, dict) else container:
        if type(value) in _CONTAINERS:
            _require_shallow(value, levels - 1)


def _steps(metric: str, entry: Mapping[str, Any]) -> Steps:
    values = entry["values"]
    if isinstance(values, dict):
        steps: Sequence[int] = _step_numbers(metric, values)
        values = list(values.values())
    elif isinstance(values, list):
        start, interval = entry.get("start_step", 0), entry.get("step_interval", 1)
        if type(start) is not int or type(interval) is not int or interval < 1:
            raise BadGoldenFile(
                f"the steps of {metric!r} are unknown: start_step {start!r}, step_interval {interval!r}"
            )
        steps = range(start, start + interval * len(values), interval)
    else:
        raise BadGoldenFile(f"the values of {metric!r} are {_JSON_TYPES[type(values)]}")
    numbers = (value if type(value) is float else _number(metric, value) for value in values)
    return dict(zip(steps, numbers, strict=True))


def _unobserved(steps: Steps, values: Mapping[str, Any] | list[Any]) -> frozenset[int]:
    written = values.values() if isinstance(values, dict) else values
    pairs = zip(steps, written, strict=True)
    return frozenset(step for step, value in pairs if type(value) is str and value.strip().lower() == "nan")


def _step_numbers(metric: str, keys: Mapping[str, Any]) -> list[int]:
    wrong = next(itertools.filterfalse(_STEP.fullmatch, keys), None)
    if wrong is not None:
        raise BadGoldenFile(f"{metric!r} has the step {wrong[:40]!r}, which is not a number")
    steps = list(map(int, keys))
    if len(set(steps)) != len(steps):
        raise BadGoldenFile(f"{metric!r} has a step twice")
    return steps


def _number(metric: str, value: object) -> float:
    """Return a value that is no float as one; infinity for the strings that collectors write."""
    if _is_not_finite(value):
        return math.inf
    if type(value) is not int:
        raise BadGoldenFile(f"{metric!r} has {_JSON_TYPES[type(value)]}, {str(value)[:40]!r}, instead of a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _search(value: object, place: str, places: list[str]) -> None:
    """Append the places of NaN and infinity, including strings: Megatron-LM's lint makes no exception for texts."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _search(inner, f"{place} {key}".strip(), places)
    elif isinstance(value, list):
        types = set(map(type, value))
        if types <= {float, int} and _all_finite(value):
            return
        for index, inner in enumerate(value):
            _search(inner, f"{place} at {index}", places)
    elif _is_not_finite(value):
        places.append(place)


def _all_finite(numbers: Iterable[float]) -> bool:
    """Return True if the sum is finite, which implies finite numbers; a sum of finite numbers may overflow."""
    try:
        return math.isfinite(sum(numbers))
    except OverflowError:
        return False


def _is_not_finite(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, str) and value.strip().lower().lstrip("+-") in _NOT_FINITE
