"""Notebook 06-broken-tests: the tests that a person declares broken, re-enables or runs again, and the open ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runbook_lib import display
from runbook_lib.decisions import Decision, Seen, digest, flow, on
from runbook_lib.errors import Refused
from runbook_lib.failures import quarantines
from runbook_lib.failures.broken_tests import issue as tracking
from runbook_lib.failures.broken_tests.failures import Triage
from runbook_lib.failures.broken_tests.rows import RowChange
from runbook_lib.failures.failed_jobs import DiagnosedJob
from runbook_lib.golden import bisect_offer
from runbook_lib.golden.bisect_offer import ImageSearches
from runbook_lib.golden.run_choice import ChosenRun
from runbook_lib.model import Question
from runbook_lib.pins.check import check_pins
from runbook_lib.recipes import issue_references, quarantine
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.recipes.targets import Target
from runbook_lib.text import edits
from runbook_lib.world.conditions.issues import IssueFiled

#: Causes for which a test is proposed as broken.  Step 5 handles drift; builds, linters and unit tests have no row.
_PROPOSED = frozenset({
    "hang", "out of memory", "shape", "import error", "resume mismatch", "CUDA error", "crash", "configuration",
    "program error", "unknown",
})  # fmt: skip
#: Lines of a log that a question shows.
_MOST_LINES = 12
#: The scopes of tests that GitHub runs.
_GITHUB_SCOPES = frozenset({"mr-github", "mr-github-slim", "L0", "L1"})


@dataclass(frozen=True)
class NamedTests:
    """What a person decided: ``change`` the rows, and ``rerun`` tests; ``quarantined`` are in quarantine already.

    ``used`` are the decisions, bound to these failures.
    """

    change: RowChange
    quarantined: tuple[Target, ...] = ()
    rerun: tuple[Target, ...] = ()
    warnings: tuple[str, ...] = ()
    used: tuple[Decision, ...] = ()

    def show(self) -> display.View:
        """Show the tests, their issues and the recipes' diff, in which an issue to be filed is ``#(new)``."""
        change = self.change
        issues = dict.fromkeys(self.quarantined, "already quarantined")
        issues |= dict.fromkeys(change.reenabled, "is re-enabled")
        new_issues = display.View("", "")
        for target, issue in change.issues.items():
            issues[target] = f"#{issue.known}" if issue.known else "will be filed"
            if not issue.known:
                new_issues += display.code(issue.body, title=f"Issue: {issue.title}")
        rows = [{"test": str(test), "reason": test.reason, "issue": issue} for test, issue in issues.items()]
        view = display.table(rows, empty="No test was named as broken.")
        view += display.diff(edits.diff(change.edits), empty="No recipe changes.")
        return view + new_issues + display.notes(self.warnings, title="Warnings")


def decide(failures: Triage) -> NamedTests:
    """Read the rows and the issue of each test that a person decided on.

    A decision counts for the failure that it was made on.  Checks the names even without a run.  Raises Refused for a
    test that is in no recipe or did not fail in the run, and for a closed issue.
    """
    run, branch = failures.run, failures.run.branch
    broken, rows = quarantines.resolve_targets(branch, "broken")
    reenable, _ = quarantines.resolve_targets(branch, "reenable")
    rerun, _ = quarantines.resolve_targets(branch, "rerun")
    if run.source is None or run.bump.tag is None:  # without a bump ``survey`` plans
        return NamedTests(RowChange({}, {}))
    issues: dict[Target, IssueFiled] = {}
    quarantined, warnings, used = [], [], list[Decision | None]()
    for target, decision in broken.items():
        target_rows = [row for row in rows if target.is_of(row)]
        if all(map(quarantines.is_quarantined, target_rows)):
            quarantined.append(target)
            continue
        job = _failed_job(failures, target)
        decided = _on_failure(decision, job, run)
        unseen = run.bump.allowed("unseen-failure", str(target), run.number) if job is None else None
        if job is None and decision.seen is None and unseen is None:
            raise Refused(f"{target} did not fail in {run.source.name}, so it is not broken.", "unseen-failure")
        if decided is None and unseen is None:
            continue  # it was made on another failure: the question is open again
        used += [decided, unseen]
        if job is not None and job.failure.kind == "golden drift":
            warnings.append(f"{target} failed only because of drift: step 5 refreshes its golden values.")
        if job is not None and job.on_base.state == "failing":
            warnings.append(f"The new image did not break {target}: {job.comparison}.")
        issues[target] = _issue(run, target, target_rows, job, internal=run.source.gitlab)
    again = []
    for target, decision in rerun.items():
        if decided := _on_failure(decision, _failed_job(failures, target), run):
            again.append(target)
            used.append(decided)
    used += (on(decision, Seen(digest(str(target)))) for target, decision in reenable.items())
    texts = quarantines.recipe_texts(branch, [target.case for target in (*issues, *reenable)])
    whole_row = run.bump.allowed("whole-row")
    change = RowChange(texts, issues, tuple(reenable), whole_rows=whole_row is not None)
    if change.edits:
        used.append(whole_row)
    return NamedTests(change, tuple(quarantined), tuple(again), tuple(warnings), tuple(filter(None, used)))


