"""The issues of a repository on GitHub: searched, read and filed."""

from collections.abc import Collection
from typing import Any

from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.models import Issue


def search(github: GitHub, words: str) -> tuple[Issue, ...]:
    """Return the open issues whose text contains exactly these words, oldest first.

    GitHub's index lags a few seconds behind new issues; `listed` does not.
    """
    plain = words.replace('"', " ")
    query = f'repo:{github.repository} is:issue is:open "{plain}"'
    issues = github.pages(f"search the issues for {plain!r}", "/search/issues", Issue.of, "items", {"q": query})
    return tuple(sorted(issues, key=lambda issue: issue.number))


def listed(github: GitHub, creator: str = "", label: str = "") -> tuple[Issue, ...]:
    """Return the open issues, optionally of one author, without pull requests, oldest first.

    With a ``label``, return those that have it, including closed ones.
    """
    params = {"state": "open"} | ({"creator": creator} if creator else {})
    if label:
        params |= {"state": "all", "labels": label}
    issues = github.pages("list the issues", github.path("/issues"), _unless_pull, params=params)
    return tuple(sorted((issue for issue in issues if issue), key=lambda issue: issue.number))


def _unless_pull(data: Any) -> Issue | None:
    return None if "pull_request" in data else Issue.of(data)


def read(github: GitHub, number: int) -> Issue:
    """Return one issue."""
    return github.get(f"read issue #{number}", github.path(f"/issues/{number}"), Issue.of)


def assignable(github: GitHub, login: str) -> bool:
    """Return True if issues may be assigned to this account."""
    return github.exists(f"see whether {login} can be assigned", github.path(f"/assignees/{login}"))


def file(github: GitHub, title: str, body: str, labels: Collection[str] = (), assignee: str = "") -> Issue:
    """File an issue.  GitHub silently drops labels if the token may not set them."""
    fields: dict[str, Any] = {"title": title, "body": body, "labels": sorted(labels)}
    if assignee:
        fields["assignees"] = [assignee]
    return github.send(f"file the issue {title!r}", "POST", github.path("/issues"), fields, Issue.of)


def update(github: GitHub, issue: Issue, body: str) -> Issue:
    """Change the body of an issue."""
    path = github.path(f"/issues/{issue.number}")
    return github.send(f"edit issue #{issue.number}", "PATCH", path, {"body": body}, Issue.of)


def withdraw(github: GitHub, issue: Issue) -> None:
    """Close an issue that somebody else has just filed as well."""
    fields = {"state": "closed", "state_reason": "not_planned"}
    github.send(f"close issue #{issue.number}", "PATCH", github.path(f"/issues/{issue.number}"), fields, Issue.of)
