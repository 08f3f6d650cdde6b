"""The bots of the practice forge: copy-pr-bot, and the workflow that turns every new pull request into a draft.

The rules of copy-pr-bot come from its documentation and from Megatron-LM's `.github/copy-pr-bot.yaml`.
"""

import re

from runbook_lib.practice.accounts import ACCOUNTS, ACTIONS_BOT, COPY_PR_BOT
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.store import CommentRecord, TicketRecord

_COMMAND = re.compile(r"/ok(?:ay)? to test(?:\s+(?P<sha>\S+))?")

_DRAFT = (
    "This PR has been automatically converted to **draft** because all PRs must start as drafts.\n\n"
    "When you are ready for review, click **Ready for Review** to begin the review process."
)
_NO_SYNC = "Auto-sync is disabled for draft pull requests in this repository. Workflows must be run manually."
_VETTING = "This pull request requires additional validation before any workflows can run on NVIDIA's runners."
_ERRORS = {
    "E1": "The command needs the full id of the commit to test: `/ok to test <commit id>`.",
    "E2": "The commit id is not that of the latest commit of this pull request.",
    "E3": "Only people with write access to this repository can authorize its workflows.",
}


def pull_opened(hub: Hub, pull: TicketRecord) -> None:
    """Perform the bots' actions right after a pull request was opened."""
    if not pull.draft:
        pull = hub.store.change(pull, draft=True)
        hub.add_comment(pull, ACTIONS_BOT, _DRAFT)
    trusted = ACCOUNTS[pull.author].may_write
    hub.add_comment(pull, COPY_PR_BOT, _NO_SYNC if trusted else _VETTING)


def comment_created(hub: Hub, ticket: TicketRecord, comment: CommentRecord) -> None:
    """Perform copy-pr-bot's actions right after a comment was written."""
    command = _COMMAND.fullmatch(comment.body.strip())
    if command is None or not ticket.is_pull or ticket.state != "open":
        return
    if error := _command_error(ticket, comment, command["sha"]):
        text = f"@{comment.author}, there was an error processing your request: `{error}`\n\n{_ERRORS[error]}"
        hub.add_comment(ticket, COPY_PR_BOT, text)
        return
    run = hub.start_run(ticket)
    if run is not None and run.refused:
        # GitHub shows a failed deployment status in the timeline.  The forge does so too, and adds a comment,
        # since that is what people read.
        text = f"copy-pr-bot had a problem deploying to test (commit {run.head_sha})."
        hub.add_comment(ticket, COPY_PR_BOT, text)


def _command_error(pull: TicketRecord, comment: CommentRecord, sha: str | None) -> str:
    """Return the code of the error that a command meets, or an empty text."""
    if not ACCOUNTS[comment.author].may_write:
        return "E3"
    if sha is None:
        return "E1"
    return "" if sha == pull.head_sha else "E2"
