"""Notebook 06-broken-tests, second half: file issues, quarantine tests, and push the round or rerun it.

No test is quarantined without an issue: if none can be filed, its row stays.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runbook_lib import display, notebooks
from runbook_lib.checks import Check
from runbook_lib.clients.github.models import Issue
from runbook_lib.errors import RunbookError
from runbook_lib.git.commits import follow, tree_with
from runbook_lib.model import Round
from runbook_lib.recipes.targets import Target
from runbook_lib.records.step_record import StepRecord
from runbook_lib.steps.broken_tests import decide
from runbook_lib.steps.broken_tests import issue as tracking
from runbook_lib.steps.broken_tests.failures import Triage, open_jobs
from runbook_lib.text import edits, lists
from runbook_lib.triage import failed_jobs
from runbook_lib.workflow import branch_history, bump_branch, bump_pull, markdown_texts, push_round, quarantines
from runbook_lib.workflow.run_choice import ChosenRun

#: Runs of a flaky test before a person must examine it.
_MAX_ATTEMPTS = 3
#: Failed jobs listed in a pull request's description; GitHub's limit is 65536 characters.
_MAX_JOBS = 40


@dataclass(frozen=True)
class QuarantineResult:
    """Each test's issue, the reasons why some have none, and the names of the ``open`` and the ``flaky`` jobs."""

    plan: decide.QuarantinePlan
    issues: Mapping[Target, Issue] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    flaky: tuple[str, ...] = ()
    rerun: bool = False
    round: Round | None = None


def carry_out(step: StepRecord, plan: decide.QuarantinePlan) -> QuarantineResult:
    """With ``publish`` file the missing issues, and quarantine the tests in one commit.

    A round with nothing to push reruns its flaky tests.  With ``apply`` alone only tests that have an issue are
    quarantined.  Raises Refused if somebody else's changes are in the way, or a row covers more than its test.
    """
    failures, run = plan.triage, plan.run
    bump, checkout, state = run.bump, run.branch.checkout, run.pull_request
    if run.source is None or bump.tag is None:
        return QuarantineResult(plan)
    # A killed run may have filed issues.
    planned = plan.edits(plan.known_issues)
    if not bump.apply:
        blocking, flaky = open_jobs(failures, planned, plan.rerun)
        answers = None if run.older else Round(blocking, bool(plan.decisions or plan.reenabled))
        return QuarantineResult(plan, open=blocking, flaky=flaky, round=answers)
    if plan.decisions or plan.reenabled:
        push_round.require_own_branch(state)
        # Anything that would prevent the commit must do so before an issue is filed.
        checkout.identity()
        tree = tree_with(checkout, run.branch.start, planned)
        follow(checkout, bump.branch, tree, checkout.branch_tip(bump.branch), "-n")
    issues, problems = _issues(step, plan)
    edited = plan.edits({target: issue.number for target, issue in issues.items()})
    if edited:
        step.diff(edits.diff(edited))
        title = bump.quarantine_title if issues else bump.reenable_title
        message = quarantines.commit_message(title, issues, plan.reenabled)
        branch_history.make(step, run.branch, edited, message, "quarantine" if issues else "reenable")
        step.report(f"{_changes(len(issues), plan)}.")
        for name in bump.allow & {"whole-row", "unseen-failure"}:
            step.allowed(name, "; ".join(map(str, issues)) or "It was not needed.")
    blocking, flaky = open_jobs(failures, edited, plan.rerun)
    rerun = False
    if flaky and not blocking and not edited and _nothing_to_push(run) and not run.older:
        step.report(*failures.flaky_history(flaky))
        rerun = rerun_flaky(step, run, flaky)
    answers = None if run.older else Round(blocking, bool(edited))  # nor does it say what failed in the newest run
    result = QuarantineResult(plan, issues, problems, blocking, flaky, rerun, answers)
    quarantined = quarantines.quarantined_since_fork(bump_branch.find(checkout, bump))
    push_round.update_body(step, state, text(quarantined, failures), "broken-tests")
    return result


def _nothing_to_push(run: ChosenRun) -> bool:
    pull = run.pull_request.pull
    return pull is not None and run.branch.start == pull.head_sha


