"""The CI run of the head commit: its authorization and its progress."""

from dataclasses import replace
from itertools import pairwise

from runbook_lib import notebooks
from runbook_lib.bump import Bump
from runbook_lib.clients.github.ci_status import Progress, branch_of, choose, judge, labels_at, wrong_tests
from runbook_lib.clients.github.client import GitHub, once
from runbook_lib.clients.github.copy_pr_bot import command, commands, complaint, refusals
from runbook_lib.clients.github.models import Pull, Run
from runbook_lib.git.checkout import Checkout
from runbook_lib.records.step_record import StepRecord
from runbook_lib.workflow import branch, branch_history
from runbook_lib.workflow.bump_plan import finished
from runbook_lib.workflow.proposal import is_mine
from runbook_lib.workflow.pull_request import PullRequestState, _read, _reviewed, label_request

#: So many commits whose deployment was refused are enough: then a person must look.
_MAX_REFUSED = 3


_AGAIN = "chore: Trigger CI again"


_AFRESH = "Run 04-run-ci again."


def authorize(step: StepRecord, standing: PullRequestState) -> PullRequestState:
    """Let CI test the head commit: with one comment a commit, and only while the labels are right.

    Only commits that the runbook made are let go, and those that a person has confirmed (``branch_history``).
    Where the deployment of the commit was refused, an empty commit takes its place.  What keeps CI from being let go
    on is in ``held`` of the result.
    """
    bump, github, pull = standing.stand.bump, standing.github, standing.pull
    if bump.tag and (why := bump.repository.idle(notebooks.RUN_CI)):
        return replace(standing, problem=why)
    if pull is None or github is None:
        if github is not None and finished(standing.stand):
            done = f"{bump.base} already names {bump.tag}: there is no CI to run."
            return replace(standing, problem=done)
        why = standing.problem or f"no pull request is open for {bump.branch}"
        return replace(standing, held=f"waiting for the pull request: {why}", next="03-open-pr, with publish")
    step.link("pull request", pull.url)
    step.add_inputs(
        pull_request=pull.number, head_commit=pull.head_sha, merge_commit=pull.merge_commit,
        base_commit=standing.stand.base_commit,
    )  # fmt: skip
    if standing.behind:
        step.warn(
            f"{pull.base_ref} has moved: it has {standing.behind} commits that #{pull.number} lacks. CI tests the "
            "merge of both as of the moment it starts; allow=merge-base merges them into the branch and plans again."
        )
    standing = replace(standing, review=_reviewed(standing, step.records))
    if standing.review:
        standing.review.record(step)
    if held := _held(standing, pull, github):
        return replace(standing, held=held[0], next=held[1])
    if standing.refused:
        standing = _another_commit(step, standing, pull, github)
        if standing.held or standing.pull is None:
            return standing
        pull = standing.pull
    elif standing.authorized or _own_run(pull, github, bump):
        return standing
    return _comment(step, standing, pull, github)


def _held(standing: PullRequestState, pull: Pull, github: GitHub) -> tuple[str, str] | None:
    """Why CI must not be let go, and what to do."""
    bump, checkout = standing.stand.bump, standing.stand.checkout
    on, off = bump.labels
    if ask := label_request(pull, sorted(on - pull.labels), sorted(off & pull.labels), github.repository):
        return f"waiting for the labels of #{pull.number}: CI must not start without them", ask
    if pull.mergeable is False:
        fix = f"Run again with allow=merge-base, or merge {pull.base_ref} into {pull.head_ref} by hand."
        return f"waiting for a person: #{pull.number} conflicts with {pull.base_ref}", fix
    tip = checkout.branch_tip(bump.branch) if is_mine(pull, standing.head_name) else None
    if tip and not _is_in(checkout, tip, pull.head_sha) and not branch.answers(checkout, bump, pull.head_sha, tip):
        return (
            f"waiting for a push: {bump.branch} is at {tip[:10]} here, #{pull.number} at {pull.head_sha[:10]}",
            notebooks.OPEN_PR,
        )
    let_go = not standing.refused and (standing.authorized or _own_run(pull, github, bump))
    if not let_go and not is_mine(pull, standing.head_name):
        # The gate keeps code that nobody has read off the runners: only a person opens it for somebody else's commits.
        return (
            f"waiting for a person: the commits of #{pull.number} are {pull.author}'s, and CI must be let go by hand",
            f'Read every line of {pull.url}/files, then comment "{command(pull.head_sha)}" there.',
        )
    if not let_go and (standing.review is None or standing.review.head != pull.head_sha):
        why = f"{pull.head_sha[:10]} of #{pull.number} cannot be fetched, and so not be reviewed"
        return f"waiting for git: {why}", _AFRESH
    if not let_go and standing.review and standing.review.foreign:
        return standing.review.held, standing.review.next
    if not bump.publish and not let_go:
        return f"waiting for publish: only then {command(pull.head_sha)!r} is written on #{pull.number}", "publish=True"
    return None


