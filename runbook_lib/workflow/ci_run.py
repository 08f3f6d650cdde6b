"""The CI run of the head commit: its authorization and its progress."""

from dataclasses import replace
from itertools import pairwise

from runbook_lib import display, notebooks
from runbook_lib.bump import Bump
from runbook_lib.clients.github.ci_status import CiStatus, branch_of, choose, judge, labels_at, wrong_tests
from runbook_lib.clients.github.client import GitHub, once
from runbook_lib.clients.github.copy_pr_bot import command, commands, complaint, refusals
from runbook_lib.clients.github.models import Pull, WorkflowJob, WorkflowRun
from runbook_lib.records.step_record import StepRecord
from runbook_lib.workflow import branch_history, bump_branch, ci_triggers
from runbook_lib.workflow.bump_plan import base_has_tag
from runbook_lib.workflow.proposal import is_mine
from runbook_lib.workflow.pull_request import PullRequestState, label_request, refresh, review_commits

#: Number of refused deployments after which a maintainer has to find the cause.
_MAX_REFUSED = 3
_EMPTY_COMMIT_TITLE = "chore: Trigger CI again"
_RUN_AGAIN = f"Run {notebooks.RUN_CI} again."


def authorize(step: StepRecord, state: PullRequestState) -> PullRequestState:
    """Authorize CI for the head commit, with one comment per commit, and only while the labels are right.

    Only commits that the runbook made are authorized, and those that a person has confirmed (``branch_history``).
    If the deployment of the commit was refused, an empty commit replaces it.  ``waiting`` in the result says what
    prevents the authorization.
    """
    bump, github, pull = state.bump, state.github, state.pull
    if bump.tag and (reason := bump.repository.inapplicable(notebooks.RUN_CI)):
        return replace(state, problem=f"{reason} {ci_triggers.describe(state.branch)}")
    if pull is None or github is None:
        if github is not None and base_has_tag(state.branch):
            return replace(state, problem=f"{bump.base} already names {bump.tag}: there is no CI to run.")
        waiting = state.problem.rstrip(".") or f"no pull request is open for {bump.branch}"
        action = f"{notebooks.OPEN_PR}, with publish"
        return replace(state, waiting=f"waiting for the pull request: {waiting}", next=action)
    step.link("pull request", pull.url)
    step.add_inputs(
        pull_request=pull.number, head_commit=pull.head_sha, merge_commit=pull.merge_commit,
        base_commit=state.branch.base_commit,
    )  # fmt: skip
    if state.behind:
        step.warn(
            f"{pull.base_ref} has moved: #{pull.number} is {display.count(state.behind, 'commit')} behind. CI tests "
            "the merge of both at the time it starts; allow=merge-base merges them into the branch and plans again."
        )
    state = replace(state, review=review_commits(state, step.records))
    if state.review:
        state.review.record(step)
    if obstacle := _obstacle(state, pull, github):
        return replace(state, waiting=obstacle[0], next=obstacle[1])
    if state.refused:
        state = _push_empty_commit(step, state, pull, github)
        if state.waiting or state.pull is None:
            return state
        pull = state.pull
    elif state.authorized or _run_of_head(pull, github, bump):
        return state
    return _comment(step, state, pull, github)


def _obstacle(state: PullRequestState, pull: Pull, github: GitHub) -> tuple[str, str] | None:
    """Return why CI must not be authorized, and what to do; None if it may be."""
    bump, checkout = state.bump, state.branch.checkout
    on, off = bump.labels
    if request := label_request(pull, sorted(on - pull.labels), sorted(off & pull.labels), github.repository):
        return f"waiting for the labels of #{pull.number}: CI must not start without them", request
    if pull.mergeable is False:
        fix = f"Run again with allow=merge-base, or merge {pull.base_ref} into {pull.head_ref} by hand."
        return f"waiting for a person: #{pull.number} conflicts with {pull.base_ref}", fix
    mine = is_mine(pull, state.head_name)
    head, tip = pull.head_sha, checkout.branch_tip(bump.branch) if mine else None
    is_behind = tip is None or tip == head or (checkout.has(head) and checkout.is_ancestor(tip, head))
    if tip and not is_behind and not bump_branch.only_ci_answers(checkout, bump, head, tip):
        commits = f"{bump.branch} is at {tip[:10]} here, #{pull.number} at {head[:10]}"
        return f"waiting for a push: {commits}", notebooks.OPEN_PR
    if not state.refused and (state.authorized or _run_of_head(pull, github, bump)):
        return None
    if not mine:
        # The gate keeps unread code off the runners: only a person may open it for somebody else's commits.
        waiting = f"waiting for a person: #{pull.number} has {pull.author}'s commits, so CI must be authorized by hand"
        return waiting, f'Read every line of {pull.url}/files, then comment "{command(pull.head_sha)}" there.'
    if state.review is None or state.review.head != pull.head_sha:
        waiting = f"waiting for git: {pull.head_sha[:10]} in #{pull.number} cannot be fetched, so it cannot be reviewed"
        return waiting, _RUN_AGAIN
    if state.review.foreign:
        return state.review.waiting, state.review.next
    if not bump.publish:
        return f"waiting for publish, which comments {command(pull.head_sha)!r} on #{pull.number}", "publish=True"
    return None


