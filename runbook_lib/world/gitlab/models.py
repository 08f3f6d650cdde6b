"""GitLab's objects, as far as they are used here, read from its JSON.

Sources: GitLab's REST API (version 4): pipelines, jobs, projects.  Each ``…_of`` raises
KeyError, TypeError, AttributeError or ValueError for a malformed reply.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.world.replies import one_line, whole_number


class NoSuchRef(RunbookError):
    """A branch that GitLab does not know: pushed a moment ago, or missing."""


#: What a pipeline or a job is before it has ended.
UNDER_WAY = frozenset({
    "created", "waiting_for_resource", "waiting_for_callback", "preparing", "pending", "running", "scheduled",
    "canceling",
})  # fmt: skip


@dataclass(frozen=True)
class Pipeline:
    """A pipeline; ``status`` in GitLab's words."""

    id: int
    sha: str
    ref: str
    status: str
    url: str


@dataclass(frozen=True)
class PipelineJob:
    """The last attempt of a job; ``reason`` of a failure in GitLab's words.

    A functional job's stage is the model, and its name the test case.  ``size`` of the artifacts in bytes, 0 if there
    are none; ``expired`` if they are gone.
    """

    id: int
    name: str
    stage: str
    status: str
    reason: str
    url: str
    size: int = 0
    expired: bool = False


@dataclass(frozen=True)
class Bridge:
    """A bridge ``functional:run_<environment>_<platform>``; ``pipeline`` is the pipeline that it started, if any."""

    name: str
    status: str
    environment: str
    platform: str
    pipeline: int | None


def _line(text: object) -> str:
    return one_line(str(text or "")[:300])


def pipeline_of(data: Any) -> Pipeline:
    """Return a pipeline, from a list or by itself."""
    ref, status, url = (_line(data[name]) for name in ("ref", "status", "web_url"))
    return Pipeline(whole_number(data["id"]), str(data["sha"]), ref, status, url)


def bridge_of(data: Any) -> Bridge | None:
    """Return the bridge; None unless it starts functional tests of an image type."""
    match = re.fullmatch(r"functional:(?:run_)?(dev|lts)(?:_([a-z0-9_]+))?", data["name"])
    if match is None:
        return None
    started = data.get("downstream_pipeline")
    pipeline = whole_number(started["id"]) if started else None
    return Bridge(data["name"], data["status"], match[1], match[2] or "", pipeline)


def job_of(data: Any) -> PipelineJob:
    """Return a job of a pipeline."""
    until = data.get("artifacts_expire_at")
    return PipelineJob(
        whole_number(data["id"]), _line(data["name"]), _line(data["stage"]), _line(data["status"]),
        _line(data.get("failure_reason")), _line(data.get("web_url")),
        whole_number((data.get("artifacts_file") or {}).get("size") or 0),
        bool(until) and datetime.fromisoformat(until) < datetime.now(UTC),
    )  # fmt: skip