def _on_failure(decision: Decision, job: DiagnosedJob | None, run: ChosenRun) -> Decision | None:
    """Return a decision, bound to the failure of its test; None if it was made on another failure."""
    return on(decision, Seen(_digest(job), run.number, run.attempt)) if job else None


def _digest(job: DiagnosedJob) -> str:
    return digest(job.failure.kind, job.failure.cause, job.on_base.state)


def _failed_job(failures: Triage, target: Target) -> DiagnosedJob | None:
    test = f"{target.model}/{target.case}"
    failed = (job for job in failures.jobs if job.test == test and job.platform in ("", target.platform))
    return next(failed, None)


def _issue(
    run: ChosenRun, target: Target, rows: Sequence[RecipeRow], job: DiagnosedJob | None, *, internal: bool
) -> IssueFiled:
    """Return a test's tracking issue: an open one, or the text for a new one."""
    bump, pull, github = run.bump, run.pull_request.pull, run.pull_request.github
    scopes: dict[str, None] = {}
    for row in rows:
        scopes |= dict.fromkeys(quarantine.gating_scopes(row))
    sites = bump.repository.sites
    pins = check_pins(run.branch.checkout.read(sites.pin_paths, run.branch.base_commit), sites)
    base_images = sorted({pin.image for pin in pins if pin.role == f"lockstep {bump.image_type}"})
    searches = bisect_offer.look_searches(run.branch, run.pull_request.records)
    search_result = searches.results.get(f"{target.model}/{target.case}@{target.platform}", "")
    body = tracking.body(
        target, bump, job, recipe=rows[0].recipe, scopes=tuple(scopes), old=", ".join(base_images) or "unknown",
        new=f"{sites.image}:{bump.tag}", run=run.url, pull=pull.url if pull else "", internal=internal,
        search_result=search_result,
    )  # fmt: skip
    known = 0
    if github and (number := target.issue or issue_references.issue_of_reason(target.reason, github.repository)):
        issue = github.issue(number)
        if issue.state != "open":
            raise Refused(f"The reason for {target} names #{number}, which is {issue.state}. Name an open issue.")
        known = number
    elif github and (found := tracking.open_issue(github, target)):
        known = found.number
    return tracking.filed(target, tracking.title(target, bump, job), body, bump.base, known)


def open_tests(failures: Triage, decisions: NamedTests) -> dict[str, DiagnosedJob]:
    """Return the failed tests that nobody has decided, as ``model/case@platform``; without numerical regressions."""
    decided = (*decisions.change.issues, *decisions.quarantined, *decisions.rerun)
    named = {f"{target.model}/{target.case}" for target in decided}
    jobs: dict[str, list[DiagnosedJob]] = {}
    for job in failures.jobs:
        if "/" in job.test and job.failure.kind in _PROPOSED and job.test not in named:
            jobs.setdefault(job.test, []).append(job)
    tests: dict[str, DiagnosedJob] = {}
    for row in quarantines.parse_rows(failures.recipes):
        test = f"{row.model}/{row.case}"
        on_github = not _GITHUB_SCOPES.isdisjoint(cell.value for cell in row.scopes)
        if on_github and failures.run.bump.image_type in row.environments:
            for job in jobs.get(test, ()):
                tests |= {f"{test}@{name}": job for name in row.platforms if job.platform in ("", name)}
    return tests


