"""What a search needs to know: its images, its ledger, its place, and the next run.  Writes nothing."""

from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.bisect.image.ledger import MAX_LOST, LedgerRun, RunLedger
from runbook_lib.bisect.image.places import LocalPlace, SlurmPlace
from runbook_lib.bisect.image.request import BisectRequest
from runbook_lib.bisect.overlays import Overlay, plan_overlays
from runbook_lib.bisect.search import Conclusion, Point, Problem, advance
from runbook_lib.compute.slurm import selection
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.tasks import TABLE
from runbook_lib.compute.workloads import Workload
from runbook_lib.errors import CannotTell, Refused
from runbook_lib.images.compare import Component, versions
from runbook_lib.images.reference import ImageRef
from runbook_lib.text.recipes import rows
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git import commit_changes

#: Seconds that a run may take to end after its limit.
_ENDING = 60


@dataclass(frozen=True)
class SearchFacts:
    """A search.  ``folder`` has the ledger and the results; ``gpus`` is the number that a run allocates."""

    branch: BumpBranch
    request: BisectRequest
    folder: Path
    ledger: RunLedger
    place: LocalPlace | SlurmPlace
    gpus: int = 0

    def advance(self) -> Point | Conclusion:
        """Return the next point to run, or the conclusion; runs without a value reduce the budget."""
        ledger, counted = self.ledger, self.ledger.counted()
        uncounted = sum(bool(run.outcome) for run in ledger.runs) - len(counted)
        components = tuple(overlay.name for overlay in ledger.overlays or ())
        budget = self.request.runs - uncounted
        answer = advance(Problem(tuple(ledger.images), components, self.request.higher_is_better, budget), counted)
        if isinstance(answer, Point) and len(lost := ledger.lost(answer)) >= MAX_LOST:
            reason = f"{answer.tag} produced no value in {MAX_LOST} runs; in the last, {lost[-1].reason}."
            return Conclusion("undecided", reason)
        return answer

    @property
    def conclusion(self) -> Conclusion | None:
        """The result; None while there is something left to run or to compare."""
        answer = self.advance() if self.ledger.pending is None else None
        is_open = isinstance(answer, Conclusion) and answer.verdict == "tag only" and self.ledger.overlays is None
        return answer if isinstance(answer, Conclusion) and not is_open else None

    def new_run(self, point: Point) -> LedgerRun:
        """Return the next run, at this point."""
        return LedgerRun(len(self.ledger.runs) + 1, point, self.ledger.images[point.tag])

    def show(self) -> display.View:
        """Show the images, the maximum cost, and the next run with its script."""
        request, ledger = self.request, self.ledger
        left = max(0, request.runs - len(ledger.runs))
        hours = left * (request.minutes * 60 + _ENDING) / 3600
        cost = {"max._runs": left, "max._hours": f"{hours:.1f}"}
        if self.gpus:
            cost["max._GPU_hours"] = f"{self.gpus * hours:.1f}"
        shown = display.facts(
            what=request.subject, metric=f"{request.metric}, {request.direction}", where=request.where,
            results=self.folder, **cost, images=f"{len(ledger.images)} at most",
        )  # fmt: skip
        shown += display.table([{"tag": tag, "image": image} for tag, image in ledger.images.items()])
        if ledger.overlays:
            columns = {"component": "name", "old": "old", "new": "new", "put_in": "requirement"}
            shown += display.table(display.rows(ledger.overlays, **columns))
        answer = ledger.pending or self.advance()
        if isinstance(answer, Conclusion):
            over = "The search is over: no more runs are needed."
            return shown + display.note(over if self.conclusion else "The next action is to compare the two images.")
        run = answer if isinstance(answer, LedgerRun) else self.new_run(answer)
        command = self.place.command(run, ledger.overlays_of(run.point))
        return shown + display.code(command, title=f"Run {run.number}: {run.point}")


