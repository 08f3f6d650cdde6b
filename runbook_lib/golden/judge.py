"""The verdict on a refresh of a golden file: its drift, and whether a person must see it first.

Most values drift a little with a new base image: such a file is a *refresh*.  It is *held back* when a person must
look: lost steps or metrics, another shape, other text or tokens, a loss beyond its tolerance or drifting away at the
end, iteration time or memory worse beyond a limit.  A value that is NaN or infinite, or a file that does not parse, is
*refused*, and nobody can accept it.  A step that was not observed is no such value: collectors wrote the string "nan"
for it.  Where the repository has the lint ``tools/check_golden_values.py``, CI would not start with it either.
"""

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from runbook_lib.golden import ci_rules
from runbook_lib.golden.ci_rules import ComparisonConfig
from runbook_lib.golden.measure import Measure, measure
from runbook_lib.golden.values import BadGoldenFile, GoldenValues, Steps, parse

Verdict = Literal["unchanged", "refresh", "held back", "refused"]

#: Ratios of new to old from which a regression is held back; the drift of a loss at its end is relative.  A new image
#: moves iteration times of a whole cluster by half, so less than twice says nothing about one test.
TIME_LIMIT, MEMORY_LIMIT, END_OF_LOSS_LIMIT = 2.0, 1.05, 0.01
_DEFAULT_RTOL = 0.05
#: Weights of reasons that have no limit.
_MISSING, _CHANGED = 2.0, 1.5


@dataclass(frozen=True)
class ReviewReason:
    """A reason why a person must look; ``weight`` is the multiple of the limit, and orders what is shown first."""

    metric: str
    sentence: str
    weight: float = 1.0


@dataclass(frozen=True)
class Judgement:
    """The verdict on one file.  ``ci``: why CI would fail each metric.

    ``accepted``: the reason why a person accepted it, for ``accepted_metrics`` (none: for any).  ``renamed``: the old
    name, where it has another one.
    """

    file: str
    verdict: Verdict
    reasons: tuple[ReviewReason, ...] = ()
    measures: tuple[Measure, ...] = ()
    ci: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    accepted: str = ""
    accepted_metrics: tuple[str, ...] = ()
    renamed: str = ""

    @property
    def weight(self) -> float:
        """Return the weight of the worst reason."""
        return max((reason.weight for reason in self.reasons), default=0.0)


def judge(
    file: str, old: str | bytes | None, new: str | bytes | None, config: str | None = None, *, lint: bool = False
) -> Judgement:
    """Compare the two contents of a golden file (None: there is no such file), with its test's ``model_config.yaml``.

    ``lint``: the repository's lint refuses every NaN in a changed file, those included that were there before.
    """
    if new is None:
        return Judgement(file, "held back", (ReviewReason("", "the file is gone", _MISSING),))
    try:
        after = parse(new)
    except BadGoldenFile as error:
        if old == new:
            return Judgement(file, "unchanged", notes=(f"the file cannot be read: {error}",))
        return Judgement(file, "refused", (ReviewReason("", f"the new file cannot be read: {error}"),))
    if old == new:
        return Judgement(file, "unchanged", notes=("the file is empty",) if after.blank else ())
    if after.blank:
        return Judgement(file, "refused", (ReviewReason("", "the new file is empty, which is not JSON"),))
    try:
        before = GoldenValues(blank=True) if old is None else parse(old)
    except BadGoldenFile as error:
        reason = ReviewReason("", f"the old file cannot be read, so there is nothing to compare with: {error}")
        before, judgement = GoldenValues(), Judgement(file, "held back", (reason,))
    else:
        if before.blank:
            reasons = tuple(_lost_series(before, after))
            note = "the file is new" if old is None else "the old file was empty"
            verdict: Verdict = "held back" if reasons else "refresh"
            judgement = Judgement(file, verdict, reasons, notes=(note, *_notes(before, after)))
        else:
            judgement = _compare(file, before, after, ComparisonConfig.parse(config, before))
    if refusal := _not_finite(before, after, lint=lint):
        return replace(judgement, verdict="refused", reasons=(refusal, *judgement.reasons))
    return judgement