def _run_of_head(pull: Pull, github: GitHub, bump: Bump) -> WorkflowRun | None:
    """Return the run for the head commit; copy-pr-bot starts one by itself for a trusted author."""
    return choose(github.runs(branch_of(pull.number), pull.head_sha), pull.head_sha, bump.repository.ci.workflow)


def _push_empty_commit(step: StepRecord, state: PullRequestState, pull: Pull, github: GitHub) -> PullRequestState:
    """Push an empty commit: a refused deployment is tied to its commit, so a new one is needed."""
    branch, bump, checkout = state.branch, state.bump, state.branch.checkout
    assert state.review is not None
    trees = [commit.tree for commit in state.review.commits]
    refused = sum(tree == previous for previous, tree in pairwise(trees)) + 1
    if refused >= _MAX_REFUSED:
        return replace(
            state, waiting=f"waiting for a maintainer: {refused} commits in #{pull.number} could not be deployed",
            next=f"Ask a maintainer what prevents the deployment: {pull.url}",
        )  # fmt: skip
    bump_branch.switch_to(branch)
    commit = checkout.empty_commit(_EMPTY_COMMIT_TITLE)
    step.effect("commit", bump.branch, pull.head_sha, commit)
    review = branch_history.review(branch, commit, step.records)
    review.record(step)
    if review.foreign:
        return replace(state, review=review, waiting=review.waiting, next=review.next)
    branch_history.push(step, review, pull.head_sha)
    step.add_inputs(head_commit=commit)
    state = refresh(replace(state, review=review), github, pull.number, commit)
    if state.pull is None or state.pull.head_sha != commit:
        return replace(state, waiting=f"waiting for GitHub to notice the push of {commit[:10]}", next=_RUN_AGAIN)
    return state


def _comment(step: StepRecord, state: PullRequestState, pull: Pull, github: GitHub) -> PullRequestState:
    text = command(pull.head_sha)
    comment = once(
        lambda: next(iter(commands(github.comments(pull.number), pull.head_sha, state.me)), None),
        lambda: github.comment(pull.number, text),
        github.remove_comment,
    )
    if comment not in state.comments:
        step.effect("comment", f"#{pull.number}", None, text, url=comment.url)
    return replace(state, comments=github.comments(pull.number))


def progress(state: PullRequestState, pull: Pull, github: GitHub) -> CiStatus:
    """Return the current state of the head commit's CI run on GitHub."""
    head, bump = pull.head_sha, state.bump
    run = _run_of_head(pull, github, bump)
    jobs: tuple[WorkflowJob, ...] = ()
    wrong = ""
    if run:
        jobs = github.jobs(run.id)
        wrong = wrong_tests(labels_at(pull.labels, state.labellings, run.created), bump.image_type, bump.repository)
    current = judge(run, jobs, head, wrong)
    if run and current.state == "failed" and not bump.repository.tests.golden:
        current = replace(current, next=f"Read its failed jobs: {run.url}")
    if current.state in ("passed", "useless"):
        return current
    comments = github.comments(pull.number)
    if refusals(comments, head) or (current.state in ("none", "failed") and github.deployment_failed(head)):
        return replace(
            current, state="refused", sentence=f"waiting for another commit: copy-pr-bot could not deploy {head[:10]}",
            next=f"{_RUN_AGAIN[:-1]}: it pushes an empty commit and authorizes CI for it.",
        )  # fmt: skip
    if run is None and (code := complaint(comments, head, state.me)):
        return replace(
            current, state="refused", sentence=f"waiting for a maintainer: copy-pr-bot refused the command ({code})",
            next=f'Ask a maintainer of {github.repository} to comment "{command(head)}" on {pull.url} (again).',
        )  # fmt: skip
    if run is None and (newest := github.pull(pull.number)).head_sha != head:
        return replace(
            current, state="superseded", sentence=f"waiting: #{newest.number} has a newer head, {newest.head_sha[:10]}",
            next="Run bump again for that commit.",
        )  # fmt: skip
    if run is None and not commands(comments, head, state.me):
        return replace(
            current, sentence=f"waiting for a comment: none authorizes CI for {head[:10]} yet",
            next=f"Run {notebooks.RUN_CI}, with publish: it posts that comment.",
        )  # fmt: skip
    return current
