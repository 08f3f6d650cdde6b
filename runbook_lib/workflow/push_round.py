"""A round of CI: its answers (refreshed values, tests put out of the way) are pushed at once, and the rest let go.

Each push costs a whole run and cancels the one in progress, with its golden values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runbook_lib import display, notebooks
from runbook_lib.bump import Bump
from runbook_lib.clients.github.ci_status import branch_of
from runbook_lib.display import View
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.records.step_record import StepRecord
from runbook_lib.workflow import branch_history, bump_branch, ci_run, pull_request
from runbook_lib.workflow.branch_history import Review
from runbook_lib.workflow.proposal import is_mine
from runbook_lib.workflow.pull_request import PullRequestState
from runbook_lib.workflow.pull_request_body import Section, compose_body, marked

#: Of a preview: when the answers to a run are pushed, while some of its failed tests are open.
PUSH = "push all answers to this run at once when no failed test is left open, and let CI test them"


@dataclass(frozen=True)
class Sent:
    """What became of a round: ``commit`` was pushed, or ``held`` says why it was not, ``next`` what to do."""

    commit: str = ""
    held: str = ""
    next: str = ""
    told: tuple[str, ...] = ()
    review: Review | None = None

    @property
    def view(self) -> View:
        """What was done, line by line, and each commit that a person has to confirm."""
        told = display.notes(self.told)
        return told + self.review.show() if self.review else told


def send(step: StepRecord, state: PullRequestState, undecided: Sequence[str] = (), *, last: bool = True) -> Sent:
    """Push the answers that wait on the bump's branch, and let CI test them; ``undecided`` tests hold that back.

    ``last`` is False where 06-broken-tests follows, which may decide them in the same run.

    Raises Refused where the remote refuses the push.
    """
    bump, github, pull = state.bump, state.github, state.pull
    branch = bump_branch.find(state.branch.checkout, bump)
    if pull is None or github is None or not is_mine(pull, state.head_name):
        return Sent()
    if branch.start == pull.head_sha:
        return Sent()
    if not bump_branch.only_ci_answers(branch.checkout, bump, pull.head_sha, branch.start):
        return Sent(
            held=f"waiting for a push: {bump.branch} is at {branch.start[:10]} here, #{pull.number} at "
            f"{pull.head_sha[:10]}, and not only by answers to CI",
            next=notebooks.OPEN_PR,
        )
    if not bump.publish:
        return Sent(held="waiting for publish: only then the commit is pushed", next="-p apply True -p publish True")
    running = [run for run in github.runs(branch_of(pull.number)) if run.status != "completed" and not run.fork]
    if running and "push-while-running" not in bump.allow:
        return Sent(
            held=f"waiting for CI run {running[0].id} to end: a push would cancel it, with its golden values",
            next=f"Run again when it has ended, or add allow=push-while-running: {running[0].url}",
        )
    if undecided and "partial-round" not in bump.allow:
        failed = (
            f"{display.count(len(undecided), 'failed test')} of this run {'is' if len(undecided) == 1 else 'are'} not"
        )
        costs = f"a push costs a whole run ({', '.join(undecided[:6])}{' …' * (len(undecided) > 6)})"
        if last:
            how = "Decide them with 06-broken-tests, which pushes all at once; or add allow=partial-round."
            return Sent(held=f"waiting for a person: {failed} decided, and {costs}", next=how)
        how = "06-broken-tests, which pushes all at once when all are decided; or add allow=partial-round."
        return Sent(held=f"waiting for 06-broken-tests: {failed} explained by golden values, and {costs}", next=how)
    for name, needed in {"push-while-running": running, "partial-round": undecided}.items():
        if needed:
            step.allowed(name, f"{display.count(len(needed), 'item')} would have held the push back.")
    reviewed = branch_history.review(branch, branch.start, step.records)
    reviewed.record(step)
    if reviewed.foreign:
        return Sent(held=reviewed.held, next=reviewed.next, review=reviewed)
    branch_history.push(step, reviewed, pull.head_sha)
    step.add_inputs(head_commit=branch.start)
    told = [f"Pushed {branch.start[:10]} to {bump.remote}."]
    after = ci_run.authorize(step, pull_request.read_state(branch, github, branch.start))
    told.append(after.held or f"CI may test {branch.start[:10]}.")
    return Sent(branch.start, after.held, after.next, tuple(told))


def waits(state: PullRequestState) -> bool:
    """Whether answers to CI are committed on the bump's branch, and not pushed yet."""
    branch, pull = state.branch, state.pull
    if pull is None or not is_mine(pull, state.head_name) or branch.start == pull.head_sha:
        return False
    return bump_branch.only_ci_answers(branch.checkout, branch.bump, pull.head_sha, branch.start)


def ahead(bump: Bump, most: int) -> tuple[dict[str, Any], ...]:
    """For a preview: what a run that waits for CI does once that has ended, in up to ``most`` runs of CI."""
    if bump.repository.inapplicable(notebooks.RUN_CI):
        return ()
    if not bump.repository.golden:
        return ({"sentence": "follow CI until it has ended", "publish": False},)
    here = (
        "follow CI until it has ended, then refresh the golden values that drifted within tolerance, in a commit (it "
        "never accepts values that are held back and never calls a test broken, unless a person has named them)"
    )
    away = (
        f"after each run of CI, for up to {most} of them, start again what infrastructure failed, or push the answers "
        "to that run, once, which starts the next run"
    )
    return ({"sentence": here, "publish": False}, {"sentence": away, "publish": True})


def require_own(state: PullRequestState) -> None:
    """Raise Refused where the pull request comes from somebody else's branch."""
    pull = state.pull
    if pull is not None and not is_mine(pull, state.head_name):
        raise Refused(
            f"#{pull.number} is {pull.author}'s, on {pull.head_owner}:{pull.head_ref}: what goes on it is theirs to "
            f"commit. Nothing was changed. Tell them, or open a pull request against that branch: {pull.url}"
        )


def tell(step: StepRecord, state: PullRequestState, text: str, section: Section) -> None:
    """Renew a part of the pull request's text; with a warning where that cannot be done."""
    bump, github, pull = state.bump, state.github, state.pull
    if not bump.publish or pull is None or github is None or not is_mine(pull, state.head_name):
        return
    try:
        before = github.pull(pull.number).body
        body = github.public(compose_body(before, marked(text, bump, section), section))
        if body != before:
            github.update_pull(pull.number, body)
            step.effect("pull request", f"#{pull.number} text", before, body, url=pull.url)
    except RunbookError as error:  # what was done is done: the text is renewed by the next run
        step.warn(str(error))
