"""Notebook 06-broken-tests, first half: the failures of a CI run, and the tests that a person calls broken.

A failed test is *explained* by golden values that were refreshed, *decided* once the bump's branch quarantines it, and
*flaky* where the infrastructure failed: it is run again.  All others are open, and block the push of the round.
Nothing is changed here.
"""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from runbook_lib import display
from runbook_lib.bump import Bump
from runbook_lib.clients.github import issues as github_issues
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.models import Issue
from runbook_lib.display import View
from runbook_lib.errors import Refused
from runbook_lib.golden.collect import CollectionProblem
from runbook_lib.pins.check import check_pins
from runbook_lib.recipes import issue_references, quarantine
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.recipes.targets import Target
from runbook_lib.steps.broken_tests import issue as tracking
from runbook_lib.steps.broken_tests.history import with_history
from runbook_lib.text import edits
from runbook_lib.text.edits import Edit
from runbook_lib.triage import failed_jobs
from runbook_lib.triage.failed_jobs import DiagnosedJob
from runbook_lib.workflow import golden_comparison
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.quarantines import is_quarantined, recipe_texts, resolve_targets, rows_of
from runbook_lib.workflow.run_choice import ChosenRun

#: The causes for which a test is proposed as broken.  Drift is for step 5; builds, linters and unit tests have no row.
_PROPOSED = frozenset({"hang", "out of memory", "shape", "import error", "resume mismatch", "unknown"})
#: The scopes of tests that GitHub runs.
_GITHUB_SCOPES = frozenset({"mr-github", "mr-github-slim", "L0", "L1"})


