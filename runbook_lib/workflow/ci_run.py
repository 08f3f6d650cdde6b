"""The CI run of the head commit: what prevents its authorization, and its progress."""

from dataclasses import replace
from pathlib import Path

from runbook_lib import notebooks
from runbook_lib.bump import Bump
from runbook_lib.clients.github.ci_status import CiStatus, branch_of, choose, judge, labels_at, wrong_tests
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.copy_pr_bot import command, commands, complaint, refusals
from runbook_lib.clients.github.models import Pull, WorkflowJob, WorkflowRun
from runbook_lib.model import Outcome
from runbook_lib.workflow import branch_history
from runbook_lib.workflow.bump_pull import is_mine
from runbook_lib.workflow.pull_request import PullRequestState
from runbook_lib.world.conditions.pulls import label_request

_RUN_AGAIN = f"Run {notebooks.RUN_CI} again."


def find_obstacle(state: PullRequestState, pull: Pull, github: GitHub, records: Path | None = None) -> Outcome | None:
    """Return why CI must not be authorized for the head commit, and what to do; None if it may be.

    ``records`` is the bump's folder in the archive.
    """
    bump, checkout = state.bump, state.branch.checkout
    on, off = bump.labels
    if request := label_request(pull, sorted(on - pull.labels), sorted(off & pull.labels), github.repository):
        return Outcome(f"waiting for the labels of #{pull.number}: CI must not start without them", request)
    if pull.mergeable is False:
        fix = f"Run again with allow=merge-base, or merge {pull.base_ref} into {pull.head_ref} by hand."
        return Outcome(f"waiting for a person: #{pull.number} conflicts with {pull.base_ref}", fix)
    mine = is_mine(pull, state.head_name)
    head, tip = pull.head_sha, checkout.branch_tip(bump.branch) if mine else None
    is_behind = tip is None or tip == head or (checkout.has(head) and checkout.is_ancestor(tip, head))
    if tip and not is_behind and not branch_history.only_ci_answers(state.branch, head, tip, records):
        commits = f"{bump.branch} is at {tip[:10]} here, #{pull.number} at {head[:10]}"
        return Outcome(f"waiting for a push: {commits}", notebooks.OPEN_PR)
    if not state.refused and (state.authorized or _run_of_head(pull, github, bump)):
        return None
    if not mine:
        # The gate keeps unread code off the runners: only a person may open it for somebody else's commits.
        waiting = f"waiting for a person: #{pull.number} has {pull.author}'s commits, so CI must be authorized by hand"
        return Outcome(waiting, f'Read every line of {pull.url}/files, then comment "{command(head)}" there.')
    if not checkout.has(head) or not checkout.is_ancestor(head, state.branch.start):
        waiting = f"waiting for git: {head[:10]} in #{pull.number} cannot be fetched, so it cannot be reviewed"
        return Outcome(waiting, _RUN_AGAIN)
    return None


def _run_of_head(pull: Pull, github: GitHub, bump: Bump) -> WorkflowRun | None:
    """Return the run for the head commit; copy-pr-bot starts one by itself for a trusted author."""
    return choose(github.runs(branch_of(pull.number), pull.head_sha), pull.head_sha, bump.repository.ci.workflow)


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
