"""What GitHub knows, as small dataclasses read from its JSON.

``of`` raises KeyError, TypeError, AttributeError or ValueError for an answer without what is needed.  Times are aware,
in UTC.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

#: How GitHub calls the relation to the repository of accounts that somebody there has let in.
_INSIDERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})


@dataclass(frozen=True)
class Account:
    """Who a token belongs to; ``kind`` is User, Bot or Organization."""

    login: str
    kind: str

    @classmethod
    def of(cls, it: Any) -> Self:
        return cls(it["login"], it["type"])


@dataclass(frozen=True)
class Repository:
    """``permissions`` are those of the token's owner: of pull, triage, push, maintain, admin."""

    name: str
    url: str
    default_branch: str
    permissions: frozenset[str]
    private: bool

    @classmethod
    def of(cls, it: Any) -> Self:
        allowed = frozenset(name for name, may in (it.get("permissions") or {}).items() if may)
        return cls(it["full_name"], it["html_url"], it["default_branch"], allowed, bool(it["private"]))


@dataclass(frozen=True)
class Pull:
    """A pull request.  ``head_owner`` is empty for a deleted fork.

    ``merge_commit`` (what CI tests) and ``mergeable`` (false for a conflict) are None while GitHub works them out, and
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
    def of(cls, it: Any) -> Self:
        head, base = it["head"], it["base"]
        return cls(
            number=_number(it["number"]),
            url=it["html_url"],
            title=it["title"],
            body=it["body"] or "",
            draft=bool(it.get("draft")),
            state=it["state"],
            merged=it.get("merged_at") is not None,
            head_ref=head["ref"],
            head_sha=head["sha"],
            head_owner=_login(head.get("user")),
            base_ref=base["ref"],
            base_sha=base["sha"],
            merge_commit=it.get("merge_commit_sha"),
            mergeable=it.get("mergeable"),
            labels=frozenset(label["name"] for label in it["labels"]),
            author=_login(it["user"]),
        )


@dataclass(frozen=True)
class Comment:
    """A comment in the conversation of a pull request; ``author`` is a login, empty for a deleted account.

    ``association`` is the author's relation to the repository, as GitHub calls it; ``bot`` is an app's account.
    """

    id: int
    author: str
    body: str
    created: datetime
    url: str
    association: str = ""
    bot: bool = False

    @property
    def insider(self) -> bool:
        """Whether the repository's owners have let the author in."""
        return self.association in _INSIDERS

    @classmethod
    def of(cls, it: Any) -> Self:
        return cls(
            _number(it["id"]),
            _login(it["user"]),
            it["body"] or "",
            _time(it["created_at"]),
            it["html_url"],
            it.get("author_association") or "",
            bool(it["user"]) and it["user"].get("type") == "Bot",
        )


@dataclass(frozen=True)
class Labelling:
    """A label that was set on a pull request, or taken off it."""

    label: str
    on: bool
    at: datetime

    @classmethod
    def of(cls, it: Any) -> Self | None:
        """None for an event of another kind."""
        if it["event"] not in ("labeled", "unlabeled"):
            return None
        return cls(it["label"]["name"], it["event"] == "labeled", _time(it["created_at"]))


@dataclass(frozen=True)
class Comparison:
    """How many commits a head has that the base lacks, and the other way round."""

    ahead: int
    behind: int

    @classmethod
    def of(cls, it: Any) -> Self:
        return cls(_number(it["ahead_by"]), _number(it["behind_by"]))


@dataclass(frozen=True)
class Run:
    """A workflow run; ``conclusion`` is empty until it is completed.

    ``fork``: its commit comes from a branch of another repository, whoever named that.
    """

    id: int
    url: str
    name: str
    head_sha: str
    head_branch: str
    event: str
    status: str
    conclusion: str
    attempt: int
    created: datetime
    updated: datetime
    fork: bool = False

    @classmethod
    def of(cls, it: Any) -> Self:
        repositories = [(it.get(name) or {}).get("id") for name in ("repository", "head_repository")]
        return cls(
            id=_number(it["id"]),
            url=it["html_url"],
            name=it.get("name") or "",
            head_sha=it["head_sha"],
            head_branch=it["head_branch"] or "",
            event=it["event"],
            status=it["status"] or "",
            conclusion=it["conclusion"] or "",
            attempt=_number(it.get("run_attempt") or 1),
            created=_time(it["created_at"]),
            updated=_time(it["updated_at"]),
            fork=repositories[0] != repositories[1],
        )


@dataclass(frozen=True)
class Job:
    """A job of a workflow run's latest attempt; ``conclusion`` is empty until it is completed."""

    id: int
    url: str
    name: str
    status: str
    conclusion: str
    started: datetime | None
    completed: datetime | None
    failed_steps: tuple[str, ...] = ()

    @classmethod
    def of(cls, it: Any) -> Self:
        started, completed = it["started_at"], it["completed_at"]
        return cls(
            id=_number(it["id"]),
            url=it["html_url"] or "",
            name=it["name"],
            status=it["status"],
            conclusion=it["conclusion"] or "",
            started=_time(started) if started else None,
            completed=_time(completed) if completed else None,
            failed_steps=tuple(step["name"] for step in it.get("steps") or () if step["conclusion"] == "failure"),
        )


@dataclass(frozen=True)
class Artifact:
    """A zip that a job of a workflow run has uploaded; ``size`` in bytes."""

    id: int
    name: str
    size: int
    expired: bool
    created: datetime | None

    @classmethod
    def of(cls, it: Any) -> Self:
        created = it["created_at"]
        return cls(
            _number(it["id"]), it["name"], _number(it["size_in_bytes"]), bool(it["expired"]),
            _time(created) if created else None,
        )  # fmt: skip


@dataclass(frozen=True)
class Issue:
    """An issue; ``author`` is a login, empty for a deleted account; ``association`` as of a comment."""

    number: int
    url: str
    title: str
    body: str
    state: str
    labels: frozenset[str]
    author: str
    association: str = ""

    @property
    def insider(self) -> bool:
        """Whether the repository's owners have let the author in."""
        return self.association in _INSIDERS

    @classmethod
    def of(cls, it: Any) -> Self:
        """From GitHub's JSON."""
        return cls(
            number=_number(it["number"]),
            url=it["html_url"],
            title=it["title"],
            body=it["body"] or "",
            state=it["state"],
            # GitHub describes them as objects or mere names.
            labels=frozenset(label if isinstance(label, str) else label["name"] or "" for label in it["labels"]),
            author=_login(it["user"]),
            association=it.get("author_association") or "",
        )


def items_of(page: Any, key: str | None) -> list[Any]:
    """What a page lists; ``key`` is where.  Raises KeyError and TypeError for another form."""
    items = page[key] if key else page
    # An empty object is no empty list: what is not there would be made a second time.
    if not isinstance(items, list):
        raise TypeError(f"{type(items).__name__} instead of a list")
    return items


def first_author(commits: Any) -> str:
    """The login of whoever wrote the first commit of a page; empty where GitHub knows no account."""
    listed = items_of(commits, None)
    return _login(listed[0]["author"]) if listed else ""


def _number(value: Any) -> int:
    """A number as databases hold one: what is larger could not be counted with, nor printed."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise TypeError(f"{type(value).__name__} that is no whole number of at most 63 bits")
    return value


def _login(user: Any) -> str:
    return str(user["login"]) if user else ""


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
