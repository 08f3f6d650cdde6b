"""What prevents the authorization of CI for the head commit."""

from pathlib import Path

from runbook_lib import notebooks
from runbook_lib.bump import branch_history
from runbook_lib.checks import Next
from runbook_lib.model import Outcome
from runbook_lib.world.bump_pull import is_mine
from runbook_lib.world.conditions.pulls import label_request
from runbook_lib.world.github.copy_pr_bot import command
from runbook_lib.world.github.models import Pull
from runbook_lib.world.ports import Forge
from runbook_lib.world.pull_request import PullRequestState, run_of_head


def find_obstacle(state: PullRequestState, pull: Pull, github: Forge, records: Path | None = None) -> Outcome | None:
    """Return why CI must not be authorized for the head commit, and what to do; None if it may be.

    ``records`` is the bump's folder in the archive.
    """
    bump, checkout = state.bump, state.branch.checkout
    on, off = bump.labels
    if request := label_request(pull, sorted(on - pull.labels), sorted(off & pull.labels), github.repository):
        return Outcome(f"waiting for the labels of #{pull.number}: CI must not start without them", Next.again(request))
    if pull.mergeable is False:
        advice = bump.decisions.advice("allow", "merge-base")
        fix = f"Merge {pull.base_ref} into {pull.head_ref} by hand, or {advice}."
        return Outcome(f"waiting for a person: #{pull.number} conflicts with {pull.base_ref}", Next.again(fix))
    mine = is_mine(pull, state.head_name)
    head, tip = pull.head_sha, checkout.branch_tip(bump.branch) if mine else None
    is_behind = tip is None or tip == head or (checkout.has(head) and checkout.is_ancestor(tip, head))
    if tip and not is_behind and not branch_history.only_ci_answers(state.branch, head, tip, records):
        commits = f"{bump.branch} is at {tip[:10]} here, #{pull.number} at {head[:10]}"
        return Outcome(f"waiting for a push: {commits}", Next.run(notebooks.OPEN_PR))
    if not state.refused and (state.authorized or run_of_head(pull, github, bump)):
        return None
    if not mine:
        # The gate keeps unread code off the runners: only a person may open it for somebody else's commits.
        waiting = f"waiting for a person: #{pull.number} has {pull.author}'s commits, so CI must be authorized by hand"
        return Outcome(waiting, Next(f'Read every line of {pull.url}/files, then comment "{command(head)}" there.'))
    if not checkout.has(head) or not checkout.is_ancestor(head, state.branch.start):
        waiting = f"waiting for git: {head[:10]} in #{pull.number} cannot be fetched, so it cannot be reviewed"
        return Outcome(waiting, Next.again())
    return None
