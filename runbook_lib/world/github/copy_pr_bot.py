"""The commands to copy-pr-bot in the comments of a pull request, and its answers.

It mirrors a head commit to ``pull-request/<N>``, where CI runs, after the comment ``/ok to test <commit>`` of somebody
who may write in the repository.  Anybody may comment: comments of strangers are not commands, and only the bot's own
account answers.
"""

import re
from collections.abc import Sequence

from runbook_lib.world.github.models import Comment

#: No person can have this login, because only logins of apps contain brackets.
_LOGIN = "copy-pr-bot[bot]"
# The full ID: an abbreviated one could also match another, crafted commit.
_COMMAND = re.compile(r"/ok(?:ay)? to test[^\S\n]{1,9}(?P<commit>[0-9a-f]{40}(?:[0-9a-f]{24})?)")
_REFUSAL = "had a problem deploying to test"
_COMPLAINT = re.compile(r"(?:@(?P<to>[\w-]{1,60}), there was an )?error processing your request: `?(?P<code>E\d{1,9})")
# Digits alone are the number of a run.
_COMMIT = re.compile(r"\b(?![0-9]+\b)[0-9a-f]{7,40}\b")


def command(head: str) -> str:
    """Return the comment that authorizes CI for a commit."""
    return f"/ok to test {head}"


def commands(comments: Sequence[Comment], head: str, me: str = "") -> tuple[Comment, ...]:
    """Return the comments that authorize CI for exactly this commit.

    These are the commands of insiders of the repository, unless the bot rejected them, and all commands of ``me``: the
    token's login, which never writes a command twice.
    """
    valid = []
    for position, comment in enumerate(comments):
        if _commit_of(comment, me) == head and (comment.author == me or not _complaint(comments, position)):
            valid.append(comment)
    return tuple(valid)


def is_refused(comments: Sequence[Comment], head: str) -> bool:
    """Return True if the bot answered that it could not deploy a commit to the environment ``test``.

    A reply without a commit refers to the last commit authorized before it.
    """
    last = ""
    for comment in comments:
        if commit := _commit_of(comment):
            last = commit
        elif _is_bot(comment) and _REFUSAL in comment.body:
            named = _COMMIT.search(comment.body)
            commit = named[0] if named else last
            if commit and head.startswith(commit):
                return True
    return False


def complaint(comments: Sequence[Comment], head: str, me: str = "") -> str:
    """Return the code (E1, E2 …) in the bot's reply to the last command for this commit; empty if it was accepted."""
    positions = [position for position, comment in enumerate(comments) if _commit_of(comment, me) == head]
    if not positions:
        return ""
    return _complaint(comments, positions[-1])


def _commit_of(comment: Comment, me: str = "") -> str:
    """Return the commit that a comment authorizes CI for; empty for any other text, and for a stranger's."""
    match = _COMMAND.fullmatch(comment.body.strip())
    return match["commit"] if match and (comment.insider or (me and comment.author == me)) else ""


def _complaint(comments: Sequence[Comment], position: int) -> str:
    """Return the code of the bot's complaint that follows the command at a position, and is for its author."""
    author = comments[position].author
    for comment in comments[position + 1 :]:
        if comment.author == author and _COMMAND.fullmatch(comment.body.strip()):
            return ""
        match = _COMPLAINT.search(comment.body)
        if match and match["to"] in (None, author) and _is_bot(comment):
            return match["code"]
    return ""


def _is_bot(comment: Comment) -> bool:
    return comment.bot and comment.author == _LOGIN
