"""Golden values: the JSON files that Megatron-LM's functional tests compare a run with, in every form they have.

*Training* form: ``{metric: {start_step, end_step, step_interval, values: {"1": 10.96, …}}}``; ``values`` is a list in
a few old files.  *Inference* form: ``{"0": {"generated_text": …, "generated_tokens": […], "logprobs": […], …}}`` beside
numbers such as ``throughput``, or the same without the outer key.  ``{}`` and an empty file exist as well.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from runbook_lib.errors import RunbookError

#: Bytes and levels that a golden file may have: the largest of Megatron-LM has 3 MB, the deepest 5 levels.
MAX_BYTES, MAX_DEPTH = 64 * 2**20, 32
#: Where golden files live: ``<folder>/<model>/<test case>/golden_values_<environment>[_<platform>][_2nd].json``.
FOLDER = "tests/functional_tests/test_cases"

_NAME = re.compile(r"golden_values_(?P<environment>dev|lts)(?:_(?P<platform>(?!2nd\.json).+?))?(?P<second>_2nd)?\.json")
#: How a collector writes a number that is none: Megatron-LM's lint refuses these strings in a changed file.
_NOT_FINITE = frozenset({"nan", "inf", "infinity"})
_STEP = re.compile(r"[0-9]{1,12}")
_REQUEST_FIELDS = frozenset({"input_prompt", "generated_text", "generated_tokens", "logprobs", "latency"})

Steps = Mapping[int, float]


class BadGolden(RunbookError):
    """A golden file that cannot be read; the message is a clause without the file's name: the caller knows it."""


@dataclass(frozen=True)
class GoldenName:
    """What the path of a golden file tells."""

    model: str
    case: str
    environment: str
    platform: str
    second: bool

    @classmethod
    def parse(cls, path: str) -> "GoldenName | None":
        """From a path that ends in ``model/case/golden_values_….json``; None for any other."""
        parts = PurePosixPath(path).parts
        match = _NAME.fullmatch(parts[-1]) if len(parts) >= 3 and ".." not in parts else None
        if match is None:
            return None
        return cls(parts[-3], parts[-2], match["environment"], match["platform"] or "", bool(match["second"]))


@dataclass(frozen=True)
class Golden:
    """One golden file.

    ``series``: values by metric and step; a step that was not observed (a string such as ``"nan"``) is infinite, as CI
    takes it.  ``requests``: the fields of each inference request ("" where there is no outer key).  ``others``: the
    numbers and lists beside them.  ``not_finite``: where NaN or infinity stand, in the file's own words.
    """

    series: Mapping[str, Steps] = field(default_factory=dict)
    requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)
    not_finite: tuple[str, ...] = ()
    blank: bool = False

    @property
    def empty(self) -> bool:
        """Whether it holds no value at all."""
        return not (self.series or self.requests or self.others)


def parse(content: str | bytes) -> Golden:
    """Read a golden file of any form.  Raises BadGolden for what is none; an empty file is read as *blank*."""
    if len(content) > MAX_BYTES:
        raise BadGolden(f"it has {len(content):,} bytes or characters, more than {MAX_BYTES:,}")
    data = _load(_text(content))
    if data is None:
        return Golden(blank=True)
    series: dict[str, Steps] = {}
    requests: dict[str, Mapping[str, Any]] = {}
    others: dict[str, Any] = {}
    marks: list[str] = []
    bare = not _REQUEST_FIELDS.isdisjoint(data) and not any(isinstance(data[key], dict) for key in data)
    if bare:
        requests[""] = data
        _search(data, "", marks)
    for name, value in () if bare else data.items():
        if isinstance(value, dict) and "values" in value:
            series[name] = _series(name, value)
            marks += [f"{name} at step {step}" for step, x in series[name].items() if not math.isfinite(x)]
        elif isinstance(value, dict):
            requests[name] = value
            _search(value, name, marks)
        elif isinstance(value, list | int | float) and not isinstance(value, bool):
            others[name] = value
            _search(value, name, marks)
        else:
            raise BadGolden(f"{name!r} is {_kind(value)}, neither values by step, nor a request, nor a number")
    return Golden(series, requests, others, tuple(marks))


