"""What copy-pr-bot is told in the comments of a pull request, and what it answers.

It mirrors a head commit to ``pull-request/<N>``, where CI runs, after the comment ``/ok to test <commit>`` of somebody
whom it trusts.
"""

import re
from collections.abc import Sequence

from runbook_lib.github_models import Comment

_LOGINS = frozenset({"copy-pr-bot", "copy-pr-bot[bot]"})
# Anybody may comment: white space ends with its line, so that no text of theirs takes long.
_COMMAND = re.compile(r"^[^\S\n]*/ok(?:ay)? to test[^\S\n]+(?P<commit>[0-9a-f]{7,40})[^\S\n]*$", re.MULTILINE)
_REFUSAL = "had a problem deploying to test"
_COMPLAINT = re.compile(r"error processing your request: `?(?P<code>E\d+)")
_COMMIT = re.compile(r"\b[0-9a-f]{7,40}\b")


def command(head: str) -> str:
    """The comment that lets CI test a commit."""
    return f"/ok to test {head}"


def commands(comments: Sequence[Comment], head: str) -> tuple[Comment, ...]:
    """The comments, by anyone, that let CI test exactly this commit."""
    return tuple(it for it in comments if any(head.startswith(match["commit"]) for match in _COMMAND.finditer(it.body)))


def refusals(comments: Sequence[Comment], head: str = "") -> tuple[Comment, ...]:
    """The bot's answers that it could not deploy a commit to the environment ``test``: of ``head``, else of any.

    An answer that names no commit belongs to the one authorized last before it.
    """
    found: list[Comment] = []
    last = ""
    for comment in comments:
        if match := _COMMAND.search(comment.body):
            last = match["commit"]
        elif comment.author in _LOGINS and _REFUSAL in comment.body:
            named = _COMMIT.search(comment.body)
            commit = named[0] if named else last
            if not head or (commit and head.startswith(commit)):
                found.append(comment)
    return tuple(found)


def complaint(comments: Sequence[Comment], head: str) -> str:
    """The code (E1, E2 …) with which the bot answered the last command for this commit; empty when it took it."""
    told = commands(comments, head)
    after = comments[comments.index(told[-1]) + 1 :] if told else ()
    answers = (_COMPLAINT.search(it.body) for it in after if it.author in _LOGINS)
    return next((match["code"] for match in answers if match), "")
