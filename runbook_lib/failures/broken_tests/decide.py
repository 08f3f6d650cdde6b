"""Notebook 06-broken-tests: the tests that a person declares broken, re-enables or runs again, and the open ones."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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
    github, pull = run.pull_request.github, run.pull_request.pull
    if run.source is None or github is None:
        return NamedTests(QuarantineChange(files, {}))
    issues: dict[Target, IssueFiled] = {}
    quarantined, again, warnings, used = list[Target](), list[Target](), list[str](), list[Decision]()
    for target, decision in (broken | rerun).items():
        if target in broken and files.is_off(target):
            quarantined.append(target)
            continue
        job = _failed_job(failures, target)
        if job is None and target in broken and decision.seen is None:
            raise Refused(
                f"{target} did not fail in {run.source.name}, so it is not broken. Name a run in which it did."
            )
        decided = on(decision, Seen(_digest(job), run.number, run.attempt)) if job else None
        if job is None or decided is None:
            continue  # it was made on another failure: the question is open again
        used.append(decided)
        if target in rerun:
            again.append(target)
            continue
        known, warning = tracking.known_issue(github, target)
        warnings += [*_warnings(target, job, run), *filter(None, [warning])]
        row = next(filter(target.is_of, files.rows), None)
        found = {"Image": f"{searches.tag or 'unknown'} → {run.bump.tag}"}
        if search := searches.results.get(f"{target.name}@{target.platform}"):
            found["Change in the image"] = search
        issues[target] = tracking.of_failure(github, target, job, run, row, known, **found)
    used += filter(None, (on(decision, Seen(digest(str(target)))) for target, decision in reenable.items()))
    change = QuarantineChange(files, issues, tuple(reenable))
    whole_row = run.bump.allowed("whole-row")
    if whole_row is None:
        change.require_own_rows()
    elif change.edits:
        used.append(whole_row)
    ran = passing.look(github, [pull.number] if pull else [], reenable)
    return NamedTests(change, tuple(quarantined), tuple(again), tuple(warnings), tuple(used), ran)


def _warnings(target: Target, job: DiagnosedJob, run: ChosenRun) -> Iterator[str]:
    """Yield what speaks against a quarantine.  Raises Refused if the repository does not permit it."""
    if target.script and not _may_leave_out(job):
        raise Refused(
            f"{target} may fail because of the new image. {run.bump.repository.name} quarantines a test only if it "
            f"also fails on {run.bump.base}, or if infrastructure is clearly the cause. Fix it, or hold the merge."
        )
    if job.failure.kind == "golden drift":
        yield f"{target} failed only because of drift: step 5 refreshes its golden values."
    if job.on_base.state == "failing":
        yield f"The new image did not break {target}: {job.comparison}."


def _digest(job: DiagnosedJob) -> str:
    return digest(job.failure.kind, job.failure.cause, job.on_base.state)


def _failed_job(failures: Triage, target: Target) -> DiagnosedJob | None:
    for job in failures.jobs:
        ran = targets_of(job, failures.run.bump)
        if any(each.name == target.name and each.platform in ("", target.platform) for each in ran):
            return job
    return None


def _may_leave_out(job: DiagnosedJob) -> bool:
    """Return whether a failed job says nothing about the change: Megatron-Bridge's condition for a quarantine."""
    return job.on_base.state == "failing" or job.failure.retry


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
