"""The permissions of accounts in a repository on GitHub, and the comments that are kept up to date for them."""

from urllib.parse import quote

from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.errors import NotAllowed
from runbook_lib.clients.github.models import Comment


def may_write(github: GitHub, login: str) -> bool:
    """Return True if an account may write to the repository; False also if this is unknown."""
    path = github.path(f"/collaborators/{quote(login, safe='')}/permission")
    try:
        permission = github.get(f"read the permission of {login}", path, lambda access: str(access["permission"]))
    except NotAllowed:
        return False
    return permission in ("admin", "write")


def update_comment(github: GitHub, comment: Comment, body: str) -> Comment:
    """Change the text of a comment."""
    path = github.path(f"/issues/comments/{comment.id}")
    return github.send("edit the comment", "PATCH", path, {"body": body}, Comment.of)