def failing_on_base(tests: Mapping[str, DiagnosedJob]) -> dict[str, DiagnosedJob]:
    """Return the tests that also fail on the base branch."""
    return {test: job for test, job in tests.items() if job.on_base.state == "failing"}


def proposals(tests: Mapping[str, DiagnosedJob]) -> dict[str, str]:
    """Return the tests that may be broken, each with its cause, without those that also fail on the base branch."""
    causes = {}
    for test, job in tests.items():
        if job.on_base.state != "failing":
            cause = " ".join(job.failure.cause.replace(";", ",").split())
            if job.failure.cause_cut:  # a reason in the recipe is complete
                cause = cause.rpartition(". ")[0] or cause.rpartition(" ")[0]
            causes[test] = issue_references.without_issues(cause)
    return causes


def as_entries(reasons: Mapping[str, str]) -> str:
    """Return tests and reasons as the entries of a file of decisions."""
    lines = [f"- {flow(Decision('broken', test, reason).as_entry())}" for test, reason in reasons.items()]
    return "\n".join(["broken:", *lines])


def questions(tests: Mapping[str, DiagnosedJob], searches: ImageSearches, run: ChosenRun) -> tuple[Question, ...]:
    """Return a question for each open test, with the cause as the suggested reason.

    For a test that also fails on the base branch, the suggested reason is that failure and its issue.
    """
    asked = []
    for test, cause in proposals(tests).items():
        job, result = tests[test], searches.results.get(test, "")
        command = "" if result else searches.offer(run.bump, test)
        offer = f"{bisect_offer.PREFIX}{command}" if command else ""
        why = f"{cause} ({job.comparison}) {result or offer}".rstrip()
        asked.append(_question(run, test, job, why, cause, judged=result, search=command))
    for test, job in failing_on_base(tests).items():
        reason = job.on_base.sentence.replace(";", ",")
        if job.tracked:
            reason = f"already failing on the base branch, see #{job.tracked.number}"
        judged = "The new image did not break it"
        asked.append(_question(run, test, job, f"{judged}: {job.comparison}", reason, judged=f"{judged}."))
    return tuple(asked)


def _question(
    run: ChosenRun, test: str, job: DiagnosedJob, why: str, suggestion: str, *, judged: str, search: str = ""
) -> Question:
    """Return a question; ``judged`` is the part of ``why`` that neither the cause nor the base branch says."""
    facts: dict[str, object] = {"test": test, "numbers": job.failure.cause, "judged": judged, "search": search}
    facts |= {"key": _digest(job), "run": run.number, "attempt": run.attempt}
    details = {
        "Class": job.failure.kind, "On the base branch": job.comparison,
        "History": job.failure.details.get("history", ""), "Flaky before": job.flaky_before, "Advice": job.failure.next,
    }  # fmt: skip
    facts["details"] = {label: text for label, text in details.items() if text}
    facts |= {"lines": list(job.failure.evidence)[-_MOST_LINES:], "log": job.failure.url}
    return Question("broken", test, why, suggestion, facts)


def show_open(tests: Mapping[str, DiagnosedJob]) -> display.View:
    """Show the open tests: those that may be broken, and those that fail on the base branch too."""
    view = display.View("", "")
    if reasons := proposals(tests):
        title = "Tests that may be broken; keep those that are, with your reason, in the file of decisions"
        view += display.code(as_entries(reasons), title=title)
    if rows := [{"test": test, "on the base branch": job.comparison} for test, job in failing_on_base(tests).items()]:
        view += display.note("The new image did not break these tests. Fix or quarantine them on the base branch:")
        view += display.table(rows)
    return view
