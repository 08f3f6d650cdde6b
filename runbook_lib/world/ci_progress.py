"""The CI run of a pull request's head commit, and its progress."""

from dataclasses import replace

from runbook_lib import notebooks
from runbook_lib.checks import Next
from runbook_lib.pins.bump import Bump
from runbook_lib.world.github.ci_status import CiStatus, branch_of, choose, judge, labels_at, wrong_tests
from runbook_lib.world.github.copy_pr_bot import command, commands, complaint, refusals
from runbook_lib.world.github.models import Pull, WorkflowJob, WorkflowRun
from runbook_lib.world.ports import Forge
from runbook_lib.world.pull_request import PullRequestState


def run_of_head(pull: Pull, github: Forge, bump: Bump) -> WorkflowRun | None:
    """Return the run for the head commit; copy-pr-bot starts one by itself for a trusted author."""
    return choose(github.runs(branch_of(pull.number), pull.head_sha), pull.head_sha, bump.repository.ci.workflow)


def progress(state: PullRequestState, pull: Pull, github: Forge) -> CiStatus:
    """Return the current state of the head commit's CI run on GitHub."""
    head, bump = pull.head_sha, state.bump
    run = run_of_head(pull, github, bump)
    jobs: tuple[WorkflowJob, ...] = ()
    wrong = ""
    if run:
        jobs = github.jobs(run.id)
        wrong = wrong_tests(labels_at(pull.labels, state.labellings, run.created), bump.image_type, bump.repository)
    current = judge(run, jobs, head, wrong)
    if run and current.state == "failed" and not bump.repository.tests.golden:
        current = replace(current, next=Next(f"Read its failed jobs: {run.url}"))
    if current.state in ("passed", "useless"):
        return current
    comments = github.comments(pull.number)
    if refusals(comments, head) or (current.state in ("none", "failed") and github.deployment_failed(head)):
        return replace(
            current, state="refused", sentence=f"waiting for another commit: copy-pr-bot could not deploy {head[:10]}",
            next=Next.run(notebooks.RUN_CI, "Push an empty commit, and authorize CI for it:"),
        )  # fmt: skip
    if run is None and (code := complaint(comments, head, state.me)):
        return replace(
            current, state="refused", sentence=f"waiting for a maintainer: copy-pr-bot refused the command ({code})",
            next=Next(f'Ask a maintainer of {github.repository} to comment "{command(head)}" on {pull.url} (again).'),
        )  # fmt: skip
    if run is None and (newest := github.pull(pull.number)).head_sha != head:
        return replace(
            current, state="superseded", sentence=f"waiting: #{newest.number} has a newer head, {newest.head_sha[:10]}",
            next=Next.again(),
        )  # fmt: skip
    if run is None and not commands(comments, head, state.me):
        return replace(
            current, sentence=f"waiting for a comment: none authorizes CI for {head[:10]} yet",
            next=Next.run(notebooks.RUN_CI, "Post that comment:", mode="publish"),
        )  # fmt: skip
    return current
