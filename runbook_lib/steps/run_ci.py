"""Notebook 04-run-ci: authorize CI for the head commit, once and with the right labels, and follow its run."""

import time
from collections import Counter
from collections.abc import Callable, Sequence

from runbook_lib import display, notebooks
from runbook_lib.checks import Check
from runbook_lib.clients.github.ci_status import CiStatus, platform_of
from runbook_lib.clients.github.copy_pr_bot import commands
from runbook_lib.clients.github.models import Comment
from runbook_lib.golden.match_artifacts import parse_job_name
from runbook_lib.records.step_record import StepRecord
from runbook_lib.text.lists import capitalized
from runbook_lib.transport import polling
from runbook_lib.workflow import ci_run, quarantines
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.pull_request import PullRequestState

#: Seconds to wait for a run to start.
_START_LIMIT = 15 * 60


def follow(
    step: StepRecord, state: PullRequestState, *, wait: bool = False, sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> CiStatus | None:  # fmt: skip
    """Return the progress of the head commit's CI run; with ``wait``, print each change of state until it finishes.

    A preview never waits.  Returns None if there is no run to follow.  Raises Unreachable if GitHub stays unreachable.
    """
    bump, pull, github = state.bump, state.pull, state.github
    if bump.repository.inapplicable(notebooks.RUN_CI) or state.waiting or pull is None or github is None:
        return None

    def observe(progress: CiStatus) -> polling.Observation:
        limit = _START_LIMIT if progress.state == "none" else polling.LIMIT
        return polling.Observation(progress.sentence, progress.is_over, progress.mark, limit)

    progress = polling.follow(
        lambda: ci_run.progress(state, pull, github), observe, wait=wait and bump.apply, sleep=sleep, clock=clock,
    )  # fmt: skip
    if progress.run:
        step.add_inputs(run_id=progress.run.id, run_attempt=progress.run.attempt, run_state=progress.state)
        step.link("CI run", progress.run.url)
        columns = ("name", "status", "conclusion", "started", "completed", "url")
        step.table("jobs", display.rows(progress.jobs, **{column: column for column in columns}))
    return progress


def show(state: PullRequestState, progress: CiStatus | None) -> display.View:
    """Return the state of the CI run, each failed job, and the commits that a person has to confirm."""
    review = display.View("", "")
    if state.review and state.review.foreign:
        review = state.review.show()
    if progress is None:
        return display.note(state.waiting or state.problem) + review
    view = display.note(capitalized(progress.sentence)) + display.note(progress.counts())
    if rows := display.rows(progress.bad_jobs, job="name", ended="conclusion", url="url"):
        view += display.table(rows)
    return view + review


def verify(step: StepRecord, state: PullRequestState, progress: CiStatus | None) -> None:
    """Read the pull request again, and record its CI state."""
    bump = state.bump
    step.check(*_checks(state, progress))
    if bump.repository.tests.golden and progress:
        _warn_without_gb200(step, state.branch, progress)
    if bump.tag is None:
        step.done("No tag was given, so there is no CI to run.")
    elif bump.repository.inapplicable(notebooks.RUN_CI):
        step.done(state.problem)
    elif state.waiting and not bump.apply:
        unconfirmed = state.review is not None and bool(state.review.foreign)
        if not (state.authorized or state.problem or unconfirmed):
            commit = state.pull.head_sha[:10] if state.pull else "the commit"
            step.would(f"authorize CI for {commit}, with one comment on the pull request", publish=True)
        step.done(f"Preview: {state.waiting}.", state.next)
    elif state.waiting:
        step.waiting(state.waiting, state.next)
    elif progress is None or progress.state == "passed":
        sentence = progress.sentence if progress else state.problem
        step.done(sentence, "07-sync-check; then a person: reviews, merge queue.")
    else:
        step.waiting(progress.sentence, progress.next)


def _warn_without_gb200(step: StepRecord, branch: BumpBranch, progress: CiStatus) -> None:
    if progress.run is None or not progress.is_over:
        return
    ran = [job for job in progress.jobs if job.conclusion != "skipped"]
    platforms = {platform_of(job) for job in ran}
    tests = [parse_job_name(job.name) for job in ran if not platform_of(job)]
    unknown = Counter(test for test in tests if test)
    if "dgx_gb200" not in platforms and unknown:
        rows = quarantines.rows_of(branch, [case for _, case in unknown])
        for test, count in unknown.items():
            of_test = set[str]().union(*(row.platforms for row in rows if (row.model, row.case) == test))
            if of_test == {"dgx_gb200"} or (count > 1 and "dgx_gb200" in of_test):
                return
        sentence = f"It is unknown whether a GB200 job ran in CI run {progress.run.id}"
        step.warn(f"{sentence}: its jobs do not show their platform.")
    elif "dgx_gb200" not in platforms:
        step.warn(
            f"No GB200 job ran in CI run {progress.run.id}: they run only for maintainers, and only when the "
            "repository enables them. Their absence is not a pass: 05-golden-values lists the golden files that the "
            "run did not cover."
        )


def _checks(state: PullRequestState, progress: CiStatus | None) -> list[Check]:
    authorized, same_commit, passed = "CI may test the head commit", "the run tests the head commit", "CI passed"
    github, pull = state.github, state.pull
    if progress is None or github is None or pull is None:
        reason = state.waiting or state.problem or "There is nothing to follow."
        return Check.each((authorized, same_commit, passed), "skipped", reason)
    head = github.pull(pull.number).head_sha
    checks = [_authorization(authorized, github.comments(pull.number), state, progress)]
    if progress.run is None:
        return [*checks, *Check.each((same_commit, passed), "skipped", progress.sentence)]
    commits = f"{progress.run.head_sha[:10]} on {progress.run.head_branch}; #{pull.number} is at {head[:10]}."
    checks.append(Check.of(same_commit, progress.run.head_sha == head, commits))
    # A person judges a red run, so the bump waits instead of failing.
    return [*checks, Check.of(passed, progress.state == "passed", progress.sentence, "waiting")]


def _authorization(name: str, comments: Sequence[Comment], state: PullRequestState, progress: CiStatus) -> Check:
    """Check that CI is authorized: by a comment from somebody who may do so, or because a run exists."""
    if by := [f"{comment.author} ({comment.url})" for comment in commands(comments, progress.head)]:
        return Check(name, "passed", f"By {', '.join(by)}.")
    if progress.run:
        return Check(name, "passed", f"By copy-pr-bot itself: {progress.run.url}")
    if own := commands(comments, progress.head, state.me):
        reason = f"{state.me} is not a member of the repository, so {own[0].url} has no effect"
        return Check(name, "waiting", f"{reason}: a maintainer must comment.")
    return Check(name, "failed", "No comment authorizes it.")
