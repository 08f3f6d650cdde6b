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

    def swappable(self, tag: str) -> tuple[tuple[Overlay, ...], tuple[str, ...]]:
        """Return overlays for what changed from the tag before to this one, and what cannot be swapped."""
        tags = list(self.ledger.images)
        old, new = self.ledger.versions[tags[tags.index(tag) - 1]], self.ledger.versions[tag]
        return plan_overlays([Component(name, old[name], new[name]) for name in new], self.request.site.components)

    def overlays_of(self, point: Point) -> tuple[Overlay, ...]:
        """Return the overlays of a point."""
        return tuple(overlay for overlay in self.swappable(point.tag)[0] if overlay.name in point.restored)

    def next(self) -> LedgerRun | Conclusion:
        """Return the run that has not ended, else the next one, or the conclusion.

        Runs without a value reduce the budget.
        """
        ledger, counted = self.ledger, self.ledger.counted()
        if ledger.pending:
            return ledger.pending
        uncounted = sum(bool(run.outcome) for run in ledger.runs) - len(counted)
        tags = tuple(ledger.images)
        components = {tag: tuple(overlay.name for overlay in self.swappable(tag)[0]) for tag in tags[1:]}
        problem = Problem(tags, components, self.request.higher_is_better, self.request.runs - uncounted)
        answer = advance(problem, counted)
        if isinstance(answer, Conclusion):
            return answer
        if len(lost := ledger.lost(answer)) >= MAX_LOST:
            reason = f"{answer.tag} produced no value in {MAX_LOST} runs; in the last, {lost[-1].reason}."
            return Conclusion("undecided", reason)
        return LedgerRun(len(ledger.runs) + 1, answer, ledger.images[answer.tag])

    def show(self) -> display.View:
        """Show the images, the maximum cost, and the next run with its script."""
        request, ledger, following = self.request, self.ledger, self.next()
        left = max(0, request.runs - len(ledger.runs))
        hours = left * (request.minutes * 60 + _ENDING) / 3600
        cost = {"max._runs": left, "max._hours": f"{hours:.1f}"}
        if self.gpus:
            cost["max._GPU_hours"] = f"{self.gpus * hours:.1f}"
        shown = display.facts(
            what=request.subject, metric=f"{request.metric}, {request.direction}",
            where="here" if request.here else "on the cluster", results=self.folder, **cost,
        )  # fmt: skip
        shown += display.table([{"tag": tag, "image": image} for tag, image in ledger.images.items()])
        if isinstance(following, Conclusion):
            return shown + display.note("The search is over: no more runs are needed.")
        if restored := self.overlays_of(following.point):
            shown += display.table(display.rows(restored, component="name", old="old", new="new", put_in="requirement"))
        command = self.place.command(following, restored)
        return shown + display.code(command, title=f"Run {following.number}: {following.point}")


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
    path = folder / "ledger.json"
    ledger = RunLedger.read(path) or _begin(path, branch, request)
    if request.here:
        return SearchFacts(branch, request, folder, ledger, LocalPlace(request, folder, branch.checkout.path))
    client = Slurm()
    if not client.runs_containers():
        raise Refused(TABLE["missing"]["pyxis"])
    test = _test_of(branch, request)
    gpus = test.test.nodes * request.site.gpus_for(test.test)
    return SearchFacts(branch, request, folder, ledger, SlurmPlace(request, folder, client, test), gpus)


def _begin(path: Path, branch: BumpBranch, request: BisectRequest) -> RunLedger:
    """Return an empty ledger with each image from good to bad, and its versions."""
    sites, tags = branch.bump.repository.sites, []
    with branch.services.registry(ImageRef.parse(f"{sites.image}:{request.bad}")) as registry:
        for tag in sites.family.listed(registry.tags()):
            is_between = not tag < request.good and not request.bad < tag
            if is_between and tag.edition == request.good.edition and tag.kind != "candidate":
                tags.append(tag)
        for tag in (request.good, request.bad):
            if tag not in tags:
                raise Refused(f"{registry.name} has no tag {tag}. List its tags: runbook image list.")
        images = {str(tag): image for tag in sorted(tags) if (image := registry.image(str(tag)))}
    platforms = sorted(set.intersection(*(set(image.platforms) for image in images.values())))
    if not platforms:
        raise CannotTell(f"The images from {request.good} to {request.bad} have no platform in common.")
    named = request.site.search_image
    references = {
        tag: named.replace("{tag}", tag) or f"{sites.image}@{image.digest}" for tag, image in images.items()
    }  # fmt: skip
    return RunLedger(path, references, {tag: versions(image.platforms[platforms[0]]) for tag, image in images.items()})


def _test_of(branch: BumpBranch, request: BisectRequest) -> SelectedTest:
    """Return the test named ``model/case@platform`` in the bump's recipes, or the command in that form."""
    if not request.is_test:
        session = request.site.session
        return SelectedTest(Workload(
            "the parameter test", "bisect", request.key, branch.bump.image_type, "any", (), session.nodes,
            session.gpus_per_node, request.minutes * 60, request.subject.replace("{", "{{").replace("}", "}}"),
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
    return replace(facts, ledger=RunLedger.read(facts.ledger.path) or facts.ledger)
