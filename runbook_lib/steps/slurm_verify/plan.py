"""What is to be run on a Slurm cluster: the tests, whether each can run, and what the cluster lacks for them."""

import glob
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.display import View
from runbook_lib.errors import Refused, RunbookError, Unreachable
from runbook_lib.golden.file_names import FOLDER, GoldenFileName
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.workloads import Workload
from runbook_lib.slurm import follow, selection, site_file
from runbook_lib.slurm import submissions as slurm_matrix
from runbook_lib.slurm.batch_files import CALLS, INSIDE, JobArray, arrays
from runbook_lib.slurm.client import Slurm
from runbook_lib.slurm.follow import Follower, ObservedTest
from runbook_lib.slurm.outcome import MatrixOutcome, conclude
from runbook_lib.slurm.selection import SelectedTest
from runbook_lib.slurm.site import Site
from runbook_lib.slurm.states import Partition
from runbook_lib.slurm.submissions import RoundTest, Submission
from runbook_lib.system.atomic_files import read_given
from runbook_lib.workflow.bump_branch import BumpBranch

_IDLE = (
    "No folder for results was given, so nothing is planned. Give one that all nodes see as results, or a site file."
)


@dataclass(frozen=True)
class Plan:
    """What is to be run, and what was run before.

    ``chosen`` are the tests asked for, ``fresh`` those of them that were not submitted yet, ``arrays`` are for these:
    what an interrupted run planned is planned anew.  ``before`` has the ids that Slurm knows, be they noted or not.
    ``elsewhere`` are tests of this bump at other commits or with other images that still wait or run.
    ``problems`` keep everything from being submitted.  ``idle`` says why there is nothing to plan.
    """

    branch: BumpBranch
    site: Site
    base: Path
    slurm: Slurm
    chosen: tuple[SelectedTest, ...] = ()
    fresh: tuple[SelectedTest, ...] = ()
    arrays: tuple[JobArray, ...] = ()
    before: tuple[Submission, ...] = ()
    elsewhere: tuple[RoundTest, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    golden: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    idle: str = ""

    @property
    def held(self) -> tuple[SelectedTest, ...]:
        """The tests that cannot run."""
        return tuple(it for it in self.chosen if it.obstacle)

    @property
    def left_out(self) -> tuple[tuple[str, str], ...]:
        """The tests that cannot run, those of one reason together, and the reason."""
        by_reason: dict[str, list[str]] = {}
        for it in self.held:
            by_reason.setdefault(it.obstacle, []).append(str(it.test))
        return tuple((_few(names), why) for why, names in by_reason.items())

    def show(self) -> View:
        """The site, what keeps it from running, the arrays, and the tests that are left out."""
        if self.idle:
            return display.note(self.idle)
        shown = display.facts(
            commit=self.branch.start[:10], results=self.base, image=self.site.image or "none: in the checkout itself",
            partition=", ".join(sorted(set(self.site.partitions.values()))), account=self.site.account,
        )  # fmt: skip
        shown += display.notes(self.problems, title="Nothing can be submitted")
        shown += display.notes(self.warnings, title="Warnings")
        planned = [(it.name, [task.workload for task in it.tasks]) for it in self.arrays]
        rows = (
            {"array": name, "tests": len(tests), "nodes": tests[0].nodes, "GPUs a node": self.site.gpus_for(tests[0]),
             "minutes at most": -(-max(test.time_limit for test in tests) // 60)}
            for name, tests in planned
        )  # fmt: skip
        if planned or not self.problems:
            shown += display.table(rows, empty="Nothing new to submit: all these tests were submitted before.")
        left = ({"tests": tests, "left out because": why} for tests, why in self.left_out)
        return shown + (display.note("Left out:") + display.table(left) if self.held else display.View("", ""))

    def files(self) -> View:
        """The batch file of each array, and what the first of its tests runs."""
        shown = display.View("", "")
        for it in self.arrays:
            shown += display.code(it.text, title=it.path)
        for task in (it.tasks[0] for it in self.arrays[:1]):
            shown += display.code(task.text, title=task.path) + display.code(
                task.script, title=f"{task.folder}/script.sh"
            )
        return shown if self.arrays else display.note("There is no new batch file.")


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def read_site(
    branch: BumpBranch, site: str = "", *, partition: str = "", account: str = "", image: str = "", mounts: str = "",
    results: str = "",
) -> Site:  # fmt: skip
    """The cluster, from a site file and parameters that override it.  Raises RunbookError for what cannot be used."""
    text = ""
    if site:
        try:
            text = read_given(Path(site).expanduser()).decode("utf-8", "replace")
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            raise RunbookError(f"The site file {site!r} cannot be read: {error}. Correct the parameter.") from error
    return site_file.parse(
        text, site or "(none)", str(branch.checkout.path), partition=partition, account=account, image=image,
        mounts=mounts, results=results,
    )  # fmt: skip


def make(
    branch: BumpBranch, site: Site, *, tests: str = selection.BUMP, platform: str = "", again: str = "",
    train: str = "", nodes: str = "1", gpus: str = "8", slurm: Slurm | None = None,
) -> Plan:  # fmt: skip
    """What would be submitted for the commit that the bump stands at.  Writes nothing.

    ``train`` is a training script with its arguments, run on so many nodes and GPUs a node instead of any test.
    ``again`` names tests to be submitted once more, or is ``failed`` for all that did not pass.
    Raises Refused for tests that do not exist, and CannotTell for a list of submissions that is damaged.
    """
    slurm = slurm or Slurm()
    bump = branch.bump
    # Another commit or another image is another matrix.
    image = f"-{hashlib.sha256(site.image.encode()).hexdigest()[:6]}" if site.image else ""
    base = Path(site.results or "/") / f"{bump.image_type}-{bump.tag or 'none'}-{branch.start[:12]}{image}"
    empty = Plan(branch, site, base, slurm)
    if not site.results:
        return replace(empty, idle=_IDLE)
    if not bump.repository.recipes:
        return replace(empty, idle=f"{bump.repository.name} has no recipes of tests.")
    listed = branch.checkout.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", branch.start).split("\0")
    every, odd = selection.read_tests(branch.texts(it for it in listed if it.startswith(f"{recipes.FOLDER}/")))
    mine = selection.training_test(train, nodes, gpus, platform, bump.image_type) if train.strip() else None
    picked = (mine[0],) if mine else selection.select(every, tests, platform, bump.image_type)
    used, readable = {it.recipe for it in picked}, {it.recipe for it in every}
    odd_ones = [told for path, told in odd.items() if path in used or path not in readable]
    warnings = [*branch.warnings, *_not_the_bump(branch), *itertools.chain.from_iterable(odd_ones)]
    configs = branch.texts({selection.config_of(it) for it in picked})
    if mine:
        configs[selection.config_of(mine[0])] = mine[1]
    first = {it.name: it for it in reversed(picked)}
    chosen = tuple(
        replace(one, obstacle=one.obstacle or ("" if first[it.name] is it else "A row before it has the same name."))
        for it in picked
        for one in [selection.prepare(it, configs[selection.config_of(it)], site)]
    )
    known = {name for it in chosen for name in _expected(it.test, listed)}
    made = replace(empty, chosen=chosen, golden={**branch.texts(known), **configs})
    made = _with_before(made, f"{bump.image_type}-{bump.tag or 'none'}", warnings)
    made = replace(made, fresh=_fresh(made, again), problems=(*site.problems(), *made.problems))
    return _with_arrays(made) if made.fresh and not made.problems else made


def _not_the_bump(branch: BumpBranch) -> list[str]:
    """Which commit is tested where the bump has none yet: its pins, and its golden values, are those of before."""
    if branch.bump.tag is None or branch.tip is not None:
        return []
    return [
        f"The branch {branch.bump.branch} does not exist yet: the tests and golden values are those of "
        f"{branch.bump.base} at {branch.start[:10]}."
    ]


def _with_before(made: Plan, bump: str, warnings: list[str]) -> Plan:
    """What was submitted before; ``bump`` is how the names of all of its folders begin."""
    before, running = slurm_matrix.read(made.base), list[RoundTest]()
    problems: tuple[str, ...] = ()
    try:
        before = follow.adopt_jobs(made.slurm, before)
    except RunbookError as error:
        problems = (f"{error} An array was planned before, and whether it was submitted is not known.",)
    for folder in sorted(made.base.parent.glob(f"{glob.escape(bump)}-*")):
        if folder == made.base:
            continue
        try:
            submissions = follow.adopt_jobs(made.slurm, slurm_matrix.read(folder))
        except RunbookError as error:
            warnings.append(f"{error} Whether its tests still run is not known.")
            continue
        entries = (entry for it in submissions for entry in it.entries if entry.job is not None)
        running += (it for it in entries if not follow.saved_state(it).over)
    try:
        running = list(follow.unfinished(made.slurm.queue(), running)) if running else []
    except RunbookError as error:
        warnings.append(f"{error} Whether tests of other commits or images still run is not known.")
        running = []
    if running:
        folders = ", ".join(sorted({it.folder.relative_to(made.base.parent).parts[0] for it in running}))
        warnings.append(
            f"{display.count(len(running), 'test')} of this bump at another commit or with another image still run, or "
            f"wait to: see {folders}. cancel ends them too."
        )
    return replace(
        made, before=before, elsewhere=tuple(running), problems=problems, warnings=tuple(warnings)
    )  # fmt: skip


def _with_arrays(made: Plan) -> Plan:
    """The arrays for what is fresh.  A test that cannot run here is held; where none can, nothing is submitted."""
    site, (problems, warnings, partitions) = made.site, _asked(made.slurm, made.site)
    config = {it.test.name: made.golden.get(selection.config_of(it.test)) or "" for it in made.fresh}
    unfit = {
        it.test.name: told for it in made.fresh if (told := _unfit(it.test, site, partitions, config[it.test.name]))
    }
    if len(unfit) == len(made.fresh):
        problems = (*dict.fromkeys(unfit.values()), *problems)
        return replace(made, problems=problems, warnings=(*made.warnings, *warnings))
    fresh = tuple(it for it in made.fresh if it.test.name not in unfit)
    chosen = tuple(replace(it, obstacle=it.obstacle or unfit.get(it.test.name, "")) for it in made.chosen)
    sizes = {name: it.gpus for it in partitions or () for name in ([it.name, ""] if it.default else [it.name])}
    number = slurm_matrix.next_round(made.base)
    own = replace(site, results=f"{made.base}/{number}", node_gpus=sizes)
    try:
        rendered = arrays([(it.test, it.connections) for it in fresh], own)
    except Refused as error:
        rendered, problems = (), (*problems, str(error))
    if len(rendered) > CALLS:
        warnings += (
            f"These tests differ in partition, nodes or GPUs so much that {len(rendered)} arrays are needed, each a "
            "call of sbatch.",
        )
    return replace(
        made, chosen=chosen, fresh=fresh, arrays=rendered, problems=problems,
        warnings=(*made.warnings, *warnings, *_work_tree(made.branch, site)),
    )  # fmt: skip


def _unfit(test: Workload, site: Site, partitions: Sequence[Partition] | None, config: str) -> str:
    """Why a test cannot run here, as sentences; ``partitions`` are None where they are not known."""
    if not site.image and INSIDE in test.script:
        return f"The test's script works in {INSIDE}, which is in a container alone. Name the image that was built."
    lacks = "" if partitions is None else " ".join(site_file.unmet_requirements(site, partitions, [test]))
    return " ".join(filter(None, (lacks, site_file.unmounted(site, test.script, config))))


def _fresh(made: Plan, again: str) -> tuple[SelectedTest, ...]:
    """Those that were not submitted yet, and those that are to run once more.

    Raises Refused for a word that names no test, and for a test that still waits or runs.
    """
    words = set(again.replace(",", " ").split())
    able = {it.test.name: it for it in made.chosen if not it.obstacle}
    names = {name: {name, it.test.case, f"{it.test.model}/{it.test.case}"} for name, it in able.items()}
    if unknown := words - {"failed"} - {word for own in names.values() for word in own}:
        raise Refused(f"again names {', '.join(sorted(unknown))}, which is no test that is chosen here.")
    newest = slurm_matrix.newest(made.before)
    sent = {name: it for name in able if (it := newest.get(name)) is not None and it.job is not None}
    fresh, running = able.keys() - sent.keys(), list[ObservedTest]()
    for now in Follower(made.slurm, sent.values(), notes=False).poll() if words else ():
        name = now.entry.test.name
        if names[name] & words and now.state and not now.over:
            running.append(now)
        elif names[name] & words or ("failed" in words and _failed(made, now)):
            fresh |= {name}
    if running:
        told = ", ".join(f"{it.entry.test} (job {it.entry.job}_{it.entry.index})" for it in running)
        raise Refused(f"again names what is not over: {told}. Wait for its end, or end it with cancel, then run again.")
    return tuple(it for name, it in able.items() if name in fresh)


def _failed(made: Plan, now: ObservedTest) -> bool:
    """Whether a test failed, or is gone without a word."""
    return not now.state or outcome(made, now).word == "failed"


def _asked(slurm: Slurm, site: Site) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Partition, ...] | None]:
    """What keeps all tests from running on this cluster, what could not be found out, and its partitions."""
    told: list[str] = []
    outside = [*([site.image] if site.image.startswith("/") else []), *(it for it, _ in site.mounts)]
    missing = tuple(
        f"{path} does not exist on this machine. Name what does, or set shared: true in the site file if the nodes "
        "have it." for path in outside if not Path(path).exists()
    )  # fmt: skip
    if not site.shared:
        told += missing
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
        except OSError:
            mounts = ""
        paths = [site.results, *([] if site.image else [site.checkout])]
        told += filter(None, (site_file.not_shared(path, mounts) for path in paths))
    if not site.image and not (Path(site.checkout) / ".venv").is_dir():
        told.append(
            f"{site.checkout} has no .venv, and each node would build one while the others do. Run `uv sync` there "
            "once, or name an image."
        )
    try:
        partitions = slurm.partitions()
        told += site.problems(partitions=[it.name for it in partitions], accounts=slurm.own_accounts())
        if site.image and not slurm.runs_containers():
            told.append(
                f"srun knows no --container-image here, so {site.image} cannot be run: Pyxis is not installed. Ask "
                "those who run the cluster. Without an image only train runs, in an environment of the checkout's own."
            )
    except Unreachable as error:
        return tuple(told), (f"{error} Partition, account and sizes were not checked.",), None
    except RunbookError as error:
        return (*told, str(error)), (), None
    return tuple(told), missing if site.shared else (), partitions


def _work_tree(branch: BumpBranch, site: Site) -> list[str]:
    """What a person should know who tests the checkout itself."""
    if site.image or branch.checkout.bare:
        return []
    head = branch.checkout.resolve("HEAD")
    same = head == branch.start and not branch.checkout.uncommitted(["."])
    return [] if same else [
        f"Without an image the tests run in {site.checkout} as it is when they begin: at {head[:10]} with what is "
        f"uncommitted there, and not at {branch.start[:10]}."
    ]  # fmt: skip


def _expected(test: Workload, listed: Iterable[str]) -> list[str]:
    """The golden files of a test on its platform that the repository holds; ``_2nd`` is of a resumed training."""
    folder = f"{FOLDER}/{test.model}/{test.case}/"
    found = []
    for path in listed:
        file = GoldenFileName.of_artifact(path.removeprefix(folder)) if path.startswith(folder) else None
        if file and (file.environment, file.platform) == (test.environment, test.platform):
            found.append(path)
    return found


def outcome(planned: Plan, now: ObservedTest) -> MatrixOutcome:
    """What became of a test, its golden values judged against those of the commit."""
    test = now.entry.test
    folder = f"{FOLDER}/{test.model}/{test.case}/"
    old = {path.removeprefix(folder): text for path, text in planned.golden.items() if path.startswith(folder)}
    config = planned.golden.get(selection.config_of(test))
    return conclude(now, old, expected_names(planned, test), config)


def expected_names(planned: Plan, test: Workload) -> tuple[str, ...]:
    """The names of the golden files that a test should leave."""
    return tuple(path.rpartition("/")[2] for path in _expected(test, planned.golden))
