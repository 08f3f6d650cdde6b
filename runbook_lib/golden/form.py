"""The form of a refreshed golden file: changes that a person must review regardless of noise.

Lost steps or metrics, a different shape, or different text or tokens hold a file back.  A value that is NaN or
infinite, or a file that cannot be parsed, is *refused*, and nobody can accept it.  A step that was not observed is not
such a value: collectors wrote the string "nan" for it.  If the repository has the lint
``tools/check_golden_values.py``, CI would not start with either.  ``judge`` adds the judgement of the values.
"""

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from runbook_lib.golden import baselines, ci_rules
from runbook_lib.golden.ci_rules import ComparisonConfig
from runbook_lib.golden.measure import (
    CHANGED,
    MISSING,
    Judgement,
    ReviewReason,
    cost_changes,
    is_loss,
    loss_changes,
    measure,
)  # fmt: skip
from runbook_lib.golden.values import BadGoldenFile, GoldenValues, Steps, parse
from runbook_lib.text.lists import join_first
from runbook_lib.text.recipes.file_names import is_baseline

#: The decimals of values without ``value_precision: full``.
_DECIMALS = 5
#: The mean change of a request's log probabilities, which past images kept below 0.08 while the tokens were equal.
_LOGPROBS = 0.25


def examine(
    file: str, old: str | bytes | None, new: str | bytes | None, config: str | None = None, *, lint: bool = False
) -> Judgement:
    """Compare the form of two versions of a golden file (None: the file does not exist), and measure the changes.

    ``lint``: the repository's lint refuses every NaN in a changed file, including those that were there before.
    """
    if new is None:
        return Judgement(file, "held back", (ReviewReason("", "the file is missing", MISSING),))
    if old == new:
        return Judgement(file, "unchanged")
    try:
        after = baselines.parse(new) if is_baseline(file) else parse(new)
    except BadGoldenFile as error:
        return Judgement(file, "refused", (ReviewReason("", f"the new file cannot be read: {error}"),))
    try:
        if not isinstance(after, GoldenValues):
            return baselines.compare(file, None if old is None else baselines.parse(old), after, config)
        before = parse(old or "")
    except BadGoldenFile as error:
        sentence = f"the old file cannot be read, so there is nothing to compare with: {error}"
        before, judgement = GoldenValues(), Judgement(file, "held back", (ReviewReason("", sentence),))
        if not isinstance(after, GoldenValues):
            return judgement
    else:
        judgement = _compare(file, before, after, ComparisonConfig.parse(config, before))
        if old is None:
            judgement = replace(judgement, notes=("the file is new", *judgement.notes))
    refusal = _not_finite(before, after, lint=lint) or _less_precise(before, after)
    if after.blank:
        refusal = ReviewReason("", "the new file is empty, which is not JSON")
    return replace(judgement, verdict="refused", reasons=(refusal, *judgement.reasons)) if refusal else judgement


def _compare(file: str, old: GoldenValues, new: GoldenValues, config: ComparisonConfig) -> Judgement:
    if old == new:
        return Judgement(file, "unchanged", notes=("only the formatting changed",))
    if old.blank:
        return Judgement.of(file, _lost_series(old, new), notes=tuple(_notes(old, new)))
    shared = [metric for metric in old.series if metric in new.series]
    notes = [f"new metric {metric}" for metric in new.series if metric not in old.series]
    if not config.known:
        notes.append("no model_config.yaml: judged by the format of the file")
    measures = tuple(measure(file, metric, old.series[metric], new.series[metric]) for metric in shared)
    fallen = [each.metric for each in measures if not is_loss(each.metric) and (each.avg_rel_diff or 0) >= 1]
    gone = [ReviewReason(metric, "nothing is left of it", MISSING, "gone") for metric in fallen]
    return Judgement.of(
        file, (*_lost_series(old, new), *gone, *_lost_requests(old, new), *_run_metrics(old, new)), measures=measures,
        ci=ci_rules.ci_failures(old, new, config), notes=(*notes, *_notes(old, new)), costs=cost_changes(old, new),
        losses=loss_changes(old, new, rl=config.kind == "rl"),
    )  # fmt: skip


