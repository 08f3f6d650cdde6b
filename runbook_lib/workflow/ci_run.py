"""The CI run of the head commit: its authorization and its progress."""

from dataclasses import replace
from itertools import pairwise

from runbook_lib import notebooks
from runbook_lib.bump import Bump
from runbook_lib.clients.github.ci_status import CiStatus, branch_of, choose, judge, labels_at, wrong_tests
from runbook_lib.clients.github.client import GitHub, once
from runbook_lib.clients.github.copy_pr_bot import command, commands, complaint, refusals
from runbook_lib.clients.github.models import Pull, WorkflowRun
from runbook_lib.git.checkout import Checkout
from runbook_lib.records.step_record import StepRecord
from runbook_lib.workflow import branch_history, bump_branch
from runbook_lib.workflow.bump_plan import base_has_tag
from runbook_lib.workflow.proposal import is_mine
from runbook_lib.workflow.pull_request import PullRequestState, _read, _reviewed, label_request

#: So many commits whose deployment was refused are enough: then a person must look.
_MAX_REFUSED = 3


_AGAIN = "chore: Trigger CI again"


_AFRESH = "Run 04-run-ci again."


def authorize(step: StepRecord, state: PullRequestState) -> PullRequestState:
    """Let CI test the head commit: with one comment a commit, and only while the labels are right.

    Only commits that the runbook made are let go, and those that a person has confirmed (``branch_history``).
    Where the deployment of the commit was refused, an empty commit takes its place.  What keeps CI from being let go
    on is in ``held`` of the result.
    """
    bump, github, pull = state.bump, state.github, state.pull
    if bump.tag and (why := bump.repository.inapplicable(notebooks.RUN_CI)):
        return replace(state, problem=why)
    if pull is None or github is None:
        if github is not None and base_has_tag(state.branch):
            done = f"{bump.base} already names {bump.tag}: there is no CI to run."
            return replace(state, problem=done)
        why = state.problem or f"no pull request is open for {bump.branch}"
        return replace(state, held=f"waiting for the pull request: {why}", next="03-open-pr, with publish")
    step.link("pull request", pull.url)
    step.add_inputs(
        pull_request=pull.number, head_commit=pull.head_sha, merge_commit=pull.merge_commit,
        base_commit=state.branch.base_commit,
    )  # fmt: skip
    if state.behind:
        step.warn(
            f"{pull.base_ref} has moved: it has {state.behind} commits that #{pull.number} lacks. CI tests the "
            "merge of both as of the moment it starts; allow=merge-base merges them into the branch and plans again."
        )
    state = replace(state, review=_reviewed(state, step.records))
    if state.review:
        state.review.record(step)
    if held := _held(state, pull, github):
        return replace(state, held=held[0], next=held[1])
    if state.refused:
        state = _another_commit(step, state, pull, github)
        if state.held or state.pull is None:
            return state
        pull = state.pull
    elif state.authorized or _own_run(pull, github, bump):
        return state
    return _comment(step, state, pull, github)


def _held(state: PullRequestState, pull: Pull, github: GitHub) -> tuple[str, str] | None:
    """Why CI must not be let go, and what to do."""
    bump, checkout = state.bump, state.branch.checkout
    on, off = bump.labels
    if ask := label_request(pull, sorted(on - pull.labels), sorted(off & pull.labels), github.repository):
        return f"waiting for the labels of #{pull.number}: CI must not start without them", ask
    if pull.mergeable is False:
        fix = f"Run again with allow=merge-base, or merge {pull.base_ref} into {pull.head_ref} by hand."
        return f"waiting for a person: #{pull.number} conflicts with {pull.base_ref}", fix
    tip = checkout.branch_tip(bump.branch) if is_mine(pull, state.head_name) else None
    if (
        tip
        and not _is_in(checkout, tip, pull.head_sha)
        and not bump_branch.only_ci_answers(checkout, bump, pull.head_sha, tip)
    ):
        return (
            f"waiting for a push: {bump.branch} is at {tip[:10]} here, #{pull.number} at {pull.head_sha[:10]}",
            notebooks.OPEN_PR,
        )
    let_go = not state.refused and (state.authorized or _own_run(pull, github, bump))
    if not let_go and not is_mine(pull, state.head_name):
        # The gate keeps code that nobody has read off the runners: only a person opens it for somebody else's commits.
        return (
            f"waiting for a person: the commits of #{pull.number} are {pull.author}'s, and CI must be let go by hand",
            f'Read every line of {pull.url}/files, then comment "{command(pull.head_sha)}" there.',
        )
    if not let_go and (state.review is None or state.review.head != pull.head_sha):
        why = f"{pull.head_sha[:10]} of #{pull.number} cannot be fetched, and so not be reviewed"
        return f"waiting for git: {why}", _AFRESH
    if not let_go and state.review and state.review.foreign:
        return state.review.held, state.review.next
    if not bump.publish and not let_go:
        return f"waiting for publish: only then {command(pull.head_sha)!r} is written on #{pull.number}", "publish=True"
    return None


