"""The events in GitHub workflows that concern a bump: a comment with a command, and a CI run.

Only the first line of a person's new comment can be a command: quotations, code blocks, edits, bot comments and all
other comments are data.  The code that carries out a command checks whether the person may give it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from runbook_lib.errors import RunbookError

CommandName: TypeAlias = Literal["status", "refresh", "hold", "revert"]
#: Commands with and without text: a hold needs a reason.
_COMMAND = re.compile(r"/bump (?:(?P<name>hold|revert) (?P<text>\S[^\n]{0,499})|(?P<alone>status|refresh|revert))")
#: The branch to which copy-pr-bot mirrors a pull request.
_MIRROR = re.compile(r"pull-request/(?P<number>[0-9]{1,9})")


@dataclass(frozen=True)
class CommentCommand:
    """A command by ``author``, who may lack the permission; ``text`` is the rest of the line."""

    name: CommandName
    text: str
    author: str
    url: str


@dataclass(frozen=True)
class ForgeEvent:
    """An event on the pull request ``number``, 0 if only its head branch is known, as ``owner:branch``."""

    number: int
    command: CommentCommand | None = None
    head: str = ""


def parse(document: object, repository: str) -> ForgeEvent | None:
    """Return the event, or None if it is of another kind, from another repository, or without a command.

    Raises RunbookError for data that is not a GitHub event.
    """
    try:
        if not isinstance(document, dict):
            raise TypeError("the event is not a JSON object")
        if document["repository"]["full_name"].lower() != repository.lower():
            return None
        if "comment" in document and "issue" in document:
            return _comment(document)
        return _run(document["workflow_run"]) if "workflow_run" in document else None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunbookError(
            "The event file is not from GitHub: GITHUB_EVENT_PATH names it in a workflow that runs on "
            "issue_comment or workflow_run."
        ) from error


def _comment(event: Mapping[str, Any]) -> ForgeEvent | None:
    comment, issue = event["comment"], event["issue"]
    author = comment["user"] or {}
    is_new = event["action"] == "created" and "pull_request" in issue
    is_person = author.get("type") == "User" and author.get("login") == event["sender"]["login"]
    match = _COMMAND.fullmatch((comment["body"] or "").partition("\n")[0].rstrip())
    if not (is_new and is_person and match):
        return None
    text = " ".join((match["text"] or "").split())
    name: CommandName = match["name"] or match["alone"]  # type: ignore[assignment]
    command = CommentCommand(name, text, str(author["login"]), str(comment["html_url"]))
    return ForgeEvent(int(issue["number"]), command)


def _run(run: Mapping[str, Any]) -> ForgeEvent | None:
    branch = str(run["head_branch"] or "")
    if match := _MIRROR.fullmatch(branch):
        return ForgeEvent(int(match["number"]))
    for pull in run.get("pull_requests") or ():
        return ForgeEvent(int(pull["number"]))
    owner = (run.get("head_repository") or {}).get("owner") or {}
    return ForgeEvent(0, head=f"{owner['login']}:{branch}") if branch.startswith("bump/") else None
