"""The failed jobs of a CI run with their causes, and the tests that a person declares broken, re-enables or runs again.

A failed test is *explained* by refreshed golden values, *decided* once the bump's branch quarantines it, and *flaky*
if the infrastructure failed: it is rerun.  All others are open, and block the push of the round.
"""

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.decisions import Decision, Seen, digest, on
from runbook_lib.errors import Refused
from runbook_lib.failures import failed_jobs, quarantines
from runbook_lib.failures import tracking_issue as tracking
from runbook_lib.failures.failed_jobs import DiagnosedJob
from runbook_lib.failures.quarantine_survey import PassingRuns, passing_runs, show_passing
from runbook_lib.failures.quarantines import GatingFiles, QuarantineChange
from runbook_lib.golden import bisect_offer, ci_runs, comparison
from runbook_lib.golden.bisect_offer import ImageSearches
from runbook_lib.golden.ci_runs import ChosenRun
from runbook_lib.golden.collect import CollectionProblem
from runbook_lib.model import Question
from runbook_lib.pins.bump import Bump
from runbook_lib.text import edits
from runbook_lib.text.edits import Edit
from runbook_lib.text.recipes.rows import Target
from runbook_lib.world.conditions.forge import IssueFiled
from runbook_lib.world.ports import Forge

_SCRIPT = re.compile(r"[\w.-]{1,200}")  # a job with a launch script has its name
#: Causes for which a functional test is proposed as broken.  Step 5 handles drift; builds and linters have no row.
_PROPOSED = frozenset({
    "hang", "out of memory", "shape", "import error", "resume mismatch", "CUDA error", "crash", "configuration",
    "program error", "unit tests", "unknown",
})  # fmt: skip
#: Lines of a log that a question shows.
_MOST_LINES = 12


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
        return self.run.show() + display.notes(self.warnings, title="Warnings") + failed_jobs.show(self.jobs)


def triage(run: ChosenRun, records: Path | None) -> Triage:
    """Find the cause of each failed job, and the failures that golden values do not explain.

    ``records`` is the bump's folder in the archive, which has earlier failures.
    """
    github = run.pull_request.github
    if run.source is None:
        return Triage(run)
    if run.source.gitlab:
        jobs = failed_jobs.diagnose_pipeline(run.source, run.bump.base, run.branch.base_commit)
    else:
        assert github is not None, "it has the run"
        requested = ci_runs.RequestedRun(github.run(run.number))
        image_files = run.bump.repository.sites.pin_paths
        jobs = failed_jobs.diagnose_run(github, requested, run.bump.base, "this image", image_files)
        jobs = _with_issues(github, jobs, run.bump)
    jobs = failed_jobs.add_history(jobs, records)
    targets = itertools.chain.from_iterable(targets_of(job, run.bump) for job in jobs)
    files = quarantines.files_of(run.branch, targets)
    if run.bump.repository.tests.scripts:  # which has neither golden values nor recipes
        return Triage(run, jobs, run.failed, files=files)
    values = comparison.read(run, run.source, records, report=lambda _: None)
    unexplained = values.undecided(on_branch=True)
    unread = tuple(problem for problem in values.unavailable if problem.job in unexplained)
    # Refreshed values cannot explain a resumed run that differs from its first run.
    resumed = Counter(job.failure.job for job in jobs if job.failure.kind == "resume mismatch")
    undecided = sorted((Counter(unexplained) | resumed).elements())
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
            job = replace(job, tracked=tracking.open_issue(github, targets_of(job, bump)[0]))
        tracked.append(job)
    return tuple(tracked)


