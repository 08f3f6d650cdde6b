"""Notebook 06-broken-tests: the failed jobs of a CI run with their causes, and the unexplained ones.

A failed test is *explained* by refreshed golden values, *decided* once the bump's branch quarantines it, and *flaky*
if the infrastructure failed: it is rerun.  All others are open, and block the push of the round.
"""

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from runbook_lib import display
from runbook_lib.failures import failed_jobs, quarantines
from runbook_lib.failures.broken_tests.issue import open_issue
from runbook_lib.failures.failed_jobs import DiagnosedJob
from runbook_lib.failures.patterns import RERUN
from runbook_lib.failures.quarantines import GatingFiles
from runbook_lib.golden import ci_runs, comparison
from runbook_lib.golden.collect import CollectionProblem
from runbook_lib.golden.run_choice import ChosenRun
from runbook_lib.pins.bump import Bump
from runbook_lib.text.edits import Edit
from runbook_lib.text.recipes.targets import Target
from runbook_lib.world.ports import Forge

_SCRIPT = re.compile(r"[\w.-]{1,200}")  # a job with a launch script has its name


@dataclass(frozen=True)
class Triage:
    """The failed jobs of a run.

    Golden values do not explain the jobs named in ``undecided``, or cannot be read (``unread``).  ``ambiguous`` jobs
    produced values that need another attempt to decide.  ``files`` have the failed tests on the bump's branch.
    """

    run: ChosenRun
    jobs: tuple[DiagnosedJob, ...] = ()
    undecided: tuple[str, ...] = ()
    unread: tuple[CollectionProblem, ...] = ()
    ambiguous: tuple[str, ...] = ()
    files: GatingFiles = field(default_factory=GatingFiles)

    @property
    def warnings(self) -> list[str]:
        """A sentence for each job whose golden values cannot be read."""
        unknown = "It is unknown whether golden values explain the failure of"
        return [f"{unknown} {problem.job}. {problem.sentence}" for problem in self.unread]

    def history(self, names: Iterable[str]) -> list[str]:
        """Return a sentence for each of these jobs about its earlier failures."""
        return [f"{job.failure.job}: {job.history}." for job in self.jobs if job.failure.job in names and job.history]

    def show(self) -> display.View:
        """Return each failed job with its cause and evidence."""
        if self.run.source is None:
            return self.run.show()
        return self.run.show() + display.notes(self.warnings, title="Warnings") + failed_jobs.show(self.jobs)


def triage(run: ChosenRun) -> Triage:
    """Find the cause of each failed job, and the failures that golden values do not explain."""
    github = run.pull_request.github
    if run.source is None or github is None:
        return Triage(run)
    if run.source.gitlab:
        jobs = failed_jobs.diagnose_pipeline(run.source, run.bump.base, run.branch.base_commit)
    else:
        requested = ci_runs.RequestedRun(github.run(run.number))
        jobs = failed_jobs.diagnose_run(github, requested, run.bump.base, "this image")
        jobs = _with_issues(github, jobs, run.bump)
    jobs = failed_jobs.add_history(jobs, run.pull_request.records)
    targets = itertools.chain.from_iterable(targets_of(job, run.bump) for job in jobs)
    files = quarantines.files_of(run.branch, targets)
    if run.bump.repository.tests.scripts:  # which has neither golden values nor recipes
        return Triage(run, jobs, run.failed, files=files)
    values = comparison.read(run, report=lambda _: None).judge(on_branch=True)
    unread = tuple(problem for problem in values.unavailable if problem.job in values.undecided)
    # Refreshed values cannot explain a resumed run that differs from its first run.
    resumed = Counter(job.failure.job for job in jobs if job.failure.kind == "resume mismatch")
    undecided = sorted((Counter(values.undecided) | resumed).elements())
    return Triage(run, jobs, tuple(undecided), unread, values.ambiguous_jobs, files)


def targets_of(job: DiagnosedJob, bump: Bump) -> tuple[Target, ...]:
    """Return the tests that a failed job ran: a functional one, one with a launch script, or failed unit tests."""
    if bump.repository.tests.scripts:
        name = job.failure.job
        return (quarantines.script_target(bump, name),) if _SCRIPT.fullmatch(name) else ()
    if job.test:
        model, _, case = job.test.partition("/")
        return (Target(case, job.platform, bump.image_type, model),)
    return tuple(Target(node, "", bump.image_type) for node in job.unit_tests)


def _with_issues(github: Forge, jobs: Iterable[DiagnosedJob], bump: Bump) -> tuple[DiagnosedJob, ...]:
    """Add the open issue of each test that also fails on the base branch."""
    tracked = []
    for job in jobs:
        if job.test and job.on_base.state == "failing":
            job = replace(job, tracked=open_issue(github, targets_of(job, bump)[0]))
        tracked.append(job)
    return tuple(tracked)


def open_jobs(
    failures: Triage, edited: Collection[Edit] = (), rerun: Collection[Target] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the jobs that block the push, and of the flaky ones that only need a rerun.

    ``edited`` are the files that change before the push; a person asked to rerun the tests in ``rerun``.
    """
    requested = {(target.name, target.platform) for target in rerun}
    files = failures.files.after(edited)
    # A test's jobs have the same name on all platforms, but may fail for different causes, so count them.
    decided: Counter[str] = Counter()
    infrastructure: Counter[str] = Counter()
    for job in failures.jobs:
        targets = targets_of(job, failures.run.bump)
        decided[job.failure.job] += bool(targets) and all(map(files.is_off, targets))
        infrastructure[job.failure.job] += job.failure.kind in RERUN or (job.test, job.platform) in requested
    unexplained = Counter(failures.undecided) - decided
    flaky = unexplained & (infrastructure | Counter(failures.ambiguous))
    return tuple(sorted((unexplained - flaky).elements())), tuple(sorted(flaky.elements()))
