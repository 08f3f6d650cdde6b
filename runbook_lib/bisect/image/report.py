"""The result of a search: the conclusion and its probability, a plot, the fix, and a text for upstream."""

from runbook_lib import display
from runbook_lib.bisect.image.facts import SearchFacts
from runbook_lib.bisect.overlays import Overlay
from runbook_lib.bisect.search import Point
from runbook_lib.checks import Evidence
from runbook_lib.golden import plots
from runbook_lib.text.markdown import code


def remaining_suspects(facts: SearchFacts) -> tuple[str, ...]:
    """Return the components that could not be swapped, or whose old version could not be verified in the container."""
    restored = {run.point.restored for run in facts.ledger.runs if run.outcome == "invalid"}
    invalid = sorted(names[0] for names in restored if len(names) == 1)
    return (*facts.ledger.suspects, *(f"{name}: its old version did not take effect" for name in invalid))


def sentence(facts: SearchFacts) -> str:
    """Return the result in one or two sentences, with its probability."""
    conclusion = facts.conclusion
    if conclusion is None:
        return "The search is not over. Run the same command again to continue."
    if conclusion.step is None:
        return f"No result: {conclusion.reason}"
    good, bad = conclusion.step
    probability = percent(conclusion.probability)
    return f"{bad} is the first bad tag, {good} the last good one. {conclusion.reason} Probability: {probability}."


def culprits(facts: SearchFacts) -> tuple[Overlay, ...]:
    """Return the overlays of the culprits, each of which makes the image good."""
    conclusion = facts.conclusion
    if conclusion is None or conclusion.step is None:
        return ()
    return facts.ledger.overlays_of(Point(conclusion.step[1], conclusion.culprits))


def evidence(facts: SearchFacts) -> Evidence:
    """Return the runs so far, and of a search that is over its result, the fix and the text for upstream."""
    suspects, text, is_over = remaining_suspects(facts), issue(facts), facts.conclusion is not None
    rows = [run.row for run in facts.ledger.runs]
    below = display.View("", "")
    for overlay in culprits(facts)[:1]:
        below += display.code(
            "\n".join(overlay.dockerfile_lines()), title="After FROM in the Dockerfile, to stay on the new image"
        )
    if text:
        below += display.code(text, title="Text for upstream")
    return Evidence(
        {"bisect_result": sentence(facts)} if is_over else {}, tables={"runs": rows},
        files={facts.ledger.path.name: facts.ledger.text, **({"upstream-issue.md": text} if text else {})},
        warnings=tuple(f"Remaining suspect: {suspect}." for suspect in suspects) if is_over else (),
        shown=(display.table(rows), plot(facts), below),
    )  # fmt: skip


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


def issue(facts: SearchFacts) -> str:
    """Return the text of an upstream issue; empty before the search is over, or if no step was found."""
    conclusion, request = facts.conclusion, facts.request
    if conclusion is None or conclusion.step is None:
        return ""
    image = facts.branch.bump.repository.sites.image
    metric = "the exit status" if request.metric == "exit" else f"{request.metric} ({request.direction})"
    lines = [
        f"Regression between {image}:{conclusion.step[0]} and {image}:{conclusion.step[1]}", "",
        f"Measured: {metric} of {code(request.subject)}.", "", sentence(facts), "",
        "| image | restored to the old version | values |", "| --- | --- | --- |",
    ]  # fmt: skip
    for point, values in _values(facts).items():
        restored = ", ".join(map(code, point.restored)) or "–"
        lines.append(f"| {code(point.tag)} | {restored} | {', '.join(f'{value:g}' for value in values)} |")
    for overlay in culprits(facts):
        lines += ["", f"{overlay.name}: {code(overlay.old)} → {code(overlay.new or 'the version of the image')}"]
    return "\n".join([*lines, ""])


def percent(probability: float) -> str:
    """Return a probability as a percentage that never rounds up to certainty."""
    return f"{min(int(probability * 1000) / 10, 99.9):.1f} %"