def open_jobs(
    failures: Triage, edited: Collection[Edit] = (), rerun: Collection[Target] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the jobs that block the push, and of the flaky ones that only need a rerun.

    ``edited`` are the files that change before the push; a person asked to rerun the tests in ``rerun``.
    """
    files = failures.files.after(edited)
    # A test's jobs have the same name on all platforms, but may fail for different causes, so count them.
    decided, infrastructure = Counter[str](), Counter[str]()
    for job in failures.jobs:
        targets = targets_of(job, failures.run.bump)
        left = [each for each in targets if not files.is_off(each)]
        if targets and not left:
            decided[job.failure.job] += 1
        elif job.failure.retry or (left and all(any(_is_named(each, named) for named in rerun) for each in left)):
            infrastructure[job.failure.job] += 1
    unexplained = Counter(failures.undecided) - decided
    flaky = unexplained & (infrastructure | Counter(failures.ambiguous))
    return tuple(sorted((unexplained - flaky).elements())), tuple(sorted(flaky.elements()))


@dataclass(frozen=True)
class RunFailures:
    """The failures of a run, the searches for the change in the image, and what a person decided.

    ``change`` takes tests out of CI or back, and the tests in ``rerun`` run again; ``quarantined`` ones are in
    quarantine already.  ``passing`` are the runs of re-enabled tests, and ``used`` the decisions, bound to these
    failures.
    """

    triage: Triage
    searches: ImageSearches
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
        return view + show_passing(self.passing) + display.notes(self.warnings, title="Warnings")


def decide(failures: Triage, searches: ImageSearches) -> RunFailures:
    """Read the rows and the issue of each test that a person decided on.

    A decision counts for the failure that it was made on.  Checks the names even without a run.  Raises Refused for a
    test that is in no recipe or did not fail in the run, and for a closed issue.
    """
    run, branch = failures.run, failures.run.branch
    decisions = quarantines.resolve_targets(branch)
    reenabled = tuple(target for target, decision in decisions.items() if decision.kind == "reenable")
    files = quarantines.files_of(branch, decisions)
    github, pull = run.pull_request.github, run.pull_request.pull
    if run.source is None:
        return RunFailures(failures, searches, QuarantineChange(files, {}))
    issues: dict[Target, IssueFiled] = {}
    quarantined, again, warnings, used = list[Target](), list[Target](), list[str](), list[Decision]()
    for target, decision in decisions.items():
        if decision.kind == "reenable":
            used += filter(None, [on(decision, Seen(digest(str(target))))])
            continue
        broken = decision.kind == "broken"
        if broken and files.is_off(target):
            quarantined.append(target)
            continue
        job = _failed_job(failures, target)
        if job is None and broken and decision.seen is None:
            raise Refused(
                f"{target} did not fail in {run.source.name}, so it is not broken.", "Name a run in which it did."
            )
        decided = on(decision, Seen(_digest(job), run.number, run.attempt)) if job else None
        if job is None or decided is None:
            continue  # it was made on another failure: the question is open again
        used.append(decided)
        if not broken:
            again.append(target)
            continue
        known, warning = tracking.known_issue(github, target)
        warnings += [*_warnings(target, job, run), *filter(None, [warning])]
        row = next(filter(target.is_of, files.rows), None)
        found = {"Image": f"{searches.tag or 'unknown'} → {run.bump.tag}"}
        if search := searches.results.get(target.subject):
            found["Change in the image"] = search
        issues[target] = tracking.of_failure(github, target, job, run, row, known, **found)
    change = QuarantineChange(files, issues, reenabled)
    whole_row = run.bump.allowed("whole-row")
    if whole_row is None:
        change.require_own_rows()
    elif change.edits:
        used.append(whole_row)
    ran = passing_runs(github, run.bump, [pull.number] if pull else [], reenabled)
    return RunFailures(failures, searches, change, tuple(quarantined), tuple(again), tuple(warnings), tuple(used), ran)


def _warnings(target: Target, job: DiagnosedJob, run: ChosenRun) -> Iterator[str]:
    """Yield what speaks against a quarantine.  Raises Refused if the repository does not permit it."""
    if target.script and not _may_leave_out(job):
        raise Refused(
            f"{target} may fail because of the new image. {run.bump.repository.name} quarantines a test only if it "
            f"also fails on {run.bump.base}, or if infrastructure is clearly the cause.",
            "Fix it, or hold the merge.",
        )
    if job.failure.kind == "golden drift":
        yield f"{target} failed only because of drift: step 5 refreshes its golden values."
    if job.on_base.state == "failing":
        yield f"The new image did not break {target}: {job.comparison}."


def _digest(job: DiagnosedJob) -> str:
    return digest(job.failure.kind, job.failure.cause, job.on_base.state)


def _failed_job(failures: Triage, target: Target) -> DiagnosedJob | None:
    for job in failures.jobs:
        if any(_is_named(ran, target) for ran in targets_of(job, failures.run.bump)):
            return job
    return None


def _is_named(ran: Target, named: Target) -> bool:
    """Return whether a test that a job ran, on a platform that may be unknown, is the one that a decision names."""
    return ran.name == named.name and ran.platform in ("", named.platform)


def _may_leave_out(job: DiagnosedJob) -> bool:
    """Return whether a failed job says nothing about the change: Megatron-Bridge's condition for a quarantine."""
    return job.on_base.state == "failing" or job.failure.retry


def open_tests(found: RunFailures) -> dict[str, DiagnosedJob]:
    """Return the failed tests that nobody has decided, as decisions name them; without numerical regressions."""
    decided = {target.subject for target in (*found.change.issues, *found.quarantined, *found.rerun)}
    tests: dict[str, DiagnosedJob] = {}
    for job in found.triage.jobs:
        for target in targets_of(job, found.triage.run.bump):
            tests |= {name: job for name in _proposed(target, job, found.triage.files) if name not in decided}
    return tests


def _proposed(target: Target, job: DiagnosedJob, files: GatingFiles) -> list[str]:
    """Return a failed test, as decisions name it on each of its platforms, if it may be called broken."""
    if target.script:
        return [target.subject] if target.script in files.texts and _may_leave_out(job) else []
    if target.is_unit_test:
        return [target.subject] if job.failure.kind == "unit tests" else []
    rows = files.rows_of(target) if job.failure.kind in _PROPOSED else ()
    platforms = itertools.chain.from_iterable(row.platforms for row in rows)
    return [f"{target.name}@{name}" for name in platforms if target.platform in ("", name)]


def questions(found: RunFailures, tests: Mapping[str, DiagnosedJob]) -> tuple[Question, ...]:
    """Return a question for each open test, with the cause, or the failure on the base branch, as suggested reason."""
    run, searches = found.triage.run, found.searches
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
