"""The bump's pull request as it is: head, comments, labels, authorization, review of its commits."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.bump import Bump
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.copy_pr_bot import command, commands, refusals
from runbook_lib.clients.github.models import Comment, LabelEvent, Pull
from runbook_lib.display import View
from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.workflow import branch_history
from runbook_lib.workflow.branch_history import Review
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.proposal import find_pull, head_of, is_mine

#: Seconds between looks at a pull request that GitHub is still working on.
_DELAYS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)


def wait_for_head(github: GitHub, number: int, head: str | None, sleep: Callable[[float], None] = time.sleep) -> Pull:
    """The pull request once GitHub has noticed the push of ``head`` and worked out its merge, or after some seconds."""
    pull = github.pull(number)
    for delay in _DELAYS:
        if head in (None, pull.head_sha) and pull.mergeable is not None:
            break
        sleep(delay)
        pull = github.pull(number)
    return pull


def label_request(pull: Pull, lacking: Sequence[str], spoiling: Sequence[str], repository: str) -> str:
    """Return the sentence to ask a maintainer with; empty when nothing is missing."""
    wishes = [f"set the label {' and '.join(map(repr, lacking))}"] if lacking else []
    wishes += [f"take the label {' and '.join(map(repr, spoiling))} off"] if spoiling else []
    if not wishes:
        return ""
    return (
        f'Ask a maintainer of {repository}: "Could you please {" and ".join(wishes)} on {pull.url}? '
        'The CI of this base-image bump must start so." Then run again.'
    )


@dataclass(frozen=True)
class PullRequestState:
    """What GitHub says of the bump's pull request and its CI.  ``problem`` is why GitHub could not be asked."""

    branch: BumpBranch
    github: GitHub | None
    head_name: str
    pull: Pull | None = None
    comments: tuple[Comment, ...] = ()
    labellings: tuple[LabelEvent, ...] = ()
    behind: int = 0
    #: The login whose token this is.
    me: str = ""
    #: The bump's folder in the archive, and the review of the commits that the head has beyond the base.
    records: Path | None = None
    review: Review | None = None
    #: Whether the head commit could not be deployed to where CI runs.
    refused: bool = False
    problem: str = ""
    #: Set by ``authorize`` when CI cannot be let go on: what is waited for, and what to do.
    held: str = ""
    next: str = ""

    @property
    def bump(self) -> Bump:
        """The parameters of the bump."""
        return self.branch.bump

    @property
    def authorized(self) -> tuple[Comment, ...]:
        """The comments that authorize CI for the head commit: our own, and those of people who may write them."""
        return commands(self.comments, self.pull.head_sha, self.me) if self.pull else ()

    def show(self) -> View:
        """The pull request, and what would be written."""
        if self.pull is None:
            return display.note(self.problem or f"No pull request is open for {self.branch.bump.branch}.")
        by = ", ".join(f"{it.author} at {it.created:%Y-%m-%d %H:%M} UTC" for it in self.authorized)
        rows = {
            "pull request": f"#{self.pull.number} {self.pull.url}",
            "head": self.pull.head_sha,
            "merge commit (what CI tests)": self.pull.merge_commit or "not known yet",
            "base": f"{self.pull.base_ref}, {self.behind} commits ahead of the head",
            "labels": ", ".join(sorted(self.pull.labels)) or "none",
            "authorized": by or f"not yet: the comment will be {command(self.pull.head_sha)!r}",
        }
        shown = display.table({"what": name, "value": value} for name, value in rows.items())
        return shown + self.review.show() if self.review and self.review.foreign else shown


def read_state(
    branch: BumpBranch, github: GitHub | None, head: str | None = None, *, records: Path | None = None
) -> PullRequestState:
    """Find the bump's pull request, with what was said and labelled there.  Changes nothing.

    ``head`` is a commit that was just pushed, and that GitHub is waited for to notice.  ``records`` is the bump's
    folder in the archive: with it the commits are reviewed.

    A run that publishes nothing goes on without GitHub, where that cannot be asked.
    """
    bump = branch.bump
    if bump.tag is None or github is None:
        problem = "No tag was given." if bump.tag is None else "Without a token GitHub cannot be asked."
        return PullRequestState(branch, github, "", problem=problem)
    unread = PullRequestState(branch, github, head_of(branch.checkout, bump), records=records)
    try:
        found = find_pull(github, bump, unread.head_name)
        state = _read(unread, github, found.number, head) if found else unread
    except RunbookError as error:
        if bump.publish:
            raise
        return replace(unread, problem=str(error))
    return replace(state, review=_reviewed(state, records)) if records else state


def _reviewed(state: PullRequestState, records: Path | None) -> Review | None:
    """The review of the head's commits; None where they are somebody else's, or not in this clone."""
    branch, pull = state.branch, state.pull
    if pull is None or not is_mine(pull, state.head_name):
        return None
    if not branch.checkout.has(pull.head_sha):
        try:  # pushed since the branch was looked at
            branch.checkout.fetch(branch.bump.remote, branch.bump.branch)
        except Unreachable:
            return None
    return branch_history.review(branch, pull.head_sha, records) if branch.checkout.has(pull.head_sha) else None


def _read(state: PullRequestState, github: GitHub, number: int, head: str | None = None) -> PullRequestState:
    pull = wait_for_head(github, number, head)
    behind = github.compare(pull.base_ref, pull.head_sha).behind
    comments, labellings = github.comments(number), github.labellings(number)
    me = state.me or github.me().login
    refused = bool(refusals(comments, pull.head_sha)) or github.deployment_failed(pull.head_sha)
    return replace(state, pull=pull, comments=comments, labellings=labellings, behind=behind, me=me, refused=refused)
