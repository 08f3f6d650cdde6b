"""GitHub's objects as small dataclasses, read from its JSON, and what it allows a token.

``of`` raises KeyError, TypeError, AttributeError or ValueError if required data is missing from a reply.  Times are
aware, in UTC.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from runbook_lib.errors import RunbookError
from runbook_lib.world.replies import made, one_line, text, whole_number

LOGIN_ADVICE = "Set GITHUB_TOKEN, or log in with `gh auth login`."
RIGHTS = (
    "A fine-grained token needs, for the repository, read access to metadata, contents and deployments, and write "
    "access to actions, issues and pull requests (to contents too, where git pushes with it); a classic one the scope "
    "repo."
)
#: GitHub's names for the relation of an account to a repository in which it has permissions.
_INSIDERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})

#: GitHub's names of fields, where ours differ.
_NAMES = {
    "url": "html_url", "created": "created_at", "started": "started_at", "completed": "completed_at",
    "attempt": "run_attempt", "size": "size_in_bytes", "merge_commit": "merge_commit_sha",
}  # fmt: skip


@dataclass(frozen=True)
class GitHubRepository:
    """``permissions`` of the token's owner: pull, triage, push, maintain, admin."""

    name: str
    permissions: frozenset[str]
    private: bool

    @classmethod
    def of(cls, data: Any) -> Self:
        allowed = frozenset(name for name, may in (data.get("permissions") or {}).items() if may)
        return made(cls, data, _NAMES, name=data["full_name"], permissions=allowed)


@dataclass(frozen=True)
class Pull:
    """A pull request.  ``head_owner`` is empty for a deleted fork.

    ``merge_commit`` (what CI tests) and ``mergeable`` (false for a conflict) are None while GitHub computes them, and
    in lists.
    """

    number: int
    url: str
    title: str
    body: str
    draft: bool
    state: str
    merged: bool
    head_ref: str
    head_sha: str
    head_owner: str
    base_ref: str
    merge_commit: str | None
    mergeable: bool | None
    labels: frozenset[str]
    author: str

    @classmethod
    def of(cls, data: Any) -> Self:
        head = data["head"]
        return made(
            cls, data, _NAMES, draft=bool(data.get("draft")), merged=data.get("merged_at") is not None,
            head_ref=head["ref"], head_sha=head["sha"], head_owner=login(head.get("user")),
            base_ref=data["base"]["ref"], merge_commit=data.get("merge_commit_sha"), mergeable=data.get("mergeable"),
            labels=frozenset(label["name"] for label in data["labels"]), author=login(data["user"]),
        )  # fmt: skip


@dataclass(frozen=True)
class Comment:
    """A comment in the conversation of a pull request; ``author`` is a login, empty for a deleted account.

    ``insider``: the author has permissions in the repository; ``bot``: the account is an app's.
    """

    id: int
    author: str
    body: str
    created: datetime
    url: str
    insider: bool = False
    bot: bool = False

    @classmethod
    def of(cls, data: Any) -> Self:
        is_bot = bool(data["user"]) and data["user"].get("type") == "Bot"
        return made(cls, data, _NAMES, author=login(data["user"]), insider=_is_insider(data), bot=is_bot)


@dataclass(frozen=True)
class LabelEvent:
    """A label that was added to a pull request, or removed from it."""

    label: str
    on: bool
    at: datetime

    @classmethod
    def of(cls, data: Any) -> Self | None:
        """Return the event; None for other kinds."""
        if data["event"] not in ("labeled", "unlabeled"):
            return None
        return cls(data["label"]["name"], data["event"] == "labeled", datetime.fromisoformat(data["created_at"]))


@dataclass(frozen=True)
class WorkflowRun:
    """A workflow run; ``conclusion`` is empty until it is completed.

    ``fork``: its commit comes from a branch of another repository.
    """

    id: int
    url: str
    name: str
    head_sha: str
    head_branch: str
    status: str
    conclusion: str
    attempt: int
    created: datetime
    fork: bool = False

    @classmethod
    def of(cls, data: Any) -> Self:
        repositories = [(data.get(name) or {}).get("id") for name in ("repository", "head_repository")]
        attempt = whole_number(data.get("run_attempt") or 1)
        fork = repositories[0] != repositories[1]
        return made(cls, data, _NAMES, name=text(data.get("name")), attempt=attempt, fork=fork)


@dataclass(frozen=True)
class WorkflowJob:
    """A job of a workflow run's latest attempt; ``conclusion`` is empty until it is completed."""

    id: int
    url: str
    name: str
    status: str
    conclusion: str
    started: datetime | None
    completed: datetime | None
    failed_steps: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()  # labels of the machines that it may run on

    @classmethod
    def of(cls, data: Any) -> Self:
        failed = tuple(step["name"] for step in data.get("steps") or () if step["conclusion"] == "failure")
        return made(cls, data, _NAMES, failed_steps=failed, runners=tuple(map(str, data.get("labels") or ())))


@dataclass(frozen=True)
class Artifact:
    """A zip that a job of a workflow run has uploaded; ``size`` in bytes."""

    id: int
    name: str
    size: int
    expired: bool
    created: datetime | None = None

    @classmethod
    def of(cls, data: Any) -> Self:
        return made(cls, data, _NAMES)


@dataclass(frozen=True)
class Issue:
    """An issue; ``author`` is a login, empty for a deleted account; ``insider`` as of a comment."""

    number: int
    url: str
    title: str
    body: str
    state: str
    labels: frozenset[str]
    author: str
    insider: bool = False

    @property
    def is_pull(self) -> bool:
        """True for a pull request, which GitHub lists among the issues."""
        return "/pull/" in self.url

    @property
    def is_open(self) -> bool:
        """True for an open issue that is no pull request."""
        return self.state == "open" and not self.is_pull

    @classmethod
    def of(cls, data: Any) -> Self:
        # GitHub describes them as objects or mere names.
        labels = frozenset(label if isinstance(label, str) else label["name"] or "" for label in data["labels"])
        return made(cls, data, _NAMES, labels=labels, author=login(data["user"]), insider=_is_insider(data))


def login(user: Any) -> str:
    """Return the login of an account; empty if GitHub has none."""
    return str(user["login"]) if user else ""


def _is_insider(data: Any) -> bool:
    """Return True if the author of a comment or an issue has permissions in the repository."""
    return data.get("author_association") in _INSIDERS


class NotAllowed(RunbookError):
    """A reply of 403 or 404: the object does not exist, or this token may not see it (GitHub does not say which)."""


def scopes(header: str | None) -> frozenset[str]:
    """Return the scopes that a header lists."""
    return frozenset(re.findall(r"[\w:]+", header or ""))


def required(headers: Mapping[str, str]) -> str:
    """Return a sentence on the permissions that the token needs, according to GitHub."""
    if accepted := headers.get("x-accepted-github-permissions"):
        return f"The token needs the permission {one_line(accepted).replace('; ', ' or ')}."
    if accepted := headers.get("x-accepted-oauth-scopes"):
        owned = one_line(headers.get("x-oauth-scopes", "")) or "none"
        return f"The request needs one of the scopes {one_line(accepted)}; the token has {owned}."
    return RIGHTS