def _text(content: str | bytes) -> str:
    if isinstance(content, bytes):
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BadGolden(f"it is no UTF-8 (byte {error.start})") from error
    if not content.isascii():
        try:
            content.encode("utf-8")
        except UnicodeEncodeError as error:
            raise BadGolden(f"it is no UTF-8 (character {error.start})") from error
    return content


def _load(text: str) -> dict[str, Any] | None:
    if not text.strip():
        return None
    data: Any = text
    try:
        data = json.loads(data, object_pairs_hook=_unique)
        if isinstance(data, str):  # one line of JSONL, as CI's inference test accepts
            data = json.loads(data, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise BadGolden(f"it is no JSON: {error.msg} in line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise BadGolden(f"it is nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:  # an integer of thousands of digits
        raise BadGolden("it holds a number with more digits than can be read") from error
    if not isinstance(data, dict):
        raise BadGolden(f"it holds {_kind(data)} where an object of metrics should be")
    if _deeper(data):
        raise BadGolden(f"it is nested deeper than {MAX_DEPTH} levels")
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise BadGolden(f"the key {twice!r} stands twice in one object")
    return made


def _deeper(data: dict[str, Any]) -> bool:
    layer: list[Any] = [data]
    for _ in range(MAX_DEPTH):
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not layer:
            return False
    return True


def _series(metric: str, entry: Mapping[str, Any]) -> Steps:
    values = entry["values"]
    if isinstance(values, list):
        start, interval = entry.get("start_step", 0), entry.get("step_interval", 1)
        if type(start) is not int or type(interval) is not int or interval < 1:
            raise BadGolden(f"the steps of {metric!r} are not told: start_step {start!r}, step_interval {interval!r}")
        values = dict(zip(range(start, start + interval * len(values), interval), values, strict=True))
    elif isinstance(values, dict):
        try:
            steps = list(map(int, values))
        except ValueError:
            steps = []
        if len(set(steps)) != len(values) or not all(map(_STEP.fullmatch, values)):
            wrong = next((key for key in values if not _STEP.fullmatch(key)), "")
            raise BadGolden(f"{metric!r} has the step {wrong!r}, which is no number or stands twice")
        values = dict(zip(steps, values.values(), strict=True))
    else:
        raise BadGolden(f"the values of {metric!r} are {_kind(values)}")
    kinds = set(map(type, values.values()))
    if kinds <= {float}:
        return values
    return {step: _number(metric, step, value) for step, value in values.items()}


def _number(metric: str, step: int, value: object) -> float:
    if isinstance(value, str) and value.strip().lower().lstrip("+-") in _NOT_FINITE:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadGolden(f"{metric!r} has at step {step} {_kind(value)} {str(value)[:40]!r} where a number should be")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _search(value: object, place: str, marks: list[str]) -> None:
    """Note where NaN and infinity stand, strings too: Megatron-LM's lint makes no exception for texts."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _search(inner, f"{place} {key}".strip(), marks)
    elif isinstance(value, list):
        # A sum is finite only if its parts are: the lists are long, and nearly all of them clean.
        if value and set(map(type, value)) <= {float} and math.isfinite(sum(value)):
            return
        for i, inner in enumerate(value):
            if isinstance(inner, dict | list):
                _search(inner, f"{place} at {i}", marks)
            elif _is_mark(inner):
                marks.append(f"{place} at {i}")
    elif _is_mark(value):
        marks.append(place)


def _is_mark(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, str) and value.strip().lower().lstrip("+-") in _NOT_FINITE


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {
        bool: "a truth value",
        str: "a text",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return names[type(value)]
