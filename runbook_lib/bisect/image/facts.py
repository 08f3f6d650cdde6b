"""What a search needs to know: its images, its ledger, its place, and the next run.  Writes nothing."""

from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.bisect.image.ledger import MAX_LOST, LedgerRun, RunLedger
from runbook_lib.bisect.image.places import LocalPlace, SlurmPlace
from runbook_lib.bisect.image.request import BisectRequest
from runbook_lib.bisect.overlays import Overlay, plan_overlays
from runbook_lib.bisect.search import Conclusion, Point, Problem, advance
from runbook_lib.compute.allocation import Allocation
from runbook_lib.compute.places import WorkPlace, detect_machine
from runbook_lib.compute.slurm import selection
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.site import Site
from runbook_lib.compute.tasks import TABLE
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.errors import CannotTell, Refused
from runbook_lib.git import commit_changes
from runbook_lib.images.compare import Component, versions
from runbook_lib.images.families import edition
from runbook_lib.images.reference import ImageRef
from runbook_lib.recipes import rows, workloads
from runbook_lib.recipes.parallelism import Connections
from runbook_lib.world.bump_branch import BumpBranch

#: Seconds that a run may take to end after its limit.
_ENDING = 60


@dataclass(frozen=True)
class SearchFacts:
    """A search.  ``gpus``: the number that a run allocates.  ``folder`` has the ledger and the results.

    ``place`` is None if it cannot be prepared; ``problems`` prevent every run.
    """

    branch: BumpBranch
    request: BisectRequest
    folder: Path
    ledger: RunLedger
    gpus: int = 0
    place: LocalPlace | SlurmPlace | None = None
    problems: tuple[str, ...] = ()

    def advance(self) -> Point | Conclusion:
        """Return the next point to run, or the conclusion; runs without a value reduce the budget."""
        uncounted = sum(bool(run.outcome) for run in self.ledger.runs.values()) - len(self.ledger.counted())
        components = tuple(overlay.name for overlay in self.ledger.overlays or ())
        tags = tuple(self.ledger.images)
        problem = Problem(tags, components, self.request.measure.higher_is_better, self.request.runs - uncounted)
        answer = advance(problem, self.ledger.counted())
        if isinstance(answer, Conclusion):
            return answer
        if self.ledger.lost(answer) >= MAX_LOST:
            last = [run.reason for run in self.ledger.runs.values() if run.point == answer][-1]
            return Conclusion("undecided", f"{answer.tag} produced no value in {MAX_LOST} runs; in the last, {last}.")
        return answer

    @property
    def gpu_hours(self) -> float:
        """The GPU hours that the runs took; an unfinished run counts with its limit."""
        hours = 0.0
        for run in self.ledger.runs.values():
            hours += self.gpus * run.seconds / 3600 if run.outcome else self._most_of_a_run
        return hours

    @property
    def _most_of_a_run(self) -> float:
        return self.gpus * (self.request.minutes * 60 + _ENDING) / 3600

    def restored(self, point: Point) -> tuple[Overlay, ...]:
        """Return the overlays of a point."""
        return tuple(overlay for overlay in self.ledger.overlays or () if overlay.name in point.restored)

    def new_run(self, point: Point) -> LedgerRun:
        """Return the next run, at this point."""
        return LedgerRun(len(self.ledger.runs) + 1, point, self.ledger.images[point.tag])

    def show(self) -> display.View:
        """Show the images, the maximum cost, and the next run with its script."""
        request, done = self.request, len(self.ledger.runs)
        open_runs = max(0, request.runs - done)
        hours = open_runs * (request.minutes * 60 + _ENDING) / 3600
        cost = {"max._runs": f"{open_runs} more" if done else request.runs, "max._hours": f"{hours:.1f}"}
        if self.gpus:
            cost["max._GPU_hours"] = f"{open_runs * self._most_of_a_run:.1f}"
        shown = display.facts(
            what=request.subject, metric=f"{request.measure.metric}, {self.direction}",
            where=request.where, results=self.folder, **cost, images=f"{len(self.ledger.images)} at most",
        )  # fmt: skip
        shown += display.notes(self.problems, title="Nothing can be run")
        shown += display.table([{"tag": tag, "image": image} for tag, image in self.ledger.images.items()])
        shown += display.notes(self.ledger.suspects, title="Remaining suspects")
        if self.ledger.overlays:
            columns = {"component": "name", "old": "old", "new": "new", "put_in": "requirement"}
            shown += display.table(display.rows(self.ledger.overlays, **columns))
        return shown + self._next()

    @property
    def direction(self) -> str:
        """The direction of the metric, in words."""
        if self.request.measure.metric == "exit":
            return "0 is good"
        return "higher is better" if self.request.measure.higher_is_better else "lower is better"

    def _next(self) -> display.View:
        answer = self.advance()
        if isinstance(answer, Conclusion) and self.ledger.pending is None:
            if answer.verdict == "tag only" and self.ledger.overlays is None:
                return display.note("The next action is to compare the two neighbouring images.")
            return display.note("The search is over: no more runs are needed.")
        run = self.ledger.pending or self.new_run(answer)  # type: ignore[arg-type]
        title = f"Run {run.number}: {run.point.tag}"
        if run.point.restored:
            title += f" with the old {', '.join(run.point.restored)}"
        if self.place is None or self.problems:
            return display.note(title)
        return display.code(self.place.command(run, self.restored(run.point)), title=title)


