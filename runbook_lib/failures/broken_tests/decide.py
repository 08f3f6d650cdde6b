"""Notebook 06-broken-tests: the tests that a person declares broken, re-enables or runs again, and the open ones."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from runbook_lib import display
from runbook_lib.decisions import Decision, Seen, digest, on
from runbook_lib.errors import Refused
from runbook_lib.failures import quarantines
from runbook_lib.failures.broken_tests import issue as tracking
from runbook_lib.failures.broken_tests import passing
from runbook_lib.failures.broken_tests.change import QuarantineChange
from runbook_lib.failures.broken_tests.failures import Triage, targets_of
from runbook_lib.failures.broken_tests.passing import PassingRuns
from runbook_lib.failures.failed_jobs import DiagnosedJob
from runbook_lib.golden import bisect_offer
from runbook_lib.golden.bisect_offer import ImageSearches
from runbook_lib.golden.run_choice import ChosenRun
from runbook_lib.model import Question
from runbook_lib.text import edits
from runbook_lib.text.recipes.targets import Target
from runbook_lib.world.conditions.issues import IssueFiled

#: Causes for which a functional test is proposed as broken.  Step 5 handles drift; builds and linters have no row.
_PROPOSED = frozenset({
    "hang", "out of memory", "shape", "import error", "resume mismatch", "CUDA error", "crash", "configuration",
    "program error", "unit tests", "unknown",
})  # fmt: skip
#: Lines of a log that a question shows.
_MOST_LINES = 12


@dataclass(frozen=True)
class NamedTests:
    """What a person decided: ``change`` the tests, and ``rerun`` tests; ``quarantined`` are in quarantine already.

    ``passing`` are the runs of re-enabled tests, and ``used`` the decisions, bound to these failures.
    """

    change: QuarantineChange
    quarantined: tuple[Target, ...] = ()
    rerun: tuple[Target, ...] = ()
    warnings: tuple[str, ...] = ()
    used: tuple[Decision, ...] = ()
    passing: tuple[PassingRuns, ...] = ()

    def show(self) -> display.View:
        """Show the diff, in which an issue to be filed is ``#(new)``, and the texts of the issues to be filed."""
        view = display.diff(edits.diff(self.change.edits), empty="No test was named as broken or re-enabled.")
        for issue in self.change.issues.values():
            if not issue.known:
                view += display.code(issue.body, title=f"Issue: {issue.title}")
        return view + passing.show(self.passing) + display.notes(self.warnings, title="Warnings")


def decide(failures: Triage, searches: ImageSearches) -> NamedTests:
    """Read the rows and the issue of each test that a person decided on.

    A decision counts for the failure that it was made on.  Checks the names even without a run.  Raises Refused for a
    test that is in no recipe or did not fail in the run, and for a closed issue.
    """
    run, branch = failures.run, failures.run.branch
    broken = quarantines.resolve_targets(branch, "broken")
    reenable = quarantines.resolve_targets(branch, "reenable")
    rerun = quarantines.resolve_targets(branch, "rerun")
    files = quarantines.files_of(branch, [*broken, *reenable])
    whole_row = run.bump.allowed("whole-row")
    change = QuarantineChange(files, {}, whole_rows=whole_row is not None)
    if run.source is None:
        return NamedTests(change)
    issues: dict[Target, IssueFiled] = {}
    quarantined, warnings, used = [], [], list[Decision | None]()
    for target, decision in broken.items():
        if files.is_off(target):
            quarantined.append(target)
            continue
        job = _failed_job(failures, target)
        decided = _on_failure(decision, job, run)
        unseen = run.bump.allowed("unseen-failure", str(target), run.number) if job is None else None
        if job is None and decision.seen is None and unseen is None:
            raise Refused(f"{target} did not fail in {run.source.name}, so it is not broken.", "unseen-failure")
        if decided is None and unseen is None:
            continue  # it was made on another failure: the question is open again
        if target.script and not _may_leave_out(job):
            raise Refused(
                f"{target} may fail because of the new image. {run.bump.repository.name} quarantines a test only if it "
                f"also fails on {run.bump.base}, or if infrastructure is clearly the cause. Fix it, or hold the merge."
            )
        used += [decided, unseen]
        if job is not None and job.failure.kind == "golden drift":
            warnings.append(f"{target} failed only because of drift: step 5 refreshes its golden values.")
        if job is not None and job.on_base.state == "failing":
            warnings.append(f"The new image did not break {target}: {job.comparison}.")
        row = next(filter(target.is_of, files.rows), None)
        known, warning = _known_issue(run, target)
        warnings += [warning] if warning else []
        image = f"{searches.tag or 'unknown'} → {run.bump.tag}"
        found = searches.results.get(f"{target.name}@{target.platform}", "")
        assert run.pull_request.github is not None
        issues[target] = tracking.of_failure(run.pull_request.github, target, job, run, row, image, known, found)
    again = []
    for target, decision in rerun.items():
        if decided := _on_failure(decision, _failed_job(failures, target), run):
            again.append(target)
            used.append(decided)
    used += (on(decision, Seen(digest(str(target)))) for target, decision in reenable.items())
    change = replace(change, issues=issues, reenabled=tuple(reenable))
    if change.edits:
        used.append(whole_row)
    github, pull = run.pull_request.github, run.pull_request.pull
    ran = passing.look(github, pull.number, reenable) if github and pull else ()
    return NamedTests(change, tuple(quarantined), tuple(again), tuple(warnings), tuple(filter(None, used)), ran)


