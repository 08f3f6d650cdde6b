"""What is to be run on a Slurm cluster: the tests, whether each can run, and what the cluster lacks for them."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from runbook_lib import golden, matching, recipes, slurm_choice, slurm_follow, slurm_matrix, slurm_site, views
from runbook_lib.errors import Refused, RunbookError, Unreachable
from runbook_lib.position import Position
from runbook_lib.sbatch import Array, Site, arrays
from runbook_lib.slurm import Slurm
from runbook_lib.slurm_choice import Chosen
from runbook_lib.slurm_matrix import Entry, Submission
from runbook_lib.views import View
from runbook_lib.workloads import Workload

_IDLE = (
    "No folder for results was given, so nothing is planned. Give one that all nodes see as results, or a site file."
)


@dataclass(frozen=True)
class Plan:
    """What is to be run, and what was run before.

    ``chosen`` are the tests asked for, ``fresh`` those of them that no round holds yet, ``arrays`` are for these;
    ``problems`` keep everything from being submitted.  ``idle`` says why there is nothing to plan.
    """

    stand: Position
    site: Site
    base: Path
    slurm: Slurm
    chosen: tuple[Chosen, ...] = ()
    fresh: tuple[Chosen, ...] = ()
    arrays: tuple[Array, ...] = ()
    before: tuple[Submission, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    golden: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    idle: str = ""

    @property
    def unsent(self) -> tuple[Submission, ...]:
        """Arrays that an interrupted run planned, and did not submit."""
        return tuple(it for it in self.before if it.job is None)

    @property
    def held(self) -> tuple[Chosen, ...]:
        """The tests that cannot run."""
        return tuple(it for it in self.chosen if it.held)

    def show(self) -> View:
        """The site, what keeps it from running, the arrays, and the tests that are left out."""
        if self.idle:
            return views.note(self.idle)
        shown = views.facts(
            commit=self.stand.start[:10], results=self.base, image=self.site.image or "none: in the checkout itself",
            partition=", ".join(sorted(set(self.site.partitions.values()))), account=self.site.account,
        )  # fmt: skip
        shown += views.notes(self.problems, title="Nothing can be submitted")
        shown += views.notes(self.warnings, title="Warnings")
        planned = [(it.name, [task.workload for task in it.tasks]) for it in self.arrays]
        planned += [(it.name, [entry.test for entry in it.entries]) for it in self.unsent]
        rows = (
            {"array": name, "tests": len(tests), "nodes": tests[0].nodes, "GPUs a node": self.site.gpus_for(tests[0]),
             "minutes at most": -(-max(test.time_limit for test in tests) // 60)}
            for name, tests in planned
        )  # fmt: skip
        if planned or not self.problems:
            shown += views.table(rows, empty="Nothing new to submit: all these tests were submitted before.")
        held = ({"test": str(it.test), "left out because": it.held} for it in self.held)
        return shown + (views.note("Left out:") + views.table(held) if self.held else views.View("", ""))

    def files(self) -> View:
        """The batch file of each array, and what the first of its tests runs."""
        shown = views.View("", "")
        for it in self.arrays:
            shown += views.code(it.text, title=it.path)
        for task in (it.tasks[0] for it in self.arrays[:1]):
            shown += views.code(task.text, title=task.path) + views.code(task.script, title=f"{task.folder}/script.sh")
        return shown if self.arrays else views.note("There is no new batch file.")


def read_site(
    stand: Position, site: str = "", *, partition: str = "", account: str = "", image: str = "", mounts: str = "",
    results: str = "",
) -> Site:  # fmt: skip
    """The cluster, from a site file and parameters that override it.  Raises RunbookError for what cannot be used."""
    text = ""
    if site:
        try:
            text = Path(site).expanduser().read_text("utf-8", errors="replace")
        except OSError as error:
            raise RunbookError(f"The site file {site} cannot be read ({error.strerror or error}).") from error
    return slurm_site.parse(
        text, site or "(none)", str(stand.checkout.path), partition=partition, account=account, image=image,
        mounts=mounts, results=results,
    )  # fmt: skip


def make(
    stand: Position, site: Site, *, tests: str = slurm_choice.BUMP, platform: str = "", again: str = "",
    train: str = "", nodes: str = "1", gpus: str = "8", slurm: Slurm | None = None,
) -> Plan:  # fmt: skip
    """What would be submitted for the commit that the bump stands at.  Writes nothing.

    ``train`` is a training script with its arguments, run on so many nodes and GPUs a node instead of any test.
    ``again`` names tests to be submitted once more, or is ``failed`` for all that did not pass.
    Raises Refused for tests that do not exist, and CannotTell for a list of submissions that is damaged.
    """
    slurm = slurm or Slurm()
    bump = stand.bump
    # Another commit or another image is another matrix.
    image = f"-{hashlib.sha256(site.image.encode()).hexdigest()[:6]}" if site.image else ""
    base = Path(site.results or "/") / f"{bump.image_type}-{bump.tag or 'none'}-{stand.start[:12]}{image}"
    empty = Plan(stand, site, base, slurm)
    if not site.results:
        return replace(empty, idle=_IDLE)
    if not bump.repository.recipes:
        return replace(empty, idle=f"{bump.repository.name} has no recipes of tests.")
    listed = stand.checkout.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", stand.start).split("\0")
    every, odd = slurm_choice.known(stand.texts(it for it in listed if it.startswith(f"{recipes.FOLDER}/")))
    mine = slurm_choice.own(train, nodes, gpus, platform, bump.image_type) if train.strip() else None
    picked = (mine[0],) if mine else slurm_choice.pick(every, tests, platform, bump.image_type)
    used, readable = {it.recipe for it in picked}, {it.recipe for it in every}
    warnings = [told for path, sentences in odd.items() for told in sentences if path in used or path not in readable]
    configs = stand.texts({slurm_choice.config_of(it) for it in picked})
    if mine:
        configs[slurm_choice.config_of(mine[0])] = mine[1]
    chosen = tuple(slurm_choice.prepare(it, configs[slurm_choice.config_of(it)], site) for it in picked)
    before = slurm_matrix.read(base)
    fresh = _fresh([it for it in chosen if not it.held], slurm_matrix.newest(before), again)
    known = {name for it in chosen for name in _expected(it.test, listed)}
    problems = site.problems()
    made: tuple[Array, ...] = ()
    if not problems and fresh:
        try:
            own = replace(site, results=f"{base}/{slurm_matrix.next_round(base)}")
            made = arrays([(it.test, it.connections) for it in fresh], own)
            problems, more = _asked(slurm, site, [it.test for it in fresh])
            warnings += [*more, *_work_tree(stand, site)]
        except Refused as error:
            problems = (str(error),)
    return replace(
        empty, chosen=chosen, fresh=fresh, arrays=made, before=before, problems=problems, warnings=tuple(warnings),
        golden={**stand.texts(known), **configs},
    )  # fmt: skip


def _fresh(able: Iterable[Chosen], known: Mapping[str, Entry], again: str) -> tuple[Chosen, ...]:
    """Those that no round holds, and those that are to run once more."""
    words = set(again.replace(",", " ").split())
    names = {it.test.name: {it.test.name, it.test.case, f"{it.test.model}/{it.test.case}"} for it in able}
    if unknown := words - {"failed"} - {word for own in names.values() for word in own}:
        raise Refused(f"again names {', '.join(sorted(unknown))}, which is no test that is chosen here.")
    found = []
    for it in able:
        entry = known.get(it.test.name)
        once_more = entry is not None and entry.job is not None and (
            names[it.test.name] & words or ("failed" in words and slurm_follow.last_seen(entry).failed)
        )  # fmt: skip
        if entry is None or once_more:
            found.append(it)
    return tuple(found)


def _asked(slurm: Slurm, site: Site, tests: list[Workload]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What keeps the tests from running on this cluster, and what could not be found out."""
    told: list[str] = []
    if not site.shared:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
        except OSError:
            mounts = ""
        paths = [site.results, *([] if site.image else [site.checkout])]
        told += filter(None, (slurm_site.not_shared(path, mounts) for path in paths))
    if not site.image and not (Path(site.checkout) / ".venv").is_dir():
        told.append(
            f"{site.checkout} has no .venv, and each node would build one while the others do. Run `uv sync` there "
            "once, or name an image."
        )
    try:
        partitions = slurm.partitions()
        told += site.problems(partitions=[it.name for it in partitions], accounts=slurm.own_accounts())
        told += slurm_site.lacking(site, partitions, tests)
        if site.image and not slurm.runs_containers():
            told.append(
                f"srun knows no --container-image here, so {site.image} cannot be run: Pyxis is not installed. Ask "
                "those who run the cluster, or test without an image, in an environment of the checkout's own."
            )
    except Unreachable as error:
        return tuple(told), (f"{error} Partition, account and sizes were not checked.",)
    except RunbookError as error:
        told.append(str(error))
    return tuple(told), ()


def _work_tree(stand: Position, site: Site) -> list[str]:
    """What a person should know who tests the checkout itself."""
    if site.image or stand.checkout.bare:
        return []
    head = stand.checkout.resolve("HEAD")
    same = head == stand.start and not stand.checkout.uncommitted(["."])
    return [] if same else [
        f"Without an image the tests run in {site.checkout} as it is when they begin: at {head[:10]} with what is "
        f"uncommitted there, and not at {stand.start[:10]}."
    ]  # fmt: skip


def _expected(test: Workload, listed: Iterable[str]) -> list[str]:
    """The golden files of a test on its platform that the repository holds; ``_2nd`` is of a resumed training."""
    folder = f"{golden.FOLDER}/{test.model}/{test.case}/"
    found = []
    for path in listed:
        file = matching.golden(path.removeprefix(folder)) if path.startswith(folder) else None
        if file and (file.environment, file.platform) == (test.environment, test.platform):
            found.append(path)
    return found


def expected_names(planned: Plan, test: Workload) -> tuple[str, ...]:
    """The names of the golden files that a test should leave."""
    return tuple(path.rpartition("/")[2] for path in _expected(test, planned.golden))
