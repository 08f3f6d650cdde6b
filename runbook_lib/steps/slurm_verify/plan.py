"""The plan of a run on a Slurm cluster: its tests, their arrays, and obstacles.  Writes nothing."""

import glob
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.recipes.workloads import Workload
from runbook_lib.slurm import follow, selection, site_file
from runbook_lib.slurm import submissions as rounds
from runbook_lib.slurm.batch_files import JobArray, arrays
from runbook_lib.slurm.client import Slurm
from runbook_lib.slurm.outcome import MatrixOutcome, conclude
from runbook_lib.slurm.site import Site
from runbook_lib.steps.slurm_verify.cluster import find_obstacle, inspect_cluster
from runbook_lib.steps.slurm_verify.commit_tests import golden_files, read_commit_tests
from runbook_lib.system.files import read_named
from runbook_lib.text.lists import join_first
from runbook_lib.workflow.bump_branch import BumpBranch

_NO_RESULTS = "Nothing is planned without a results folder that all nodes see: set results, or use a site file."


@dataclass(frozen=True)
class SlurmPlan:
    """A commit's tests on a cluster; ``folder`` is for the results of this commit with this image.

    ``new_tests`` are those of ``tests`` to submit now, in ``arrays``; an array whose submission was interrupted is
    planned again.  ``submissions`` are earlier arrays with their job IDs, from the folder or the queue.
    ``elsewhere`` are this bump's unfinished tests at other commits or with other images.  Any of ``problems``
    prevents a submission.  ``texts`` are settings and golden files by path.  ``idle``: why there is nothing to plan.
    ``canary`` says which test the others wait for.
    """

    branch: BumpBranch
    site: Site
    folder: Path
    slurm: Slurm
    tests: tuple[selection.SelectedTest, ...] = ()
    new_tests: tuple[selection.SelectedTest, ...] = ()
    arrays: tuple[JobArray, ...] = ()
    submissions: tuple[rounds.Submission, ...] = ()
    elsewhere: tuple[rounds.RoundTest, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    texts: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    idle: str = ""
    canary: str = ""

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
        return tuple(path.rpartition("/")[2] for path in golden_files(test, self.texts))

    def outcome(self, observed: follow.ObservedTest) -> MatrixOutcome:
        """Return a test's outcome, with its golden values judged against the commit's."""
        config = selection.config_of(observed.entry.test)
        folder = config.removesuffix("model_config.yaml")
        golden = {path.removeprefix(folder): text for path, text in self.texts.items() if path.startswith(folder)}
        return conclude(observed, golden, self.expected_names(observed.entry.test), self.texts.get(config))

    def show(self) -> display.View:
        """Show the site, the problems, the arrays, and the omitted tests."""
        if self.idle:
            return display.note(self.idle)
        shown = display.facts(
            commit=self.branch.start[:10], results=self.folder,
            image=", ".join(self.site.image_names) or "none: in the checkout itself",
            partition=", ".join(sorted(set(self.site.partitions.values()))), account=self.site.account,
        )  # fmt: skip
        shown += display.notes(self.problems, title="Nothing can be submitted")
        shown += display.notes(self.warnings, title="Warnings")
        shown += display.notes(filter(None, [self.canary]))
        if self.arrays or not (self.problems or self.canary):
            rows = []
            for array in self.arrays:
                test, seconds = array.tasks[0].workload, max(task.workload.time_limit for task in array.tasks)
                rows.append({
                    "array": array.name, "tests": len(array.tasks), "nodes": test.nodes,
                    "GPUs per node": self.site.gpus_for(test), "max. minutes": -(-seconds // 60),
                })  # fmt: skip
            shown += display.table(rows, empty="Nothing new to submit: all these tests have been submitted already.")
        rows = [{"tests": join_first(names, 3), "omitted because": reason} for reason, names in self.left_out.items()]
        if rows:
            shown += display.note("Left out:") + display.table(rows)
        return shown

    def files(self) -> display.View:
        """Show each array's batch file, and the first task's files."""
        if not self.arrays:
            return display.note("There is no new batch file.")
        shown = display.View("", "")
        for array in self.arrays:
            shown += display.code(array.text, title=array.path)
        for path, text in self.arrays[0].tasks[0].files.items():
            shown += display.code(text, title=path)
        return shown


def read_site(branch: BumpBranch, site: str = "", **parameters: str) -> Site:
    """Return the site described by a file and the parameters, which override it.  Raises RunbookError."""
    text = ""
    if site:
        try:
            text = read_named(Path(site).expanduser()).decode("utf-8", "replace")
        except (OSError, ValueError) as error:  # ValueError: an impossible file name
            raise RunbookError(f"The site file {site!r} cannot be read: {error}. Correct the parameter.") from error
    return site_file.parse(text, site or "(none)", str(branch.checkout.path), **parameters)


def plan_tests(
    branch: BumpBranch, site: Site, *, tests: str = selection.BUMP, platform: str = "", rerun: str = "",
    train: str = "", nodes: str = "1", gpus: str = "8", repeats: str = "", canary: bool = False,
    slurm: Slurm | None = None,
) -> SlurmPlan:  # fmt: skip
    """Return the plan for the branch's commit.

    ``train`` is a training script with its arguments, which runs on ``nodes`` with ``gpus`` each instead of tests.
    ``rerun`` names tests to submit once more, or is ``failed`` for all that did not pass.  ``repeats`` is the maximum
    number of repetitions of a test; with ``canary`` one test is submitted first, and the others once it has run.
    Raises Refused for a test that does not exist or is still running, and CannotTell for a damaged submission list.
    """
    bump = branch.bump
    name = f"{bump.image_type}-{bump.tag or 'none'}"
    folder = f"{name}-{branch.start[:12]}"
    if site.image_names:  # each image has its own results
        folder += f"-{hashlib.sha256(','.join(site.image_names).encode()).hexdigest()[:6]}"
    plan = SlurmPlan(branch, site, Path(site.results or "/") / folder, slurm or Slurm())
    if not site.results:
        return replace(plan, idle=_NO_RESULTS)
    if not bump.repository.tests.recipes:
        return replace(plan, idle=f"{bump.repository.name} has no test recipes.")
    training = None
    if train.strip():
        training = selection.training_test(train, nodes, gpus, platform, bump.image_type)
    selected, texts, warnings = read_commit_tests(branch, site, tests, platform, training)
    if repeats.strip():
        limit = selection.count("repeats", repeats)
        selected = tuple(replace(entry, test=selection.limit_repeats(entry.test, limit)) for entry in selected)
    warnings = (*branch.warnings, *warnings)
    if bump.tag is not None and branch.tip is None:
        source = f"the tests and golden values are from {bump.base} at {branch.start[:10]}"
        warnings += (f"Branch {bump.branch} does not exist yet: {source}.",)
    plan = _with_submissions(replace(plan, tests=selected, texts=texts, warnings=warnings), name)
    plan = _with_new_tests(plan, rerun, canary=canary)
    if plan.problems or not plan.new_tests:
        return plan
    return _with_arrays(plan)


def _with_submissions(plan: SlurmPlan, prefix: str) -> SlurmPlan:
    """Add earlier submissions.  The names of all the bump's folders start with ``prefix``."""
    problems = plan.site.problems()
    submissions = rounds.read(plan.folder)
    try:
        submissions = follow.adopt_jobs(plan.slurm, submissions)
    except RunbookError as error:
        problems += (f"{error} Whether an array planned earlier was submitted is unknown.",)
    warnings = list(plan.warnings)
    elsewhere = _unfinished_elsewhere(plan, prefix, warnings)
    return replace(plan, submissions=submissions, elsewhere=elsewhere, problems=problems, warnings=tuple(warnings))


def _unfinished_elsewhere(plan: SlurmPlan, prefix: str, warnings: list[str]) -> tuple[rounds.RoundTest, ...]:
    results = plan.folder.parent
    started: list[rounds.RoundTest] = []
    for folder in sorted(results.glob(f"{glob.escape(prefix)}-*")):
        if folder == plan.folder:
            continue
        try:
            submissions = follow.adopt_jobs(plan.slurm, rounds.read(folder))
        except RunbookError as error:
            warnings.append(f"{error} Whether its tests are still running is unknown.")
            continue
        for submission in submissions:
            for test in submission.entries:
                if test.job is not None and not follow.saved_state(test).over:
                    started.append(test)
    if not started:
        return ()
    try:
        unfinished = follow.unfinished(plan.slurm.queue(), started)
    except RunbookError as error:
        warnings.append(f"{error} Whether tests of other commits or images are still running is unknown.")
        return ()
    if unfinished:
        folders = ", ".join(sorted({test.folder.relative_to(results).parts[0] for test in unfinished}))
        tests = f"{display.count(len(unfinished), 'test')} of this bump, at another commit or with another image"
        warnings.append(f"{tests}, still waiting or running: see {folders}. cancel ends them too.")
    return unfinished


def _with_arrays(plan: SlurmPlan) -> SlurmPlan:
    """Add arrays for the new tests, except those that cannot run on the cluster.  If none can, that is a problem."""
    cluster = inspect_cluster(plan.slurm, plan.site, [entry.test for entry in plan.new_tests])
    plan = replace(plan, problems=cluster.problems, warnings=(*plan.warnings, *cluster.warnings))
    obstacles = {}
    for entry in plan.new_tests:
        settings = plan.texts.get(selection.config_of(entry.test)) or ""
        if obstacle := find_obstacle(entry.test, plan.site, cluster.partitions, settings):
            obstacles[entry.test.name] = obstacle
    if len(obstacles) == len(plan.new_tests):
        return replace(plan, problems=(*dict.fromkeys(obstacles.values()), *plan.problems))
    tests = []
    for entry in plan.tests:
        tests.append(replace(entry, obstacle=entry.obstacle or obstacles.get(entry.test.name, "")))
    new_tests = tuple(entry for entry in plan.new_tests if entry.test.name not in obstacles)
    plan = replace(plan, tests=tuple(tests), new_tests=new_tests)
    options = plan.site.options
    if nodes := _failed_nodes(plan):
        warning = f"Excluded {','.join(nodes)}: Slurm reports that they failed in an earlier attempt of these tests."
        plan = replace(plan, warnings=(*plan.warnings, warning))
        excluded = [option.removeprefix("--exclude=") for option in options if option.startswith("--exclude=")]
        others = (option for option in options if not option.startswith("--exclude="))
        options = (*others, f"--exclude={','.join([*excluded, *nodes])}")
    site = replace(cluster.site, results=f"{plan.folder}/{rounds.next_round(plan.folder)}", options=options)
    try:
        job_arrays = arrays([(entry.test, entry.connections) for entry in plan.new_tests], site)
    except Refused as error:
        return replace(plan, problems=(*plan.problems, str(error)))
    return replace(plan, arrays=job_arrays, warnings=(*plan.warnings, *_work_tree_warnings(plan.branch, site)))


def _failed_nodes(plan: SlurmPlan) -> list[str]:
    names = {entry.test.name for entry in plan.new_tests}
    nodes: set[str] = set()
    for submission in plan.submissions:
        for entry in submission.entries:
            if entry.test.name in names:
                nodes |= rounds.failed_nodes(entry)
    return sorted(nodes)


def _work_tree_warnings(branch: BumpBranch, site: Site) -> list[str]:
    if site.image_names or branch.checkout.bare:
        return []
    head = branch.checkout.resolve("HEAD")
    if head == branch.start and not branch.checkout.uncommitted(["."]):
        return []
    state = f"currently at {head[:10]} with its uncommitted changes, not at {branch.start[:10]}"
    return [f"Without an image the tests run in {site.checkout} as it is when they start: {state}."]


def _with_new_tests(plan: SlurmPlan, rerun: str, *, canary: bool) -> SlurmPlan:
    """Add the tests not submitted yet, and those that ``rerun`` names; with ``canary`` only one of them at first.

    Raises Refused for a word that matches no test, and for a test that is still waiting or running.
    """
    words = set(rerun.replace(",", " ").split())
    runnable = {entry.test.name: entry for entry in plan.tests if not entry.obstacle}
    names = {}
    for name, entry in runnable.items():
        names[name] = {name, entry.test.case, f"{entry.test.model}/{entry.test.case}"}
    if unknown := words - {"failed"}.union(*names.values()):
        raise Refused(f"again names {', '.join(sorted(unknown))}, not among the chosen tests.")
    newest = rounds.newest(plan.submissions)
    submitted = {name: newest[name] for name in runnable if name in newest and newest[name].job is not None}
    new = runnable.keys() - submitted.keys()
    unfinished, outcomes = [], set()
    if words or canary:
        for observed in follow.Follower(plan.slurm, submitted.values(), notes=False).poll():
            test, word = observed.entry, plan.outcome(observed).word
            is_named = bool(names[test.test.name] & words)
            if is_named and observed.state and not observed.over:
                unfinished.append(f"{test.test} (job {test.job}_{test.index})")
            elif is_named or ("failed" in words and (word in ("failed", "unknown") or not observed.state)):
                new.add(test.test.name)
            else:
                outcomes.add(word)
    if unfinished:
        advice = "Wait until they finish, or end them with cancel; then run again."
        raise Refused(f"again names unfinished tests: {', '.join(unfinished)}. {advice}")
    plan = replace(plan, new_tests=tuple(entry for name, entry in runnable.items() if name in new))
    if canary:
        return _with_canary(plan, outcomes)
    return plan


def _with_canary(plan: SlurmPlan, outcomes: Collection[str]) -> SlurmPlan:
    """Reduce the new tests to the smallest, unless ``outcomes`` shows that a test of this commit and image has run."""
    if not plan.new_tests or not {"passed", "drifted", "to be judged"}.isdisjoint(outcomes):
        return plan
    if outcomes and "not over" not in outcomes:
        problem = "The canary failed, so the other tests would fail too. Fix the cause, then submit it with again."
        return replace(plan, new_tests=(), problems=(*plan.problems, problem))
    chosen: list[selection.SelectedTest] = []
    if not outcomes:
        submitted = rounds.newest(plan.submissions)  # a resubmitted test, else the smallest
        by_size = sorted(plan.new_tests, key=lambda entry: (entry.test.world_size, entry.test.time_limit))
        chosen = sorted(by_size, key=lambda entry: entry.test.name not in submitted)[:1]
    sentence = ""
    if more := len(plan.new_tests) - len(chosen):
        sentence = f"{display.count(more, 'more test')} can be submitted once the canary has run: run again then."
    return replace(plan, new_tests=tuple(chosen), canary=sentence)
