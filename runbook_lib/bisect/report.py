"""The result of a search: the conclusion and its probability, a plot, the fix, and a text for upstream."""

from runbook_lib import display
from runbook_lib.bisect.facts import SearchFacts
from runbook_lib.bisect.search import Conclusion, Point, Trial
from runbook_lib.checks import Evidence
from runbook_lib.golden import plots
from runbook_lib.text.markdown import code


def sentence(conclusion: Conclusion) -> str:
    """Return the result in one or two sentences, with its probability."""
    if conclusion.step is None:
        return f"No result: {conclusion.reason}"
    good, bad = conclusion.step
    probability = percent(conclusion.probability)
    return f"{bad} is the first bad tag, {good} the last good one. {conclusion.reason} Probability: {probability}."


def evidence(facts: SearchFacts, conclusion: Conclusion | None = None) -> Evidence:
    """Return the runs so far, and of a search that is over its result, the fix and the text for upstream."""
    if not facts.ledger.runs:
        return Evidence()
    rows = list(map(_row, facts.ledger.runs))
    files, tables = {facts.ledger.path.name: facts.ledger.text}, {"runs": rows}
    shown = (display.table(rows), display.Drawing(lambda: plot(facts)))
    if conclusion is None or conclusion.step is None:
        inputs = {"bisect_result": sentence(conclusion)} if conclusion else {}
        return Evidence(inputs, tables=tables, files=files, shown=shown)
    text, below = issue(facts, conclusion), display.View("", "")
    for overlay in facts.overlays_of(Point(conclusion.step[1], conclusion.culprits))[:1]:
        lines = "\n".join(overlay.dockerfile_lines())
        below += display.code(lines, title="After FROM in the Dockerfile, to stay on the new image")
    below += display.code(text, title="Text for upstream")
    return Evidence(
        {"bisect_result": sentence(conclusion)}, tables=tables, files={**files, "upstream-issue.md": text},
        warnings=tuple(f"Remaining suspect: {it}." for it in remaining_suspects(facts, conclusion.step[1])),
        shown=(*shown, below),
    )  # fmt: skip


def _row(run: Trial) -> dict[str, object]:
    return {
        "run": run.number, "tag": run.point.tag, "restored": ", ".join(run.point.restored),
        "value": run.value if run.outcome == "value" else run.outcome or "submitted", "node": run.node,
        "note": run.reason,
    }  # fmt: skip


def remaining_suspects(facts: SearchFacts, tag: str) -> tuple[str, ...]:
    """Return the components that could not be swapped, or whose old version could not be verified in the container."""
    restored = {run.point.restored for run in facts.ledger.runs if run.outcome == "invalid"}
    invalid = sorted(names[0] for names in restored if len(names) == 1)
    return (*facts.swappable(tag)[1], *(f"{name}: its old version did not take effect" for name in invalid))


def plot(facts: SearchFacts) -> display.Picture | display.View:
    """Plot the values by image and restored component."""
    groups = {"\nold ".join([point.tag, *point.restored]): values for point, values in _values(facts).items()}
    if not groups:
        return display.note("No run has a value yet.")
    label = "passed (1) or failed (0)"
    if facts.request.metric != "exit":
        label = f"{facts.request.metric}, {facts.request.direction}"
    return plots.values_by_group(groups, label, highlighted=groups.keys() - set(facts.ledger.images))


def _values(facts: SearchFacts) -> dict[Point, list[float]]:
    """Return the values of each point that has some, by tag and restored components."""
    values: dict[Point, list[float]] = {}
    tags = list(facts.ledger.images)
    for run in sorted(facts.ledger.runs, key=lambda run: (tags.index(run.point.tag), run.point.restored)):
        if run.value is not None:
            values.setdefault(run.point, []).append(run.value)
    return values


def issue(facts: SearchFacts, conclusion: Conclusion) -> str:
    """Return the text of an upstream issue about the step that a search has found."""
    request, image, (good, bad) = facts.request, facts.branch.bump.repository.sites.image, conclusion.step or ("", "")
    metric = "the exit status" if request.metric == "exit" else f"{request.metric} ({request.direction})"
    lines = [
        f"Regression between {image}:{good} and {image}:{bad}", "",
        f"Measured: {metric} of {code(request.subject)}.", "", sentence(conclusion), "",
        "| image | restored to the old version | values |", "| --- | --- | --- |",
    ]  # fmt: skip
    for point, values in _values(facts).items():
        restored = ", ".join(map(code, point.restored)) or "–"
        lines.append(f"| {code(point.tag)} | {restored} | {', '.join(f'{value:g}' for value in values)} |")
    for overlay in facts.overlays_of(Point(bad, conclusion.culprits)):
        lines += ["", f"{overlay.name}: {code(overlay.old)} → {code(overlay.new or 'the version of the image')}"]
    return "\n".join([*lines, ""])


def percent(probability: float) -> str:
    """Return a probability as a percentage that never rounds up to certainty."""
    return f"{min(int(probability * 1000) / 10, 99.9):.1f} %"
