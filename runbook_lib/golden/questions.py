"""The questions on golden values that only a person can answer, with the contents of their cards: numbers and plots."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from statistics import median

from runbook_lib.display import Picture
from runbook_lib.golden import bisect_offer
from runbook_lib.golden import plots as golden_plots
from runbook_lib.golden.comparison import GoldenComparison
from runbook_lib.golden.form import Judgement
from runbook_lib.golden.judge import Verdicts, least_deviation
from runbook_lib.golden.summary import sentence
from runbook_lib.golden.table import GoldenTable
from runbook_lib.golden.values import BadGoldenFile, GoldenValues, Steps, parse
from runbook_lib.model import Question
from runbook_lib.recipes.file_names import GoldenFileName

#: Maximum number of plots per run; drawing one takes 0.2 s.
_MOST_PLOTS = 20
_GIB = 2.0**30


def questions(values: GoldenComparison) -> tuple[tuple[Question, ...], dict[str, Callable[[], Picture]]]:
    """Return a question for each group and file that needs a person, and their plots by file name, each drawn once.

    Refused files cannot be accepted.
    """
    asked, plots = [], dict[str, Callable[[], Picture]]()
    for question, draw in [*_of_groups(values), *_of_files(values)]:
        if draw and len(plots) < _MOST_PLOTS:
            name = f"plot-{len(plots) + 1}.svg"
            plots[name] = cache(draw)
            question = replace(question, facts={**question.facts, "plot": name})
        asked.append(question)
    return tuple(asked), plots


Asked = tuple[Question, Callable[[], Picture] | None]


def _of_groups(values: GoldenComparison) -> Iterator[Asked]:
    verdicts = values.judged.verdicts
    for group in verdicts.groups:
        if group.accepted:
            continue
        offer, command = _search(values, group.files[0], group.metric) if (group.ratio or 0) > 1 else ("", "")
        exceptions = ", ".join(verdicts.exceptions(group))
        numbers = f"{group.sentence}; decided separately: {exceptions}" if exceptions else group.sentence
        danger = verdicts.danger(group)
        facts = {
            "numbers": numbers, "danger": danger, "files": list(group.files), "search": command,
            "key": group.digest, **_run(values),
        }  # fmt: skip
        suggestion = "" if danger else group.sentence
        question = Question("accept", group.id, f"{numbers}. {offer}".rstrip(), suggestion, facts)
        yield question, partial(golden_plots.shift, group, verdicts) if golden_plots.ratios(group, verdicts) else None


def _of_files(values: GoldenComparison) -> Iterator[Asked]:
    table = values.readings.table
    for file in values.judged.stopped:
        if file.verdict == "refused":
            continue
        numbers = ""
        key = table.digest(file.file)
        offer, command = _search(values, file.file, _worse_metric(file))
        why = f"{sentence(file)}. {offer}" if offer else sentence(file)
        draw: Callable[[], Picture] | None = None
        if both := _parse_both(table, file.file):
            numbers = _numbers(file, *both)
            if metric := _plotted_metric(file, *both):
                draw = partial(_plot, metric, file, values.judged.verdicts, *both)
        facts = {
            "danger": file.danger, "test": test_of(file.file), "key": key, "search": command, **_run(values),
            "judged": sentence(file) if command else why, "numbers": numbers,
        }  # fmt: skip
        yield Question("accept", file.file, why, "" if file.danger else numbers, facts), draw


def _parse_both(table: GoldenTable, file: str) -> tuple[GoldenValues, GoldenValues] | None:
    """Return the old and the new values of a file; None if one cannot be parsed, which its reasons say."""
    try:
        return parse(table.base[file] or ""), parse(table.current[file] or "")
    except BadGoldenFile:
        return None


def _run(values: GoldenComparison) -> dict[str, object]:
    return {"run": values.readings.ci_run.number, "attempt": values.readings.ci_run.attempt}


def test_of(file: str) -> str:
    """Return a golden file's test as ``model/case@platform``; empty if its name does not show it."""
    name = GoldenFileName.of_path(file)
    if name is None or not name.platform:
        return ""
    model, case = file.split("/")[-3:-1]
    return f"{model}/{case}@{name.platform}"