def _is_in(checkout: Checkout, tip: str, head: str) -> bool:
    return tip == head or (checkout.has(head) and checkout.is_ancestor(tip, head))


def _own_run(pull: Pull, github: GitHub, bump: Bump) -> Run | None:
    """A run that copy-pr-bot let start by itself, as for a trusted author."""
    return choose(github.runs(branch_of(pull.number), pull.head_sha), pull.head_sha, bump.repository.workflow)


def _another_commit(step: StepRecord, standing: PullRequestState, pull: Pull, github: GitHub) -> PullRequestState:
    """The deployment belongs to the commit, so the way on is another one."""
    stand, bump, checkout = standing.stand, standing.stand.bump, standing.stand.checkout
    assert standing.review is not None
    trees = [commit.tree for commit in standing.review.commits]
    refused = sum(tree == before for before, tree in pairwise(trees)) + 1
    if refused >= _MAX_REFUSED:
        return replace(
            standing, held=f"waiting for a maintainer: {refused} commits of #{pull.number} could not be deployed",
            next=f"Ask a maintainer what keeps it from deploying: {pull.url}",
        )  # fmt: skip
    branch.enter(stand)
    commit = checkout.empty_commit(_AGAIN)
    step.effect("commit", bump.branch, pull.head_sha, commit)
    reviewed = branch_history.review(stand, commit, step.records)
    reviewed.record(step)
    if reviewed.foreign:
        return replace(standing, review=reviewed, held=reviewed.held, next=reviewed.next)
    branch_history.push(step, reviewed, pull.head_sha)
    step.add_inputs(head_commit=commit)
    found = _read(replace(standing, review=reviewed), github, pull.number, commit)
    if found.pull is None or found.pull.head_sha != commit:
        return replace(found, held=f"waiting for GitHub to notice the push of {commit[:10]}", next=_AFRESH)
    return found


def _comment(step: StepRecord, standing: PullRequestState, pull: Pull, github: GitHub) -> PullRequestState:
    text = command(pull.head_sha)
    written = once(
        lambda: next(iter(commands(github.comments(pull.number), pull.head_sha, standing.me)), None),
        lambda: github.comment(pull.number, text),
        github.remove_comment,
    )
    if written not in standing.comments:
        step.effect("comment", f"#{pull.number}", None, text, url=written.url)
    return replace(standing, comments=github.comments(pull.number))


def progress(standing: PullRequestState, pull: Pull, github: GitHub) -> Progress:
    """Where the run of the head commit stands now."""
    head, bump = pull.head_sha, standing.stand.bump
    run = choose(github.runs(branch_of(pull.number), head), head, bump.repository.workflow)
    jobs = github.jobs(run.id) if run else ()
    then = labels_at(pull.labels, standing.labellings, run.created) if run else pull.labels
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
    if run is None and (code := complaint(comments, head, standing.me)):
        return replace(
            found, state="refused", sentence=f"waiting for a maintainer: copy-pr-bot did not take the command ({code})",
            next=f'Ask a maintainer of {github.repository} to comment "{command(head)}" on {pull.url} (again).',
        )  # fmt: skip
    if run is None and (now := github.pull(pull.number)).head_sha != head:
        return replace(
            found, state="superseded", sentence=f"waiting: #{now.number} has a newer head, {now.head_sha[:10]}",
            next="Run bump again for that commit.",
        )  # fmt: skip
    if run is None and not commands(comments, head, standing.me):
        return replace(
            found, sentence=f"waiting for a comment: none lets CI test {head[:10]} yet",
            next="Run 04-run-ci, with publish: it writes that comment.",
        )  # fmt: skip
    return found
