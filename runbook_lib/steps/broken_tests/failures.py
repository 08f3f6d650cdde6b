"""Notebook 06-broken-tests: the failed jobs of a CI run with their causes, and the unexplained ones.

A failed test is *explained* by refreshed golden values, *decided* once the bump's branch quarantines it, and *flaky*
if the infrastructure failed: it is rerun.  All others are open, and block the push of the round.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.bump import Bump
from runbook_lib.clients.github.client import GitHub
from runbook_lib.display import View
from runbook_lib.golden.collect import CollectionProblem
from runbook_lib.recipes import quarantine
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.recipes.targets import Target
from runbook_lib.steps.broken_tests.issue import open_issue
from runbook_lib.text.edits import Edit
from runbook_lib.triage import failed_jobs, history
from runbook_lib.triage.failed_jobs import DiagnosedJob
from runbook_lib.triage.patterns import RERUN
from runbook_lib.workflow import golden_comparison
from runbook_lib.workflow.quarantines import recipe_texts, rows_of
from runbook_lib.workflow.run_choice import ChosenRun


@dataclass(frozen=True)
class Triage:
    """The failed jobs of a run.

    ``undecided`` are the names of those that golden values do not explain; those of them whose values cannot be read
    are in ``unread``.  ``ambiguous`` jobs produced values that need another attempt to decide.
    """

    run: ChosenRun
    jobs: tuple[DiagnosedJob, ...] = ()
    undecided: tuple[str, ...] = ()
    unread: tuple[CollectionProblem, ...] = ()
    ambiguous: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """A sentence for each job whose golden values cannot be read."""
        template = "It is unknown whether golden values explain the failure of {0.job}. {0.sentence}"
        return list(map(template.format, self.unread))

    def flaky_history(self, names: Iterable[str]) -> list[str]:
        """Return a sentence for each of these jobs that also failed because of infrastructure in earlier runs."""
        jobs = [job for job in self.jobs if job.failure.job in names and job.flaky_before]
        return list(map("{0.failure.job} was flaky before, {0.flaky_before}.".format, jobs))

    def show(self) -> View:
        """Return each failed job with its cause and evidence."""
        if self.run.source is None:
            return self.run.show()
        return self.run.show() + display.notes(self.warnings, title="Warnings") + failed_jobs.show(self.jobs)


def triage(run: ChosenRun, say: Callable[[str], object] = print) -> Triage:
    """Find the cause of each failed job in the run, and the failures that golden values do not explain.

    Prints its progress.
    """
    github = run.pull_request.github
    if run.source is None or github is None:
        return Triage(run)
    if run.source.gitlab:
        jobs = failed_jobs.diagnose_pipeline(run.source, run.bump.base, run.branch.base_commit, say)
    else:
        requested = failed_jobs.RequestedRun(github.run(run.number))
        change = "this image" if run.bump.tag else "this run"
        jobs = failed_jobs.diagnose_run(github, requested, run.bump.base, say, change)
        jobs = tuple(_with_issue(github, job, run.bump) for job in jobs)
    values = golden_comparison.collect(run, on_branch=True, report=lambda _: None)
    unread = tuple(problem for problem in values.unavailable if problem.job in values.undecided)
    # Refreshed values cannot explain a resumed run that differs from its first run.
    resumed = Counter(job.failure.job for job in jobs if job.failure.kind == "resume mismatch")
    undecided = Counter(values.undecided) | resumed
    jobs = _with_history(jobs, run.pull_request.records)
    return Triage(run, jobs, tuple(sorted(undecided.elements())), unread, values.ambiguous_jobs)


def _with_issue(github: GitHub, job: DiagnosedJob, bump: Bump) -> DiagnosedJob:
    """Add the open issue of a test that also fails on the base branch."""
    model, _, case = job.test.partition("/")
    if not case or job.on_base.state != "failing":
        return job
    return replace(job, tracked=open_issue(github, Target(case, job.platform, bump.image_type, model)))


def _with_history(jobs: Sequence[DiagnosedJob], records: Path | None) -> tuple[DiagnosedJob, ...]:
    """Add earlier failures with the same cause, and the runs in which infrastructure failed the job.

    ``records`` is the bump's folder.
    """
    if records is None or not jobs:
        return tuple(jobs)
    earlier = history.read(records.parent.parent)
    listed = []
    for job in jobs:
        flaky = earlier.flaky_runs(job.failure, job.platform)
        listed.append(replace(job, failure=earlier.add_to(job.failure), flaky_before=flaky))
    return tuple(listed)


def open_jobs(
    failures: Triage, edited: Iterable[Edit] = (), rerun: Collection[Target] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the jobs that block the push, and of the flaky ones that only need a rerun.

    ``edited`` are the recipes that change before the push; a person asked to rerun the tests in ``rerun``.
    """
    requested = {(f"{target.model}/{target.case}", target.platform) for target in rerun}
    stopped = _stopped_tests(failures, edited)
    # A test's jobs have the same name on all platforms, but may fail for different causes, so count them.
    decided: dict[str, int] = {}
    infrastructure: Counter[str] = Counter()
    for job in failures.jobs:
        decided[job.failure.job] = stopped[job.test]
        if job.failure.kind in RERUN or (job.test, job.platform) in requested:
            infrastructure[job.failure.job] += 1
    unexplained = Counter(failures.undecided) - Counter(decided)
    flaky = unexplained & (infrastructure | Counter(failures.ambiguous))
    return tuple(sorted((unexplained - flaky).elements())), tuple(sorted(flaky.elements()))


def _stopped_tests(failures: Triage, edited: Iterable[Edit]) -> Counter[str]:
    """Count for each test the platforms on which the run's commit ran it but the branch does not."""
    run, branch = failures.run, failures.run.branch
    cases = [job.test.partition("/")[2] for job in failures.jobs if job.test]
    if not cases:
        return Counter()
    commit = run.tested if branch.checkout.has(run.tested) else branch.start
    texts = recipe_texts(branch, cases)
    for edit in edited:
        texts[edit.path] = edit.after
    rows: list[RecipeRow] = []
    for path, text in texts.items():
        rows += recipes.rows(path, text)
    before = _gating_tests(rows_of(branch, cases, commit), run.bump)
    return Counter(test for test, _ in before - _gating_tests(rows, run.bump))


def _gating_tests(rows: Iterable[RecipeRow], bump: Bump) -> set[tuple[str, str]]:
    """Return the tests, each with a platform, that can fail CI."""
    tests: set[tuple[str, str]] = set()
    for row in rows:
        if quarantine.gating_scopes(row) and bump.image_type in row.environments and not row.allow_failure:
            tests.update(itertools.product([f"{row.model}/{row.case}"], row.platforms))
    return tests