def _worse_metric(file: Judgement) -> str:
    """Return the time or memory for which a file is held back, if it became worse; empty if there is none."""
    worse = [reason for reason in file.reasons if file.costs.get(reason.metric, 0) > 0 and "zeros" not in reason.metric]
    return max(worse, key=lambda reason: reason.weight).metric if worse and not file.danger else ""


def _search(values: GoldenComparison, file: str, metric: str) -> tuple[str, str]:
    """Return the result of an earlier search for a test, or the offer of one with its command; empty for a loss."""
    test = test_of(file)
    if not test or not metric or "loss" in metric:
        return "", ""
    readings = values.readings
    if result := readings.searches.results.get(test):
        return result, ""
    command = readings.searches.offer(readings.ci_run.bump, test, f"{metric} lower")
    return (f"{bisect_offer.PREFIX}{command}", command) if command else ("", "")


def _numbers(judgement: Judgement, old: GoldenValues, new: GoldenValues) -> str:
    """Return the change in numbers with units: the old and new values, the step outside the band, and the limit."""
    clauses = []
    for reason in judgement.reasons:
        metric = reason.metric
        before, after = old.series.get(metric, {}), new.series.get(metric, {})
        shared = [step for step in before if math.isfinite(before[step]) and math.isfinite(after.get(step, math.inf))]
        if not shared or reason.kind in ("gone", "steps"):
            clauses.append(f"{metric}: {reason.sentence}" if metric else reason.sentence)
            continue
        loss = judgement.losses.get(metric)
        if loss:
            last = max(shared)
            verb = "diverges from" if loss.diverges else "leaves its band at"
            clause = f"{metric} {before[last]:.4g} → {after[last]:.4g} at step {last}"
            if loss.leaves:
                clause += f", {verb} step {loss.leaves}; limit {loss.limits[loss.leaves]:.2%}"
            clauses.append(clause)
        else:
            clauses.append(_typical(metric, before, after, shared))
    return "; ".join(clauses)


def _typical(metric: str, before: Steps, after: Steps, steps: list[int]) -> str:
    later = steps[1:] if "time" in metric and len(steps) > 1 else steps  # the first step warms up
    old, new = (median(series[step] for step in later) for series in (before, after))
    ratio = f", ×{new / old:.2f}" if old > 0 else ""
    unit = ""
    if metric.startswith("mem-"):
        old, new, unit = old / _GIB, new / _GIB, " GiB"
    elif "time" in metric:
        unit = " s"
    return f"{metric} {old:.3g}{unit} → {new:.3g}{unit}{ratio}"


def _plotted_metric(judgement: Judgement, old: GoldenValues, new: GoldenValues) -> str:
    """Return the worst metric of a file; empty if it has no steps."""
    metric = next((reason.metric for reason in judgement.reasons if reason.metric in old.series), "")
    return metric if new.series.get(metric) else ""


def _plot(metric: str, judgement: Judgement, verdicts: Verdicts, old: GoldenValues, new: GoldenValues) -> Picture:
    """Plot the worst metric of a file with the band that it leaves."""
    before, after = old.series[metric], new.series[metric]
    loss = judgement.losses.get(metric)
    leaves = loss.leaves if loss else 0
    return golden_plots.decision(
        judgement.file, metric, before, after, _band(judgement, verdicts, metric, before), leaves
    )


def _band(judgement: Judgement, verdicts: Verdicts, metric: str, before: Steps) -> Mapping[int, tuple[float, float]]:
    """Return the lowest and the highest value that would not be held back, by step."""
    if loss := judgement.losses.get(metric):
        sizes = {step: limit * abs(before[step]) for step, limit in loss.limits.items()}
        return {step: (before[step] - size, before[step] + size) for step, size in sizes.items()}
    deviation = verdicts.deviations.get((judgement.file, metric))
    if deviation is None:
        return {}
    limit = least_deviation(metric, deviation.scale)
    low, high = (math.exp(deviation.shift + sign * limit) for sign in (-1, 1))
    return {step: (value * low, value * high) for step, value in before.items() if math.isfinite(value)}
