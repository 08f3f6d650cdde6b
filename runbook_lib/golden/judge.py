"""The verdict on a refresh of a golden file: its drift, and whether a person must see it first.

Most values drift a little with a new base image: such a file is a *refresh*.  It is *held back* when a person must
look: lost steps or metrics, another shape, other text or tokens, a loss beyond its tolerance or drifting away at the
end, iteration time or memory worse beyond a limit.  A value that turned NaN or infinite, or a file that does not parse,
is *refused*, and nobody can accept it.  Where the repository has the lint ``tools/check_golden_values.py``, a changed
file may hold no NaN at all, or CI would never start; before it, collectors wrote "nan" for steps that were not
observed, and such a value that was there before is only noted.
"""

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from runbook_lib.errors import Refused
from runbook_lib.golden import ci_rules
from runbook_lib.golden.ci_rules import ComparisonConfig
from runbook_lib.golden.measure import Measure, measure
from runbook_lib.golden.values import BadGoldenFile, GoldenValues, Steps, parse
from runbook_lib.text.decisions import entries
from runbook_lib.text.redact import Redactor

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
    """The verdict on one file.  ``ci``: why CI would fail each metric; ``accepted``: the reason of an acceptance."""

    file: str
    verdict: Verdict
    reasons: tuple[ReviewReason, ...] = ()
    measures: tuple[Measure, ...] = ()
    ci: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    accepted: str = ""

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
        return _not_finite(file, after.not_finite) or Judgement(file, "held back", (reason,))
    known_places = () if lint else before.not_finite
    refusal = _not_finite(file, tuple(place for place in after.not_finite if place not in known_places))
    if before.blank:
        note = "the file is new" if old is None else "the old file was empty"
        return refusal or Judgement(file, "refresh", notes=(note,))
    judgement = _compare(file, before, after, ComparisonConfig.parse(config, before))
    if refusal:
        return replace(judgement, verdict="refused", reasons=refusal.reasons + judgement.reasons)
    return judgement


def accept(
    judgements: Iterable[Judgement], text: str, redactor: Redactor, known: Container[str] = ()
) -> tuple[Judgement, ...]:
    """Let files that are held back be refreshed: ``file: reason; file: reason``, with the names of the judgements.

    Raise Refused for a name that was neither compared nor is ``known``, for a refused file, for an entry without a
    reason or twice.  A file that is not held back (any more) stays as it is, so that a second run may repeat the text.
    """
    judgements = tuple(judgements)
    by_name = {judgement.file: judgement for judgement in judgements}
    reasons = entries(text, "accept", "file: reason", redactor)
    for name in reasons:
        judgement = by_name.get(name)
        if judgement is None and name not in known:
            held_back = [judgement.file for judgement in judgements if judgement.verdict == "held back"]
            raise Refused(
                f"accept names {name!r}, which is not a file of this comparison. "
                f"Held back: {', '.join(held_back) or 'none'}."
            )
        if judgement is not None and judgement.verdict == "refused":
            why = "; ".join(reason.sentence for reason in judgement.reasons)
            raise Refused(f"{name} cannot be accepted: {why}. Megatron-LM's lint refuses it, and CI would not start.")
    accepted = []
    for judgement in judgements:
        if judgement.file in reasons and judgement.verdict == "held back":
            judgement = replace(judgement, verdict="refresh", accepted=reasons[judgement.file])
        accepted.append(judgement)
    return tuple(accepted)


def _not_finite(file: str, places: tuple[str, ...]) -> Judgement | None:
    """Return the refusal of a file with NaN or infinity in these places; None without any."""
    if not places:
        return None
    listed = ", ".join(places[:3])
    if len(places) > 3:
        listed += f" and {len(places) - 3} more"
    return Judgement(file, "refused", (ReviewReason("", f"NaN or infinity: {listed}", len(places)),))


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
    if new.not_finite:
        notes.append(f"NaN or infinity in {len(new.not_finite)} of its values, as before")
    if not config.known:
        notes.append("no model_config.yaml: judged by the form of the file")
    verdict: Verdict = "held back" if reasons else "refresh"
    return Judgement(file, verdict, tuple(reasons), measures, ci_rules.ci_failures(old, new, config), tuple(notes))


def _lost_series(old: GoldenValues, new: GoldenValues) -> Iterable[ReviewReason]:
    for metric, steps in old.series.items():
        after = new.series.get(metric)
        if not after:
            if any(map(math.isfinite, steps.values())):
                yield ReviewReason(metric, "the metric is gone", _MISSING)
            continue
        if steps.keys() == after.keys():
            continue
        lost_steps = sorted(step for step in steps.keys() - after.keys() if math.isfinite(steps[step]))
        if lost_steps:
            sentence = f"{len(lost_steps)} of {len(steps)} steps are gone, from step {lost_steps[0]} on"
            yield ReviewReason(metric, sentence, _MISSING)
        if steps and max(after) > max(steps):
            yield ReviewReason(metric, f"the run became longer: {max(after)} steps instead of {max(steps)}", _CHANGED)
    if old.series and not new.series and not new.empty:
        yield ReviewReason("", "values by step became something else", _MISSING)


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
