"""The joint push of one round's responses to CI (refreshed values, quarantined tests), and the next CI run.

Each push costs a complete run and cancels the one in progress, losing its golden values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runbook_lib import display, notebooks
from runbook_lib.bump import Bump
from runbook_lib.clients.github.ci_status import branch_of
from runbook_lib.clients.github.client import GitHub
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.model import Outcome
from runbook_lib.records.step_record import StepRecord
from runbook_lib.text.sections import compose_body
from runbook_lib.workflow import branch_history, bump_branch, ci_run
from runbook_lib.workflow.bump_pull import Section, is_mine, marked
from runbook_lib.workflow.pull_request import PullRequestState, read_state
from runbook_lib.world.conditions.pulls import Authorized, PullKey
from runbook_lib.world.outside import World

#: For a preview: when the responses to a run are pushed while some of its failed tests are open.
PUSH = "push all responses to this run together once no failed test is open, and authorize CI for them"


@dataclass(frozen=True)
class PushOutcome:
    """The outcome of a round: ``commit`` was pushed, or ``waiting`` says why it was not, and ``next`` what to do."""

    commit: str = ""
    waiting: str = ""
    next: str = ""


def push_answers(
    step: StepRecord, state: PullRequestState, undecided: Sequence[str] = (), *, last: bool = True
) -> PushOutcome:
    """Push the responses to CI waiting on the bump's branch, and authorize CI; ``undecided`` tests block that.

    ``last`` is False if 06-broken-tests follows, which may decide them in the same run.
    Raises Refused if the remote refuses the push.
    """
    bump, github, pull = state.bump, state.github, state.pull
    branch = bump_branch.find(state.branch.checkout, bump)
    if pull is None or github is None or not is_mine(pull, state.head_name) or branch.start == pull.head_sha:
        return PushOutcome()
    if not bump_branch.only_ci_answers(branch.checkout, bump, pull.head_sha, branch.start):
        commits = f"{bump.branch} is at {branch.start[:10]} here, #{pull.number} at {pull.head_sha[:10]}"
        waiting = f"waiting for a push: {commits}, which differ by more than responses to CI"
        return PushOutcome(waiting=waiting, next=notebooks.OPEN_PR)
    if not bump.publish:
        return PushOutcome(waiting="waiting for publish, which pushes the commit", next="-p apply True -p publish True")
    running = [run for run in github.runs(branch_of(pull.number)) if run.status != "completed" and not run.fork]
    if running and "push-while-running" not in bump.allow:
        return PushOutcome(
            waiting=f"waiting for CI run {running[0].id} to finish: a push would cancel it and lose its golden values",
            next=f"Run again when it has finished, or add allow=push-while-running: {running[0].url}",
        )
    if undecided and "partial-round" not in bump.allow:
        return _wait_for_decisions(undecided, last=last)
    if running:
        step.allowed("push-while-running", f"{display.count(len(running), 'run')} would have blocked the push.")
    if undecided:
        step.allowed("partial-round", f"{display.count(len(undecided), 'test')} would have blocked the push.")
    review = branch_history.review(branch, branch.start, step.records)
    review.record(step)
    if review.foreign:
        return PushOutcome(waiting=review.waiting, next=review.next)
    branch_history.push(step, review, pull.head_sha)
    step.add_inputs(head_commit=branch.start)
    obstacle = _authorize(step, read_state(branch, github, branch.start), github, branch.start)
    if obstacle is None:
        step.report(f"CI may test {branch.start[:10]}.")
        return PushOutcome(branch.start)
    step.report(obstacle.sentence)
    return PushOutcome(branch.start, obstacle.sentence, obstacle.next)


def _authorize(step: StepRecord, state: PullRequestState, github: GitHub, commit: str) -> Outcome | None:
    """Authorize CI for the pushed commit; return why it waits, None if CI may test it."""
    pull = state.pull
    if pull is None:
        return Outcome("waiting for the pull request", notebooks.OPEN_PR)
    if obstacle := ci_run.find_obstacle(state, pull, github):
        return obstacle
    world = World(state.branch.checkout, github, step)
    authorized = Authorized(PullKey(state.head_name, pull.base_ref), commit, state.bump.repository.ci.workflow)
    check = authorized.holds(world)
    if check.status == "failed":
        for effect in authorized.make_true(world):
            step.effect(effect.kind, effect.target, effect.before, effect.after, effect.url)
        check = authorized.holds(world)
    return None if check.status == "passed" else Outcome(check.detail, check.next)


def _wait_for_decisions(undecided: Sequence[str], *, last: bool) -> PushOutcome:
    failed = f"{display.count(len(undecided), 'failed test')} of this run {display.be(len(undecided))} not"
    costs = f"a push costs a complete run ({display.first_names(undecided)})"
    step = notebooks.BROKEN_TESTS
    waiting = f"waiting for {step}: {failed} explained by golden values, and {costs}"
    action = f"{step}, which pushes everything together once all are decided"
    if last:
        waiting = f"waiting for a person: {failed} decided, and {costs}"
        action = f"Decide them with {step}, which pushes everything together"
    return PushOutcome(waiting=waiting, next=f"{action}; or add allow=partial-round.")


def has_unpushed_answers(state: PullRequestState) -> bool:
    """Return whether responses to CI are committed on the bump's branch but not pushed yet."""
    branch, pull = state.branch, state.pull
    if pull is None or not is_mine(pull, state.head_name) or branch.start == pull.head_sha:
        return False
    return bump_branch.only_ci_answers(branch.checkout, branch.bump, pull.head_sha, branch.start)


def actions_after_ci(bump: Bump, rounds: int) -> tuple[dict[str, Any], ...]:
    """Return, for a preview, the actions that a waiting run takes after CI, in up to ``rounds`` CI runs."""
    if bump.repository.inapplicable(notebooks.RUN_CI):
        return ()
    if not bump.repository.tests.golden:
        return ({"sentence": "follow CI until it has finished", "publish": False},)
    local = (
        "follow CI until it has finished, then commit the golden values that drifted within tolerance (it "
        "never accepts values that are held back or declares a test broken unless a person has named them)"
    )
    public = (
        f"after each CI run, for up to {rounds} of them, restart the jobs that infrastructure failed, or push the "
        "responses to that run together, which starts the next run"
    )
    return ({"sentence": local, "publish": False}, {"sentence": public, "publish": True})


def require_own_branch(state: PullRequestState) -> None:
    """Raise Refused if the pull request comes from somebody else's branch."""
    pull = state.pull
    if pull is not None and not is_mine(pull, state.head_name):
        raise Refused(
            f"#{pull.number} is {pull.author}'s, on {pull.head_owner}:{pull.head_ref}: only they should "
            f"commit to it. Nothing was changed. Notify them, or open a pull request against that branch: {pull.url}"
        )


def update_body(step: StepRecord, state: PullRequestState, text: str, section: Section) -> None:
    """Update a section of the pull request's description, or warn if that fails."""
    bump, github, pull = state.bump, state.github, state.pull
    if not bump.publish or pull is None or github is None or not is_mine(pull, state.head_name):
        return
    try:
        before = github.pull(pull.number).body
        body = github.public(compose_body(before, marked(text, bump, section), section))
        if body != before:
            github.update_pull(pull.number, body)
            step.effect("pull request", f"#{pull.number} text", before, body, url=pull.url)
    except RunbookError as error:  # the work is done; the next run updates the description
        step.warn(str(error))
