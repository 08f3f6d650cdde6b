"""GitHub's objects as small dataclasses, read from its JSON.

``of`` raises KeyError, TypeError, AttributeError or ValueError if required data is missing from a reply.  Times are
aware, in UTC.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from runbook_lib.clients.replies import whole_number

#: GitHub's names for the relation of an account to a repository in which it has permissions.
_INSIDERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})


@dataclass(frozen=True)
class GitHubRepository:
    """``permissions`` of the token's owner: pull, triage, push, maintain, admin."""

    name: str
    permissions: frozenset[str]
    private: bool

    @classmethod
    def of(cls, data: Any) -> Self:
        allowed = frozenset(name for name, may in (data.get("permissions") or {}).items() if may)
        return cls(data["full_name"], allowed, bool(data["private"]))


@dataclass(frozen=True)
class Pull:
    """A pull request.  ``head_owner`` is empty for a deleted fork.

    ``merge_commit`` (what CI tests) and ``mergeable`` (false for a conflict) are None while GitHub computes them, and
    in lists.  ``base_sha`` is the base branch when the pull request was opened or last pushed to, not now.
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
    base_sha: str
    merge_commit: str | None
    mergeable: bool | None
    labels: frozenset[str]
    author: str

    @classmethod
    def of(cls, data: Any) -> Self:
        head, base = data["head"], data["base"]
        return cls(
            number=whole_number(data["number"]),
            url=data["html_url"],
            title=data["title"],
            body=data["body"] or "",
            draft=bool(data.get("draft")),
            state=data["state"],
            merged=data.get("merged_at") is not None,
            head_ref=head["ref"],
            head_sha=head["sha"],
            head_owner=login(head.get("user")),
            base_ref=base["ref"],
            base_sha=base["sha"],
            merge_commit=data.get("merge_commit_sha"),
            mergeable=data.get("mergeable"),
            labels=frozenset(label["name"] for label in data["labels"]),
            author=login(data["user"]),
        )


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
        return cls(
            whole_number(data["id"]),
            login(data["user"]),
            data["body"] or "",
            datetime.fromisoformat(data["created_at"]),
            data["html_url"],
            data.get("author_association") in _INSIDERS,
            bool(data["user"]) and data["user"].get("type") == "Bot",
        )


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
        return cls(
            id=whole_number(data["id"]),
            url=data["html_url"],
            name=data.get("name") or "",
            head_sha=data["head_sha"],
            head_branch=data["head_branch"] or "",
            status=data["status"] or "",
            conclusion=data["conclusion"] or "",
            attempt=whole_number(data.get("run_attempt") or 1),
            created=datetime.fromisoformat(data["created_at"]),
            fork=repositories[0] != repositories[1],
        )


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
        return cls(
            id=whole_number(data["id"]),
            url=data["html_url"] or "",
            name=data["name"],
            status=data["status"],
            conclusion=data["conclusion"] or "",
            started=_optional_time(data["started_at"]),
            completed=_optional_time(data["completed_at"]),
            failed_steps=tuple(step["name"] for step in data.get("steps") or () if step["conclusion"] == "failure"),
            runners=tuple(map(str, data.get("labels") or ())),
        )


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
        return cls(
            whole_number(data["id"]), data["name"], whole_number(data["size_in_bytes"]), bool(data["expired"]),
            _optional_time(data["created_at"]),
        )  # fmt: skip


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

    @classmethod
    def of(cls, data: Any) -> Self:
        """Return the issue in GitHub's JSON."""
        return cls(
            number=whole_number(data["number"]),
            url=data["html_url"],
            title=data["title"],
            body=data["body"] or "",
            state=data["state"],
            # GitHub describes them as objects or mere names.
            labels=frozenset(label if isinstance(label, str) else label["name"] or "" for label in data["labels"]),
            author=login(data["user"]),
            insider=data.get("author_association") in _INSIDERS,
        )


def login(user: Any) -> str:
    """Return the login of an account; empty if GitHub has none."""
    if not user:
        return ""
    return str(user["login"])


def _optional_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
