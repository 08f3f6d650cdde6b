"""The result of a search: the conclusion and its probability, a plot, the fix, and a text for upstream."""

from dataclasses import replace

from runbook_lib import display
from runbook_lib.bisect.facts import SearchFacts
from runbook_lib.bisect.search import Conclusion, Point, Trial
from runbook_lib.checks import Evidence
from runbook_lib.golden import plots
from runbook_lib.text.markdown import code


def evidence(facts: SearchFacts, conclusion: Conclusion | None = None) -> Evidence:
    """Return the runs so far, and of a search that is over its result, the fix and the text for upstream."""
    if not facts.ledger.runs:
        return Evidence()
    rows = list(map(_row, facts.ledger.runs))
    found = Evidence(
        {"bisect_result": str(conclusion)} if conclusion else {}, tables={"runs": rows},
        files={facts.ledger.path.name: facts.ledger.text},
        shown=(display.table(rows), display.Drawing(lambda: plot(facts))),
    )  # fmt: skip
    if conclusion is None or not conclusion.step:
        return found
    text, below = issue(facts, conclusion), display.View("", "")
    overlays, suspects = facts.swappable(conclusion.step[1])
    for name in conclusion.culprits[:1]:
        lines = "\n".join(overlays[name].dockerfile_lines())
        below += display.code(lines, title="After FROM in the Dockerfile, to stay on the new image")
    below += display.code(text, title="Text for upstream")
    for name in sorted({run.point.restored for run in facts.ledger.runs if run.outcome == "invalid"}):
        suspects.append(f"{name}: its old version did not take effect")
    return replace(
        found, warnings=tuple(f"Remaining suspect: {it}." for it in suspects), shown=(*found.shown, below),
        files={**found.files, "upstream-issue.md": text},
    )  # fmt: skip


def _row(run: Trial) -> dict[str, object]:
    return {
        "run": run.number, "tag": run.point.tag, "restored": run.point.restored,
        "value": run.value if run.outcome == "value" else run.outcome or "submitted", "node": run.node,
        "note": run.reason,
    }  # fmt: skip


def plot(facts: SearchFacts) -> display.Picture | display.View:
    """Plot the values by image and restored component."""
    groups = {str(point).replace(" with the ", "\n"): values for point, values in _values(facts).items()}
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
    request, image, (good, bad) = facts.request, facts.branch.bump.repository.sites.image, conclusion.step
    metric = "the exit status" if request.metric == "exit" else f"{request.metric} ({request.direction})"
    lines = [
        f"Regression between {image}:{good} and {image}:{bad}", "",
        f"Measured: {metric} of {code(request.subject)}.", "", str(conclusion), "",
        "| image | restored to the old version | values |", "| --- | --- | --- |",
    ]  # fmt: skip
    for point, values in _values(facts).items():
        restored = code(point.restored) if point.restored else "–"
        lines.append(f"| {code(point.tag)} | {restored} | {', '.join(f'{value:g}' for value in values)} |")
    overlays, _ = facts.swappable(bad)
    for overlay in map(overlays.__getitem__, conclusion.culprits):
        lines += ["", f"{overlay.name}: {code(overlay.old)} → {code(overlay.new or 'the version of the image')}"]
    return "\n".join([*lines, ""])