def _notes(old: GoldenValues, new: GoldenValues) -> Iterable[str]:
    if new.not_finite and not old.blank:
        yield f"NaN or infinity in {len(new.not_finite)} values, as before"
    for metric, steps in sorted(new.unobserved.items()):
        yield f"{metric} was not observed at {len(steps)} of {len(new.series[metric])} steps"


def _not_finite(old: GoldenValues, new: GoldenValues, *, lint: bool) -> ReviewReason | None:
    """Return the refusal of values that became NaN or infinite and, with ``lint``, of all that the lint refuses."""
    places = [place for place in new.not_finite if lint or place not in old.not_finite]
    for metric, steps in new.unobserved.items():
        wrong = steps if lint else _lost_loss(metric, steps, old, new)
        places += [f"{metric} at step {step}" for step in sorted(wrong)]
    if not places:
        return None
    listed = join_first(places, 3)
    if lint and not new.not_finite:
        listed += ' (steps that were not observed, written as "nan", which tools/check_golden_values.py refuses)'
    return ReviewReason("", f"NaN or infinity: {listed}", len(places))


def _less_precise(old: GoldenValues, new: GoldenValues) -> ReviewReason | None:
    """Return the refusal of metrics that had full precision, and lost the mark, which CI rejects, or their digits."""
    for metric in sorted(old.full & new.series.keys()):
        if metric not in new.full:
            return ReviewReason(metric, "it has no value_precision: full any more, which CI rejects", MISSING)
        if _is_rounded(new.series[metric]) and not _is_rounded(old.series[metric]):
            return ReviewReason(metric, f"its values are rounded to {_DECIMALS} decimals, despite their mark", MISSING)
    return None


def _is_rounded(steps: Steps) -> bool:
    return all(round(steps[step], _DECIMALS) == steps[step] for step in _observed(steps))


def _lost_loss(metric: str, unobserved: Iterable[int], old: GoldenValues, new: GoldenValues) -> set[int]:
    """Return the steps at which a loss must have a value: it had one before, or other metrics have one.

    Other metrics are not measured at every step: times not at the first step, zeros not at skipped steps.
    """
    if "loss" not in metric:
        return set()
    others = [steps for name, steps in new.series.items() if name != metric]
    before, known = old.series.get(metric, {}), old.unobserved.get(metric, ())
    first = min(_observed(new.series[metric]), default=math.inf)
    lost_steps = set()
    for step in unobserved:
        ran = any(math.isfinite(steps.get(step, math.inf)) for steps in others) if others else step > first
        if math.isfinite(before.get(step, math.inf)) or (ran and step not in known):
            lost_steps.add(step)
    return lost_steps


def _observed(steps: Steps) -> list[int]:
    return [step for step, value in steps.items() if math.isfinite(value)]


def _lost_series(old: GoldenValues, new: GoldenValues) -> Iterable[ReviewReason]:
    for metric, steps in old.series.items():
        after = new.series.get(metric)
        if not after:
            if _observed(steps):
                yield ReviewReason(metric, "the metric is missing", MISSING, "gone")
        elif steps.keys() != after.keys() or metric in new.unobserved:
            yield from _lost_steps(metric, steps, after, new.unobserved.get(metric, ()))
    for metric in sorted(new.unobserved.keys() - old.series.keys()):
        last, end = max(_observed(new.series[metric]), default=0), max(new.series[metric])
        if "loss" in metric and last < end:
            yield ReviewReason(metric, f"the run ended early: no value after step {last} of {end}", MISSING, "steps")
    if old.series and not new.series and not new.empty:
        yield ReviewReason("", "values by step were replaced by something else", MISSING)


