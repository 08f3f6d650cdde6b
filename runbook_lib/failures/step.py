"""Notebook 06-broken-tests: why the jobs of a CI run failed, and what a person decided about their tests.

In a bump these are issues, quarantined rows, and another run of flaky jobs.  No test is quarantined without an issue:
if none can be filed, its row stays.  Without a tag it is the change of quarantined tests (``survey``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from runbook_lib import display, notebooks
from runbook_lib.failures import decide, quarantines
from runbook_lib.failures import quarantine_survey as survey
from runbook_lib.failures.decide import RunFailures, Triage
from runbook_lib.failures.failed_jobs import DiagnosedJob
from runbook_lib.failures.quarantine_survey import PassingRuns, QuarantineSurvey
from runbook_lib.failures.quarantines import LeftOut, QuarantineChange, QuarantineCommitted
from runbook_lib.golden import bisect_offer, ci_runs
from runbook_lib.golden.ci_runs import ChosenRun
from runbook_lib.model import Condition, Evidence, Next, Outcome, Plan, Round
from runbook_lib.pins.bump import Bump
from runbook_lib.text import edits
from runbook_lib.text.lists import capitalized, join_first
from runbook_lib.text.markdown import render
from runbook_lib.world.bump_branch import BumpBranch, is_mine, marked, read_state, require_mine
from runbook_lib.world.conditions.commits import BranchTip
from runbook_lib.world.conditions.forge import Described, PullKey, Rerun
from runbook_lib.world.git.commits import follow, tree_with
from runbook_lib.world.ports import World

#: Runs of a flaky test before a person must examine it.
_MAX_ATTEMPTS = 3
#: Failed jobs listed in a pull request's description; GitHub's limit is 65536 characters.
_MAX_JOBS = 40


@dataclass(frozen=True)
class BrokenTestFacts:
    """The tests quarantined on the base branch, and in a bump the failures of its run."""

    survey: QuarantineSurvey
    found: RunFailures | None = None


@dataclass(frozen=True)
class BrokenTests:
    """The step; ``run_id`` and ``source`` name the run."""

    run_id: str = ""
    source: str = "github"

    NAME: ClassVar[str] = notebooks.BROKEN_TESTS

    def look(self, world: World, bump: Bump) -> BrokenTestFacts:
        """Read the run, its logs and golden values, the recipes, and the issues of the tests.

        Raises Refused for a decision that cannot be carried out, before anything is filed.
        """
        branch = BumpBranch.look(world, bump)
        surveyed = survey.look(world, branch)
        found = self._look_failures(world, branch) if bump.tag is not None else None
        if bump.apply and found:
            _require_committable(branch, found.change)
        if bump.apply and (own := surveyed.own):
            _require_committable(own.branch, own.change)
        return BrokenTestFacts(surveyed, found)

    def _look_failures(self, world: World, branch: BumpBranch) -> RunFailures:
        run = ci_runs.choose_run(read_state(branch, world.github), run_id=self.run_id, source=self.source)
        triaged = decide.triage(run, world.records)
        searches = bisect_offer.look_searches(branch, world.records)
        return decide.decide(triaged, searches)

    def plan(self, facts: BrokenTestFacts, bump: Bump) -> Plan[World]:
        """Plan the responses to the run; without a tag, the change of quarantined tests."""
        if facts.found is None:
            return survey.plan(facts.survey, bump)
        if facts.found.triage.run.source is None:
            return _without_run(facts.found.triage.run, facts.survey)
        return _plan(facts.found, facts.survey, bump)


def _require_committable(branch: BumpBranch, change: QuarantineChange) -> None:
    """Raise RunbookError for anything that would prevent the commit, before an issue is filed for it."""
    if planned := change.edits:
        branch.checkout.identity()
        tree = tree_with(branch.checkout, branch.start, planned)
        name = branch.bump.branch
        follow(branch.checkout, name, tree, branch.checkout.branch_tip(name), "-n")


@dataclass(frozen=True)
class FailuresDescribed(Described):
    """The description has the tests that the branch quarantines now, and the cause of each failure of the run."""

    triage: Triage | None = None
    passing: tuple[PassingRuns, ...] = ()

    def text(self, world: World) -> str:
        """Return our part, from the branch as it is now."""
        assert self.triage is not None
        branch = self.triage.run.branch
        commit = BranchTip(branch.bump.branch, branch.start).read(world.checkout)
        quarantined = quarantines.quarantined_since_fork(branch, commit)
        return marked(description(quarantined, self.triage, self.passing), branch.bump, "broken-tests")


def description(quarantined: Sequence[LeftOut], failures: Triage, passing: Sequence[PassingRuns] = ()) -> str:
    """Return our part of the pull request's description, without its markers.

    ``quarantined`` are the tests that the branch quarantines, ``passing`` the runs of re-enabled tests.
    """
    return render(
        "broken-tests", quarantined=quarantined, jobs=failures.jobs, most=_MAX_JOBS, url=failures.run.url,
        base=failures.run.bump.base, passing=passing,
    )  # fmt: skip


def _plan(facts: RunFailures, surveyed: QuarantineSurvey, bump: Bump) -> Plan[World]:
    """Plan the issues, the commit, and another run of flaky jobs.

    Raises Refused if this changes rows on somebody else's branch.
    """
    triage, run, change = facts.triage, facts.triage.run, facts.change
    edited = change.edits
    if edited and bump.apply and run.pull_request.pull:
        require_mine(run.pull_request.pull, run.pull_request.head_name)
    blocking, flaky = decide.open_jobs(triage, edited, facts.rerun)
    tests = decide.open_tests(facts)
    tip, conditions = BranchTip(bump.branch, run.branch.start), list[Condition[World]](change.issues.values())
    if edited:
        title = f"test: {'mark broken' if change.issues else 're-enable'} tests for {bump.tag}"
        conditions.append(QuarantineCommitted(tip, change, title))
    idle = bool(flaky) and not blocking and not edited and _nothing_to_push(run)
    again = _rerun(run, flaky) if idle else None
    if again:
        conditions.append(again)
    conditions += _described(facts)
    waiting = None
    if blocking:
        waiting = Outcome(_open_sentence(triage, blocking, bump), _next(triage, tests, blocking))
    elif again:
        rerun = f"waiting for CI run {run.number}: its flaky tests are being rerun"
        waiting = Outcome(rerun, Next.again(wait=True), for_ci=True)
    elif idle:
        history = " ".join([*triage.history(flaky), run.url])
        failed = f"waiting for a person: infrastructure has failed these repeatedly: {', '.join(flaky)}"
        waiting = Outcome(failed, Next(history))
    done = "Every failed test of this run is explained or decided."
    if edited:
        done = f"{capitalized(change.summary)}."
    return Plan(
        Outcome(done, Next.run(notebooks.RUN_CI)),
        (triage.show(), facts.show(), surveyed.show()),
        tuple(conditions),
        (*decide.questions(facts, tests), *surveyed.questions()),
        waiting,
        evidence=_evidence(facts, surveyed, again),
        round=None if run.older else Round(blocking, bool(edited)),  # which says nothing about the newest run
    )


def _without_run(run: ChosenRun, surveyed: QuarantineSurvey) -> Plan[World]:
    """Return the plan of a step that does not apply, or that has no run yet."""
    if reason := run.bump.repository.inapplicable(notebooks.BROKEN_TESTS):
        return Plan(Outcome(reason), (display.note(reason),))
    done, waiting = run.without_run("Nothing to decide")
    return Plan(done, (run.show(), surveyed.show()), (), surveyed.questions(), waiting, evidence=surveyed.evidence)


def _nothing_to_push(run: ChosenRun) -> bool:
    """Return whether the branch has no responses to the newest run that are still to be pushed."""
    pull = run.pull_request.pull
    return pull is not None and run.branch.start == pull.head_sha and not run.older


def _rerun(run: ChosenRun, flaky: tuple[str, ...]) -> Rerun | None:
    """Return the condition that the run's failed jobs run again; None after too many attempts, or if it is not ours."""
    state, source = run.pull_request, run.source
    if state.pull is None or source is None or source.gitlab or run.attempt >= _MAX_ATTEMPTS:
        return None
    return Rerun(run.number, run.attempt, flaky) if is_mine(state.pull, state.head_name) else None


