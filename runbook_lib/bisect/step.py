"""Notebook bisect-image: run after run until there is a result, each recorded in the ledger before and after."""

from collections.abc import Iterator
from dataclasses import dataclass

from runbook_lib import display, notebooks
from runbook_lib.bisect import facts as searches
from runbook_lib.bisect import report
from runbook_lib.bisect.facts import SearchFacts
from runbook_lib.bisect.places import SlurmPlace
from runbook_lib.bisect.request import parse
from runbook_lib.bisect.search import Conclusion, Trial
from runbook_lib.checks import Check, Evidence, Next
from runbook_lib.compute.slurm.site import read_site
from runbook_lib.model import Effect, Outcome, Plan
from runbook_lib.pins.bump import Bump
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
            return Check(name, "failed", detail, Next.again(mode="publish"), report.evidence(facts))
        following = Next.run(notebooks.BROKEN_TESTS)
        if not conclusion.step:
            following = Next.again(
                "Give a larger budget, or a command that repeats its measurement. If the runs were faulty, delete "
                f"{facts.place.folder} first:",
                mode="publish",
            )
        found = report.evidence(facts, conclusion)
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
