"""How Megatron-LM's CI compares a run with its golden values, for each kind of test.

The source is ``tests/functional_tests/python_test_utils/`` there: ``common.py`` and
``test_pretraining_regular_pipeline`` for *pretraining*, ``test_inference_regular_pipeline`` for *inference*,
``test_grpo_training_loop`` for *rl*; the kind, the metrics and declared nondeterminism come from the test's
``model_config.yaml`` as ``run_ci_test.sh`` reads them.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from runbook_lib.errors import CannotTell
from runbook_lib.golden.values import Golden, Steps
from runbook_lib.text import yaml_spans

Kind = Literal["pretraining", "inference", "rl"]


@dataclass(frozen=True)
class Rule:
    """``rtol``: relative tolerance of the approximate comparison; ``exact``: whether every step must be equal too."""

    rtol: float
    exact: bool


_LOSS, _ABOUT = Rule(0.05, exact=True), Rule(0.05, exact=False)
PRETRAINING: Mapping[str, Rule] = {
    "lm loss": _LOSS,
    "mtp_1 loss": _LOSS,
    "mtp_2 loss": _LOSS,
    "total loss": _LOSS,
    "generated_tokens": _LOSS,
    "logprobs": _LOSS,
    "num-zeros": Rule(0.20, exact=True),
    "iteration-time": _ABOUT,
    "mem-allocated-bytes": _ABOUT,
    "mem-max-allocated-bytes": _ABOUT,
}
#: Relative tolerances of RL tests: loss at every step, the median time both ways, the largest memory upwards.
RL_LOSS, RL_TIME, RL_MEMORY = 0.01, 0.15, 0.10
#: Inference: logprobs absolutely, throughput as a range of ratios, memory both ways.
LOGPROBS, THROUGHPUT, MEMORY = 0.001, (0.9, 1.2), 0.05
_DEFAULT = ("lm loss", "num-zeros")


@dataclass(frozen=True)
class TestConfig:
    """What a ``model_config.yaml`` says about the comparison.  ``known`` is False where there is none to read."""

    __test__ = False  # pytest: no test class

    kind: Kind = "pretraining"
    test_type: str = "regular"
    metrics: tuple[str, ...] = _DEFAULT
    deterministic: bool = True
    known: bool = True
    start_step: int = 1

    @classmethod
    def parse(cls, text: str | None, golden: Golden | None = None) -> "TestConfig":
        """From the YAML text; without one (or with one that is no mapping) the kind follows the golden file's form."""
        try:
            data = yaml_spans.load(text) if text else None
        except CannotTell:
            data = None
        if not isinstance(data, dict):
            inference = golden is not None and bool(golden.requests)
            metrics = ("generated_tokens", "logprobs", "generated_text") if inference else _DEFAULT
            return cls("inference" if inference else "pretraining", metrics=metrics, known=False)
        mode = data.get("MODE", "pretraining")
        listed, variables = data.get("METRICS", _DEFAULT), data.get("ENV_VARS")
        variables = variables if isinstance(variables, dict) else {}
        loose = ("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "NON_DETERMINSTIC_RESULTS")
        start = str(variables.get("THROUGHPUT_START_STEP", 1))
        return cls(
            mode if mode in ("inference", "rl") else "pretraining",
            str(data.get("TEST_TYPE", "regular")),
            tuple(map(str, listed)) if isinstance(listed, list | tuple) else (),
            deterministic=all(str(variables.get(name)) != "1" for name in loose),
            start_step=int(start) if re.fullmatch("[0-9]{1,9}", start) else 1,
        )


def ci_failures(old: Golden, new: Golden, config: TestConfig) -> dict[str, str]:
    """The metrics at which CI would fail a run that gives ``new`` against the golden values ``old``, and why."""
    if config.test_type == "checkpoint-consistency":  # compares checkpoints with each other, and no golden values
        return {}
    if config.kind == "inference":
        return _inference(old, new, config.metrics)
    if config.kind == "rl":
        return _rl(old, new, config)
    return _pretraining(old, new, config)


def steady_steps(steps: Steps) -> list[int]:
    """The steps over which CI takes the median iteration time: 5–20 for runs up to 25 steps, else 30–45."""
    finite = sorted(step for step, value in steps.items() if math.isfinite(value))
    window = range(5, 21) if finite and finite[-1] <= 25 else range(30, 46)
    return [step for step in finite if step in window] or [step for step in finite if step >= window.start][:4]


def steady_time(steps: Steps, window: Iterable[int]) -> float:
    """Median over the window in the series' own unit; a step that is not there counts as infinite.  NaN for none."""
    values = [steps.get(step, math.inf) for step in window]
    return median(values) if values else math.nan


def close(new: float, old: float, rtol: float) -> bool:
    """Whether ``new`` is within ``rtol`` of ``old``; infinities equal each other, NaN equals nothing."""
    return new == old or (math.isfinite(new) and math.isfinite(old) and abs(new - old) <= rtol * abs(old))


def within(old: Steps, new: Steps, rtol: float) -> bool:
    """The approximate comparison: 1 step in 100 (at least 1, at most 50) may miss, none when one step is compared."""
    missed = sum(not close(new.get(step, math.inf), value, rtol) for step, value in old.items())
    if len(old) == 1:
        return missed == 0
    return missed <= min(max(len(old) // 100, 1), 50)


def _pretraining(old: Golden, new: Golden, config: TestConfig) -> dict[str, str]:
    failed: dict[str, str] = {}
    for metric in config.metrics:
        rule = PRETRAINING.get(metric)
        before, after = old.series.get(metric), new.series.get(metric)
        if rule is None:
            failed[metric] = "CI knows no rule for this metric"
        elif not before or after is None:
            failed[metric] = "it is missing"
        elif metric == "iteration-time":
            window = steady_steps(before)
            if not window:
                failed[metric] = "the golden values have no steady window"
            elif not close(steady_time(after, window), steady_time(before, window), rule.rtol):
                failed[metric] = f"the median of the steady window differs by more than {rule.rtol:.0%}"
        elif not within(before, after, rule.rtol):
            failed[metric] = f"too many steps differ by more than {rule.rtol:.0%}"
        elif (
            rule.exact
            and config.deterministic
            and any(after.get(step, math.inf) != value for step, value in before.items())
        ):
            failed[metric] = "not every step is exactly equal"
    return failed


def _inference(old: Golden, new: Golden, metrics: tuple[str, ...]) -> dict[str, str]:
    if not metrics:
        return {}
    failed: dict[str, str] = {}
    if "throughput" in metrics and "throughput" in old.others:
        ratio = _ratio(old.others["throughput"], new.others.get("throughput"))
        if ratio is None or not THROUGHPUT[0] <= ratio < THROUGHPUT[1]:
            failed["throughput"] = f"not within {THROUGHPUT[0]} to {THROUGHPUT[1]} times"
    memory = "mem-max-allocated-bytes"
    if memory in metrics and memory in old.others:
        ratio = _ratio(old.others[memory], new.others.get(memory))
        if ratio is None or not 1 - MEMORY <= ratio <= 1 + MEMORY:
            failed[memory] = f"differs by more than {MEMORY:.0%}"
    if not set(new.requests) <= set(old.requests):
        failed["requests"] = "there are requests that the golden values do not have"
    for key, before in old.requests.items():
        after = new.requests.get(key)
        if after is None:
            failed["requests"] = "requests are missing"
            continue
        for name in ("generated_tokens", "logprobs", "generated_text", "routing_indices"):
            if name in metrics and name in before and not _same(name, before, after):
                failed[name] = "it differs"
    return failed


def _same(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    one, other = before[name], after.get(name)
    if name == "logprobs":
        return (
            isinstance(one, list)
            and isinstance(other, list)
            and len(one) == len(other)
            and all(one_close(x, y) for x, y in zip(one, other, strict=True))
        )
    if name == "generated_text" and isinstance(one, str) and isinstance(other, str):
        shared = min(len(one), len(other))
        return shared > 0 and one[:shared] == other[:shared]
    if name == "routing_indices":
        return _routing(before, after)
    return bool(one == other)


def _routing(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """The golden file keeps the experts of some tokens only, and their order does not matter."""
    kept, chosen, full = (
        before.get("routing_indices_token_indices"),
        before["routing_indices"],
        after.get("routing_indices"),
    )
    if not isinstance(full, list) or not isinstance(chosen, list):
        return False
    if len(full) != len(chosen):
        if not isinstance(kept, list) or any(type(i) is not int or not 0 <= i < len(full) for i in kept):
            return False
        full = [full[i] for i in kept]
    return bool(_in_order(full) == _in_order(chosen))


def _in_order(value: Any) -> Any:
    if isinstance(value, list):
        return [_in_order(x) for x in value] if any(isinstance(x, list) for x in value) else sorted(value, key=repr)
    return value


def one_close(x: object, y: object) -> bool:
    """Whether two logprobs are within CI's absolute tolerance; what is no number equals only itself."""
    if isinstance(x, int | float) and isinstance(y, int | float):
        return math.isclose(x, y, abs_tol=LOGPROBS)
    return x == y


def typical(value: object) -> float | None:
    """A number, or the median of a list without its first, which warms up; None for anything else."""
    try:
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, list) and value and all(isinstance(x, int | float) for x in value):
            return float(median(value[1:] or value))
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf
    return None


def _ratio(old: object, new: object) -> float | None:
    before, after = typical(old), typical(new)
    return after / before if before and after is not None else None


def _rl(old: Golden, new: Golden, config: TestConfig) -> dict[str, str]:
    failed = {metric: "it is missing" for metric in old.series if metric not in new.series}
    for metric in config.metrics:
        before, after = old.series.get(metric), new.series.get(metric)
        if not before or not after:
            continue
        if metric == "iteration-time":
            one, other = (list(steps.values())[config.start_step :] for steps in (before, after))
            if not one or not other or not close(median(other), median(one), RL_TIME):
                failed[metric] = f"the median differs by more than {RL_TIME:.0%}"
        elif metric == "lm-loss":
            if not all(step in after and _near(after[step], value) for step, value in before.items()):
                failed[metric] = f"steps differ by more than {RL_LOSS:.0%}"
        elif metric in ("mem-allocated-bytes", "mem-max-allocated-bytes"):
            one, other = (list(steps.values())[1:] for steps in (before, after))
            if not one or not other or not max(other) <= (1 + RL_MEMORY) * max(one):
                failed[metric] = f"the largest value grew by more than {RL_MEMORY:.0%}"
    return failed


def _near(new: float, old: float) -> bool:
    return abs(new) <= 1e-6 if abs(old) < 1e-6 else close(new, old, RL_LOSS)
