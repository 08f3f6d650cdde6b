"""What a run on a Slurm cluster needs to know: its tests, their arrays, and what prevents them.  Writes nothing."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.compute.slurm import follow, rounds, selection
from runbook_lib.compute.slurm.batch_files import JobArray, arrays
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.cluster import find_obstacle, inspect_cluster
from runbook_lib.compute.slurm.outcome import MatrixOutcome, conclude
from runbook_lib.compute.slurm.site import Site
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.recipes.workloads import Workload
from runbook_lib.text.lists import join_first
from runbook_lib.world.bump_branch import BumpBranch

_NO_RESULTS = "Nothing is planned without a results folder that all nodes see: set results in the site file."


@dataclass(frozen=True)
class MatrixChoice:
    """The tests to run, as words.

    ``jobs`` names those to submit once more, is ``failed`` for all that did not pass, or ``cancel`` to end all.
    """

    tests: str = selection.BUMP
    jobs: str = ""

    @property
    def cancel(self) -> bool:
        """True if tests are to be ended, and none submitted."""
        return self.jobs.strip() == "cancel"


@dataclass(frozen=True)
class NewTests:
    """The tests to submit now, in ``arrays``; an array whose submission was interrupted is planned again."""

    tests: tuple[selection.SelectedTest, ...] = ()
    arrays: tuple[JobArray, ...] = ()


@dataclass(frozen=True)
class Obstacles:
    """What stands in the way: ``problems`` of the cluster prevent a submission; ``idle``: why nothing is planned."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    idle: str = ""


