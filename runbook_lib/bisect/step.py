"""Notebook bisect-image: run after run until there is a result.

The search is a function of its ledger, a file that has each run before it is started, and its outcome after it has
ended, so it always continues in the same way.  The file has the images with their versions too, so that a tag moved in
the meantime changes nothing.  The result is the conclusion with its probability, a plot, the fix, and a text for
upstream.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from runbook_lib import display, notebooks
from runbook_lib.bisect.overlays import Overlay, plan_overlays
from runbook_lib.bisect.places import BisectRequest, LocalPlace, SlurmPlace, parse, test_of
from runbook_lib.bisect.search import Conclusion, Point, Problem, Trial, advance
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.jobs import TREE
from runbook_lib.compute.slurm.site import read_site
from runbook_lib.errors import CannotTell, Refused
from runbook_lib.golden import plots
from runbook_lib.images.compare import Component, versions
from runbook_lib.images.reference import ImageRef
from runbook_lib.model import Check, Effect, Evidence, Next, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.text.markdown import render
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.machine import files
from runbook_lib.world.ports import World


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
            advice = "It lists the runs of this search: restore it, or choose another results folder."
            raise CannotTell(f"{path} cannot be read ({type(error).__name__}: {error}). {advice}") from error

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

    def reread(self) -> "SearchFacts":
        """Return the search with its ledger read again from disk."""
        return replace(self, ledger=RunLedger.read(self.ledger.path) or self.ledger)

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
        request, by_exit = self.request, self.request.metric == "exit"
        answer = advance(Problem(tags, components, request.higher_is_better, request.runs, by_exit), runs)
        if isinstance(answer, Conclusion):
            return answer
        return Trial(answer, number=len(runs) + 1, image=images[answer.tag])

    def show(self) -> display.View:
        """Show the images, the maximum cost, and the next run with its script."""
        request, ledger, following = self.request, self.ledger, self.next()
        left = max(0, request.runs - len(ledger.runs))
        hours = left * (request.minutes + 1) / 60  # a run may take a minute to end after its limit
        cost = {"max. runs": left, "max. hours": f"{hours:.1f}"}
        test = self.place.test.test if isinstance(self.place, SlurmPlace) else None
        if test and test.needs.gpus:
            cost["max. GPU hours"] = f"{test.needs.nodes * test.needs.gpus * hours:.1f}"
        shown = display.mapping({
            "what": request.subject, "metric": request.measured,
            "where": "here" if request.here else "on the cluster", "results": ledger.path.parent, **cost,
        })  # fmt: skip
        shown += display.table([{"tag": tag, "image": image} for tag, image in ledger.images.items()])
        if isinstance(following, Conclusion):
            return shown + display.note("The search is over: no more runs are needed.")
        command = self.place.command(following, self.overlay_of(following))
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
    place: LocalPlace | SlurmPlace = LocalPlace(request, folder, branch.checkout.path)
    if not request.here:
        place = SlurmPlace(request, folder, Slurm(), test_of(branch, request))
        place.slurm.require_containers()
    return SearchFacts(branch, request, place, ledger)


def _begin(path: Path, branch: BumpBranch, request: BisectRequest) -> RunLedger:
    """Return an empty ledger with each image from good to bad, and its versions."""
    sites, images = branch.bump.repository.sites, {}
    registry = branch.services.registry(ImageRef.parse(f"{sites.image}:{request.bad}"))
    alike = [tag for tag in sites.family.listed(registry.tags()) if tag.edition == request.good.edition]
    between = [tag for tag in reversed(alike) if tag.kind != "candidate" and request.good < tag < request.bad]
    for tag in (request.good, *between, request.bad):
        if image := registry.image(str(tag)):
            images[str(tag)] = image
        elif tag in (request.good, request.bad):
            raise Refused(f"{registry.name} has no tag {tag}.", f"List its tags: runbook image list {sites.image}")
    platforms = sorted(set.intersection(*(set(image.platforms) for image in images.values())))
    if not platforms:
        raise CannotTell(f"The images from {request.good} to {request.bad} have no platform in common.")
    named = request.site.search_image
    references = {
        tag: named.replace("{tag}", tag) or f"{sites.image}@{image.digest}" for tag, image in images.items()
    }  # fmt: skip
    return RunLedger(path, references, {tag: versions(image.platforms[platforms[0]]) for tag, image in images.items()})


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
        name, facts = "the search is over", self.facts.reread()
        conclusion = facts.next()
        if not isinstance(conclusion, Conclusion):
            detail = f"{len(facts.ledger.runs)} of at most {facts.request.runs} runs so far."
            return Check(name, "failed", detail, Next.again(mode="publish"), _evidence(facts))
        evidence = _evidence(facts, conclusion)
        if conclusion.step:
            return Check(name, "passed", str(conclusion), Next.run(notebooks.BROKEN_TESTS), evidence)
        advice = "Give a larger budget, or a command that repeats its measurement. If the runs were faulty, delete"
        following = Next.again(f"{advice} {facts.place.folder} first:", mode="publish")
        return Check(name, "waiting", str(conclusion), following, evidence)

    def make_true(self, world: World) -> Iterator[Effect]:
        """Run points until the search ends."""
        files.make_folder(self.facts.place.folder)
        # A second process on the same search would submit the same runs, so this one locks the search until it ends.
        with files.locked(self.facts.place.folder / "lock", print):
            facts = self.facts.reread()
            tree = facts.place.folder / TREE
            if not (facts.request.here or tree.exists()):
                facts.branch.checkout.archive(facts.branch.start, tree)
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
    rows = []
    for run in facts.ledger.runs:
        value = run.value if run.outcome == "value" else run.outcome or "submitted"
        row = {"run": run.number, "tag": run.point.tag, "restored": run.point.restored, "value": value}
        rows.append({**row, "node": run.node, "note": run.reason})
    found = Evidence(
        {"bisect_result": str(conclusion)} if conclusion else {}, tables={"runs": rows},
        files={facts.ledger.path.name: facts.ledger.text},
        shown=(display.table(rows), display.Drawing(lambda: plot(facts))),
    )  # fmt: skip
    if conclusion is None or not conclusion.step:
        return found
    overlays, suspects = facts.swappable(conclusion.step[1])
    text = render(
        "regression", image=facts.branch.bump.repository.sites.image, request=facts.request, conclusion=conclusion,
        values={point: [f"{value:g}" for value in values] for point, values in _values(facts).items()},
        restored=[overlays[name] for name in conclusion.culprits],
    )  # fmt: skip
    below = display.code(text, title="Text for upstream")
    if conclusion.culprits:
        lines = "\n".join(overlays[conclusion.culprits[0]].dockerfile_lines())
        below = display.code(lines, title="After FROM in the Dockerfile, to stay on the new image") + below
    for name in sorted({run.point.restored for run in facts.ledger.runs if run.outcome == "invalid"}):
        suspects.append(f"{name}: its old version did not take effect")
    return replace(
        found, warnings=tuple(f"Remaining suspect: {it}." for it in suspects), shown=(*found.shown, below),
        files={**found.files, "upstream-issue.md": text},
    )  # fmt: skip


def plot(facts: SearchFacts) -> display.Picture | display.View:
    """Plot the values by image and restored component."""
    groups = {str(point).replace(" with the ", "\n"): values for point, values in _values(facts).items()}
    if not groups:
        return display.note("No run has a value yet.")
    return plots.values_by_group(groups, facts.request.measured, highlighted=groups.keys() - set(facts.ledger.images))


def _values(facts: SearchFacts) -> dict[Point, list[float]]:
    """Return the values of each point that has some, by tag and restored components."""
    values: dict[Point, list[float]] = {}
    tags = list(facts.ledger.images)
    for run in sorted(facts.ledger.runs, key=lambda run: (tags.index(run.point.tag), run.point.restored)):
        if run.value is not None:
            values.setdefault(run.point, []).append(run.value)
    return values


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
        if not self.good:
            return None
        site = read_site(self.site)
        request = parse(bump, site, self.good, self.test, self.metric, self.budget, practice=self.practice)
        return read_search(BumpBranch.look(world, bump), request)

    def plan(self, facts: SearchFacts | None, bump: Bump) -> Plan[World]:
        """Plan the runs."""
        if facts is None:
            idle = "Nothing is planned. Give good, the newest tag that works, and tag, one that does not."
            return Plan(Outcome(idle), (display.note(idle),), on_branch=False)
        subject, site = facts.request.subject, facts.request.site
        inputs = {"test": subject, "image": site.search_image, "ledger": str(facts.ledger.path)}
        inputs |= {f"old {name}": version for name, version in site.components.items()}
        return Plan(Outcome(""), (facts.show(),), (Searched(facts),), evidence=Evidence(inputs), on_branch=False)
