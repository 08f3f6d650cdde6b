"""The plan of a search: its images, its maximum cost, and the next run.  Writes nothing."""

import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.bisect.overlays import Overlay, plan_overlays
from runbook_lib.bisect.search import Conclusion, Point, Problem, advance
from runbook_lib.clients.registry.client import Registry
from runbook_lib.containers.engine import Engine
from runbook_lib.containers.work.allocation import Allocation
from runbook_lib.containers.work.container import WorkContainer
from runbook_lib.containers.work.image import WorkImage
from runbook_lib.containers.work.machine import detect_machine
from runbook_lib.display import View
from runbook_lib.errors import CannotTell, Refused
from runbook_lib.images.compare import Component, versions
from runbook_lib.images.families import edition
from runbook_lib.images.reference import Image, ImageRef
from runbook_lib.recipes import rows
from runbook_lib.recipes.device_connections import Connections
from runbook_lib.recipes.workloads import Workload
from runbook_lib.slurm import selection
from runbook_lib.slurm.client import Slurm
from runbook_lib.slurm.site import Site
from runbook_lib.steps.bisect_image.allocations import SlurmPlace
from runbook_lib.steps.bisect_image.ledger import MAX_LOST, LedgerRun, RunLedger
from runbook_lib.steps.bisect_image.places import LocalPlace, RunPlace
from runbook_lib.steps.bisect_image.request import BisectRequest
from runbook_lib.workflow.bump_branch import BumpBranch

#: Seconds that a run may take to end after its limit.
_ENDING = 60
_TREE = "tree.tar"


@dataclass(frozen=True)
class BisectPlan:
    """A search.  ``gpus``: the number that a run allocates.  ``idle``: why there is nothing to plan.

    ``problems`` prevent every run.  ``folder`` has the ledger and the results.
    """

    branch: BumpBranch
    request: BisectRequest | None
    folder: Path = Path("/")
    ledger: RunLedger = field(default_factory=lambda: RunLedger(Path("/nonexistent")))
    images: tuple[tuple[str, str, int], ...] = ()
    gpus: int = 0
    place: RunPlace | None = None
    problems: tuple[str, ...] = ()
    idle: str = ""

    def problem(self) -> Problem:
        """Return the problem for the pure search; runs without a value reduce its budget."""
        assert self.request is not None
        ended = [run for run in self.ledger.runs.values() if run.outcome]
        uncounted = len(ended) - len(self.ledger.counted())
        components = tuple(overlay.name for overlay in self.ledger.overlays or ())
        tags = tuple(tag for tag, _, _ in self.images)
        return Problem(tags, components, self.request.higher_is_better, self.request.runs - uncounted)

    def advance(self) -> Point | Conclusion:
        """Return the next point to run, or the conclusion."""
        assert self.request is not None
        answer = advance(self.problem(), self.ledger.counted())
        if isinstance(answer, Conclusion):
            return answer
        if self.ledger.lost(answer) >= MAX_LOST:
            last = [run.reason for run in self.ledger.runs.values() if run.point == answer][-1]
            return Conclusion("undecided", f"{answer.tag} produced no value in {MAX_LOST} runs; in the last, {last}.")
        if self.request.gpu_hours is not None and self.gpu_hours + self._most_of_a_run > self.request.gpu_hours:
            return Conclusion("undecided", f"One more run could exceed the {self.request.gpu_hours:g} GPU hours.")
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
        assert self.request is not None
        return self.gpus * (self.request.minutes * 60 + _ENDING) / 3600

    def restored(self, point: Point) -> tuple[Overlay, ...]:
        """Return the overlays of a point."""
        return tuple(overlay for overlay in self.ledger.overlays or () if overlay.name in point.restored)

    def new_run(self, point: Point) -> LedgerRun:
        """Return the next run, at this point."""
        return LedgerRun(len(self.ledger.runs) + 1, point, {tag: image for tag, image, _ in self.images}[point.tag])

    def show(self) -> View:
        """Show the images, the maximum cost, and the next run with its script."""
        if self.request is None or self.idle:
            return display.note(self.idle)
        request, done = self.request, len(self.ledger.runs)
        open_runs = max(0, request.runs - done)
        hours = open_runs * (request.minutes * 60 + _ENDING) / 3600
        sizes = sum(size for _, _, size in self.images)
        cost = {"max. runs": f"{open_runs} more" if done else request.runs, "max. hours": f"{hours:.1f}"}
        if self.gpus:
            gpu_hours = min(open_runs * self._most_of_a_run, request.gpu_hours or math.inf)
            cost["max. GPU hours"] = f"{gpu_hours:.1f}"
        pulled = f"{len(self.images)} at most"
        if sizes:
            pulled += f", {sizes / 1e9:.1f} GB compressed"
        shown = display.facts(
            what=request.test or request.command, metric=f"{request.metric}, {self.direction}", where=request.where,
            results=self.folder, **{name.replace(" ", "_"): value for name, value in cost.items()}, images=pulled,
        )  # fmt: skip
        shown += display.notes(self.problems, title="Nothing can be run")
        shown += display.table([{"tag": tag, "image": image} for tag, image, _ in self.images])
        shown += display.notes(self.ledger.suspects, title="Remaining suspects")
        if self.ledger.overlays:
            columns = {"component": "name", "old": "old", "new": "new", "put_in": "requirement"}
            shown += display.table(display.rows(self.ledger.overlays, **columns))
        return shown + self._next()

    @property
    def direction(self) -> str:
        """The direction of the metric, in words."""
        assert self.request is not None
        if self.request.metric == "exit":
            return "0 is good"
        return "higher is better" if self.request.higher_is_better else "lower is better"

    def _next(self) -> View:
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


