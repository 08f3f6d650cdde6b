"""What GitLab's API answers, as far as we use it: pure data, read from its JSON.

Sources: GitLab's REST API (version 4): pipelines, jobs, branches, protected branches, projects.  Each ``…_of`` raises
KeyError, TypeError, AttributeError or ValueError for an answer of another form.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

#: What a pipeline or a job is before it has ended.
UNDER_WAY = frozenset({
    "created", "waiting_for_resource", "waiting_for_callback", "preparing", "pending", "running", "scheduled",
    "canceling",
})  # fmt: skip


@dataclass(frozen=True)
class Pipeline:
    """A pipeline; ``status`` and ``source`` in GitLab's words."""

    id: int
    sha: str
    ref: str
    status: str
    url: str
    source: str = ""


@dataclass(frozen=True)
class Job:
    """The last attempt of a job; ``reason`` is why it failed, in GitLab's words; ``seconds`` how long it ran so far."""

    id: int
    name: str
    stage: str
    status: str
    reason: str
    seconds: float
    url: str


@dataclass(frozen=True)
class FunctionalJob:
    """A functional job: GitLab's stage is the model, its name the test case, its bridge tells where it ran.

    ``size`` is that of the artifacts in bytes, 0 without any; ``reason`` is why it failed, in GitLab's words.
    """

    id: int
    name: str
    stage: str
    status: str
    reason: str
    environment: str
    platform: str
    size: int
    expired: bool
    url: str


@dataclass(frozen=True)
class Bridge:
    """A bridge ``functional:run_<environment>_<platform>``; ``pipeline`` is what it started, if it did."""

    name: str
    status: str
    environment: str
    platform: str
    pipeline: int | None


@dataclass(frozen=True)
class Branch:
    """A branch and its newest commit; ``protected`` is what GitLab says of it."""

    name: str
    commit: str
    title: str
    author: str
    when: str
    protected: bool


@dataclass(frozen=True)
class Project:
    """A project: its ``path`` (group/name), its branch of reference, and the addresses that git reaches it at."""

    path: str
    default_branch: str
    url: str
    addresses: tuple[str, ...]


def _line(text: object) -> str:
    """What others wrote, on one line, without what cannot be seen."""
    return "".join(it if it.isprintable() else " " for it in str(text or "")[:300])


def items_of(page: Any) -> list[Any]:
    """What a page lists."""
    if not isinstance(page, list):
        raise TypeError(f"{type(page).__name__} instead of a list")
    return page


def _number(value: Any) -> int:
    """A number as databases hold one: what is larger could not be counted with, nor printed."""
    number = int(value)
    if not 0 <= number < 2**63:
        raise ValueError("not a whole number of at most 63 bits")
    return number


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds < 1e9:  # NaN neither
        raise ValueError("not a duration")
    return seconds


def pipeline_of(it: Any) -> Pipeline:
    """A pipeline, from a list or by itself."""
    return Pipeline(
        _number(it["id"]), str(it["sha"]), _line(it["ref"]), _line(it["status"]), _line(it["web_url"]),
        _line(it.get("source")),
    )  # fmt: skip


def bridges_of(it: Any) -> Iterator[Bridge]:
    """The bridge, if it starts functional tests of an image type."""
    found = re.fullmatch(r"functional:(?:run_)?(dev|lts)(?:_([a-z0-9_]+))?", it["name"])
    if found:
        started = it.get("downstream_pipeline")
        yield Bridge(it["name"], it["status"], found[1], found[2] or "", _number(started["id"]) if started else None)


def job_of(it: Any) -> Job:
    """A job of a pipeline."""
    return Job(
        _number(it["id"]), _line(it["name"]), _line(it["stage"]), _line(it["status"]), _line(it.get("failure_reason")),
        _seconds(it.get("duration") or 0), _line(it.get("web_url")),
    )  # fmt: skip


def functional_job_of(it: Any, bridge: Bridge) -> FunctionalJob:
    """A job of the pipeline that a bridge started."""
    until = it.get("artifacts_expire_at")
    job = job_of(it)
    return FunctionalJob(
        id=job.id,
        name=job.name,
        stage=job.stage,
        status=job.status,
        reason=job.reason,
        environment=bridge.environment,
        platform=bridge.platform,
        size=_number((it.get("artifacts_file") or {}).get("size") or 0),
        expired=bool(until) and datetime.fromisoformat(until) < datetime.now(UTC),
        url=job.url,
    )


def branch_of(it: Any) -> Branch:
    """A branch of the repository."""
    commit = it["commit"]
    return Branch(
        _line(it["name"]), str(commit["id"]), _line(commit.get("title")), _line(commit.get("author_name")),
        _line(commit.get("committed_date")), it.get("protected") is not False,
    )  # fmt: skip


def project_of(it: Any) -> Project:
    """The project itself."""
    known = (it.get(name) for name in ("ssh_url_to_repo", "http_url_to_repo"))
    return Project(
        str(it["path_with_namespace"]), str(it.get("default_branch") or ""), str(it["web_url"]),
        tuple(str(address) for address in known if address),
    )  # fmt: skip
