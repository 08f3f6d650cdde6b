"""What a search knows: its images, its ledger, its place, and the next run.

The search is a function of its ledger, a file that has each run before it is started, and its outcome after it has
ended, so it always continues in the same way.  The file has the images with their versions too, so that a tag moved in
the meantime changes nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.bisect.overlays import Overlay, plan_overlays
from runbook_lib.bisect.places import LocalPlace, SlurmPlace
from runbook_lib.bisect.request import BisectRequest
from runbook_lib.bisect.search import Conclusion, Point, Problem, Trial, advance
from runbook_lib.compute.slurm import selection
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.workloads import Workload
from runbook_lib.errors import CannotTell, Refused
from runbook_lib.images.compare import Component, versions
from runbook_lib.images.reference import ImageRef
from runbook_lib.text.recipes import rows
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.machine import files

#: Seconds that a run may take to end after its limit.
_ENDING = 60


@dataclass(frozen=True)
class RunLedger:
    """A search's ledger.  ``images`` are references and ``versions`` those of components, by tag from good to bad."""

    path: Path
    images: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]]
    runs: list[Trial] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "RunLedger | None":
        """Return the ledger in a file, None if there is none.  Raises CannotTell if it cannot be read."""
        try:
            data = json.loads(path.read_text("utf-8"))
            runs = [Trial(**{**run, "point": Point(**run["point"])}) for run in data["runs"]]
            return cls(path, dict(data["images"]), dict(data["versions"]), runs)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CannotTell(
                f"{path} cannot be read ({type(error).__name__}: {error}). It lists the runs of this search: "
                "restore it, or choose another results folder."
            ) from error

    @property
    def text(self) -> str:
        """The file's text."""
        data = {"images": self.images, "versions": self.versions, "runs": list(map(asdict, self.runs))}
        return json.dumps(data, indent=1)

    def write(self, run: Trial) -> None:
        """Write the file with this run added or changed, and wait until it is on disk."""
        self.runs[run.number - 1 :] = [run]
        files.write(self.path, self.text)


@dataclass(frozen=True)
class SearchFacts:
    """A search, whose ``place`` has the ledger and the results."""

    branch: BumpBranch
    request: BisectRequest
    place: LocalPlace | SlurmPlace
    ledger: RunLedger

    def swappable(self, tag: str) -> tuple[dict[str, Overlay], list[str]]:
        """Return overlays, by component, for what changed from the tag before to this one, and what has none."""
        tags = list(self.ledger.images)
        old, new = self.ledger.versions[tags[tags.index(tag) - 1]], self.ledger.versions[tag]
        return plan_overlays([Component(name, old[name], new[name]) for name in new], self.request.site.components)

    def overlay_of(self, run: Trial) -> Overlay | None:
        """Return the overlay of a run, None if it is of the plain image."""
        return self.swappable(run.point.tag)[0][run.point.restored] if run.point.restored else None

    def next(self) -> Trial | Conclusion:
        """Return the run that has not ended, else the next one, or the conclusion."""
        runs, images = self.ledger.runs, self.ledger.images
        if runs and not runs[-1].outcome:
            return runs[-1]
        tags = tuple(images)
        components = {tag: tuple(self.swappable(tag)[0]) for tag in tags[1:]}
        answer = advance(Problem(tags, components, self.request.higher_is_better, self.request.runs), runs)
        if isinstance(answer, Conclusion):
            return answer
        return Trial(answer, number=len(runs) + 1, image=images[answer.tag])

    def show(self) -> display.View:
        """Show the images, the maximum cost, and the next run with its script."""
        request, ledger, following = self.request, self.ledger, self.next()
        left = max(0, request.runs - len(ledger.runs))
        hours = left * (request.minutes * 60 + _ENDING) / 3600
        cost = {"max._runs": left, "max._hours": f"{hours:.1f}"}
        if self.place.gpus:
            cost["max._GPU_hours"] = f"{self.place.gpus * hours:.1f}"
        shown = display.facts(
            what=request.subject, metric=f"{request.metric}, {request.direction}",
            where="here" if request.here else "on the cluster", results=ledger.path.parent, **cost,
        )  # fmt: skip
        shown += display.table([{"tag": tag, "image": image} for tag, image in ledger.images.items()])
        if isinstance(following, Conclusion):
            return shown + display.note("The search is over: no more runs are needed.")
        if overlay := self.overlay_of(following):
            columns = {"component": "name", "old": "old", "new": "new", "put_in": "requirement"}
            shown += display.table(display.rows([overlay], **columns))
        command = self.place.command(following, overlay)
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
        return SearchFacts(branch, request, LocalPlace(request, folder, branch.checkout.path), ledger)
    client = Slurm()
    client.require_containers()
    return SearchFacts(branch, request, SlurmPlace(request, folder, client, _test_of(branch, request)), ledger)


def _begin(path: Path, branch: BumpBranch, request: BisectRequest) -> RunLedger:
    """Return an empty ledger with each image from good to bad, and its versions."""
    sites, images = branch.bump.repository.sites, {}
    with branch.services.registry(ImageRef.parse(f"{sites.image}:{request.bad}")) as registry:
        for tag in reversed(sites.family.listed(registry.tags())):
            is_between = not tag < request.good and not request.bad < tag
            is_alike = tag.edition == request.good.edition and tag.kind != "candidate"
            if is_between and is_alike and (image := registry.image(str(tag))):
                images[str(tag)] = image
        for end in map(str, (request.good, request.bad)):
            if end not in images:
                raise Refused(f"{registry.name} has no tag {end}. List its tags: runbook image list.")
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
    texts = branch.texts(branch.checkout.list_files(branch.start, rows.FOLDER))
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
