"""A round of CI: notebook 04-run-ci, and the joint push of what the steps after it respond, which starts the next run.

CI is authorized for the head commit, once and with the right labels.  Each push costs a complete run and cancels the
one in progress, losing its golden values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from runbook_lib import display, notebooks
from runbook_lib.bump import branch_history, pins_step, policy
from runbook_lib.decisions import Decision
from runbook_lib.model import Awaited, Check, Condition, Effect, Evidence, Next, Outcome, Plan, Round, Status
from runbook_lib.pins.bump import Bump
from runbook_lib.text.lists import capitalized, join_first
from runbook_lib.world import polling
from runbook_lib.world.bump_branch import BumpBranch, PullRequestState, read_progress, read_state, run_of_head
from runbook_lib.world.conditions.commits import BranchTip, Committed, Pushed
from runbook_lib.world.conditions.forge import Authorized, PullKey, label_request
from runbook_lib.world.git.commits import list_commits
from runbook_lib.world.github.ci_status import CiStatus, branch_of
from runbook_lib.world.github.copy_pr_bot import command
from runbook_lib.world.github.models import Pull, WorkflowRun
from runbook_lib.world.ports import Forge, World

#: Seconds to wait for a run to start.
_START_LIMIT = 15 * 60
#: Number of refused deployments after which a maintainer has to find the cause.
_MAX_REFUSED = 3
_EMPTY_COMMIT_TITLE = "chore: Trigger CI again"
_DRIFT = (
    "Drift costs up to three attempts: CI takes values that differ for a passing fault, and runs the job again before "
    f"it fails. {notebooks.GOLDEN_VALUES} uses the last attempt's values, and names it."
)
_PARTIAL, _RUNNING = "partial-round", "push-while-running"
_DONE = Outcome("CI passed for the head commit.", Next.run(notebooks.SYNC_CHECK))


@dataclass(frozen=True)
class CiFacts:
    """The pull request, and what prevents its CI; ``no_ci`` is the reason why there is none to run, or to follow."""

    state: PullRequestState
    no_ci: str = ""
    obstacle: Outcome | None = None


@dataclass(frozen=True)
class RunCi:
    """The step; with ``wait`` it follows the run until it ends."""

    wait: bool = False

    NAME: ClassVar[str] = notebooks.RUN_CI

    def look(self, world: World, bump: Bump) -> CiFacts:
        """Read the pull request with its comments, labels and runs.  Raises RunbookError if this run publishes."""
        branch = BumpBranch.look(world, bump)
        state = read_state(branch, world.github)
        if bump.tag is None:
            return CiFacts(state, "No tag was given, so there is no CI to run.")
        if reason := bump.repository.inapplicable(notebooks.RUN_CI):
            return CiFacts(state, f"{reason} {policy.describe_triggers(branch)}")
        if state.pull is None or state.github is None:
            if state.github is not None and pins_step.base_has_tag(branch):
                return CiFacts(state, f"{bump.base} already names {bump.tag}: there is no CI to run.")
            reason = state.problem.rstrip(".") or f"no pull request is open for {bump.branch}"
            waiting = f"waiting for the pull request: {reason}"
            return CiFacts(state, obstacle=Outcome(waiting, Next.run(notebooks.OPEN_PR, mode="publish")))
        obstacle = find_obstacle(state, state.pull, state.github, world.records)
        if obstacle is None and state.refused:
            trees = [commit.tree for commit in list_commits(branch.checkout, branch.base_commit, branch.start)]
            refused = 1 + sum(tree == previous for previous, tree in pairwise(trees))  # each replaced a refused one
            if refused >= _MAX_REFUSED:
                waiting = f"waiting for a maintainer: {refused} commits in #{state.pull.number} could not be deployed"
                obstacle = Outcome(waiting, Next(f"Ask a maintainer what prevents the deployment: {state.pull.url}"))
        return CiFacts(state, obstacle=obstacle)

    def plan(self, facts: CiFacts, bump: Bump) -> Plan[World]:
        """Plan the authorization, and what CI has to show."""
        state, pull = facts.state, facts.state.pull
        if facts.no_ci:
            return Plan(Outcome(facts.no_ci), (display.note(facts.no_ci),))
        evidence = Evidence({"base_commit": state.branch.base_commit})
        shown = (state.show(), *([display.note(_DRIFT)] if bump.repository.tests.golden else []))
        if pull is None and not bump.apply and not state.problem:
            authorized = Authorized(PullKey(state.head_name, bump.base), "", bump.repository.ci.workflow)
            return Plan(_DONE, shown, (authorized,), evidence=evidence)
        if facts.obstacle or pull is None:
            return Plan(_DONE, (state.show(),), waiting=facts.obstacle, evidence=evidence)
        return Plan(_DONE, shown, conditions=self._conditions(state, pull), evidence=evidence)

    def _conditions(self, state: PullRequestState, pull: Pull) -> tuple[Condition[World], ...]:
        bump = state.bump
        key = PullKey(f"{pull.head_owner}:{pull.head_ref}", pull.base_ref)
        conditions: list[Condition[World]] = []
        head = pull.head_sha
        if state.refused:  # a refused deployment is tied to its commit
            tip = BranchTip(bump.branch, state.branch.start)
            name = "another commit replaces the refused one"
            conditions.append(Committed(tip, (), _EMPTY_COMMIT_TITLE, name, True, "empty"))
            conditions.append(Pushed(tip, bump.remote, state.branch.remote_tip, follows=True))
            head = ""
        conditions.append(Authorized(key, head, bump.repository.ci.workflow))
        conditions.append(CiPassed(key, state, self.wait))
        return tuple(conditions)


@dataclass(frozen=True)
class CiPassed:
    """The CI run of the head commit has passed; with ``wait`` it is followed until it ends."""

    key: PullKey
    state: PullRequestState
    wait: bool
    leaves_machine = False
    sentence = "follow CI until it has finished"

    def holds(self, world: World) -> Check:
        """Read the run and its jobs."""
        progress = polling.patiently(lambda: self._read(world), world.sleep) if self.wait else self._read(world)
        evidence = _evidence(progress)
        if progress.state == "passed":
            return Check("CI passed", "passed", progress.sentence, evidence=evidence)
        is_followed = self.wait and not progress.is_over
        status: Status = "failed" if is_followed else "waiting"
        return Check("CI passed", status, progress.text, progress.next, evidence, for_ci=not progress.is_over)

    def make_true(self, world: World) -> Sequence[Effect]:
        """Follow the run, and print each change of its state.  Raises Unreachable if GitHub stays unreachable."""

        def observe(progress: CiStatus) -> polling.Observation:
            limit = _START_LIMIT if progress.state == "none" else polling.LIMIT
            return polling.Observation(progress.text, progress.is_over, progress.mark, limit)

        polling.follow(lambda: self._read(world), observe, world.sleep, world.services.monotonic)
        return ()

    def _read(self, world: World) -> CiStatus:
        pull = self.key.require(world.forge)
        return read_progress(self.state, pull, world.forge)


def _evidence(progress: CiStatus) -> Evidence:
    if progress.run is None:
        return Evidence({"run_state": progress.state})
    run, columns = progress.run, ("name", "status", "conclusion", "started", "completed", "url")
    return Evidence(
        inputs={"run_id": run.id, "run_attempt": run.attempt, "run_state": progress.state},
        links={"CI run": run.url},
        tables={"jobs": display.rows(progress.jobs, **{column: column for column in columns})},
    )


def find_obstacle(state: PullRequestState, pull: Pull, github: Forge, records: Path | None) -> Outcome | None:
    """Return why CI must not be authorized for the head commit, and what to do; None if it may be.

    ``records`` is the bump's folder in the archive.
    """
    bump, checkout = state.bump, state.branch.checkout
    if request := label_request(pull, *bump.labels, github.repository):
        return Outcome(f"waiting for the labels of #{pull.number}: CI must not start without them", Next.again(request))
    if pull.mergeable is False:
        advice = bump.decisions.advice("allow", "merge-base")
        fix = f"Merge {pull.base_ref} into {pull.head_ref} by hand, or {advice}."
        return Outcome(f"waiting for a person: #{pull.number} conflicts with {pull.base_ref}", Next.again(fix))
    head, tip = pull.head_sha, state.branch.tip if state.is_mine else None
    is_behind = tip is None or checkout.is_ancestor(tip, head)
    if tip and not is_behind and not branch_history.only_ci_answers(state.branch, head, tip, records):
        commits = f"{bump.branch} is at {tip[:10]} here, #{pull.number} at {head[:10]}"
        return Outcome(f"waiting for a push: {commits}", Next.run(notebooks.OPEN_PR))
    if not state.refused and (state.authorized or run_of_head(pull, github, bump)):
        return None
    if not state.is_mine:
        # The gate keeps unread code off the runners: only a person may open it for somebody else's commits.
        waiting = f"waiting for a person: #{pull.number} has {pull.author}'s commits, so CI must be authorized by hand"
        return Outcome(waiting, Next(f'Read every line of {pull.url}/files, then comment "{command(head)}" there.'))
    if not checkout.is_ancestor(head, state.branch.start):
        waiting = f"waiting for git: {head[:10]} in #{pull.number} cannot be fetched, so it cannot be reviewed"
        return Outcome(waiting, Next.again())
    return None


@dataclass(frozen=True)
class RoundFacts:
    """The push of a round: its pull request (None if there is nothing to push), and what prevents it."""

    round: Round = field(default_factory=Round)
    state: PullRequestState | None = None
    running: tuple[WorkflowRun, ...] = ()
    obstacle: Outcome | None = None


class PushRound:
    """The step after those that respond to CI: refreshed values and quarantined tests are pushed together."""

    def look(self, world: World, bump: Bump) -> RoundFacts:
        """Read the branch again, the pull request, and its CI runs.  Raises RunbookError if this run publishes."""
        if bump.tag is None or world.github is None or world.round is None:
            return RoundFacts()
        branch = BumpBranch.look(world, bump)
        state = read_state(branch, world.github)
        pull, commits = state.pull, world.round.commits and not bump.apply
        if pull is None or branch.tip is None or not state.is_mine:
            return RoundFacts()
        is_pushed = branch.checkout.is_ancestor(branch.tip, pull.head_sha)
        if is_pushed and not commits:
            return RoundFacts()
        obstacle = find_obstacle(state, pull, world.github, world.records)
        left = replace(world.round, commits=commits)
        runs = world.github.runs(branch_of(pull.number))
        running = tuple(run for run in runs if run.status != "completed" and not run.fork)
        return RoundFacts(left, state, running, obstacle)

    def plan(self, facts: RoundFacts, bump: Bump) -> Plan[World]:
        """Plan the push and the authorization of its CI run, which wait until every failed test is decided."""
        state, undecided = facts.state, facts.round.undecided
        if state is None or state.pull is None:
            return Plan(Outcome(""))
        branch, pull = state.branch, state.pull
        if waiting := facts.obstacle:
            shown = display.note(f"{capitalized(waiting.sentence)}. {waiting.next}")
            return Plan(Outcome(""), (shown,), waiting=waiting)
        decided: list[Decision] = []
        conditions: list[Condition[World]] = []
        if undecided:
            if partial := bump.allowed(_PARTIAL, *undecided):
                decided.append(partial)
            else:
                conditions.append(_await_decisions(undecided, bump))
        if facts.running:
            if while_running := bump.allowed(_RUNNING, *(run.id for run in facts.running)):
                decided.append(while_running)
            else:
                conditions.append(_await_run(facts.running[0], bump))
        tip = BranchTip(bump.branch, branch.start)
        head = "" if facts.round.commits else branch.start
        conditions.append(Pushed(tip, bump.remote, branch.remote_tip, follows=facts.round.commits))
        conditions.append(Authorized(PullKey(state.head_name, pull.base_ref), head, bump.repository.ci.workflow))
        done = Outcome(f"{branch.start[:10]} is pushed, and CI is authorized for it.", Next.run(notebooks.RUN_CI))
        return Plan(
            done, conditions=tuple(conditions), evidence=Evidence(decided=tuple(decided) if bump.publish else ())
        )


push_round = PushRound()


def _await_decisions(undecided: Sequence[str], bump: Bump) -> Awaited:
    count = len(undecided)
    failed = f"{display.count(count, 'failed test')} of this run {display.be(count)} undecided"
    waiting = f"waiting for {notebooks.BROKEN_TESTS}: {failed}, and a push costs a complete run"
    detail = f"{waiting} ({join_first(undecided, 6)})"
    action = f"To push without these decisions, {bump.decisions.advice('allow', _PARTIAL)}. To decide them:"
    check = Check("each failed test of the run is decided", "waiting", detail, Next.run(notebooks.BROKEN_TESTS, action))
    return Awaited("decide each failed test of this run", check)


def _await_run(run: WorkflowRun, bump: Bump) -> Awaited:
    waiting = f"waiting for CI run {run.id} to finish: a push would cancel it and lose its golden values"
    action = Next.again(f"When it has ended ({run.url}), or {bump.decisions.advice('allow', _RUNNING)}.")
    check = Check("no CI run is in progress", "waiting", waiting, action, for_ci=True)
    return Awaited("wait for the CI run in progress", check)
