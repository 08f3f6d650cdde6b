"""The result of a search: the conclusion and its probability, a plot, the fix, and a text for upstream."""

from dataclasses import dataclass

from runbook_lib import display
from runbook_lib.bisect.image.facts import SearchFacts
from runbook_lib.bisect.image.ledger import LedgerRun
from runbook_lib.bisect.overlays import Overlay
from runbook_lib.bisect.search import Conclusion
from runbook_lib.golden import plots
from runbook_lib.text.markdown import code

#: Labels of a plot, by metric.
_LABELS = {"exit": "passed (1) or failed (0)", "iteration-time": "iteration-time in seconds, lower is better"}


@dataclass(frozen=True)
class BisectResult:
    """The result in the ledger; ``conclusion`` is None while there is something left to run or to compare."""

    facts: SearchFacts
    conclusion: Conclusion | None

    @property
    def runs(self) -> list[LedgerRun]:
        """The runs in the ledger."""
        return list(self.facts.ledger.runs.values())

    @property
    def culprits(self) -> tuple[Overlay, ...]:
        """The overlays of the culprits."""
        names = self.conclusion.culprits if self.conclusion else ()
        return tuple(overlay for overlay in self.facts.ledger.overlays or () if overlay.name in names)

    @property
    def suspects(self) -> tuple[str, ...]:
        """The components that could not be swapped, or whose old version could not be verified in the container."""
        restored = {run.point.restored for run in self.runs if run.outcome == "invalid"}
        invalid = sorted(names[0] for names in restored if len(names) == 1)
        return (*self.facts.ledger.suspects, *(f"{name}: its old version did not take effect" for name in invalid))

    @property
    def sentence(self) -> str:
        """The result in one or two sentences, with its probability."""
        conclusion = self.conclusion
        if conclusion is None:
            return "The search is not over."
        if conclusion.step is None:
            return f"No result: {conclusion.reason}"
        start = f"{conclusion.step[1]} is the first bad tag, {conclusion.step[0]} the last good one"
        if conclusion.verdict != "culprit":
            return f"{start} (probability {percent(conclusion.probability)}). {conclusion.reason}"
        return f"{start}. {conclusion.reason} Probability: {percent(conclusion.probability)}."

    @property
    def advice(self) -> str:
        """The next action, as a sentence."""
        conclusion = self.conclusion
        if conclusion is None:
            return "Run the same command again to continue."
        if self.culprits:
            names = " and ".join(f"{overlay.name} {overlay.old}" for overlay in self._needed)
            return f"Install {names} on top of the new image, as below."
        if conclusion.step:
            return f"Stay on {conclusion.step[0]}, and report {conclusion.step[1]} with the text below."
        return (
            "Give a larger budget, or a command that repeats its measurement, and run the same command again. If the "
            f"runs themselves were faulty, first discard them by deleting {self.facts.folder}."
        )

    @property
    def _needed(self) -> tuple[Overlay, ...]:
        """The overlays that make the image good: one of several that fail only together, else all."""
        return self.culprits if self.conclusion and self.conclusion.together else self.culprits[:1]

    def show(self) -> display.View:
        """Show the result, the cost, and each run."""
        shown = display.note(self.sentence)
        if self.conclusion:
            shown += display.note(self.advice)
            shown += display.notes(self.suspects, title="Remaining suspects")
        hours = sum(run.seconds for run in self.runs) / 3600
        cost = f"{display.count(len(self.runs), 'run')}, {hours:.2f} hours"
        if self.facts.gpus:
            cost += f", {self.facts.gpu_hours:.2f} GPU hours"
        shown += display.note(f"Cost: {cost}.")
        return shown + display.table([run.row for run in self.runs], empty="No run yet.")

    def plot(self) -> display.Picture | display.View:
        """Plot the values by image and restored component."""
        groups: dict[str, list[float]] = {}
        tags = list(self.facts.ledger.images)
        points = {run.point for run in self.runs}
        for point in sorted(points, key=lambda point: (tags.index(point.tag), point.restored)):
            values = [run.value for run in self.runs if run.point == point and run.value is not None]
            if values:
                groups["\nold ".join([point.tag, *point.restored])] = values
        if not groups:
            return display.note("No run has a value yet.")
        metric = self.facts.request.metric
        label = _LABELS.get(metric, f"{metric}, {self.facts.request.direction}")
        return plots.values_by_group(groups, label, highlighted=groups.keys() - set(tags))

    def fix(self) -> display.View:
        """Show the instructions for a Dockerfile that fix the image."""
        lines = [line for overlay in self._needed for line in overlay.dockerfile_lines()]
        return display.code("\n".join(lines), title="After FROM in the Dockerfile") if lines else display.View("", "")

    def issue(self) -> str:
        """Return the text of an upstream issue; empty before the search is over, or if no step was found."""
        conclusion, request = self.conclusion, self.facts.request
        if conclusion is None or conclusion.step is None:
            return ""
        image = self.facts.branch.bump.repository.sites.image
        metric = "the exit status"
        if request.metric != "exit":
            metric = f"{request.metric} ({self.facts.request.direction})"
        lines = [
            f"Regression between {image}:{conclusion.step[0]} and {image}:{conclusion.step[1]}", "",
            f"Measured: {metric} of {code(request.subject)}.", "", self.sentence, "",
            "| image | restored to the old version | values |", "| --- | --- | --- |",
        ]  # fmt: skip
        for point in sorted({run.point for run in self.runs}):
            values = [f"{run.value:g}" for run in self.runs if run.point == point and run.value is not None]
            if values:
                restored = ", ".join(map(code, point.restored)) or "–"
                lines.append(f"| {code(point.tag)} | {restored} | {', '.join(values)} |")
        for overlay in self.culprits:
            lines += ["", f"{overlay.name}: {code(overlay.old)} → {code(overlay.new or 'the version of the image')}"]
        return "\n".join([*lines, ""])


def read_result(facts: SearchFacts) -> BisectResult:
    """Return the result in the ledger."""
    ledger = facts.ledger
    answer = facts.advance() if ledger.images and ledger.pending is None else None
    is_open = isinstance(answer, Conclusion) and answer.verdict == "tag only" and ledger.overlays is None
    return BisectResult(facts, answer if isinstance(answer, Conclusion) and not is_open else None)


def percent(probability: float) -> str:
    """Return a probability as a percentage that never rounds up to certainty."""
    return f"{min(int(probability * 1000) / 10, 99.9):.1f} %"
