"""GitLab's objects, as far as they are used here, read from its JSON.

Sources: GitLab's REST API (version 4): pipelines, jobs, projects.  Each ``of`` raises KeyError, TypeError,
AttributeError or ValueError for a malformed reply.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from runbook_lib.world.replies import made, text, whole_number

#: GitLab's names of fields, where ours differ.
_NAMES = {"url": "web_url"}


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

    @classmethod
    def of(cls, data: Any) -> Self:
        return made(cls, data, _NAMES)


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

    @classmethod
    def of(cls, data: Any) -> Self:
        until, size = data.get("artifacts_expire_at"), (data.get("artifacts_file") or {}).get("size")
        expired = bool(until) and datetime.fromisoformat(until) < datetime.now(UTC)
        reason = text(data.get("failure_reason"))
        return made(cls, data, _NAMES, reason=reason, size=whole_number(size or 0), expired=expired)


@dataclass(frozen=True)
class Bridge:
    """A bridge ``functional:run_<environment>_<platform>``; ``pipeline`` is the pipeline that it started, if any."""

    name: str
    status: str
    environment: str
    platform: str
    pipeline: int | None

    @classmethod
    def of(cls, data: Any) -> Self | None:
        """Return the bridge; None unless it starts functional tests of an image type."""
        match = re.fullmatch(r"functional:(?:run_)?(dev|lts)(?:_([a-z0-9_]+))?", data["name"])
        if match is None:
            return None
        started = data.get("downstream_pipeline")
        pipeline = whole_number(started["id"]) if started else None
        return made(cls, data, _NAMES, environment=match[1], platform=match[2] or "", pipeline=pipeline)
