"""Step 4: let CI test the head commit, once and with the right labels, and follow its run."""

import time
from collections.abc import Callable, Sequence

from runbook_lib import display, notebooks
from runbook_lib.checks import Check
from runbook_lib.clients.github.ci_status import CiStatus
from runbook_lib.clients.github.copy_pr_bot import commands
from runbook_lib.clients.github.models import Comment
from runbook_lib.display import View
from runbook_lib.records.step_record import StepRecord
from runbook_lib.transport import polling
from runbook_lib.workflow.ci_run import progress
from runbook_lib.workflow.pull_request import PullRequestState

#: Seconds until a run that did not start is given up.
_NO_RUN = 15 * 60


def follow(
    step: StepRecord,
    state: PullRequestState,
    *,
    wait: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], object] = print,
) -> CiStatus | None:
    """The run of the head commit as it is now; with ``wait`` until it has ended, saying each change of its state.

    A preview never waits: it shows what is.
    None where there is nothing to follow.  Raises Unreachable when GitHub stays away for long.
    """
    wait = wait and state.bump.apply
    idle = state.bump.repository.idle(notebooks.RUN_CI)
    if idle or state.held or state.pull is None or state.github is None:
        return None
    pull, github = state.pull, state.github

    def seen(now: CiStatus) -> polling.Observation:
        return polling.Observation(now.sentence, now.ended, now.mark, _NO_RUN if now.state == "none" else polling.LIMIT)

    found = polling.follow(
        lambda: progress(state, pull, github), seen, wait=wait, sleep=sleep, clock=clock, say=say
    )  # fmt: skip
    _account(step, found)
    return found


def _account(step: StepRecord, found: CiStatus) -> None:
    """What the record keeps of the run."""
    if found.run is None:
        return
    step.add_inputs(run_id=found.run.id, run_attempt=found.run.attempt, run_state=found.state)
    step.link("CI run", found.run.url)
    names = ("name", "status", "conclusion", "started", "completed", "url")
    step.table("jobs", [{name: getattr(job, name) for name in names} for job in found.jobs])


def show(state: PullRequestState, found: CiStatus | None) -> View:
    """Where CI stands, and each job that failed."""
    reviewed = state.review.show() if state.review and state.review.foreign else display.View("", "")
    if found is None:
        return display.note(state.held or state.problem) + reviewed
    rows = [{"job": job.name, "ended": job.conclusion, "url": job.url} for job in found.bad_jobs]
    shown = display.note(f"{found.sentence[:1].upper()}{found.sentence[1:]}") + display.note(found.counts())
    return (shown + display.table(rows) if rows else shown) + reviewed


def verify(step: StepRecord, state: PullRequestState, found: CiStatus | None) -> View:
    """Read the pull request again, and tell the record where CI stands."""
    bump = state.bump
    step.check(*_checks(state, found))
    if (
        bump.repository.golden
        and found
        and found.run
        and found.ended
        and not any("gb200" in job.name.lower() for job in found.jobs)
    ):
        step.warn(
            f"No GB200 job ran in CI run {found.run.id}: they run for maintainers only, and when the repository lets "
            "them. Their absence is no success: 05-golden-values says which golden files were not covered."
        )
    if bump.tag is None:
        step.done("No tag was given, so there is no CI to run.")
    elif why := bump.repository.idle(notebooks.RUN_CI):
        step.done(why)
    elif state.held and not bump.apply:
        if not state.authorized and not state.problem:
            commit = state.pull.head_sha[:10] if state.pull else "the commit"
            step.would(f"let CI test {commit}, by one comment on the pull request", publish=True)
        step.done(f"Preview: {state.held}.", state.next)
    elif state.held:
        step.waiting(state.held, state.next)
    elif found is None or found.state == "passed":
        step.done(found.sentence if found else state.problem, "07-sync-check; then a person: reviews, merge queue.")
    else:
        step.waiting(found.sentence, found.next)
    return display.note("The checks are in the record below.")


def _checks(state: PullRequestState, found: CiStatus | None) -> list[Check]:
    authorized, same, passed = "CI may test the head commit", "the run is of the head commit", "CI passed"
    github, pull = state.github, state.pull
    if found is None or github is None or pull is None:
        why = state.held or state.problem or "There is nothing to follow."
        return [Check(name, "skipped", why) for name in (authorized, same, passed)]
    now = github.pull(pull.number)
    checks = [_authorization(authorized, github.comments(pull.number), state, found)]
    if found.run is None:
        return [*checks, *(Check(name, "skipped", found.sentence) for name in (same, passed))]
    heads = f"{found.run.head_sha[:10]} on {found.run.head_branch}; #{now.number} is at {now.head_sha[:10]}."
    checks.append(Check.of(same, found.run.head_sha == now.head_sha, heads))
    # A red run is for a person to judge: the bump waits, and does not fail.
    return [*checks, Check(passed, "passed" if found.state == "passed" else "waiting", found.sentence)]


def _authorization(name: str, comments: Sequence[Comment], state: PullRequestState, found: CiStatus) -> Check:
    """Whether CI may test the head commit: proved by a run, or by the command of somebody who may write it."""
    by = [f"{it.author} ({it.url})" for it in commands(comments, found.head)]
    own = [it.url for it in commands(comments, found.head, state.me)]
    if by:
        return Check(name, "passed", f"By {', '.join(by)}.")
    if found.run:
        return Check(name, "passed", f"By copy-pr-bot itself: {found.run.url}")
    if own:
        told = f"{state.me} wrote the command ({own[0]}), and is no member of the repository: a maintainer must."
        return Check(name, "waiting", told)
    return Check(name, "failed", "Nobody has.")
