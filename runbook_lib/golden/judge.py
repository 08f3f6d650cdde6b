"""What a refresh of golden values would change, and whether a person must see it first.

Most values drift a little with a new base image: such a file is a *refresh*.  It is *held back* when a person must
look: lost steps or metrics, another shape, other text or tokens, a loss beyond its tolerance or drifting away at the
end, iteration time or memory worse beyond a limit.  A value that turned NaN or infinite, or a file that does not parse,
is *refused*, and nobody can accept it.  Where the repository has the lint ``tools/check_golden_values.py``, a changed
file may hold no NaN at all, or CI would never start; before it, collectors wrote "nan" for steps that were not
observed, and such a mark that was there before is only noted.
"""

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from runbook_lib.errors import Refused
from runbook_lib.golden import ci_rules
from runbook_lib.golden.measure import Measure, measure
from runbook_lib.golden.values import BadGolden, Golden, parse
from runbook_lib.text.decisions import entries
from runbook_lib.text.redact import Redactor

Verdict = Literal["unchanged", "refresh", "held back", "refused"]


@dataclass(frozen=True)
class Limits:
    """From which ratio of new to old a regression is held back; the drift of a loss at its end is relative.

    A new image moves iteration times of a whole cluster by half, so less than twice says nothing about one test.
    """

    time: float = 2.0
    memory: float = 1.05
    end_of_loss: float = 0.01


@dataclass(frozen=True)
class Reason:
    """Why a person must look; ``weight`` is how many times a limit is passed, and orders what is shown first."""

    metric: str
    sentence: str
    weight: float = 1.0


@dataclass(frozen=True)
class Judgement:
    """The verdict on one file.  ``ci``: why CI would fail each metric; ``accepted``: the reason somebody gave."""

    file: str
    verdict: Verdict
    reasons: tuple[Reason, ...] = ()
    measures: tuple[Measure, ...] = ()
    ci: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    accepted: str = ""

    @property
    def weight(self) -> float:
        """That of the worst reason."""
        return max((reason.weight for reason in self.reasons), default=0.0)


def judge(
    file: str,
    old: str | bytes | None,
    new: str | bytes | None,
    config: str | None = None,
    *,
    lint: bool = False,
    limits: Limits | None = None,
) -> Judgement:
    """Compare the two contents of a golden file (None: there is no such file), with its test's ``model_config.yaml``.

    ``lint``: the repository's lint refuses every NaN in a changed file, those included that were there before.
    """
    if new is None:
        return Judgement(file, "held back", (Reason("", "the file is gone", 2.0),))
    try:
        after = parse(new)
    except BadGolden as error:
        if old == new:
            return Judgement(file, "unchanged", notes=(f"the file cannot be read: {error}",))
        return Judgement(file, "refused", (Reason("", f"the new file cannot be read: {error}"),))
    if old == new:
        return Judgement(file, "unchanged", notes=("the file is empty",) if after.blank else ())
    if after.blank:
        return Judgement(file, "refused", (Reason("", "the new file is empty, and no JSON"),))
    try:
        before = None if old is None else parse(old)
    except BadGolden as error:
        told = f"the old file cannot be read, so there is nothing to compare with: {error}"
        return _refused(file, after.not_finite) or Judgement(file, "held back", (Reason("", told),))
    known = before or Golden()
    refused = _refused(file, after.not_finite if lint else _turned(known, after))
    if before is None or before.blank:
        if refused:
            return refused
        return Judgement(file, "refresh", notes=("the file is new" if before is None else "the old file was empty",))
    judged = _compared(file, before, after, ci_rules.TestConfig.parse(config, before), limits or Limits())
    return replace(judged, verdict="refused", reasons=refused.reasons + judged.reasons) if refused else judged


def accept(
    judged: Iterable[Judgement], text: str, redactor: Redactor, known: Container[str] = ()
) -> tuple[Judgement, ...]:
    """Let files that are held back be refreshed: ``file: reason; file: reason``, files as they are named here.

    Raises Refused for a name that was neither compared nor is ``known``, for a refused file, for an entry without a
    reason or twice.  A file that is not held back (any more) stays as it is, so that a second run may say the same.
    """
    found = tuple(judged)
    by_name = {one.file: one for one in found}
    reasons = entries(text, "accept", "file: reason", redactor)
    for name in reasons:
        if name not in by_name and name not in known:
            held = ", ".join(one.file for one in found if one.verdict == "held back") or "none"
            raise Refused(f"accept names {name!r}, which is no file of this comparison. Held back: {held}.")
        if name in by_name and by_name[name].verdict == "refused":
            why = "; ".join(one.sentence for one in by_name[name].reasons)
            raise Refused(f"{name} cannot be accepted: {why}. Megatron-LM's lint refuses it, and CI would not start.")
    return tuple(
        replace(one, verdict="refresh", accepted=reasons[one.file])
        if one.file in reasons and one.verdict == "held back"
        else one
        for one in found
    )


def _turned(old: Golden, new: Golden) -> tuple[str, ...]:
    """Where NaN or infinity stand now and did not before."""
    before = set(old.not_finite)
    return tuple(mark for mark in new.not_finite if mark not in before)


def _refused(file: str, marks: tuple[str, ...]) -> Judgement | None:
    if not marks:
        return None
    more = f" and {len(marks) - 3} more" if len(marks) > 3 else ""
    return Judgement(file, "refused", (Reason("", f"NaN or infinity: {', '.join(marks[:3])}{more}", len(marks)),))


