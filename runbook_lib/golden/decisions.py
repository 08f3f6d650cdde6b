"""The questions on golden values that only a person can answer, with the contents of their cards."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

from runbook_lib.display import Picture
from runbook_lib.golden import bisect_offer, decision_facts
from runbook_lib.golden import plots as golden_plots
from runbook_lib.golden.comparison import GoldenComparison
from runbook_lib.golden.form import Judgement
from runbook_lib.golden.summary import sentence
from runbook_lib.model import Question
from runbook_lib.recipes.file_names import GoldenFileName

#: Maximum number of plots per run; drawing one takes 0.2 s.
_MOST_PLOTS = 20


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
    verdicts = values.judged.measured
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
        ratios = golden_plots.ratios(group, verdicts)
        yield question, partial(golden_plots.shift, group, ratios) if ratios else None


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
        if file.file in values.old and file.file in values.new:
            both = values.old[file.file], values.new[file.file]
            numbers = decision_facts.numbers(file, *both)
            if metric := decision_facts.plotted_metric(file, *both):
                draw = partial(decision_facts.plot, metric, file, values.judged.measured, *both)
        facts = {
            "danger": file.danger, "test": test_of(file.file), "key": key, "search": command, **_run(values),
            "judged": sentence(file) if command else why, "numbers": numbers,
        }  # fmt: skip
        yield Question("accept", file.file, why, "" if file.danger else numbers, facts), draw


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
