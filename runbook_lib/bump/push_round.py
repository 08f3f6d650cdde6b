"""The joint push of one round's responses to CI (refreshed values, quarantined tests), and the next CI run.

Each push costs a complete run and cancels the one in progress, losing its golden values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from runbook_lib import display, notebooks
from runbook_lib.bump.run_ci import find_obstacle
from runbook_lib.decisions import Decision
from runbook_lib.model import Awaited, Check, Condition, Evidence, Next, Outcome, Plan, Round
from runbook_lib.pins.bump import Bump
from runbook_lib.text.lists import capitalized, join_first
from runbook_lib.world import bump_branch
from runbook_lib.world.bump_pull import PullRequestState, is_mine, read_state
from runbook_lib.world.conditions.commits import BranchTip, Pushed
from runbook_lib.world.conditions.forge import Authorized, PullKey
from runbook_lib.world.github.ci_status import branch_of
from runbook_lib.world.github.models import Pull, WorkflowRun
from runbook_lib.world.ports import Forge, World

_PARTIAL, _RUNNING = "partial-round", "push-while-running"


@dataclass(frozen=True)
class RoundFacts:
    """What the bump's branch has to push, its pull request (None if there is nothing), and what prevents the push."""

    round: Round = field(default_factory=Round)
    state: PullRequestState | None = None
    running: tuple[WorkflowRun, ...] = ()
    obstacle: Outcome | None = None


def look(world: World, bump: Bump) -> RoundFacts:
    """Read the branch again, the pull request, and its CI runs.  Raises RunbookError if this run publishes."""
    if bump.tag is None or world.github is None or world.round is None:
        return RoundFacts()
    world.branches.pop(bump.branch, None)  # the step before may have committed
    branch = bump_branch.look(world, bump)
    state = read_state(branch, world.github)
    pull, commits = state.pull, world.round.commits and not bump.apply
    if pull is None or branch.tip is None or not is_mine(pull, state.head_name):
        return RoundFacts()
    is_pushed = branch.checkout.has(pull.head_sha) and branch.checkout.is_ancestor(branch.tip, pull.head_sha)
    if is_pushed and not commits:
        return RoundFacts()
    obstacle = find_obstacle(state, pull, world.github, world.records)
    left = replace(world.round, commits=commits)
    return RoundFacts(left, state, unfinished(world.github, pull), obstacle)


def plan(facts: RoundFacts, bump: Bump) -> Plan[World]:
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
    return Plan(done, conditions=tuple(conditions), evidence=Evidence(decided=tuple(decided) if bump.publish else ()))


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


def unfinished(github: Forge, pull: Pull) -> tuple[WorkflowRun, ...]:
    """Return a pull request's CI runs that have not finished."""
    return tuple(run for run in github.runs(branch_of(pull.number)) if run.status != "completed" and not run.fork)