def _not_finite(old: GoldenValues, new: GoldenValues, *, lint: bool) -> ReviewReason | None:
    """Return the refusal of values that became NaN or infinite, and with ``lint`` of all that it refuses."""
    places = list(new.not_finite)
    if not lint:
        places = [place for place in new.not_finite if place not in old.not_finite]
    for metric, steps in new.unobserved.items():
        wrong = steps if lint else _lost_loss(metric, steps, old, new)
        places += [f"{metric} at step {step}" for step in sorted(wrong)]
    if not places:
        return None
    listed = ", ".join(places[:3])
    if len(places) > 3:
        listed += f" and {len(places) - 3} more"
    if lint and not new.not_finite:
        listed += ' (steps that were not observed, written as "nan", which tools/check_golden_values.py refuses)'
    return ReviewReason("", f"NaN or infinity: {listed}", len(places))


def _lost_loss(metric: str, unobserved: Iterable[int], old: GoldenValues, new: GoldenValues) -> set[int]:
    """Return the steps at which a loss must have a value: it had one before, or other metrics were observed there.

    Other metrics are not measured at every step: times not at the first, zeros not where the step was skipped.
    """
    if "loss" not in metric:
        return set()
    other_series = [steps for name, steps in new.series.items() if name != metric]
    before, known = old.series.get(metric, {}), old.unobserved.get(metric, ())
    first = min(_observed(new.series[metric]), default=math.inf)
    lost_steps = set()
    for step in unobserved:
        ran = any(math.isfinite(steps.get(step, math.inf)) for steps in other_series) if other_series else step > first
        if math.isfinite(before.get(step, math.inf)) or (ran and step not in known):
            lost_steps.add(step)
    return lost_steps


def _observed(steps: Steps) -> list[int]:
    return [step for step, value in steps.items() if math.isfinite(value)]


def _compare(file: str, old: GoldenValues, new: GoldenValues, config: ComparisonConfig) -> Judgement:
    if old == new:
        return Judgement(file, "unchanged", notes=("only the formatting changed",))
    shared = [metric for metric in old.series if metric in new.series]
    measures = tuple(measure(file, metric, old.series[metric], new.series[metric]) for metric in shared)
    memory_limit = 1 + ci_rules.RL_MEMORY if config.kind == "rl" else MEMORY_LIMIT
    reasons = [*_lost_series(old, new)]
    for measured in measures:
        before, after = old.series[measured.metric], new.series[measured.metric]
        reasons += [*_cost(measured, memory_limit), *_loss(measured, before, after, config)]
    reasons += [*_lost_requests(old, new), *_run_metrics(old, new, memory_limit)]
    reasons.sort(key=lambda reason: -reason.weight)
    notes = [f"new metric {metric}" for metric in new.series if metric not in old.series]
    notes += _notes(old, new)
    if not config.known:
        notes.append("no model_config.yaml: judged by the form of the file")
    verdict: Verdict = "held back" if reasons else "refresh"
    return Judgement(file, verdict, tuple(reasons), measures, ci_rules.ci_failures(old, new, config), tuple(notes))


def _notes(old: GoldenValues, new: GoldenValues) -> list[str]:
    notes = []
    if new.not_finite and not old.blank:
        notes.append(f"NaN or infinity in {len(new.not_finite)} of its values, as before")
    for metric, steps in sorted(new.unobserved.items()):
        notes.append(f"{metric} was not observed at {len(steps)} of {len(new.series[metric])} steps")
    return notes


def _lost_series(old: GoldenValues, new: GoldenValues) -> Iterable[ReviewReason]:
    for metric, steps in old.series.items():
        after = new.series.get(metric)
        if not after:
            if _observed(steps):
                yield ReviewReason(metric, "the metric is gone", _MISSING)
        elif steps.keys() != after.keys() or metric in new.unobserved:
            yield from _lost_steps(metric, steps, after, new.unobserved.get(metric, ()))
    for metric in new.unobserved.keys() - old.series.keys():
        last, end = max(_observed(new.series[metric]), default=0), max(new.series[metric])
        if "loss" in metric and last < end:
            yield ReviewReason(metric, f"the run ended early: no value after step {last} of {end}", _MISSING)
    if old.series and not new.series and not new.empty:
        yield ReviewReason("", "values by step became something else", _MISSING)


def _lost_steps(metric: str, before: Steps, after: Steps, unobserved: Container[int]) -> Iterable[ReviewReason]:
    missing = sorted(step for step in _observed(before) if step not in after or step in unobserved)
    if "time" in metric and math.isfinite(ci_rules.steady_time(after, ci_rules.steady_steps(before))):
        # The first steps warm up: no comparison uses them, and collectors leave them out.
        first = min(_observed(after))
        missing = [step for step in missing if step > first]
    if missing:
        yield ReviewReason(
            metric, f"{len(missing)} of {len(before)} steps are gone, from step {missing[0]} on", _MISSING
        )
    end, new_end = max(before, default=0), max(_observed(after), default=0)
    if before and new_end > end:
        yield ReviewReason(metric, f"the run became longer: {new_end} steps instead of {end}", _CHANGED)