@dataclass(frozen=True)
class SlurmFacts:
    """A commit's tests on a cluster; ``folder`` is for the results of this commit with this image.

    ``submissions`` are earlier arrays with their job IDs, from the folder or the queue.  ``texts`` are settings and
    golden files by path.
    """

    branch: BumpBranch
    site: Site
    folder: Path
    slurm: Slurm
    tests: tuple[selection.SelectedTest, ...] = ()
    texts: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    submissions: tuple[rounds.Submission, ...] = ()
    new: NewTests = NewTests()
    obstacles: Obstacles = Obstacles()

    @property
    def left_out(self) -> dict[str, list[str]]:
        """The names of the tests that cannot run, by reason."""
        names: dict[str, list[str]] = {}
        for entry in self.tests:
            if entry.obstacle:
                names.setdefault(entry.obstacle, []).append(str(entry.test))
        return names

    def expected_names(self, test: Workload) -> tuple[str, ...]:
        """Return the names of the golden files that a test should write."""
        return tuple(path.rpartition("/")[2] for path in selection.golden_files(test, self.texts))

    def outcome(self, observed: follow.ObservedTest) -> MatrixOutcome:
        """Return a test's outcome, with its golden values judged against the commit's."""
        config = selection.config_of(observed.entry.test)
        folder = config.removesuffix("model_config.yaml")
        golden = {path.removeprefix(folder): text for path, text in self.texts.items() if path.startswith(folder)}
        return conclude(observed, golden, self.expected_names(observed.entry.test), self.texts.get(config))

    def show(self) -> display.View:
        """Show the site, the problems, the arrays, and the omitted tests."""
        if self.obstacles.idle:
            return display.note(self.obstacles.idle)
        shown = display.facts(
            commit=self.branch.start[:10], results=self.folder,
            image=", ".join(self.site.image_names) or "none: in the checkout itself",
            partition=", ".join(sorted(set(self.site.partitions.values()))), account=self.site.account,
        )  # fmt: skip
        shown += display.notes(self.obstacles.problems, title="Nothing can be submitted")
        shown += display.notes(self.obstacles.warnings, title="Warnings")
        if self.new.arrays or not self.obstacles.problems:
            rows = []
            for array in self.new.arrays:
                test, seconds = array.tasks[0].workload, max(task.workload.time_limit for task in array.tasks)
                rows.append({
                    "array": array.name, "tests": len(array.tasks), "nodes": test.nodes,
                    "GPUs per node": self.site.gpus_for(test), "max. minutes": -(-seconds // 60),
                })  # fmt: skip
            shown += display.table(rows, empty="Nothing new to submit: all these tests have been submitted already.")
        rows = [{"tests": join_first(names, 3), "omitted because": reason} for reason, names in self.left_out.items()]
        return shown + (display.note("Left out:") + display.table(rows) if rows else display.View("", ""))

    def files(self) -> display.View:
        """Show each array's batch file, and the first task's files."""
        if not self.new.arrays:
            return display.note("There is no new batch file.")
        shown = display.View("", "")
        texts = {array.path: array.text for array in self.new.arrays}
        for path, text in {**texts, **self.new.arrays[0].tasks[0].files}.items():
            shown += display.code(text, title=path)
        return shown


def read_facts(branch: BumpBranch, site: Site, choice: MatrixChoice, slurm: Slurm | None = None) -> SlurmFacts:
    """Return the tests of the branch's commit, and what the cluster and the results folder know about them.

    Raises Refused for a test that does not exist or is still running, and CannotTell for a damaged submission list.
    """
    bump = branch.bump
    folder = f"{bump.image_type}-{bump.tag or 'none'}-{branch.start[:12]}"
    if site.image_names:  # each image has its own results
        folder += f"-{hashlib.sha256(','.join(site.image_names).encode()).hexdigest()[:6]}"
    facts = SlurmFacts(branch, site, Path(site.results or "/") / folder, slurm or Slurm())
    idle = "" if bump.repository.tests.recipes else f"{bump.repository.name} has no test recipes."
    if not site.results or idle:
        return replace(facts, obstacles=Obstacles(idle=idle or _NO_RESULTS))
    tests, texts, found = selection.read_commit_tests(branch, site, choice.tests)
    problems, warnings = list[str](), [*branch.warnings, *found]
    if bump.tag is not None and branch.tip is None:
        source = f"the tests and golden values are from {bump.base} at {branch.start[:10]}"
        warnings.append(f"Branch {bump.branch} does not exist yet: {source}.")
    submissions = rounds.read(facts.folder)
    try:
        submissions = follow.adopt_jobs(facts.slurm, submissions)
    except RunbookError as error:
        problems.append(f"{error} Whether an array planned earlier was submitted is unknown.")
    facts = replace(facts, tests=tests, texts=texts, submissions=submissions)
    new = _new_tests(facts, "" if choice.cancel else choice.jobs)
    facts = replace(facts, new=NewTests(new))
    if new and not problems:
        facts = _with_arrays(facts, problems, warnings)
    return replace(facts, obstacles=Obstacles(tuple(problems), tuple(warnings)))


def _new_tests(facts: SlurmFacts, again: str) -> tuple[selection.SelectedTest, ...]:
    """Return the tests not submitted yet, and those that ``again`` names.

    Raises Refused for a word that matches no test, and for a test that is still waiting or running.
    """
    words = set(again.replace(",", " ").split())
    runnable = {entry.test.name: entry for entry in facts.tests if not entry.obstacle}
    names = {}
    for name, entry in runnable.items():
        names[name] = {name, entry.test.case, f"{entry.test.model}/{entry.test.case}"}
    if unknown := words - {"failed"}.union(*names.values()):
        raise Refused(f"jobs names {', '.join(sorted(unknown))}, not among the chosen tests.")
    newest = rounds.newest(facts.submissions)
    submitted = [newest[name] for name in runnable if name in newest and newest[name].job is not None]
    new = runnable.keys() - {entry.test.name for entry in submitted}
    unfinished = []
    for observed in follow.Follower(facts.slurm, submitted).poll() if words else ():
        test, word = observed.entry, facts.outcome(observed).word
        is_named = bool(names[test.test.name] & words)
        if is_named and observed.state and not observed.over:
            unfinished.append(f"{test.test} (job {test.job}_{test.index})")
        elif is_named or ("failed" in words and (word in ("failed", "unknown") or not observed.state)):
            new.add(test.test.name)
    if unfinished:
        advice = "Wait until they finish, or end them with `-r jobs cancel`; then run again."
        raise Refused(f"jobs names unfinished tests: {', '.join(unfinished)}. {advice}")
    return tuple(entry for name, entry in runnable.items() if name in new)


def _with_arrays(facts: SlurmFacts, problems: list[str], warnings: list[str]) -> SlurmFacts:
    """Add arrays for the new tests, except those that cannot run on the cluster.  If none can, that is a problem."""
    site, partitions = inspect_cluster(facts.slurm, facts.site, problems, warnings)
    obstacles = {}
    for entry in facts.new.tests:
        settings = facts.texts.get(selection.config_of(entry.test)) or ""
        obstacles[entry.test.name] = find_obstacle(entry.test, facts.site, partitions, settings)
    if all(obstacles.values()):
        problems[:0] = dict.fromkeys(obstacles.values())
        return facts
    tests = []
    for entry in facts.tests:
        tests.append(replace(entry, obstacle=entry.obstacle or obstacles.get(entry.test.name, "")))
    new = tuple(entry for entry in facts.new.tests if not obstacles[entry.test.name])
    site = replace(site, results=f"{facts.folder}/{rounds.next_round(facts.folder)}")
    warnings += _work_tree_warnings(facts.branch, site)
    job_arrays = arrays([(entry.test, entry.connections) for entry in new], site)
    return replace(facts, tests=tuple(tests), new=NewTests(new, job_arrays))


def _work_tree_warnings(branch: BumpBranch, site: Site) -> list[str]:
    if site.image_names or branch.checkout.bare:
        return []
    head = branch.checkout.resolve("HEAD")
    if head == branch.start and not branch.checkout.uncommitted(["."]):
        return []
    state = f"currently at {head[:10]} with its uncommitted changes, not at {branch.start[:10]}"
    return [f"Without an image the tests run in {site.checkout} as it is when they start: {state}."]