def plan_search(
    branch: BumpBranch, request: BisectRequest | None, *, results: str = "", site: Site | None = None,
    slurm: str = "", gpus: str = "8", platform: str = "", wait: bool = True,
) -> BisectPlan:  # fmt: skip
    """Return the plan of a search.  ``slurm`` is the allocation for a command's runs, such as ``nodes=2 gpus=8``.

    Raises Refused for a search that is impossible, and Unreachable or CannotTell if the registry cannot answer.
    """
    if request is None:
        return BisectPlan(
            branch,
            None,
            idle="Nothing is planned. Give good, the newest tag that works, and bad (or tag), one that does not.",
        )
    if not results:  # beside git's own files, so that neither the checkout nor the records contain it
        git = branch.checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir")
        results = f"{git}/runbook-bisect"
    folder = Path(results).expanduser().absolute() / request.key
    ledger = RunLedger(folder)
    images = _images(branch, request, ledger)
    plan = BisectPlan(branch, request, folder, ledger, images)
    if request.where == "slurm":
        if site is None or not site.results:
            return replace(plan, problems=("Slurm needs results: a folder visible to all nodes.",))
        return _on_slurm(branch, plan, site, slurm, platform, wait=wait)
    if not gpus.isdecimal():
        raise Refused(f"gpus={gpus!r} is not a number of this machine's GPUs.")
    if request.where == "command":
        place = LocalPlace(request, folder, branch.checkout.path)
        return replace(plan, gpus=int(gpus), place=place)
    return _in_container(branch, plan, int(gpus))


def _images(branch: BumpBranch, request: BisectRequest, ledger: RunLedger) -> tuple[tuple[str, str, int], ...]:
    """Return tag, reference and size of each image from good to bad: from the ledger, else from the registry."""
    if not ledger.images:
        sites = branch.bump.repository.sites
        with Registry.connect(ImageRef.parse(f"{sites.image}:{request.bad}")) as registry:
            listed = sites.family.listed(registry.known_tags().names)
            tags = [
                tag for tag in reversed((*listed.releases, *listed.specials))
                if edition(tag) == edition(request.good) and not tag < request.good and not request.bad < tag
            ]  # fmt: skip
            for tag in (request.good, request.bad):
                if tag not in tags:
                    raise Refused(f"{registry.name} has no tag {tag}. List its tags: runbook image list.")
            for tag in sorted(tags):
                image = registry.image(str(tag))
                if image is not None:
                    reference = request.image.replace("{tag}", str(tag)) or f"{sites.image}@{image.digest}"
                    ledger.images[str(tag)] = reference
                    ledger.sizes[str(tag)] = max(platform.size for platform in image.platforms.values())
    return tuple((tag, image, ledger.sizes.get(tag, 0)) for tag, image in ledger.images.items())


def compare_neighbours(plan: BisectPlan, step: tuple[str, str]) -> tuple[tuple[Overlay, ...], tuple[str, ...]]:
    """Return overlays for the components that differ between a step's images, and those that cannot be swapped."""
    assert plan.request is not None
    repository = plan.branch.bump.repository
    sites = repository.sites
    with Registry.connect(ImageRef.parse(f"{sites.image}:{step[1]}")) as registry:
        old, new = (registry.image(tag) for tag in step)
    if old is None or new is None:
        raise CannotTell(f"{registry.name} no longer has both {step[0]} and {step[1]}.")
    own = {overlay.name: overlay for overlay in (*repository.overlays, *plan.request.components)}
    return plan_overlays(_components(old, new), tuple(own.values()))


