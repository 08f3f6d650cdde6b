"""Notebook 06-broken-tests: the tests that a person declares broken, and those to re-enable.  Changes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from runbook_lib import display
from runbook_lib.clients.github.models import Issue
from runbook_lib.errors import Refused
from runbook_lib.golden.decision_facts import fingerprint
from runbook_lib.pins.check import check_pins
from runbook_lib.recipes import issue_references, quarantine
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.recipes.targets import Target
from runbook_lib.steps.broken_tests import issue as tracking
from runbook_lib.steps.broken_tests.failures import Triage
from runbook_lib.text import edits
from runbook_lib.text.edits import Edit
from runbook_lib.triage.failed_jobs import DiagnosedJob
from runbook_lib.workflow import bisect_offer, quarantines
from runbook_lib.workflow.run_choice import ChosenRun

#: Causes for which a test is proposed as broken.  Step 5 handles drift; builds, linters and unit tests have no row.
_PROPOSED = frozenset({
    "hang", "out of memory", "shape", "import error", "resume mismatch", "CUDA error", "crash", "configuration",
    "program error", "unknown",
})  # fmt: skip
#: The scopes of tests that GitHub runs.
_GITHUB_SCOPES = frozenset({"mr-github", "mr-github-slim", "L0", "L1"})


@dataclass(frozen=True)
class Decision:
    """A test that a person declared broken, with its tracking issue, or the title and body of one to be filed."""

    target: Target
    issue: Issue | None
    title: str = ""
    body: str = ""


@dataclass(frozen=True)
class QuarantinePlan:
    """The tests to quarantine, re-enable and rerun; ``quarantined`` are requested tests already in quarantine."""

    triage: Triage
    decisions: tuple[Decision, ...] = ()
    quarantined: tuple[Target, ...] = ()
    reenabled: tuple[Target, ...] = ()
    soft: bool = False
    warnings: tuple[str, ...] = ()
    rerun: tuple[Target, ...] = ()

    @property
    def run(self) -> ChosenRun:
        """The CI run whose failures need decisions."""
        return self.triage.run

    @property
    def known_issues(self) -> dict[Target, int]:
        """The issue number of each test; 0 for an issue still to be filed."""
        numbers = {}
        for decision in self.decisions:
            numbers[decision.target] = decision.issue.number if decision.issue else 0
        return numbers

    def edits(self, issues: Mapping[Target, int]) -> tuple[Edit, ...]:
        """Return the recipe edits that quarantine these tests, each with its issue, and re-enable others."""
        whole_rows = "whole-row" in self.run.bump.allow

        def mark(path: str, text: str, target: Target, issue: int) -> Edit:
            return quarantine.mark(
                path, text, [target], issue, companions=tuple(issues), soft=self.soft, whole_rows=whole_rows
            )

        return quarantines.edit_recipes(self.run.branch, issues, mark, self.reenabled)

    def show(self) -> display.View:
        """Return the tests, their issues and the recipes' diff, which shows an issue to be filed as ``#(new)``."""
        if self.run.source is None:
            return display.note("There is nothing to decide.")
        issues = dict.fromkeys(self.quarantined, "already quarantined")
        issues |= dict.fromkeys(self.reenabled, "is re-enabled")
        new_issues = display.View("", "")
        for decision in self.decisions:
            issues[decision.target] = "will be filed"
            if decision.issue:
                issues[decision.target] = f"#{decision.issue.number} {decision.issue.url}"
            else:
                new_issues += display.code(decision.body, title=f"Issue: {decision.title}")
        rows = [{"test": str(test), "reason": test.reason, "issue": issue} for test, issue in issues.items()]
        view = display.table(rows, empty="No test was named as broken.")
        if self.soft:
            view += display.note("allow_failure lets these rows fail in GitLab only; in GitHub they still fail CI.")
        view += display.diff(edits.diff(self.edits(self.known_issues)), empty="No recipe changes.")
        view += new_issues + display.notes(self.warnings, title="Warnings")
        if proposals := self.proposals():
            title = "Tests that may be broken; name those that are, with your reason"
            view += display.code(as_parameter(proposals), title=title)
        rows = [{"test": test, "on the base branch": job.comparison} for test, job in self.failing_on_base().items()]
        if rows:
            view += display.note("The new image did not break these tests. Fix or quarantine them on the base branch:")
            view += display.table(rows)
        return view

    def proposals(self) -> dict[str, str]:
        """Return the open tests that may be broken, as ``model/case@platform``, each with its cause.

        Excludes numerical regressions and tests that also fail on the base branch.
        """
        causes = {}
        for test, job in self._open_tests.items():
            if job.on_base.state != "failing":
                cause = " ".join(job.failure.cause.replace(";", ",").split())
                if cause.endswith("…"):  # a reason in the recipe is complete
                    cause = cause.rpartition(". ")[0] or cause.rpartition(" ")[0]
                causes[test] = issue_references.without_issues(cause)
        return causes

    def failing_on_base(self) -> dict[str, DiagnosedJob]:
        """Return the open tests that also fail on the base branch, as ``model/case@platform``."""
        return {test: job for test, job in self._open_tests.items() if job.on_base.state == "failing"}

    @cached_property
    def _open_tests(self) -> dict[str, DiagnosedJob]:
        decided = (*self.known_issues, *self.quarantined, *self.rerun)
        named = {f"{target.model}/{target.case}" for target in decided}
        jobs: dict[str, list[DiagnosedJob]] = {}
        for job in self.triage.jobs:
            if "/" in job.test and job.failure.kind in _PROPOSED and job.test not in named:
                jobs.setdefault(job.test, []).append(job)
        tests: dict[str, DiagnosedJob] = {}
        for row in quarantines.rows_of(self.run.branch, [test.partition("/")[2] for test in jobs]):
            test = f"{row.model}/{row.case}"
            on_github = not _GITHUB_SCOPES.isdisjoint(cell.value for cell in row.scopes)
            if on_github and self.run.bump.image_type in row.environments:
                for job in jobs.get(test, ()):
                    tests |= {f"{test}@{name}": job for name in row.platforms if job.platform in ("", name)}
        return tests

    def open_decisions(self) -> list[dict[str, Any]]:
        """Return the decision on each open test for ``StepRecord.decide``, with the cause as the suggested reason.

        For a test that also fails on the base branch, the suggested reason is that failure and its issue.
        """
        decisions = []
        for test, cause in self.proposals().items():
            job = self._open_tests[test]
            result = bisect_offer.result_of(self.run.pull_request.records, test)
            next_step = result or bisect_offer.offer(self.run.branch, test)
            why = f"{cause} ({job.comparison}) {next_step}".rstrip()
            search = next_step.partition(bisect_offer.PREFIX)[2]
            decisions.append(_open_decision(test, job, why, cause, judged=result, search=search))
        for test, job in self.failing_on_base().items():
            reason = job.on_base.sentence.replace(";", ",")
            if job.tracked:
                reason = f"already failing on the base branch, see #{job.tracked.number}"
            judged = "The new image did not break it"
            decisions.append(_open_decision(test, job, f"{judged}: {job.comparison}", reason, judged=f"{judged}."))
        return decisions


