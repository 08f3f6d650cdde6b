"""Holds stored on the forge: in the pull request that reverts a bump, or in an open one's status comment.

Each is written once for people, and once as an HTML comment for `runbook watch`.
"""

import json
import re
from datetime import date

from runbook_lib.bump import Bump
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.models import Comment, Pull
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.watch_rules import Hold
from runbook_lib.workflow.proposal import head_of
from runbook_lib.workflow.pull_request_body import name_of

_MARK = re.compile(r"<!-- base-image-runbook:hold (\{[^<>\n]{1,4000}\}) -->")
#: The first line of the status comment.
STATUS = "<!-- base-image-runbook:status -->"


def mark(hold: Hold) -> str:
    """Return the machine-readable hold, which is invisible on the page."""
    fields = {"format": 1, "tag": hold.tag, "reason": hold.reason, "until": str(hold.until or "")}
    text = json.dumps(fields)
    for sign in "<>#@/":  # could end the comment, or act as a command or reference in a squashed commit's message
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f"<!-- base-image-runbook:hold {text} -->"


def read(text: str) -> Hold | None:
    """Return the hold in one of our texts; None without one."""
    match = _MARK.search(text)
    if match is None:
        return None
    try:
        fields = json.loads(match[1])
        until = str(fields["until"])
        return Hold(str(fields["tag"]), str(fields["reason"]), date.fromisoformat(until) if until else None)
    except (ValueError, KeyError, TypeError):  # edited by somebody
        return None


def status_comment(github: GitHub, number: int) -> Comment | None:
    """Return a pull request's status comment, posted by an app or by an account with write access."""
    for comment in github.comments(number):
        if comment.body.startswith(STATUS) and (comment.bot or github.may_write(comment.author)):
            return comment
    return None


def revert_branch(bump: Bump) -> str:
    """Return the branch name for the pull request that reverts a bump."""
    return f"revert/{name_of(bump)}"


def find_revert(github: GitHub, checkout: Checkout, bump: Bump) -> Pull | None:
    """Return the newest pull request that reverts the bump, unless it was closed without a merge.

    Only an account with write access to our branch can have opened it.
    """
    owner = head_of(checkout, bump).partition(":")[0]
    for pull in github.pulls(head=f"{owner}:{revert_branch(bump)}", base=bump.base, state="all"):
        if pull.merged or pull.state == "open":
            return pull
    return None
