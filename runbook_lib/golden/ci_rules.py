"""Megatron-LM's CI rules for comparing a run with its golden values, for each kind of test.

The source is ``tests/functional_tests/python_test_utils/`` in Megatron-LM: ``common.py`` and
``test_pretraining_regular_pipeline`` for *pretraining*, ``test_inference_regular_pipeline`` for *inference*,
``test_grpo_training_loop`` for *rl*; the kind, the metrics and declared nondeterminism come from the test's
``model_config.yaml``, read as in ``run_ci_test.sh``.
"""

import contextlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from runbook_lib.errors import CannotTell
from runbook_lib.golden.values import GoldenValues, Steps
from runbook_lib.text import yaml_spans

TestKind = Literal["pretraining", "inference", "rl"]


_LOSSES = ("lm loss", "mtp_1 loss", "mtp_2 loss", "total loss", "generated_tokens", "logprobs")
_MEASURED = ("iteration-time", "mem-allocated-bytes", "mem-max-allocated-bytes")
#: Relative tolerances of the approximate comparison; except for measured metrics, every step must also be equal.
PRETRAINING = {**dict.fromkeys((*_LOSSES, *_MEASURED), 0.05), "num-zeros": 0.20}
#: Relative tolerances of RL tests: loss at every step, median time in both directions, largest memory upwards only.
RL_LOSS, RL_TIME, RL_MEMORY = 0.01, 0.15, 0.10
#: Inference: absolute tolerance of logprobs, ranges of the ratios of throughput (below 1.2) and memory.
LOGPROBS, THROUGHPUT, MEMORY = 0.001, (0.9, math.nextafter(1.2, 0)), (0.95, 1.05)
_MAX_MEMORY = "mem-max-allocated-bytes"
_DEFAULT_METRICS = ("lm loss", "num-zeros")
_INFERENCE_METRICS = ("generated_tokens", "logprobs", "generated_text")
#: The fields of a request that are compared.
_COMPARED = frozenset({*_INFERENCE_METRICS, "routing_indices"})
_NONDETERMINISTIC = ("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "NON_DETERMINSTIC_RESULTS")


@dataclass(frozen=True)
class ComparisonConfig:
    """The comparison requested by a ``model_config.yaml``.  ``known`` is False if there is no readable file."""

    kind: TestKind = "pretraining"
    test_type: str = "regular"
    metrics: tuple[str, ...] = _DEFAULT_METRICS
    deterministic: bool = True
    known: bool = True
    start_step: int = 1

    @classmethod
    def parse(cls, text: str | None, golden: GoldenValues | None = None) -> "ComparisonConfig":
        """Parse the YAML text.  If it has no settings, the format of the golden file determines the kind."""
        data = load_settings(text)
        if not data:
            if golden is not None and golden.requests:
                return cls("inference", metrics=_INFERENCE_METRICS, known=False)
            return cls(known=False)
        mode = data.get("MODE")
        metrics = data.get("METRICS", _DEFAULT_METRICS)
        variables = data.get("ENV_VARS")
        if not isinstance(variables, dict):
            variables = {}
        start = str(variables.get("THROUGHPUT_START_STEP", 1))
        return cls(
            mode if mode in ("inference", "rl") else "pretraining",
            str(data.get("TEST_TYPE", "regular")),
            tuple(map(str, metrics)) if isinstance(metrics, list | tuple) else (),
            deterministic="1" not in [str(variables.get(name)) for name in _NONDETERMINISTIC],
            start_step=int(start) if re.fullmatch("[0-9]{1,9}", start) else 1,
        )


def load_settings(text: str | None) -> dict[str, Any]:
    """Return the settings of a ``model_config.yaml``, none if it is missing or cannot be read."""
    data = None
    with contextlib.suppress(CannotTell):
        data = yaml_spans.load(text or "")
    return data if isinstance(data, dict) else {}


def ci_failures(old: GoldenValues, new: GoldenValues, config: ComparisonConfig) -> frozenset[str]:
    """Return the metrics that would make CI fail a run with the values ``new``."""
    if config.test_type == "checkpoint-consistency":  # compares checkpoints with each other, not golden values
        return frozenset()
    if config.kind == "inference":
        return frozenset(_inference(old, new, config.metrics) if config.metrics else ())
    if config.kind == "rl":
        return frozenset(_rl(old.series, new.series, config))
    exact = config.deterministic
    return frozenset(
        metric
        for metric in config.metrics
        if metric not in PRETRAINING
        or not old.series.get(metric)
        or metric not in new.series
        or not _pretraining(metric, old.series[metric], new.series[metric], exact=exact and metric not in _MEASURED)
    )


def steady_steps(steps: Steps) -> list[int]:
    """Return the steps over which CI takes the median iteration time: 5–20 for runs up to 25 steps, else 30–45."""
    finite = sorted(step for step, value in steps.items() if math.isfinite(value))
    window = range(30, 46)
    if finite and finite[-1] <= 25:
        window = range(5, 21)
    inside = [step for step in finite if step in window]
    return inside or [step for step in finite if step >= window.start][:4]


def steady_time(steps: Steps, window: Iterable[int]) -> float:
    """Return the median over the window, NaN for an empty window or with NaN; a missing step counts as infinite."""
    values = [steps.get(step, math.inf) for step in window]
    return median(values) if values and not any(map(math.isnan, values)) else math.nan


def close(new: float, old: float, rtol: float) -> bool:
    """Return True if ``new`` is within ``rtol`` of ``old``; infinities equal each other, NaN equals nothing."""
    return new == old or (math.isfinite(new) and math.isfinite(old) and abs(new - old) <= rtol * abs(old))


def approximately_equal(old: Steps, new: Steps, rtol: float) -> bool:
    """Compare like CI: 1 step in 100 (at least 1, at most 50) may differ, but none if only one step is compared."""
    passed = sum(close(new.get(step, math.inf), value, rtol) for step, value in old.items())
    if len(old) == 1:
        return passed == 1
    # CI compares shares, rounded as here: of 3 steps, or of 7 or 19, none may differ.
    return passed / len(old) >= 1 - min(max(len(old) // 100, 1), 50) / len(old)


def _pretraining(metric: str, old: Steps, new: Steps, *, exact: bool) -> bool:
    rtol = PRETRAINING[metric]
    if metric == "iteration-time":
        window = steady_steps(old)
        return bool(window) and close(steady_time(new, window), steady_time(old, window), rtol)
    if exact and any(new.get(step, math.inf) != value for step, value in old.items()):
        return False
    return approximately_equal(old, new, rtol)


def _inference(old: GoldenValues, new: GoldenValues, metrics: tuple[str, ...]) -> Iterable[str]:
    for metric, (low, high) in (("throughput", THROUGHPUT), (_MAX_MEMORY, MEMORY)):
        if metric in metrics and metric in old.run_metrics:
            expected, measured = typical(old.run_metrics[metric]), typical(new.run_metrics.get(metric))
            if not expected or measured is None or not low <= measured / expected <= high:
                yield metric
    if new.requests.keys() != old.requests.keys():
        yield "requests"
    for key in old.requests.keys() & new.requests.keys():
        before, after = old.requests[key], new.requests[key]
        compared = _COMPARED.intersection(metrics, before)
        if not compared:
            yield "requests"  # CI requires at least one comparison of each
        for name in compared:
            if not _field_matches(name, before, after):
                yield name


def _field_matches(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    if name == "routing_indices":
        return _routing_matches(before, after)
    old, new = before[name], after.get(name)
    if name == "logprobs":
        if not isinstance(old, list) or not isinstance(new, list) or len(old) != len(new):
            return False
        return all(map(_logprobs_close, old, new))
    if name == "generated_text" and isinstance(old, str) and isinstance(new, str):
        shared = min(len(old), len(new))
        return shared > 0 and old[:shared] == new[:shared]
    return bool(old == new)


def _routing_matches(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Compare the experts of the tokens that the golden file names, in any order."""
    tokens, new = before.get("routing_indices_token_indices"), after.get("routing_indices")
    if not isinstance(tokens, list) or not isinstance(new, list):
        return False
    valid = range(-len(new), len(new))
    if not all(type(token) is int and token in valid for token in tokens):
        return False
    return bool(_sorted_experts(before["routing_indices"]) == _sorted_experts([new[token] for token in tokens]))


def _sorted_experts(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if any(isinstance(inner, list) for inner in value):
        return list(map(_sorted_experts, value))
    return sorted(value, key=repr)


def _logprobs_close(old: object, new: object) -> bool:
    """Return True for two numbers within CI's absolute tolerance."""
    if isinstance(old, int | float) and isinstance(new, int | float):
        return math.isclose(old, new, abs_tol=LOGPROBS)
    return False


def typical(value: object) -> float | None:
    """Return a number, or the median of a list without its first (warm-up) element; None for anything else."""
    numbers = value if isinstance(value, list) else [value]
    if not numbers or not all(isinstance(number, int | float) for number in numbers):
        return None
    try:
        return float(median(numbers[1:] or numbers))
    except OverflowError:  # an integer of hundreds of digits
        return math.inf


def _rl(old: Mapping[str, Steps], new: Mapping[str, Steps], config: ComparisonConfig) -> Iterable[str]:
    yield from old.keys() - new.keys()
    for metric in new.keys() & {"lm-loss", *_MEASURED}.intersection(config.metrics):
        if metric not in old or not _rl_close(metric, old[metric], new[metric], config.start_step):
            yield metric


def _rl_close(metric: str, before: Steps, after: Steps, start_step: int) -> bool:
    if metric == "lm-loss":
        return all(step in after and _rl_loss_close(after[step], value) for step, value in before.items())
    start = start_step if metric == "iteration-time" else 1
    old, new = (list(steps.values())[start:] for steps in (before, after))
    if not old or not new:
        return False
    if metric == "iteration-time":
        return close(median(new), median(old), RL_TIME)
    return max(new) <= (1 + RL_MEMORY) * max(old)


def _rl_loss_close(new: float, old: float) -> bool:
    if abs(old) < 1e-6:
        return abs(new) <= 1e-6
    return close(new, old, RL_LOSS)