def _on_failure(decision: Decision, job: DiagnosedJob | None, run: ChosenRun) -> Decision | None:
    """Return a decision, bound to the failure of its test; None if it was made on another failure."""
    return on(decision, Seen(_digest(job), run.number, run.attempt)) if job else None


def _digest(job: DiagnosedJob) -> str:
    return digest(job.failure.kind, job.failure.cause, job.on_base.state)


def _failed_job(failures: Triage, target: Target) -> DiagnosedJob | None:
    for job in failures.jobs:
        ran = targets_of(job, failures.run.bump)
        if any(each.name == target.name and each.platform in ("", target.platform) for each in ran):
            return job
    return None


def _may_leave_out(job: DiagnosedJob | None) -> bool:
    """Return whether a failed job says nothing about the change: Megatron-Bridge's condition for a quarantine."""
    return job is not None and (job.on_base.state == "failing" or job.failure.retry)


def _known_issue(run: ChosenRun, target: Target) -> tuple[int, str]:
    """Return the open issue that the decision names or that tracks the test, 0 for none, and a warning.

    Raises Refused for a closed issue: only a person knows which one is meant.
    """
    github = run.pull_request.github
    if github is None:
        return 0, ""
    warning = ""
    if target.issue:
        issue = github.issue(target.issue)
        if issue.is_open:
            return target.issue, ""
        if not issue.is_pull:
            raise Refused(f"{target} names #{target.issue}, which is {issue.state}. Name an open issue.")
        warning = f"#{target.issue} is a pull request, so it does not track {target}; an issue of its own does."
    found = tracking.open_issue(github, target)
    return found.number if found else 0, warning


def open_tests(failures: Triage, decisions: NamedTests) -> dict[str, DiagnosedJob]:
    """Return the failed tests that nobody has decided, as decisions name them; without numerical regressions."""
    decided = {target.name for target in (*decisions.change.issues, *decisions.quarantined, *decisions.rerun)}
    tests: dict[str, DiagnosedJob] = {}
    for job in failures.jobs:
        for target in targets_of(job, failures.run.bump):
            if target.name in decided:
                continue
            if target.script:
                tests |= {target.name: job} if target.script in failures.files.texts and _may_leave_out(job) else {}
            elif target.is_unit_test:
                tests |= {target.name: job} if job.failure.kind == "unit tests" else {}
            elif job.failure.kind in _PROPOSED:
                for row in failures.files.rows_of(target):
                    names = [name for name in row.platforms if target.platform in ("", name)]
                    tests |= {f"{target.name}@{name}": job for name in names}
    return tests


def questions(tests: Mapping[str, DiagnosedJob], searches: ImageSearches, run: ChosenRun) -> tuple[Question, ...]:
    """Return a question for each open test, with the cause, or the failure on the base branch, as suggested reason."""
    asked = []
    for test, job in tests.items():
        cause, search = job.failure.cause, ""
        judged = searches.results.get(test, "")
        if job.on_base.state == "failing":
            judged = "The new image did not break it."
            why, suggestion = f"{judged[:-1]}: {job.comparison}", f"already failing on {run.bump.base}"
        else:
            search = "" if judged or "::" in test else searches.offer(run.bump, test)
            offer = f"{bisect_offer.PREFIX}{search}" if search else ""
            why = f"{cause} ({job.comparison}) {judged or offer}".rstrip()
            suggestion = cause.rpartition(" ")[0] if cause.endswith("…") else cause
        details = {
            "Class": job.failure.kind, "On the base branch": job.comparison, "History": job.history,
            "Advice": job.failure.next,
        }  # fmt: skip
        facts: dict[str, object] = {
            "test": test, "numbers": cause, "judged": judged, "search": search, "key": _digest(job), "run": run.number,
            "attempt": run.attempt, "details": {label: text for label, text in details.items() if text},
            "lines": list(job.failure.evidence)[-_MOST_LINES:], "log": job.failure.url,
        }  # fmt: skip
        asked.append(Question("broken", test, why, suggestion, facts))
    return tuple(asked)


def show_open(tests: Mapping[str, DiagnosedJob]) -> display.View:
    """Show the open tests, each with its cause and how it ends on the base branch."""
    rows = [{"open test": test, "cause": job.failure.cause, "on the base branch": job.comparison}
            for test, job in tests.items()]  # fmt: skip
    return display.table(rows, empty="No failed test is open.")