def _issues(step: StepRecord, plan: decide.QuarantinePlan) -> tuple[dict[Target, Issue], tuple[str, ...]]:
    """Return each test's issue, filing missing ones, and the reasons why some could not be filed."""
    github, bump = plan.run.pull_request.github, plan.run.bump
    issues: dict[Target, Issue] = {}
    problems = []
    for decision in plan.decisions:
        target, issue = decision.target, decision.issue
        if issue is not None:
            issues[target] = issue
            step.report(f"#{issue.number} already tracks {target}.")
        elif github is None or not bump.publish:
            problems.append(f"{target} is not quarantined: it has no open issue, and without publish none is filed.")
        else:
            try:
                issues[target] = tracking.file(step, github, target, decision.title, decision.body, bump.base)
                step.report(f"Filed #{issues[target].number} for {target}.")
            except RunbookError as error:
                problems.append(f"{target} is not quarantined, because its issue could not be filed. {error}")
    return issues, tuple(problems)


def rerun_flaky(step: StepRecord, run: ChosenRun, flaky: tuple[str, ...]) -> bool:
    """Rerun the run's failed jobs, at most twice, and return whether they were started."""
    state, source = run.pull_request, run.source
    if state.github is None or state.pull is None or source is None or source.gitlab or not run.bump.publish:
        return False
    if not bump_pull.is_mine(state.pull, state.head_name):
        return False
    current = state.github.run(run.number)
    if current.attempt >= _MAX_ATTEMPTS or current.status != "completed":
        return False
    state.github.rerun_failed(current.id)
    step.effect("rerun", f"CI run {current.id}", current.attempt, current.attempt + 1, url=current.url)
    step.report(f"Restarted the flaky tests ({', '.join(flaky)}).")
    return True


def text(quarantined: Sequence[Mapping[str, object]], failures: Triage) -> str:
    """Return our part of the pull request's description: the quarantined tests, and the cause of each failure.

    ``quarantined`` is the result of ``quarantines.quarantined_since_fork``.
    """
    return markdown_texts.render(
        "broken-tests", quarantined=quarantined, jobs=failures.jobs, most=_MAX_JOBS, url=failures.run.url,
        base=failures.run.bump.base,
    )  # fmt: skip


def verify(step: StepRecord, result: QuarantineResult) -> None:
    """Read the branch and the issues again, and record the checks, the open decisions and the outcome."""
    plan, run, branch = result.plan, result.plan.run, result.plan.run.branch
    step.warn(*branch.warnings, *plan.triage.warnings, *plan.warnings)
    if run.source is not None:
        run.record_inputs(step)
        step.table("failures", [job.row | {"test": job.test} for job in plan.triage.jobs])
        step.table("evidence", failed_jobs.evidence_rows(plan.triage.jobs))
    if run.source is not None and run.bump.tag is not None:
        step.check(*_checks(result))
        filed = {target: issue.number for target, issue in result.issues.items()}
        step.diff(edits.diff(plan.edits(plan.known_issues | filed)))
        for decision in plan.open_decisions():
            step.decide("broken", **decision)
    _conclude(step, result)


def _checks(result: QuarantineResult) -> list[Check]:
    plan, problems = result.plan, " ".join(result.problems)
    branch, bump = plan.run.branch, plan.run.bump
    tracked, quarantined = "every broken test has its issue", "the named tests are quarantined"
    if not bump.apply:
        return Check.each((tracked, quarantined), "skipped", "This is a preview.")
    if not bump.publish and problems:
        return [Check(tracked, "skipped", problems), Check(quarantined, "skipped", "Nothing was published.")]
    after = bump_branch.find(branch.checkout, bump)
    rows = quarantines.rows_of(after, [test.case for test in result.issues])
    running = []
    for target in result.issues:
        running += [str(target) for row in rows if target.is_of(row) and not quarantines.is_quarantined(row, plan.soft)]
    issues = ", ".join(f"{target}: #{issue.number}" for target, issue in result.issues.items()) or "None was named."
    detail = f"{', '.join(running)} still run." if running else issues
    checks = [Check.of(tracked, not problems, problems or issues), Check.of(quarantined, not running, detail)]
    if plan.reenabled:
        checks.append(quarantines.check_reenabled(after, plan.reenabled))
    return checks