@dataclass(frozen=True)
class Triage:
    """The failed jobs of a run.

    ``undecided`` are the names of those that golden values do not explain.  For some of these the reason is that their
    values cannot be read: those are in ``unread``.
    """

    run: ChosenRun
    jobs: tuple[DiagnosedJob, ...] = ()
    undecided: tuple[str, ...] = ()
    unread: tuple[CollectionProblem, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for each job whose golden values cannot be read."""
        template = "It is not known if golden values explain the failure of {}. {}"
        return tuple(template.format(problem.job, problem.sentence) for problem in self.unread)

    def flaky_history(self, names: Iterable[str]) -> list[str]:
        """Return a sentence for each of these jobs that infrastructure failed in earlier runs too."""
        jobs = [job for job in self.jobs if job.failure.job in names and job.flaky_before]
        return [f"{job.failure.job} was flaky before, {job.flaky_before}." for job in jobs]

    def show(self) -> View:
        """Return each failed job with its cause and evidence."""
        if self.run.source is None:
            return display.note(f"{self.run.problem[:1].upper()}{self.run.problem[1:]}.")
        return self.run.show() + display.notes(self.warnings, title="Warnings") + failed_jobs.show(self.jobs)


@dataclass(frozen=True)
class Decision:
    """A test that a person calls broken, with its tracking issue, or the title and body of one to be filed."""

    target: Target
    job: DiagnosedJob | None
    issue: Issue | None
    title: str = ""
    body: str = ""


@dataclass(frozen=True)
class QuarantinePlan:
    """The tests to quarantine and to re-enable; ``quarantined`` are named ones that the branch quarantines already."""

    triage: Triage
    decisions: tuple[Decision, ...] = ()
    quarantined: tuple[Target, ...] = ()
    reenabled: tuple[Target, ...] = ()
    soft: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def run(self) -> ChosenRun:
        """The CI run whose failures are decided."""
        return self.triage.run

    @property
    def known_issues(self) -> dict[Target, int]:
        """The number of each test's issue; 0 for one that is still to be filed."""
        numbers = {}
        for decision in self.decisions:
            numbers[decision.target] = decision.issue.number if decision.issue else 0
        return numbers

    def edits(self, issues: Mapping[Target, int]) -> tuple[Edit, ...]:
        """Return the edits of recipes that quarantine these tests, each with its issue, and re-enable others."""
        cases = [decision.target.case for decision in self.decisions] + [target.case for target in self.reenabled]
        whole_rows = "whole-row" in self.run.bump.allow
        edited = []
        for path, before in recipe_texts(self.run.branch, cases).items():
            after = before
            for target, number in issues.items():
                edit = quarantine.mark(
                    path, after, [target], number, companions=tuple(issues), soft=self.soft, whole_rows=whole_rows
                )
                after = edit.after
            if self.reenabled:
                after = quarantine.unmark(path, after, self.reenabled, whole_rows=whole_rows).after
            if after != before:
                edited.append(Edit(path, before, after))
        return tuple(edited)

    def show(self) -> View:
        """Return the tests, their issues and the diff of the recipes, where an issue to be filed is ``#(new)``."""
        if self.run.source is None:
            return display.note("There is nothing to decide.")
        issues = dict.fromkeys(self.quarantined, "already quarantined")
        issues |= dict.fromkeys(self.reenabled, "is re-enabled")
        for decision in self.decisions:
            issue = decision.issue
            issues[decision.target] = f"#{issue.number} {issue.url}" if issue else "will be filed"
        rows = [{"test": str(test), "reason": test.reason, "issue": issue} for test, issue in issues.items()]
        view = display.table(rows, empty="No test was named as broken.")
        if self.soft:
            view += display.note("allow_failure lets these rows fail in GitLab only; in GitHub they still fail CI.")
        view += display.diff(edits.diff(self.edits(self.known_issues)), empty="No recipe changes.")
        for decision in self.decisions:
            if decision.issue is None:
                view += display.code(decision.body, title=f"Issue: {decision.title}")
        view += display.notes(self.warnings, title="Warnings")
        if proposals := self.proposals():
            title = "Tests that could be called broken; give those that are, with your reason"
            view += display.code(as_parameter(proposals), title=title)
        rows = [{"test": test, "on the base branch": job.comparison} for test, job in self.failing_on_base().items()]
        if rows:
            view += display.note("The new image did not break these tests. Fix or quarantine them on the base branch:")
            view += display.table(rows)
        return view

    def proposals(self) -> dict[str, str]:
        """Return the open tests that could be called broken, ``model/case@platform``, each with its cause.

        Neither a regression of numerics nor a test that fails on the base branch too is among them.
        """
        causes = {}
        for test, job in self._open_tests().items():
            if job.on_base.state != "failing":
                cause = issue_references.without_issues(" ".join(job.failure.cause.replace(";", ",").split()))
                causes[test] = textwrap.shorten(cause, 120, placeholder=" …")
        return causes

    def failing_on_base(self) -> dict[str, DiagnosedJob]:
        """Return the open tests that fail on the base branch too, ``model/case@platform``."""
        return {test: job for test, job in self._open_tests().items() if job.on_base.state == "failing"}

    def _open_tests(self) -> dict[str, DiagnosedJob]:
        named = {(target.model, target.case) for target in (*self.known_issues, *self.quarantined)}
        jobs = []
        for job in self.triage.jobs:
            model, _, case = job.test.partition("/")
            if job.test and job.failure.kind in _PROPOSED and (model, case) not in named:
                jobs.append((model, case, job))
        if not jobs:
            return {}
        rows = [row for row in rows_of(self.run.branch, [case for _, case, _ in jobs]) if _on_github(row)]
        tests = {}
        for model, case, job in jobs:
            for row in rows:
                if (row.model, row.case) == (model, case) and self.run.bump.image_type in row.environments:
                    for platform in row.platforms:
                        if job.platform in ("", platform):
                            tests[f"{model}/{case}@{platform}"] = job
        return tests

    def open_decisions(self) -> list[tuple[str, str, str]]:
        """Return each open test with its cause and the comparison with the base branch, and the reason suggested."""
        causes, jobs = self.proposals(), self._open_tests()
        decisions = []
        for test, cause in causes.items():
            comparison = f" ({jobs[test].comparison})" if test in jobs else ""
            decisions.append((test, f"{cause}{comparison}", cause))
        for test, job in self.failing_on_base().items():
            issue = f"see #{job.tracked.number}" if job.tracked else ""
            decisions.append((test, f"The new image did not break it: {job.comparison}", issue))
        return decisions


def as_parameter(proposals: Mapping[str, str]) -> str:
    """Return tests and reasons in the form that the parameter ``broken`` takes."""
    return "; ".join(f"{name}: {reason}" for name, reason in proposals.items())


def _on_github(row: RecipeRow) -> bool:
    return any(cell.value in _GITHUB_SCOPES for cell in row.scopes)


def triage(run: ChosenRun, say: Callable[[str], object] = print) -> Triage:
    """Find the cause of each failed job of the run, and the failures that no golden value explains.

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
    # No refreshed value explains a resumed run that differs from its first run.
    resumed = Counter(job.failure.job for job in jobs if job.failure.kind == "resume mismatch")
    undecided = Counter(values.undecided) | resumed
    jobs = with_history(jobs, run.pull_request.records)
    return Triage(run, jobs, tuple(sorted(undecided.elements())), unread)


def _with_issue(github: GitHub, job: DiagnosedJob, bump: Bump) -> DiagnosedJob:
    """Add the open issue of a test that fails on the base branch too."""
    model, _, case = job.test.partition("/")
    if not case or job.on_base.state != "failing":
        return job
    return replace(job, tracked=open_issue(github, Target(case, job.platform, bump.image_type, model)))


def plan(failures: Triage, *, broken: str = "", reenable: str = "", soft: bool = False) -> QuarantinePlan:
    """Plan the quarantine of the tests in ``broken`` and the return of those in ``reenable`` (``parse_targets``).

    Checks the names even without a run, and searches for each test's issue.  Raises Refused for a test that no recipe
    has or that did not fail in the run, and for an issue that is closed.
    """
    run = failures.run
    branch, source = run.branch, run.source
    targets, rows = resolve_targets(branch, broken, "broken")
    reenabled, _ = resolve_targets(branch, reenable, "reenable")
    if source is None or run.bump.tag is None:  # without a bump ``survey`` plans
        return QuarantinePlan(failures)
    decisions, quarantined, warnings = [], [], []
    for target in targets:
        target_rows = [row for row in rows if target.is_of(row)]
        if all(is_quarantined(row, soft) for row in target_rows):
            quarantined.append(target)
            continue
        test = f"{target.model}/{target.case}"
        failed = [job for job in failures.jobs if job.test == test and job.platform in ("", target.platform)]
        job = next(iter(failed), None)
        if job is None and "unseen-failure" not in run.bump.allow:
            raise Refused(f"{target} did not fail in {source.name}, so it is not broken.", "unseen-failure")
        if job is not None and job.failure.kind == "golden drift":
            warnings.append(f"{target} failed only by drift: step 5 refreshes its golden values.")
        if job is not None and job.on_base.state == "failing":
            warnings.append(f"The new image did not break {target}: {job.comparison}.")
        decisions.append(_decision(failures, target, target_rows, job, internal=source.gitlab))
    return QuarantinePlan(failures, tuple(decisions), tuple(quarantined), reenabled, soft, tuple(warnings))


def _decision(
    failures: Triage, target: Target, rows: Sequence[RecipeRow], job: DiagnosedJob | None, *, internal: bool
) -> Decision:
    """Return a decision with its tracking issue, or with the text of a new one."""
    run, scopes = failures.run, dict[str, None]()
    bump, pull = run.bump, run.pull_request.pull
    for row in rows:
        scopes |= dict.fromkeys(quarantine.gating_scopes(row))
    old, new = _images(run.branch)
    body = tracking.body(
        target,
        bump,
        recipe=rows[0].recipe,
        scopes=tuple(scopes),
        old=old,
        new=new,
        run=run.url,
        pull=pull.url if pull else "",
        failure=job.failure if job else None,
        on_base=job.on_base if job else None,
        internal=internal,
    )
    title = tracking.title(target, bump, job.on_base if job else None)
    return Decision(target, job, _tracking_issue(failures, target), title, body)


def _tracking_issue(failures: Triage, target: Target) -> Issue | None:
    github = failures.run.pull_request.github
    if github is None:
        return None
    if number := issue_references.issue_of_reason(target.reason, github.repository):
        issue = github_issues.read(github, number)
        if issue.state != "open":
            raise Refused(f"#{number}, which the reason for {target} names, is {issue.state}. Name an open issue.")
        return issue
    return open_issue(github, target)


def open_issue(github: GitHub, target: Target) -> Issue | None:
    """Return the open issue that tracks a test."""
    # The search lags behind new issues; the list of our own does not.
    login = github.me()
    own = github_issues.listed(github, login)
    return tracking.choose([*github_issues.search(github, target.case), *own], target, login)


def _images(branch: BumpBranch) -> tuple[str, str]:
    """Return the image of the base branch, ``unknown`` where its pins name none, and that of the bump."""
    bump = branch.bump
    sites = bump.repository.sites
    verdicts = check_pins(branch.checkout.read(sites.pin_paths, branch.base_commit), sites)
    old = {pin.image for pin in verdicts if pin.role == f"lockstep {bump.image_type}"}
    return ", ".join(sorted(old)) or "unknown", f"{sites.image}:{bump.tag}"