def read_search(branch: BumpBranch, request: BisectRequest) -> SearchFacts:
    """Return the state of a search.

    Raises Refused for a search that is impossible, or impossible here, and Unreachable or CannotTell if the registry
    cannot answer.
    """
    results = request.site.results
    if not results:  # beside git's own files, so that neither the checkout nor the records contain it
        git = branch.checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir")
        results = f"{git}/runbook-bisect"
    folder = Path(results).absolute() / request.key
    ledger = RunLedger(folder)
    if not ledger.images:
        ledger.images = _images(branch, request)
    if request.where == "command":
        return SearchFacts(branch, request, folder, ledger, LocalPlace(request, folder))
    client = Slurm()
    if not client.runs_containers():
        raise Refused(TABLE["missing"]["pyxis"])
    test = _test_of(branch, request)
    gpus = test.test.nodes * request.site.gpus_for(test.test)
    return SearchFacts(branch, request, folder, ledger, SlurmPlace(request, folder, client, test), gpus)


def _images(branch: BumpBranch, request: BisectRequest) -> dict[str, str]:
    """Return the reference of each image from good to bad, by tag."""
    sites, tags = branch.bump.repository.sites, []
    with branch.services.registry(ImageRef.parse(f"{sites.image}:{request.bad}")) as registry:
        for tag in sites.family.listed(registry.tags()):
            is_between = not tag < request.good and not request.bad < tag
            if is_between and tag.edition == request.good.edition and tag.kind != "candidate":
                tags.append(tag)
        for tag in (request.good, request.bad):
            if tag not in tags:
                raise Refused(f"{registry.name} has no tag {tag}. List its tags: runbook image list.")
        images = {}
        for tag in sorted(tags):
            if image := registry.image(str(tag)):
                named = request.site.search_image.replace("{tag}", str(tag))
                images[str(tag)] = named or f"{sites.image}@{image.digest}"
    return images


def compare_neighbours(facts: SearchFacts, step: tuple[str, str]) -> tuple[tuple[Overlay, ...], tuple[str, ...]]:
    """Return overlays for the components that differ between a step's images, and those that cannot be swapped."""
    sites = facts.branch.bump.repository.sites
    with facts.branch.services.registry(ImageRef.parse(f"{sites.image}:{step[1]}")) as registry:
        old, new = (registry.image(tag) for tag in step)
    if old is None or new is None:
        raise CannotTell(f"{registry.name} no longer has both {step[0]} and {step[1]}.")
    shared = sorted(old.platforms.keys() & new.platforms.keys())
    if not shared:
        raise CannotTell("The two neighbouring images have no platform in common.")
    before, after = versions(old.platforms[shared[0]]), versions(new.platforms[shared[0]])
    changes = [Component(name, before[name], after[name]) for name in before]
    return plan_overlays(changes, facts.request.site.components)


def _test_of(branch: BumpBranch, request: BisectRequest) -> SelectedTest:
    """Return the test named ``model/case@platform`` in the bump's recipes, or the command in that form."""
    if not request.is_test:
        nodes = request.site.session.allocation
        return SelectedTest(Workload(
            "the parameter test", "bisect", request.key, branch.bump.image_type, "any", (), nodes.nodes, nodes.gpus,
            request.minutes * 60, request.subject.replace("{", "{{").replace("}", "}}"),
        ))  # fmt: skip
    name, _, platform = request.subject.partition("@")
    texts = branch.texts(commit_changes.list_files(branch.checkout, branch.start, rows.FOLDER))
    tests = selection.select(selection.read_tests(texts)[0], name, platform, branch.bump.image_type)
    if len(tests) != 1:
        raise Refused(f"test={request.subject!r} matches {len(tests)} tests. Name one, as model/case@platform.")
    config = selection.config_of(tests[0])
    test = selection.prepare(tests[0], branch.texts([config])[config], request.site)
    if test.obstacle:
        raise Refused(f"{request.subject} cannot run there: {test.obstacle}")
    return test


def reread(facts: SearchFacts) -> SearchFacts:
    """Return the search with its ledger read again from disk."""
    ledger = RunLedger(facts.folder)
    return replace(facts, ledger=ledger) if ledger.images else facts