def _cost(measured: Measure, memory_limit: float) -> Iterable[ReviewReason]:
    """Yield a reason if time or memory is worse beyond its limit."""
    if measured.ratio is None:
        return
    if "time" in measured.metric:
        limit, sentence = TIME_LIMIT, f"{measured.ratio:.2f} times as long"
    else:
        limit, sentence = memory_limit, f"{measured.ratio - 1:+.1%} memory"
    if measured.ratio > limit:
        yield ReviewReason(measured.metric, sentence, measured.ratio / limit)


def _loss(measured: Measure, before: Steps, after: Steps, config: ComparisonConfig) -> Iterable[ReviewReason]:
    """Yield a reason if a loss is beyond its tolerance or drifts away at its end."""
    metric, shift = measured.metric, measured.last_shift
    if "loss" not in metric or not measured.max_abs:
        return
    rtol = _DEFAULT_RTOL
    if config.kind == "rl":
        rtol = ci_rules.RL_LOSS
    elif metric in ci_rules.PRETRAINING:
        rtol = ci_rules.PRETRAINING[metric].rtol
    shared = {step: value for step, value in before.items() if step in after and math.isfinite(value)}
    if shared and not ci_rules.approximately_equal(shared, after, rtol):
        sentence = f"up to {measured.max_abs:.3g} relative, beyond {rtol:.0%}"
        yield ReviewReason(metric, sentence, max(measured.max_abs / rtol, 1.0))
    elif shift is not None and shift > END_OF_LOSS_LIMIT:
        yield ReviewReason(metric, f"{shift:+.2%} at the end: diverging", shift / END_OF_LOSS_LIMIT)


def _lost_requests(old: GoldenValues, new: GoldenValues) -> Iterable[ReviewReason]:
    lost, added = old.requests.keys() - new.requests.keys(), new.requests.keys() - old.requests.keys()
    if lost:
        yield ReviewReason("requests", f"{len(lost)} of {len(old.requests)} requests are gone", _MISSING)
    if added:
        yield ReviewReason("requests", f"{len(added)} requests are new", _CHANGED)
    for key in sorted(old.requests.keys() & new.requests.keys()):
        prefix = f"request {key}: " if key else ""
        for name, before in old.requests[key].items():
            after = new.requests[key].get(name)
            if after is None and before is not None:
                yield ReviewReason(name, f"{prefix}the field is gone", _MISSING)
            elif name in ("generated_text", "generated_tokens", "input_prompt") and before != after:
                yield ReviewReason(name, f"{prefix}it changed{_first_difference(before, after)}")
            elif isinstance(before, list) and isinstance(after, list) and len(before) != len(after):
                yield ReviewReason(name, f"{prefix}{len(after)} entries instead of {len(before)}", _CHANGED)


def _first_difference(old: object, new: object) -> str:
    if not isinstance(old, list | str) or not isinstance(new, type(old)):
        return ""
    position = 0
    while position < min(len(old), len(new)) and old[position] == new[position]:
        position += 1
    return f" from position {position} on"


def _run_metrics(old: GoldenValues, new: GoldenValues, memory_limit: float) -> Iterable[ReviewReason]:
    for name, value in old.run_metrics.items():
        if name not in new.run_metrics:
            yield ReviewReason(name, "the metric is gone", _MISSING)
            continue
        before, after = ci_rules.typical(value), ci_rules.typical(new.run_metrics[name])
        if before is None or after is None:
            if value != new.run_metrics[name]:
                yield ReviewReason(name, "its shape changed", _CHANGED)
        elif before > 0 and after <= 0 and name in ("throughput", "mem-max-allocated-bytes"):
            yield ReviewReason(name, f"it fell to {after:g}", _MISSING)
        elif before > 0 and name == "throughput" and before / after > TIME_LIMIT:
            yield ReviewReason(name, f"{after / before:.2f} times the throughput", before / after / TIME_LIMIT)
        elif before > 0 and name.startswith("mem-") and after / before > memory_limit:
            yield ReviewReason(name, f"{after / before - 1:+.1%} memory", after / before / memory_limit)
        elif before > 0 and "timing" in name and after / before > TIME_LIMIT:
            yield ReviewReason(name, f"{after / before:.2f} times as long", after / before / TIME_LIMIT)