def _open_decision(
    test: str, job: DiagnosedJob, why: str, suggestion: str, *, judged: str, search: str = ""
) -> dict[str, Any]:
    """Return a decision; ``judged`` is the part of ``why`` that neither the cause nor the base branch says."""
    key = fingerprint(job.failure.kind, job.failure.cause, job.on_base.state)
    facts = {"test": test, "numbers": job.failure.cause, "judged": judged, "key": key, "search": search}
    return {"name": test, "why": why, "suggestion": suggestion, "facts": facts}


def as_parameter(proposals: Mapping[str, str]) -> str:
    """Return tests and reasons in the format of the parameter ``broken``."""
    return "; ".join(map(": ".join, proposals.items()))


def plan(
    failures: Triage, *, broken: str = "", reenable: str = "", rerun: str = "", soft: bool = False
) -> QuarantinePlan:
    """Plan to quarantine the tests in ``broken`` and re-enable those in ``reenable`` (see ``parse_targets``).

    Checks the names even without a run, and searches for each test's issue.  Raises Refused for a test that is in no
    recipe or did not fail in the run, and for a closed issue.
    """
    run = failures.run
    branch, source = run.branch, run.source
    targets, rows = quarantines.resolve_targets(branch, broken, "broken")
    reenabled, _ = quarantines.resolve_targets(branch, reenable, "reenable")
    again, _ = quarantines.resolve_targets(branch, rerun, "rerun")
    if source is None or run.bump.tag is None:  # without a bump ``survey`` plans
        return QuarantinePlan(failures)
    decisions, quarantined, warnings = [], [], []
    for target in targets:
        target_rows = [row for row in rows if target.is_of(row)]
        if all(quarantines.is_quarantined(row, soft) for row in target_rows):
            quarantined.append(target)
            continue
        test = f"{target.model}/{target.case}"
        failed = (job for job in failures.jobs if job.test == test and job.platform in ("", target.platform))
        job = next(failed, None)
        if job is None and "unseen-failure" not in run.bump.allow:
            raise Refused(f"{target} did not fail in {source.name}, so it is not broken.", "unseen-failure")
        if job is not None and job.failure.kind == "golden drift":
            warnings.append(f"{target} failed only because of drift: step 5 refreshes its golden values.")
        if job is not None and job.on_base.state == "failing":
            warnings.append(f"The new image did not break {target}: {job.comparison}.")
        decisions.append(_decision(run, target, target_rows, job, internal=source.gitlab))
    return QuarantinePlan(failures, tuple(decisions), tuple(quarantined), reenabled, soft, tuple(warnings), again)


def _decision(
    run: ChosenRun, target: Target, rows: Sequence[RecipeRow], job: DiagnosedJob | None, *, internal: bool
) -> Decision:
    """Return a decision with its tracking issue, or with the text for a new one."""
    bump, pull, github = run.bump, run.pull_request.pull, run.pull_request.github
    scopes: dict[str, None] = {}
    for row in rows:
        scopes |= dict.fromkeys(quarantine.gating_scopes(row))
    sites = bump.repository.sites
    pins = check_pins(run.branch.checkout.read(sites.pin_paths, run.branch.base_commit), sites)
    base_images = sorted({pin.image for pin in pins if pin.role == f"lockstep {bump.image_type}"})
    search_result = bisect_offer.result_of(run.pull_request.records, f"{target.model}/{target.case}@{target.platform}")
    body = tracking.body(
        target, bump, job, recipe=rows[0].recipe, scopes=tuple(scopes), old=", ".join(base_images) or "unknown",
        new=f"{sites.image}:{bump.tag}", run=run.url, pull=pull.url if pull else "", internal=internal,
        search_result=search_result,
    )  # fmt: skip
    issue = None
    if github and (number := issue_references.issue_of_reason(target.reason, github.repository)):
        issue = github.issue(number)
        if issue.state != "open":
            raise Refused(f"The reason for {target} names #{number}, which is {issue.state}. Name an open issue.")
    elif github:
        issue = tracking.open_issue(github, target)
    return Decision(target, issue, tracking.title(target, bump, job), body)
