"""The questions on golden values that only a person can answer, with the contents of their cards: numbers and plots."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial

from runbook_lib.display import Picture
from runbook_lib.golden import bisect_offer, plots
from runbook_lib.golden.comparison import GoldenComparison
from runbook_lib.golden.groups import Group
from runbook_lib.golden.judge import GoldenTable, Verdicts, least_deviation
from runbook_lib.golden.measure import Judgement
from runbook_lib.golden.values import BadGoldenFile, Steps, parse
from runbook_lib.model import Question
from runbook_lib.text.recipes.file_names import GoldenFileName

#: Maximum number of plots per run; drawing one takes 0.2 s.
_MOST_PLOTS = 20


def questions(values: GoldenComparison) -> tuple[tuple[Question, ...], dict[str, Callable[[], Picture]]]:
    """Return a question for each group and file that needs a person, and their plots by file name, each drawn once.

    Refused files cannot be accepted.
    """
    asked, drawings = [], dict[str, Callable[[], Picture]]()
    for question, draw in [*_of_groups(values), *_of_files(values)]:
        if draw and len(drawings) < _MOST_PLOTS:
            name = f"plot-{len(drawings) + 1}.svg"
            drawings[name] = cache(draw)
            question = replace(question, facts={**question.facts, "plot": name})
        asked.append(question)
    return tuple(asked), drawings


Asked = tuple[Question, Callable[[], Picture] | None]


def _of_groups(values: GoldenComparison) -> Iterator[Asked]:
    verdicts = values.verdicts
    for group in verdicts.groups:
        if group.accepted:
            continue
        exceptions = ", ".join(verdicts.exceptions(group))
        numbers = f"{group.sentence}; decided separately: {exceptions}" if exceptions else group.sentence
        worse = group.metric if (group.ratio or 0) > 1 else ""
        facts = {"danger": verdicts.danger(group), "files": list(group.files), "key": group.digest}
        shifts = {group.platform or "all platforms": _ratios(group, verdicts)}
        draw = partial(plots.values_by_group, shifts, f"new / old of {group.metric}") if any(shifts.values()) else None
        yield _question(values, group.id, numbers, facts, group.files[0], worse), draw


def _ratios(group: Group, verdicts: Verdicts) -> list[float]:
    """Return the ratios of new to old for a group's files: of a loss where it changed most, none of a changed form."""
    found = []
    for judgement in verdicts.judgements:
        if judgement.file not in group.files:
            continue
        if group.metric in judgement.costs:
            found.append(math.exp(judgement.costs[group.metric]))
        elif group.metric in judgement.losses:
            found.append(1 + judgement.losses[group.metric].size)
    return list(filter(plots.is_drawn, found))


def _of_files(values: GoldenComparison) -> Iterator[Asked]:
    table = values.table
    for file in values.verdicts.stopped:
        if file.verdict != "refused":
            facts = {"danger": file.danger, "test": test_of(file.file), "key": table.digest(file.file)}
            question = _question(values, file.file, file.sentence, facts, file.file, _worse_metric(file))
            yield question, _plot(file, values.verdicts, table)


def _question(
    values: GoldenComparison, subject: str, numbers: str, known: Mapping[str, object], file: str, metric: str
) -> Question:
    """Ask about a subject; where a time or memory became worse, with the offer to search the image for the change."""
    run = values.ci_run
    offer, command = _search(values, file, metric)
    facts = {
        **known,
        "numbers": numbers,
        "judged": numbers,
        "search": command,
        "run": run.number,
        "attempt": run.attempt,
    }
    return Question("accept", subject, f"{numbers}. {offer}".rstrip(), "" if facts["danger"] else numbers, facts)


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
    if result := values.searches.results.get(test):
        return result, ""
    command = values.searches.offer(values.ci_run.bump, test, f"{metric} lower")
    return (f"{bisect_offer.PREFIX}{command}", command) if command else ("", "")


def _plot(judgement: Judgement, verdicts: Verdicts, table: GoldenTable) -> Callable[[], Picture] | None:
    """Return the plot of a file's worst metric with the band that it leaves; None if none has steps on both sides."""
    try:
        old, new = (parse(side[judgement.file] or "").series for side in (table.base, table.current))
    except BadGoldenFile:  # which its reasons say
        return None
    metric = next((reason.metric for reason in judgement.reasons if old.get(reason.metric)), "")
    if not new.get(metric):
        return None
    loss = judgement.losses.get(metric)
    band = _band(judgement, verdicts, metric, old[metric])
    return partial(plots.decision, judgement.file, metric, old[metric], new[metric], band, loss.leaves if loss else 0)


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