def _described(found: RunFailures) -> tuple[FailuresDescribed, ...]:
    state = found.triage.run.pull_request
    if state.pull is None or not is_mine(state.pull, state.head_name):
        return ()
    key = PullKey(state.head_name, state.pull.base_ref)
    return (FailuresDescribed(key, "", "broken-tests", found.triage, found.passing),)


def _evidence(facts: RunFailures, surveyed: QuarantineSurvey, again: Rerun | None) -> Evidence:
    """Return what the record keeps of the run's failures, and of what is in quarantine."""
    triage, run = facts.triage, facts.triage.run
    assert run.source is not None
    warnings = [*run.branch.warnings, *triage.warnings, *facts.warnings, *surveyed.notes]
    if again:
        warnings += triage.history(again.jobs)
    return Evidence(
        inputs={"run": run.source.name, "base_commit": run.branch.base_commit, "plan_from": run.branch.start},
        links={"GitLab pipeline" if run.source.gitlab else "CI run": run.url},
        tables={"failures": [job.row | {"test": job.test} for job in triage.jobs], **surveyed.evidence.tables},
        diff=edits.diff(facts.change.edits),
        warnings=tuple(warnings),
        decided=facts.used if run.bump.apply else (),
    )


def _open_sentence(triage: Triage, blocking: Sequence[str], bump: Bump) -> str:
    jobs = display.count(len(blocking), "failed job")
    drifted = {job.failure.job for job in triage.jobs if job.failure.kind == "golden drift"}
    if not bump.apply and drifted.issuperset(blocking):  # a preview of 05-golden-values commits no values
        return f"{jobs} {display.be(len(blocking))} open until {notebooks.GOLDEN_VALUES} refreshes their values"
    return f"waiting for a person: {jobs} to decide ({join_first(blocking, 6)})"


def _next(triage: Triage, tests: Mapping[str, DiagnosedJob], blocking: Sequence[str]) -> Next:
    """Return instructions for deciding the open failures."""
    prefix = ""
    if any(problem.retryable and problem.job in blocking for problem in triage.unread):
        prefix = "Some golden values could not be read: run 06-broken-tests again. "
    failing = [test for test, job in tests.items() if job.on_base.state == "failing"]
    if failing:  # a quarantine here would hide a test that is broken on the base branch
        verb = "fails" if len(failing) == 1 else "fail"
        prefix += f"{join_first(failing, 6)} also {verb} on {triage.run.bump.base}: "
        prefix += "fix or quarantine these there, or call them broken with their issue. "
    advice = "Read the logs; then fix the cause, accept the values by name in step 5, or declare the test broken."
    if new := [test for test in tests if test not in failing]:
        advice = f"Only a person can judge: read the logs. Decide on {join_first(new, 6)}:"
        return Next.run(notebooks.REVIEW, f"{prefix}{advice}")
    return Next(f"{prefix}{advice}")
