"""Notebook bisect-image: run after run until there is a result, each recorded in the ledger before and after.

The result is the conclusion with its probability, a plot, the fix, and a text for upstream.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from runbook_lib import display, notebooks
from runbook_lib.bisect import facts as searches
from runbook_lib.bisect.facts import SearchFacts
from runbook_lib.bisect.places import SlurmPlace
from runbook_lib.bisect.request import parse
from runbook_lib.bisect.search import Conclusion, Point, Trial
from runbook_lib.compute.slurm.site import read_site
from runbook_lib.golden import plots
from runbook_lib.model import Check, Effect, Evidence, Next, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.text.markdown import code
from runbook_lib.world import bump_branch
from runbook_lib.world.machine import files
from runbook_lib.world.ports import World


@dataclass(frozen=True)
class Searched:
    """The ledger of a search has a result, or its budget is used up."""

    facts: SearchFacts
    leaves_machine = False

    @property
    def sentence(self) -> str:
        """The runs in the imperative."""
        request = self.facts.request
        place = "here" if request.here else "on the cluster"
        return f"run up to {request.runs - len(self.facts.ledger.runs)} times {request.subject}, {place}"

    def holds(self, world: World) -> Check:
        """Read the ledger."""
        name, facts = "the search is over", searches.reread(self.facts)
        conclusion = facts.next()
        if not isinstance(conclusion, Conclusion):
            detail = f"{len(facts.ledger.runs)} of at most {facts.request.runs} runs so far."
            return Check(name, "failed", detail, Next.again(mode="publish"), _evidence(facts))
        following = Next.run(notebooks.BROKEN_TESTS)
        if not conclusion.step:
            following = Next.again(
                "Give a larger budget, or a command that repeats its measurement. If the runs were faulty, delete "
                f"{facts.place.folder} first:",
                mode="publish",
            )
        found = _evidence(facts, conclusion)
        return Check(name, "passed", str(conclusion), following, found)

    def make_true(self, world: World) -> Iterator[Effect]:
        """Run points until the search ends."""
        files.make_folder(self.facts.place.folder)
        # A second process on the same search would submit the same runs, so this one locks the search until it ends.
        with files.locked(self.facts.place.folder / "lock", print):
            facts = searches.reread(self.facts)
            if isinstance(facts.place, SlurmPlace) and not facts.place.tree.exists():
                facts.branch.checkout.archive(facts.branch.start, facts.place.tree)
            while isinstance(run := facts.next(), Trial):
                if run not in facts.ledger.runs:
                    facts.ledger.write(run)
                    yield Effect("run", f"{run.number}: {run.point}", "", run.image)
                run = facts.place.finish(run, facts.overlay_of(run))
                facts.ledger.write(run)
                shown = f"{run.value:g}" if run.value is not None else f"{run.outcome}: {run.reason}"
                print(f"Run {run.number} of at most {facts.request.runs}: {run.point}: {shown}")


def _evidence(facts: SearchFacts, conclusion: Conclusion | None = None) -> Evidence:
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
    text, below = _issue(facts, conclusion), display.View("", "")
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


def _issue(facts: SearchFacts, conclusion: Conclusion) -> str:
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


@dataclass(frozen=True)
class BisectImage:
    """The step; ``site`` is a file that describes the cluster."""

    good: str
    test: str
    metric: str
    budget: str
    site: str = ""
    practice: bool = False

    def look(self, world: World, bump: Bump) -> SearchFacts | None:
        """Read the ledger, the registry and the place of the runs.  Raises RunbookError like ``read_search``."""
        site = read_site(self.site)
        request = parse(bump, site, self.good, self.test, self.metric, self.budget, practice=self.practice)
        return searches.read_search(bump_branch.look(world, bump), request) if request else None

    def plan(self, facts: SearchFacts | None, bump: Bump) -> Plan[World]:
        """Plan the runs."""
        if facts is None:
            idle = "Nothing is planned. Give good, the newest tag that works, and tag, one that does not."
            return Plan(Outcome(idle), (display.note(idle),), on_branch=False)
        request = facts.request
        inputs = {"test": request.subject, "image": request.site.search_image}
        inputs |= {"ledger": str(facts.ledger.path)}
        inputs |= {f"old {name}": version for name, version in request.site.components.items()}
        return Plan(Outcome(""), (facts.show(),), (Searched(facts),), evidence=Evidence(inputs), on_branch=False)
