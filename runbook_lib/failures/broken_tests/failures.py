"""Notebook 06-broken-tests: the failed jobs of a CI run with their causes, and the unexplained ones.

A failed test is *explained* by refreshed golden values, *decided* once the bump's branch quarantines it, and *flaky*
if the infrastructure failed: it is rerun.  All others are open, and block the push of the round.
"""

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from runbook_lib import display
from runbook_lib.failures import failed_jobs, quarantines
from runbook_lib.failures.broken_tests.issue import open_issue
from runbook_lib.failures.failed_jobs import DiagnosedJob
from runbook_lib.failures.patterns import RERUN
from runbook_lib.golden import ci_runs, comparison
from runbook_lib.golden.collect import CollectionProblem
from runbook_lib.golden.run_choice import ChosenRun
from runbook_lib.pins.bump import Bump
from runbook_lib.recipes import quarantine, unit_tests
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.targets import Target
from runbook_lib.text.edits import Edit
from runbook_lib.world.ports import Forge

_SCRIPT = re.compile(r"[\w.-]{1,200}")  # a job with a launch script has its name


@dataclass(frozen=True)
class Triage:
    """The failed jobs of a run.

    Golden values do not explain the jobs named in ``undecided``, or cannot be read (``unread``).  ``ambiguous`` jobs
    produced values that need another attempt to decide.  ``recipes`` are the texts of the recipes that run the failed
    tests, by path, ``files`` those of the failed unit tests' files and of the failed jobs' launch scripts, and
    ``gating`` the tests that could fail the run, each with a platform.
    """

    run: ChosenRun
    jobs: tuple[DiagnosedJob, ...] = ()
    undecided: tuple[str, ...] = ()
    unread: tuple[CollectionProblem, ...] = ()
    ambiguous: tuple[str, ...] = ()
    recipes: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    gating: frozenset[tuple[str, str]] = frozenset()

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
    """Find the cause of each failed job, and the failures that golden values do not explain; print the progress."""
    github = run.pull_request.github
    if run.source is None or github is None:
        return Triage(run)
    if run.source.gitlab:
        jobs = failed_jobs.diagnose_pipeline(run.source, run.bump.base, run.branch.base_commit, print)
    else:
        requested = ci_runs.RequestedRun(github.run(run.number))
        change = "this image" if run.bump.tag else "this run"
        jobs = failed_jobs.diagnose_run(github, requested, run.bump.base, print, change)
        jobs = _with_issues(github, jobs, run.bump)
    if scripts := run.bump.repository.tests.scripts:  # which has neither golden values nor recipes
        jobs = failed_jobs.add_history(jobs, run.pull_request.records)
        paths = [path for job in jobs if _SCRIPT.fullmatch(job.failure.job) for path in scripts.paths(job.failure.job)]
        there = run.branch.checkout.read(paths, run.branch.start)
        return Triage(run, jobs, run.failed, files={path: text for path, text in there.items() if text is not None})
    values = comparison.collect(run, on_branch=True, report=lambda _: None)
    unread = tuple(problem for problem in values.unavailable if problem.job in values.undecided)
    # Refreshed values cannot explain a resumed run that differs from its first run.
    resumed = Counter(job.failure.job for job in jobs if job.failure.kind == "resume mismatch")
    undecided = sorted((Counter(values.undecided) | resumed).elements())
    jobs = failed_jobs.add_history(jobs, run.pull_request.records)
    cases = [job.test.partition("/")[2] for job in jobs if job.test]
    texts = quarantines.recipe_texts(run.branch, cases)
    nodes = itertools.chain.from_iterable(job.failure.tests for job in jobs)
    units = quarantines.unit_test_texts(run.branch, nodes)
    tested = run.tested if run.branch.checkout.has(run.tested) else run.branch.start
    before = quarantines.rows_of(run.branch, cases, tested) if cases else ()
    gating = _gating_tests(before, run.bump)
    return Triage(run, jobs, tuple(undecided), unread, values.ambiguous_jobs, texts, units, gating)


def _with_issues(github: Forge, jobs: Iterable[DiagnosedJob], bump: Bump) -> tuple[DiagnosedJob, ...]:
    """Add the open issue of each test that also fails on the base branch."""
    tracked = []
    for job in jobs:
        model, _, case = job.test.partition("/")
        if case and job.on_base.state == "failing":
            job = replace(job, tracked=open_issue(github, Target(case, job.platform, bump.image_type, model)))
        tracked.append(job)
    return tuple(tracked)


def open_jobs(
    failures: Triage, edited: Collection[Edit] = (), rerun: Collection[Target] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the jobs that block the push, and of the flaky ones that only need a rerun.

    ``edited`` are the files that change before the push; a person asked to rerun the tests in ``rerun``.
    """
    requested = {(target.name, target.platform) for target in rerun}
    after = {edit.path: edit.after for edit in edited}
    stopped, files = _stopped_tests(failures, after), {**failures.files, **after}
    for edit in edited:
        files.pop(edit.source, None)
    skip = quarantines.skip_marker(failures.run.bump)
    # A test's jobs have the same name on all platforms, but may fail for different causes, so count them.
    decided: dict[str, int] = {}
    infrastructure: Counter[str] = Counter()
    for job in failures.jobs:
        left_out = unit_tests.all_skipped(files, job.failure.tests, skip) or _is_moved(failures, job, files)
        decided[job.failure.job] = stopped[job.test] + left_out
        if job.failure.kind in RERUN or (job.test, job.platform) in requested:
            infrastructure[job.failure.job] += 1
    unexplained = Counter(failures.undecided) - Counter(decided)
    flaky = unexplained & (infrastructure | Counter(failures.ambiguous))
    return tuple(sorted((unexplained - flaky).elements())), tuple(sorted(flaky.elements()))


def _is_moved(failures: Triage, job: DiagnosedJob, files: Mapping[str, str]) -> bool:
    """Return whether the launch script of a job gates no longer."""
    scripts = failures.run.bump.repository.tests.scripts
    gating, flaky = scripts.paths(job.failure.job) if scripts else ("", "")
    return flaky in files and gating not in files


def _stopped_tests(failures: Triage, edited: Mapping[str, str]) -> Counter[str]:
    """Count for each test the platforms on which the run's commit ran it but the branch does not."""
    texts = {path: edited.get(path, text) for path, text in failures.recipes.items()}
    after = _gating_tests(quarantines.parse_rows(texts), failures.run.bump)
    return Counter(test for test, _ in failures.gating - after)


def _gating_tests(rows: Iterable[recipes.RecipeRow], bump: Bump) -> frozenset[tuple[str, str]]:
    """Return the tests, each with a platform, that can fail CI."""
    tests: set[tuple[str, str]] = set()
    for row in rows:
        if quarantine.gating_scopes(row) and bump.image_type in row.environments and not row.allow_failure:
            tests |= {(f"{row.model}/{row.case}", platform) for platform in row.platforms}
    return frozenset(tests)
