"""The decisions on golden values that only a person can make, with the contents of their cards."""

from collections.abc import Callable, Iterable
from functools import partial

from runbook_lib.display import Picture
from runbook_lib.golden import decision_facts
from runbook_lib.golden import plots as golden_plots
from runbook_lib.golden.file_names import GoldenFileName
from runbook_lib.golden.form import Judgement
from runbook_lib.golden.shifts import Group
from runbook_lib.golden.summary import sentence
from runbook_lib.records.step_record import StepRecord
from runbook_lib.workflow import bisect_offer
from runbook_lib.workflow.golden_comparison import GoldenComparison, parse_all

#: Maximum number of plots per run; drawing one takes 0.2 s.
_MOST_PLOTS = 20


class _StoredPlots:
    """The plots of a run's record, up to a number."""

    def __init__(self, step: StepRecord) -> None:
        self._step, self._count = step, 0

    def store(self, draw: Callable[[], Picture | None]) -> dict[str, object]:
        """Draw and store a plot; return the fact that names it, or none without a record, room in it, or a plot."""
        has_room = self._step.folder is not None and self._count < _MOST_PLOTS
        picture = draw() if has_room else None
        if picture is None:
            return {}
        self._count += 1
        name = f"plot-{self._count}.svg"
        self._step.store(name, picture.svg)
        return {"plot": name}


def request(step: StepRecord, values: GoldenComparison, groups: Iterable[Group], stopped: Iterable[Judgement]) -> None:
    """Record a decision for each group and file that needs a person; refused files cannot be accepted."""
    plots = _StoredPlots(step)
    for group in groups:
        offer = _search(values, group.files[0], group.metric) if (group.ratio or 0) > 1 else ""
        exceptions = ", ".join(values.verdicts.exceptions(group))
        numbers = f"{group.sentence}; decided separately: {exceptions}" if exceptions else group.sentence
        facts: dict[str, object] = {
            "numbers": numbers,
            "danger": values.verdicts.danger(group),
            "files": list(group.files),
            "key": decision_facts.fingerprint(group.id, f"{group.ratio or 0:.2f}", len(group.files)),
            "search": offer.partition(bisect_offer.PREFIX)[2],
        }
        facts |= plots.store(partial(golden_plots.shift, group, values.verdicts))
        suggestion = "" if facts["danger"] else group.sentence
        step.decide("accept", group.id, f"{numbers}. {offer}".rstrip(), suggestion, facts)
    old, new = parse_all(values.old), parse_all(values.new)
    for file in stopped:
        if file.verdict == "refused":
            continue
        numbers = ""
        key = decision_facts.fingerprint(values.old.get(file.file), values.new.get(file.file))
        offer = _search(values, file.file, _worse_metric(file))
        command = offer.partition(bisect_offer.PREFIX)[2]
        facts = {"danger": file.danger, "test": test_of(file.file), "key": key, "search": command}
        why = f"{sentence(file)}. {offer}" if offer else sentence(file)
        facts["judged"] = sentence(file) if command else why
        if file.file in old and file.file in new:
            both = old[file.file], new[file.file]
            numbers = decision_facts.numbers(file, *both)
            facts |= plots.store(partial(decision_facts.plot, file, values.verdicts, *both))
        facts["numbers"] = numbers
        step.decide("accept", file.file, why, "" if file.danger else numbers, facts)


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


def _search(values: GoldenComparison, file: str, metric: str) -> str:
    """Return bisect-image's result for a file's test, else the command for a search; empty for a loss."""
    test = test_of(file)
    if not test or not metric or "loss" in metric:
        return ""
    run = values.ci_run
    result = bisect_offer.result_of(run.pull_request.records, test)
    return result or bisect_offer.offer(run.branch, test, f"{metric} lower")
