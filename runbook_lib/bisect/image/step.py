"""Notebook bisect-image: run after run until there is a result, each recorded in the ledger before and after."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from runbook_lib import display, notebooks
from runbook_lib.bisect.image import facts as searches
from runbook_lib.bisect.image import places
from runbook_lib.bisect.image.facts import SearchFacts
from runbook_lib.bisect.image.ledger import LEDGER, LedgerRun
from runbook_lib.bisect.image.places import SlurmPlace
from runbook_lib.bisect.image.report import BisectResult, read_result
from runbook_lib.bisect.image.request import SearchOptions, parse
from runbook_lib.bisect.search import Point
from runbook_lib.checks import Check, Evidence, Next
from runbook_lib.compute.slurm.site import read_site
from runbook_lib.errors import Refused
from runbook_lib.model import Effect, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.system import clock, files
from runbook_lib.world import bump_branch
from runbook_lib.world.outside import World


@dataclass(frozen=True)
class Searched:
    """The ledger of a search has a result, or its budget is used up; no run was paid for twice."""

    facts: SearchFacts
    leaves_machine = False

    @property
    def sentence(self) -> str:
        """The runs in the imperative."""
        request = self.facts.request
        place = {"local": "in a container here", "slurm": "on the cluster", "command": "as it is"}[request.where]
        return f"run up to {request.runs - len(self.facts.ledger.runs)} times {request.subject}, {place}"

    def holds(self, world: World) -> Check:
        """Read the ledger."""
        name, facts = "the search is over, and no run was paid for twice", searches.reread(self.facts)
        result, runs = read_result(facts), len(facts.ledger.runs)
        submitted = facts.ledger.submissions
        most, again = facts.request.runs, Next.again(mode="publish")
        evidence = _evidence(result) if runs else Evidence()
        if submitted != runs or runs > most:
            detail = f"The ledger has {submitted} submissions of {display.count(runs, 'run')}, of at most {most}."
            return Check(name, "failed", detail, evidence=evidence)
        if result.conclusion is not None:
            next_action = Next.run(notebooks.BROKEN_TESTS) if result.conclusion.step else again
            return Check(name, "passed", result.sentence, next_action, evidence)
        return Check(name, "failed", f"{runs} of at most {most} runs so far.", again, evidence)

    def make_true(self, world: World) -> Iterator[Effect]:
        """Run points until the search ends.  Raises Refused for a problem of the place."""
        if self.facts.problems:
            raise Refused(" ".join(self.facts.problems))
        files.make_folder(self.facts.folder)
        # A second process on the same search would submit the same runs, so this one locks the search until it ends.
        with files.locked(self.facts.folder / "lock", print):
            facts = searches.reread(self.facts)
            if isinstance(facts.place, SlurmPlace) and not facts.place.tree.exists():
                facts.branch.checkout.archive(facts.branch.start, facts.place.tree)
            if not facts.ledger.lines:
                facts.ledger.add({"kind": "images", "version": 1, "images": facts.ledger.images})
            yield from self._search(facts)

    def _search(self, facts: SearchFacts) -> Iterator[Effect]:
        """Run until the search is over."""
        ledger = facts.ledger
        while True:
            answer = ledger.pending or facts.advance()
            if isinstance(answer, Point):
                run = facts.new_run(answer)
                overlays = [f"{overlay.name} {overlay.requirement}" for overlay in facts.restored(answer)]
                ledger.add({"kind": "submit", "at": clock.stamp(clock.now()), "overlay": overlays, "run": asdict(run)})
                yield Effect("run", f"{run.number}: {_name(answer)}", "", run.image)
            elif isinstance(answer, LedgerRun):
                self._finish(facts, answer)
            elif answer.verdict == "tag only" and ledger.overlays is None and answer.step:
                found, suspects = searches.compare_neighbours(facts, answer.step)
                ledger.add({"kind": "components", "overlays": list(map(vars, found)), "suspects": suspects})
            else:
                return

    def _finish(self, facts: SearchFacts, pending: LedgerRun) -> None:
        """Wait for the end of a run, and record it."""
        assert facts.place is not None
        request, restored = facts.request, facts.restored(pending.point)
        end = facts.place.finish(pending, restored)
        ended = places.judge(request, pending, restored, end, facts.folder / "runs" / str(pending.number))
        facts.ledger.add({"kind": "end", "at": clock.stamp(clock.now()), "run": asdict(ended)})
        shown = f"{ended.value:g}" if ended.value is not None else f"{ended.outcome}: {ended.reason}"
        print(f"Run {ended.number} of at most {request.runs}: {_name(ended.point)}: {shown}")


@dataclass(frozen=True)
class BisectImage:
    """The step; ``site`` is a file that describes the cluster."""

    search: SearchOptions
    site: str = ""
    practice: bool = False

    def look(self, world: World, bump: Bump) -> SearchFacts | None:
        """Read the ledger, the registry and the place of the runs.  Raises RunbookError like ``read_search``."""
        site = read_site(self.site, world.checkout.path)
        request = parse(bump, self.search, site, practice=self.practice)
        return searches.read_search(bump_branch.look(world, bump), request, site) if request else None

    def plan(self, facts: SearchFacts | None, bump: Bump) -> Plan[World]:
        """Plan the runs."""
        if facts is None:
            idle = "Nothing is planned. Give good, the newest tag that works, and tag, one that does not."
            return Plan(Outcome(idle), (display.note(idle),), on_branch=False)
        evidence = Evidence(
            {**facts.request.inputs, "ledger": str(facts.ledger.path)}, warnings=() if bump.apply else facts.problems
        )
        return Plan(Outcome(""), (facts.show(),), (Searched(facts),), evidence=evidence, on_branch=False)


def _evidence(result: BisectResult) -> Evidence:
    """Return the runs so far, and of a search that is over its result, the fix and the text for upstream."""
    ledger = result.facts.ledger
    tables = {"runs": [run.row for run in result.runs]}
    kept = {LEDGER: "".join(f"{line}\n" for line in ledger.lines)}
    if result.conclusion is None:
        return Evidence(tables=tables, files=kept, shown=(result.show(), result.plot()))
    text = display.View("", "")
    if issue := result.issue():
        kept["upstream-issue.md"] = issue
        text = display.code(issue, title="Text for upstream")
    return Evidence(
        {"bisect_result": result.sentence}, tables=tables, files=kept,
        warnings=tuple(f"Remaining suspect: {suspect}." for suspect in result.suspects),
        shown=(result.show(), result.plot(), result.fix(), text),
    )  # fmt: skip


def _name(point: Point) -> str:
    return " with the old ".join(filter(None, [point.tag, " and ".join(point.restored)]))