def _changes(quarantined: int, plan: decide.QuarantinePlan) -> str:
    """Return the numbers of tests quarantined and re-enabled, in words."""
    changes = []
    if quarantined or not plan.reenabled:
        changes.append(f"marked {display.count(quarantined, 'test')} broken")
    if plan.reenabled:
        changes.append(f"re-enabled {display.count(len(plan.reenabled), 'test')}")
    return lists.capitalized(", ".join(changes))


def _conclude(step: StepRecord, result: QuarantineResult) -> None:
    plan, run = result.plan, result.plan.run
    bump = run.bump
    # Without a tag the survey's outcome counts.
    if bump.tag is None or run.conclude_without_run(step, "Nothing to decide"):
        return
    if not bump.apply:
        tests, jobs = display.count(len(plan.decisions), "test"), display.count(len(result.open), "failed job")
        _plan_effects(step, result, tests)
        planned = f"{tests} would be marked broken"
        if plan.reenabled:
            planned += f", {display.count(len(plan.reenabled), 'test')} re-enabled"
        sentence = f"{planned}; {jobs} {display.be(len(result.open))} open"
        drifted = {job.failure.job for job in plan.triage.jobs if job.failure.kind == "golden drift"}
        if result.open and drifted.issuperset(result.open):  # a preview of 05-golden-values commits no values
            sentence += f" until {notebooks.GOLDEN_VALUES} refreshes their values"
        step.preview(sentence, _next(result))
    elif result.open:
        jobs = display.count(len(result.open), "failed job")
        names = display.first_names(result.open)
        step.waiting(f"waiting for a person: {jobs} to decide ({names})", _next(result))
    elif result.rerun:
        sentence = f"waiting for CI run {run.number}: its flaky tests are being rerun"
        step.waiting(sentence, "Run bump again, or with wait=True.")
    elif result.flaky:
        names = ", ".join(result.flaky)
        history = " ".join([*plan.triage.flaky_history(result.flaky), run.url])
        step.waiting(f"waiting for a person: infrastructure has failed these repeatedly: {names}", history)
    elif result.issues or plan.reenabled:
        step.done(f"{_changes(len(result.issues), plan)}.", notebooks.RUN_CI)
    else:
        step.done("Every failed test of this run is explained or decided.", notebooks.RUN_CI)


def _plan_effects(step: StepRecord, result: QuarantineResult, tests: str) -> None:
    """Record what apply would do."""
    plan, branch = result.plan, result.plan.run.bump.branch
    if plan.decisions:
        step.would(f"file an issue for {tests}, or use an open one", publish=True)
        step.would(f"quarantine {tests} in one commit on branch {branch}")
    if plan.reenabled:
        step.would(f"re-enable {display.count(len(plan.reenabled), 'test')} in one commit on branch {branch}")
    if result.flaky and not result.open and _nothing_to_push(plan.run) and not (plan.decisions or plan.reenabled):
        history = " ".join(plan.triage.flaky_history(result.flaky))
        step.would(". ".join(filter(None, [f"run again: {', '.join(result.flaky)}", history])), publish=True)


def _next(result: QuarantineResult) -> str:
    """Return instructions for deciding the open failures."""
    prefix = ""
    if any(problem.retryable and problem.job in result.open for problem in result.plan.triage.unread):
        prefix = "Run 06-broken-tests again for the golden values that could not be read. "
    failing = result.plan.failing_on_base()
    if failing:
        # A quarantine here would hide a test that is broken on the base branch.
        base = result.plan.run.bump.base
        verb = "fails" if len(failing) == 1 else "fail"
        prefix += f"{display.first_names(list(failing))} also {verb} on {base}: "
        prefix += "fix or quarantine these there, or name them in broken with their issue. "
    advice = "Read the logs; then fix the cause, accept the values by name in step 5, or declare the test broken."
    if proposals := result.plan.proposals():
        parameter = shlex.quote(decide.as_parameter(proposals))  # quoted because the causes come from logs
        advice = f"If they are broken: -r broken {parameter}. Only a person can judge a regression: read the logs."
    return f"{prefix}{advice}"
