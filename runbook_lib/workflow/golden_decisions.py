"""The decisions on golden values that only a person can make, with the contents of their cards."""

from collections.abc import Iterable

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

    @property
    def are_wanted(self) -> bool:
        """True while there is a record, and room in it."""
        return self._step.folder is not None and self._count < _MOST_PLOTS

    def store(self, picture: Picture | None) -> dict[str, object]:
        """Store a plot if there is one; return the fact that names it."""
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
        offer = _search(values, group)
        facts: dict[str, object] = {
            "numbers": group.sentence,
            "danger": values.verdicts.danger(group),
            "files": list(group.files),
            "key": decision_facts.fingerprint(group.id, f"{group.ratio or 0:.2f}", len(group.files)),
            "search": offer.removeprefix(bisect_offer.PREFIX) if offer.startswith(bisect_offer.PREFIX) else "",
        }
        if plots.are_wanted:
            facts |= plots.store(golden_plots.shift(group, values.verdicts))
        suggestion = "" if facts["danger"] else group.sentence
        step.decide("accept", group.id, f"{group.sentence}. {offer}".rstrip(), suggestion, facts)
    old, new = parse_all(values.old), parse_all(values.new)
    for file in stopped:
        if file.verdict == "refused":
            continue
        facts = {"danger": file.danger, "test": test_of(file.file)}
        facts["key"] = decision_facts.fingerprint(values.old.get(file.file), values.new.get(file.file))
        numbers = ""
        if file.file in old and file.file in new:
            numbers = decision_facts.numbers(file, old[file.file], new[file.file])
            if plots.are_wanted:
                facts |= plots.store(decision_facts.plot(file, values.verdicts, old[file.file], new[file.file]))
        facts["numbers"] = numbers
        step.decide("accept", file.file, sentence(file), "" if facts["danger"] else numbers, facts)


def test_of(file: str) -> str:
    """Return a golden file's test as ``model/case@platform``; empty if its name does not show it."""
    name = GoldenFileName.of_path(file)
    if name is None or not name.platform:
        return ""
    model, case = file.split("/")[-3:-1]
    return f"{model}/{case}@{name.platform}"


def _search(values: GoldenComparison, group: Group) -> str:
    """Return bisect-image's result for a test in a group that became worse, else the command for a search."""
    test = test_of(group.files[0]) if group.files else ""
    if not test or group.ratio is None or group.ratio <= 1 or "loss" in group.metric:
        return ""
    run = values.ci_run
    result = bisect_offer.result_of(run.pull_request.records, test)
    return result or bisect_offer.offer(run.branch, test, f"{group.metric} lower")