def _components(old: Image, new: Image) -> list[Component]:
    """Return each component before and after, on the first platform that both images have."""
    shared = sorted(old.platforms.keys() & new.platforms.keys())
    if not shared:
        raise CannotTell("The two neighbouring images have no platform in common.")
    before, after = versions(old.platforms[shared[0]]), versions(new.platforms[shared[0]])
    return [Component(name, before[name], after[name]) for name in before]


def _in_container(branch: BumpBranch, plan: BisectPlan, gpus: int) -> BisectPlan:
    machine = detect_machine()
    image = WorkImage.parse(plan.images[-1][1])
    container = WorkContainer.create(branch.bump.repository, image, str(branch.checkout.path))
    assert plan.request is not None
    problems = []
    if machine.engine is None:
        reason = "Neither docker nor podman works on this machine."
        if machine.container:
            reason = f"This machine is itself a container ({machine.container}), which cannot start others."
        problems.append(f"{reason} Run this where docker or podman works, or set where=slurm or where=command.")
    place = LocalPlace(
        plan.request, plan.folder, branch.checkout.path, container, machine.engine or Engine("docker"),
        (machine.uid, machine.gid), gpus=gpus > 0,
    )  # fmt: skip
    return replace(plan, gpus=gpus, place=place, problems=tuple(problems))


def _on_slurm(
    branch: BumpBranch, plan: BisectPlan, site: Site, allocation: str, platform: str, *, wait: bool
) -> BisectPlan:
    assert plan.request is not None
    client, problems = Slurm(), list(site.problems())
    if site.runtime != "apptainer" and not client.runs_containers():
        if site.runtime or not client.has_program("apptainer"):
            problems.append("Neither Pyxis nor apptainer is available, so Slurm cannot run an image.")
        site = replace(site, runtime="apptainer")
    request, connections = plan.request, Connections(None, "The command configures its own connections.")
    if request.test:
        workload, connections = _test_of(branch, site, request.test, platform)
    else:
        nodes = Allocation.parse(allocation)
        workload = Workload(
            "the parameter command", "bisect", request.key, branch.bump.image_type, platform or "any", (), nodes.nodes,
            nodes.gpus, request.minutes * 60, request.command.replace("{", "{{").replace("}", "}}"),
        )  # fmt: skip
    place = SlurmPlace(request, plan.folder, site, client, workload, connections, plan.folder / _TREE, wait=wait)
    return replace(plan, gpus=workload.nodes * site.gpus_for(workload), place=place, problems=tuple(problems))


def _test_of(branch: BumpBranch, site: Site, words: str, platform: str) -> tuple[Workload, Connections]:
    """Return the test named ``model/case@platform`` in the recipes on the bump's branch."""
    name, _, own_platform = words.partition("@")
    paths = branch.checkout.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", branch.start).split("\0")
    texts = branch.texts([path for path in paths if path.startswith(f"{rows.FOLDER}/")])
    tests = selection.select(selection.read_tests(texts)[0], name, own_platform or platform, branch.bump.image_type)
    if len(tests) != 1:
        raise Refused(f"test={words!r} matches {len(tests)} tests in the recipes. Name one, as model/case@platform.")
    settings = branch.texts([selection.config_of(tests[0])])[selection.config_of(tests[0])]
    test = selection.prepare(tests[0], settings, site)
    if test.obstacle:
        raise Refused(f"{words} cannot run there: {test.obstacle}")
    return test.test, test.connections


def archive_commit(plan: BisectPlan) -> None:
    """Write the archive of the branch's commit, which containers on a cluster unpack, unless it exists."""
    path = plan.folder / _TREE
    if not path.exists():
        draft = path.with_name(f"{_TREE}.{os.getpid()}")
        plan.branch.checkout.git("archive", "--format=tar", f"--output={draft}", plan.branch.start)
        draft.replace(path)


def reread(plan: BisectPlan) -> BisectPlan:
    """Return the plan with the ledger read again from disk."""
    ledger = RunLedger(plan.folder)
    if not ledger.images:
        return plan
    images = tuple((tag, image, ledger.sizes.get(tag, 0)) for tag, image in ledger.images.items())
    return replace(plan, ledger=ledger, images=images)