def read_search(branch: BumpBranch, request: BisectRequest, site: Site) -> SearchFacts:
    """Return the state of a search.

    Raises Refused for a search that is impossible, and Unreachable or CannotTell if the registry cannot answer.
    """
    results = site.results
    if not results:  # beside git's own files, so that neither the checkout nor the records contain it
        git = branch.checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir")
        results = f"{git}/runbook-bisect"
    folder = Path(results).absolute() / request.key
    ledger = RunLedger(folder)
    if not ledger.images:
        _read_images(branch, request, ledger)
    gpus = 0 if request.measure.program else site.session.allocation.gpus
    facts = SearchFacts(branch, request, folder, ledger, gpus)
    if request.where == "slurm":
        if not site.results:
            return replace(facts, problems=("Slurm needs results in the site file: a folder visible to all nodes.",))
        return _on_slurm(branch, facts, request, site)
    if request.where == "command":
        return replace(facts, place=LocalPlace(request, folder, branch.checkout.path))
    return _in_container(branch, facts, request)


def _read_images(branch: BumpBranch, request: BisectRequest, ledger: RunLedger) -> None:
    """Add each image from good to bad to a new search's ledger; writes nothing."""
    sites, tags = branch.bump.repository.sites, []
    with branch.services.registry(ImageRef.parse(f"{sites.image}:{request.bad}")) as registry:
        listed = sites.family.listed(registry.tags())
        for tag in reversed((*listed.releases, *listed.specials)):
            if edition(tag) == edition(request.good) and not tag < request.good and not request.bad < tag:
                tags.append(tag)
        for tag in (request.good, request.bad):
            if tag not in tags:
                raise Refused(f"{registry.name} has no tag {tag}. List its tags: runbook image list.")
        for tag in sorted(tags):
            if image := registry.image(str(tag)):
                reference = request.image.replace("{tag}", str(tag)) or f"{sites.image}@{image.digest}"
                ledger.images[str(tag)] = reference


def compare_neighbours(facts: SearchFacts, step: tuple[str, str]) -> tuple[tuple[Overlay, ...], tuple[str, ...]]:
    """Return overlays for the components that differ between a step's images, and those that cannot be swapped."""
    repository = facts.branch.bump.repository
    sites = repository.sites
    with facts.branch.services.registry(ImageRef.parse(f"{sites.image}:{step[1]}")) as registry:
        old, new = (registry.image(tag) for tag in step)
    if old is None or new is None:
        raise CannotTell(f"{registry.name} no longer has both {step[0]} and {step[1]}.")
    shared = sorted(old.platforms.keys() & new.platforms.keys())
    if not shared:
        raise CannotTell("The two neighbouring images have no platform in common.")
    before, after = versions(old.platforms[shared[0]]), versions(new.platforms[shared[0]])
    components = [Component(name, before[name], after[name]) for name in before]
    own = {overlay.name: overlay for overlay in (*repository.overlays, *facts.request.components)}
    return plan_overlays(components, tuple(own.values()))


def _in_container(branch: BumpBranch, facts: SearchFacts, request: BisectRequest) -> SearchFacts:
    machine = detect_machine()
    image = WorkImage.parse(facts.ledger.images[str(request.bad)])
    if machine.engine is None:
        reason = "Neither docker nor podman works on this machine."
        if machine.container:
            reason = f"This machine is itself a container ({machine.container}), which cannot start others."
        problem = f"{reason} Run this where docker or podman works, or on a cluster, with results in the site file."
        facts = replace(facts, problems=(problem,))
    container = WorkPlace(
        "local", branch.bump.repository, image, str(branch.checkout.path), machine, also=(str(facts.folder),),
        allocation=Allocation(gpus=facts.gpus),
    )  # fmt: skip
    return replace(facts, place=LocalPlace(request, facts.folder, branch.checkout.path, container))


def _on_slurm(branch: BumpBranch, facts: SearchFacts, request: BisectRequest, site: Site) -> SearchFacts:
    client, problems = Slurm(), list[str]()
    if not client.runs_containers():
        problems.append(TABLE["missing"]["pyxis"])
    if request.measure.test:
        workload, connections = _test_of(branch, site, request.measure.test)
    else:
        nodes, connections = site.session.allocation, Connections(None, "The command configures its own connections.")
        workload = workloads.Workload(
            "the parameter test", "bisect", request.key, branch.bump.image_type, "any", (), nodes.nodes, nodes.gpus,
            request.minutes * 60, request.measure.command.replace("{", "{{").replace("}", "}}"),
        )  # fmt: skip
    place = SlurmPlace(request, facts.folder, site, client, workload, connections, facts.folder / "tree.tar")
    return replace(facts, gpus=workload.nodes * site.gpus_for(workload), place=place, problems=tuple(problems))


def _test_of(branch: BumpBranch, site: Site, words: str) -> tuple[workloads.Workload, Connections]:
    """Return the test named ``model/case@platform`` in the recipes on the bump's branch."""
    name, _, platform = words.partition("@")
    texts = branch.texts(commit_changes.list_files(branch.checkout, branch.start, rows.FOLDER))
    tests = selection.select(selection.read_tests(texts)[0], name, platform, branch.bump.image_type)
    if len(tests) != 1:
        raise Refused(f"test={words!r} matches {len(tests)} tests in the recipes. Name one, as model/case@platform.")
    config = selection.config_of(tests[0])
    test = selection.prepare(tests[0], branch.texts([config])[config], site)
    if test.obstacle:
        raise Refused(f"{words} cannot run there: {test.obstacle}")
    return test.test, test.connections


def reread(facts: SearchFacts) -> SearchFacts:
    """Return the search with its ledger read again from disk."""
    ledger = RunLedger(facts.folder)
    return replace(facts, ledger=ledger) if ledger.images else facts