def _lost_steps(metric: str, before: Steps, after: Steps, unobserved: Container[int]) -> Iterable[ReviewReason]:
    missing = sorted(step for step in _observed(before) if step not in after or step in unobserved)
    end = max(before, default=0)
    if "time" in metric and math.isfinite(ci_rules.steady_time(after, ci_rules.steady_steps(before))):
        # The first steps are warm-up: no comparison uses them, and collectors leave them out.
        first = min(_observed(after))
        missing = [step for step in missing if step > first]
    # Skipped steps have no number of zeros, and the time of a step may be missing from a log.
    if missing and (is_loss(metric) or len(missing) > len(before) // 100 or end in missing):
        sentence = f"{len(missing)} of {len(before)} steps are missing, from step {missing[0]} on"
        yield ReviewReason(metric, sentence, MISSING, "steps")
    if before and (new_end := max(_observed(after), default=0)) > end:
        yield ReviewReason(metric, f"the run became longer: {new_end} steps instead of {end}", CHANGED, "steps")


def _lost_requests(old: GoldenValues, new: GoldenValues) -> Iterable[ReviewReason]:
    lost, added = old.requests.keys() - new.requests.keys(), new.requests.keys() - old.requests.keys()
    if lost:
        yield ReviewReason("requests", f"{len(lost)} of {len(old.requests)} requests are missing", MISSING)
    if added:
        yield ReviewReason("requests", f"{len(added)} requests are new", CHANGED)
    for key in sorted(old.requests.keys() & new.requests.keys()):
        prefix = f"request {key}: " if key else ""
        for name, before in old.requests[key].items():
            after = new.requests[key].get(name)
            if after is None and before is not None:
                yield ReviewReason(name, f"{prefix}the field is missing", MISSING)
            elif name in ("generated_text", "generated_tokens", "input_prompt") and before != after:
                yield ReviewReason(name, f"{prefix}it changed{_first_difference(before, after)}")
            elif isinstance(before, list) and isinstance(after, list) and len(before) != len(after):
                yield ReviewReason(name, f"{prefix}{len(after)} entries instead of {len(before)}", CHANGED)
            elif name == "logprobs" and isinstance(before, list) and isinstance(after, list):
                yield from _logprobs(prefix, before, after)


def _logprobs(prefix: str, old: Sequence[object], new: Sequence[object]) -> Iterable[ReviewReason]:
    """Yield a reason if the same tokens became much more or less probable, or one is no longer a number."""
    changes = [
        abs(before - after) if isinstance(before, float) and isinstance(after, float) else math.inf
        for before, after in zip(old, new, strict=True) if before != after
    ]  # fmt: skip
    change = sum(changes) / max(len(old), 1)
    if change > _LOGPROBS:
        yield ReviewReason("logprobs", f"{prefix}they changed by {change:.2g} on average", change / _LOGPROBS)


def _first_difference(old: object, new: object) -> str:
    if not isinstance(old, list | str) or not isinstance(new, type(old)):
        return ""
    pairs = enumerate(zip(old, new, strict=False))
    position = next((at for at, (before, after) in pairs if before != after), min(len(old), len(new)))
    return f" from position {position} on"


def _run_metrics(old: GoldenValues, new: GoldenValues) -> Iterable[ReviewReason]:
    for name, value in old.run_metrics.items():
        if name not in new.run_metrics:
            yield ReviewReason(name, "the metric is missing", MISSING, "gone")
            continue
        before, after = ci_rules.typical(value), ci_rules.typical(new.run_metrics[name])
        if before is None or after is None:
            if value != new.run_metrics[name]:
                yield ReviewReason(name, "its shape changed", CHANGED)
        elif before > 0 and after <= 0 and name in ("throughput", "mem-max-allocated-bytes"):
            yield ReviewReason(name, f"it fell to {after:g}", MISSING)