def _is_in(checkout: Checkout, tip: str, head: str) -> bool:
    return tip == head or (checkout.has(head) and checkout.is_ancestor(tip, head))


def _own_run(pull: Pull, github: GitHub, bump: Bump) -> WorkflowRun | None:
    """A run that copy-pr-bot let start by itself, as for a trusted author."""
    return choose(github.runs(branch_of(pull.number), pull.head_sha), pull.head_sha, bump.repository.workflow)


def _another_commit(step: StepRecord, state: PullRequestState, pull: Pull, github: GitHub) -> PullRequestState:
    """The deployment belongs to the commit, so the way on is another one."""
    branch, bump, checkout = state.branch, state.bump, state.branch.checkout
    assert state.review is not None
    trees = [commit.tree for commit in state.review.commits]
    refused = sum(tree == before for before, tree in pairwise(trees)) + 1
    if refused >= _MAX_REFUSED:
        return replace(
            state, held=f"waiting for a maintainer: {refused} commits of #{pull.number} could not be deployed",
            next=f"Ask a maintainer what keeps it from deploying: {pull.url}",
        )  # fmt: skip
    bump_branch.switch_to(branch)
    commit = checkout.empty_commit(_AGAIN)
    step.effect("commit", bump.branch, pull.head_sha, commit)
    reviewed = branch_history.review(branch, commit, step.records)
    reviewed.record(step)
    if reviewed.foreign:
        return replace(state, review=reviewed, held=reviewed.held, next=reviewed.next)
    branch_history.push(step, reviewed, pull.head_sha)
    step.add_inputs(head_commit=commit)
    found = _read(replace(state, review=reviewed), github, pull.number, commit)
    if found.pull is None or found.pull.head_sha != commit:
        return replace(found, held=f"waiting for GitHub to notice the push of {commit[:10]}", next=_AFRESH)
    return found


def _comment(step: StepRecord, state: PullRequestState, pull: Pull, github: GitHub) -> PullRequestState:
    text = command(pull.head_sha)
    written = once(
        lambda: next(iter(commands(github.comments(pull.number), pull.head_sha, state.me)), None),
        lambda: github.comment(pull.number, text),
        github.remove_comment,
    )
    if written not in state.comments:
        step.effect("comment", f"#{pull.number}", None, text, url=written.url)
    return replace(state, comments=github.comments(pull.number))


def progress(state: PullRequestState, pull: Pull, github: GitHub) -> CiStatus:
    """Where the run of the head commit stands now."""
    head, bump = pull.head_sha, state.bump
    run = choose(github.runs(branch_of(pull.number), head), head, bump.repository.workflow)
    jobs = github.jobs(run.id) if run else ()
    then = labels_at(pull.labels, state.labellings, run.created) if run else pull.labels
    found = judge(run, jobs, head, wrong_tests(then, bump.image_type, bump.repository) if run else "")
    if run and found.state == "failed" and not bump.repository.golden:
        found = replace(found, next=f"Look at its failed jobs: {run.url}")
    if found.state in ("passed", "useless"):
        return found
    comments = github.comments(pull.number)
    if refusals(comments, head) or (found.state in ("none", "failed") and github.deployment_failed(head)):
        return replace(
            found, state="refused", sentence=f"waiting for another commit: copy-pr-bot could not deploy {head[:10]}",
            next="Run 04-run-ci again: it pushes an empty commit and lets CI test that.",
        )  # fmt: skip
    if run is None and (code := complaint(comments, head, state.me)):
        return replace(
            found, state="refused", sentence=f"waiting for a maintainer: copy-pr-bot did not take the command ({code})",
            next=f'Ask a maintainer of {github.repository} to comment "{command(head)}" on {pull.url} (again).',
        )  # fmt: skip
    if run is None and (now := github.pull(pull.number)).head_sha != head:
        return replace(
            found, state="superseded", sentence=f"waiting: #{now.number} has a newer head, {now.head_sha[:10]}",
            next="Run bump again for that commit.",
        )  # fmt: skip
    if run is None and not commands(comments, head, state.me):
        return replace(
            found, sentence=f"waiting for a comment: none lets CI test {head[:10]} yet",
            next="Run 04-run-ci, with publish: it writes that comment.",
        )  # fmt: skip
    return found