def _compared(file: str, old: Golden, new: Golden, config: ci_rules.TestConfig, limits: Limits) -> Judgement:
    if old == new:
        return Judgement(file, "unchanged", notes=("only the way it is written changed",))
    if config.kind == "rl" and limits.memory < 1 + ci_rules.RL_MEMORY:
        limits = replace(limits, memory=1 + ci_rules.RL_MEMORY)
    measures = tuple(
        measure(file, metric, steps, new.series[metric]) for metric, steps in old.series.items() if metric in new.series
    )
    reasons = [*_lost(old, new), *_regressions(measures, old, new, config, limits)]
    reasons += [*_requests(old, new), *_others(old, new, limits)]
    notes = [f"new metric {metric}" for metric in new.series if metric not in old.series]
    if new.not_finite:
        notes.append(f"NaN or infinity in {len(new.not_finite)} of its values, as before")
    if not config.known:
        notes.append("no model_config.yaml: judged by the form of the file")
    reasons.sort(key=lambda reason: -reason.weight)
    verdict: Verdict = "held back" if reasons else "refresh"
    return Judgement(file, verdict, tuple(reasons), measures, ci_rules.ci_failures(old, new, config), tuple(notes))


def _lost(old: Golden, new: Golden) -> Iterable[Reason]:
    for metric, steps in old.series.items():
        after = new.series.get(metric)
        if after is None or not after:
            if any(map(math.isfinite, steps.values())):
                yield Reason(metric, "the metric is gone", 2.0)
            continue
        if steps.keys() == after.keys():
            continue  # what was finite still is: otherwise the file is refused
        gone = sorted(step for step in steps.keys() - after.keys() if math.isfinite(steps[step]))
        if gone:
            yield Reason(metric, f"{len(gone)} of {len(steps)} steps are gone, from step {gone[0]} on", 2.0)
        if steps and max(after) > max(steps):
            yield Reason(metric, f"the run became longer: {max(after)} steps instead of {max(steps)}", 1.5)
    if old.series and not new.series and not new.empty:
        yield Reason("", "values by step became something else", 2.0)


def _regressions(
    measures: Iterable[Measure], old: Golden, new: Golden, config: ci_rules.TestConfig, limits: Limits
) -> Iterable[Reason]:
    for one in measures:
        metric, ratio = one.metric, one.ratio
        if ratio is not None:
            slow, limit = "time" in metric, limits.time if "time" in metric else limits.memory
            if ratio > limit:
                worse = f"{ratio:.2f} times as long" if slow else f"{ratio - 1:+.1%} memory"
                yield Reason(metric, worse, ratio / limit)
        if "loss" not in metric or not one.max_abs:
            continue
        rtol = (
            ci_rules.RL_LOSS
            if config.kind == "rl"
            else ci_rules.PRETRAINING.get(metric, ci_rules.Rule(0.05, True)).rtol
        )
        after = new.series[metric]
        shared = {s: x for s, x in old.series[metric].items() if s in after and math.isfinite(x)}
        if shared and not ci_rules.within(shared, after, rtol):
            yield Reason(metric, f"up to {one.max_abs:.3g} relative, beyond {rtol:.0%}", max(one.max_abs / rtol, 1.0))
        elif one.last_shift is not None and one.last_shift > limits.end_of_loss:
            yield Reason(metric, f"{one.last_shift:+.2%} at the end: diverging", one.last_shift / limits.end_of_loss)


def _requests(old: Golden, new: Golden) -> Iterable[Reason]:
    gone, more = old.requests.keys() - new.requests.keys(), new.requests.keys() - old.requests.keys()
    if gone:
        yield Reason("requests", f"{len(gone)} of {len(old.requests)} requests are gone", 2.0)
    if more:
        yield Reason("requests", f"{len(more)} requests are new", 1.5)
    for key in sorted(old.requests.keys() & new.requests.keys()):
        before, after, name = old.requests[key], new.requests[key], f"request {key}: " if key else ""
        for part, value in before.items():
            other = after.get(part)
            if other is None and value is not None:
                yield Reason(part, f"{name}the field is gone", 2.0)
            elif part in ("generated_text", "generated_tokens", "input_prompt") and value != other:
                yield Reason(part, f"{name}it changed{_where(value, other)}")
            elif isinstance(value, list) and isinstance(other, list) and len(value) != len(other):
                yield Reason(part, f"{name}{len(other)} entries instead of {len(value)}", 1.5)


def _where(old: object, new: object) -> str:
    if isinstance(old, list | str) and isinstance(new, type(old)):
        differ = (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
        return f" from position {next(differ, min(len(old), len(new)))} on"
    return ""


def _others(old: Golden, new: Golden, limits: Limits) -> Iterable[Reason]:
    for name, value in old.others.items():
        if name not in new.others:
            yield Reason(name, "the metric is gone", 2.0)
            continue
        before, after = ci_rules.typical(value), ci_rules.typical(new.others[name])
        if before is None or after is None:
            if value != new.others[name]:
                yield Reason(name, "its shape changed", 1.5)
        elif before > 0 and after <= 0 and name in ("throughput", "mem-max-allocated-bytes"):
            yield Reason(name, f"it fell to {after:g}", 2.0)
        elif before > 0 and name == "throughput" and before / after > limits.time:
            yield Reason(name, f"{after / before:.2f} times the throughput", before / after / limits.time)
        elif before > 0 and name.startswith("mem-") and after / before > limits.memory:
            yield Reason(name, f"{after / before - 1:+.1%} memory", after / before / limits.memory)
        elif before > 0 and "timing" in name and after / before > limits.time:
            yield Reason(name, f"{after / before:.2f} times as long", after / before / limits.time)
