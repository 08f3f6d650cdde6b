"""The bots of the practice forge: copy-pr-bot and the workflow that makes every new pull request a draft.

copy-pr-bot's rules are those of its documentation and of Megatron-LM's `.github/copy-pr-bot.yaml`.
"""

import re

from runbook_lib.practice.github.protocol import ACCOUNTS, ACTIONS_BOT, COPY_PR_BOT, Account
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.state import Comment, Run, Ticket

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
    "E3": "Only people who may write to this repository can let its workflows run.",
}


def opened(hub: Hub, ticket: Ticket) -> None:
    """What happens right after a pull request was opened."""
    if not ticket.draft:
        ticket = hub.store.change(ticket, draft=True)
        hub.say(ticket, ACTIONS_BOT, _DRAFT)
    trusted = ACCOUNTS[ticket.author].permission == "write"
    hub.say(ticket, COPY_PR_BOT, _NO_SYNC if trusted else _VETTING)


def commented(hub: Hub, ticket: Ticket, comment: Comment) -> None:
    """What happens right after somebody commented."""
    command = _COMMAND.fullmatch(comment.body.strip())
    if command is None or not ticket.is_pull or ticket.state != "open":
        return
    author = ACCOUNTS[comment.author]
    if author.permission != "write":
        _complain(hub, ticket, author, "E3")
    elif command["sha"] is None:
        _complain(hub, ticket, author, "E1")
    elif command["sha"] != ticket.head_sha:
        _complain(hub, ticket, author, "E2")
    else:
        run = hub.start_run(ticket)
        if run is not None and run.refused:
            _refused(hub, ticket, run)


def _complain(hub: Hub, ticket: Ticket, author: Account, code: str) -> None:
    said = f"@{author.login}, there was an error processing your request: `{code}`\n\n{_ERRORS[code]}"
    hub.say(ticket, COPY_PR_BOT, said)


def _refused(hub: Hub, ticket: Ticket, run: Run) -> None:
    # GitHub tells this as a deployment of the commit whose status is *failure*, in the timeline; so do we, and say
    # it in a comment besides, since that is what people look at.
    hub.say(ticket, COPY_PR_BOT, f"copy-pr-bot had a problem deploying to test (commit {run.head_sha}).")
