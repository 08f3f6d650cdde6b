"""GitLab: the functional jobs of a pipeline, which run in the pipelines that its bridges start.

python-gitlab carries the requests.  Nothing here changes anything; the token appears in no message.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

from runbook_lib.errors import CannotTell, RunbookError, Unreachable

if TYPE_CHECKING:
    import gitlab

_TIMEOUT = 30.0  # seconds
T = TypeVar("T")


@dataclass(frozen=True)
class Pipeline:
    """A pipeline; ``status`` in GitLab's words."""

    id: int
    sha: str
    ref: str
    status: str
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


class GitLab:
    """One project on GitLab, as one token sees it.  For use by one thread."""

    def __init__(self, client: "gitlab.Gitlab", project: str, token: str) -> None:
        self.name = project
        self._client = client
        self._token = token
        self._project = client.projects.get(project, lazy=True)

    @classmethod
    def connect(cls, env: Mapping[str, str] = os.environ) -> Self:
        """Prepare with GITLAB_URL, GITLAB_TOKEN and GITLAB_PROJECT (path or number).  Sends nothing yet."""
        url, token, project = (env.get(name, "").strip() for name in ("GITLAB_URL", "GITLAB_TOKEN", "GITLAB_PROJECT"))
        parts = urlsplit(url)
        local = parts.hostname in ("127.0.0.1", "::1", "localhost")
        if not parts.hostname or parts.username or not (parts.scheme == "https" or (parts.scheme == "http" and local)):
            raise RunbookError("GITLAB_URL is not an address such as https://gitlab.example.com.")
        if not re.fullmatch(r"[!-~]+", token):
            raise RunbookError("There is no token for GitLab. Set GITLAB_TOKEN to one with the scope read_api.")
        if not re.fullmatch(r"[0-9]+|[\w.-]+(/[\w.-]+)+", project):
            raise RunbookError("GITLAB_PROJECT is not a project's path (group/name) or number.")
        import gitlab

        client = gitlab.Gitlab(
            url, private_token=token, timeout=_TIMEOUT, retry_transient_errors=True, user_agent="base-image-runbook"
        )
        return cls(client, project, token)

    def pipeline(self, number: int) -> Pipeline:
        """One pipeline."""
        it = self._ask(f"read pipeline {number}", lambda: self._project.pipelines.get(number).asdict())
        return self._built("read pipeline", lambda: _pipeline(it))

    def pipelines(self, sha: str) -> tuple[Pipeline, ...]:
        """The pipelines of a commit, the newest first; those that others started for their tests are not among them."""
        what = f"list the pipelines of {sha[:10]}"
        listed = self._project.pipelines.list
        found = self._ask(
            what, lambda: [it.asdict() for it in listed(sha=sha, order_by="id", sort="desc", get_all=True)]
        )
        return self._built(what, lambda: tuple(_pipeline(it) for it in found if it.get("source") != "parent_pipeline"))

    def bridges(self, pipeline: int) -> tuple[Bridge, ...]:
        """The bridges of a pipeline that start functional tests of an image type; other bridges leave no values."""
        what = f"list the bridges of pipeline {pipeline}"
        owner = self._project.pipelines.get(pipeline, lazy=True)
        found = self._ask(what, lambda: [it.asdict() for it in owner.bridges.list(get_all=True, per_page=100)])
        return self._built(what, lambda: tuple(bridge for it in found for bridge in _bridge(it)))

    def jobs(self, bridge: Bridge) -> tuple[FunctionalJob, ...]:
        """The jobs of a bridge's pipeline, the last attempt of each."""
        if bridge.pipeline is None:
            return ()
        what = f"list the jobs of pipeline {bridge.pipeline}"
        owner = self._project.pipelines.get(bridge.pipeline, lazy=True)
        found = self._ask(what, lambda: [it.asdict() for it in owner.jobs.list(get_all=True, per_page=100)])
        return self._built(what, lambda: tuple(_job(it, bridge) for it in found))

    def download(self, job: int) -> tuple[str, dict[str, str]]:
        """The address of a job's artifacts, and the headers to ask this host, no other, with."""
        return f"{self._client.api_url}/projects/{self._project.encoded_id}/jobs/{job}/artifacts", {
            "PRIVATE-TOKEN": self._token
        }

    def trace(self, job: int) -> tuple[str, dict[str, str]]:
        """The address of a job's log, and the headers as in ``download``."""
        return f"{self._client.api_url}/projects/{self._project.encoded_id}/jobs/{job}/trace", {
            "PRIVATE-TOKEN": self._token
        }

    def _ask(self, what: str, ask: Callable[[], T]) -> T:
        import gitlab
        import requests

        host = urlsplit(self._client.url).hostname
        failed = f"Could not {what} of {self.name}"
        try:
            return ask()
        except gitlab.exceptions.GitlabAuthenticationError as error:
            raise RunbookError(f"{failed}: GitLab does not accept the token. Renew GITLAB_TOKEN (read_api).") from error
        except gitlab.exceptions.GitlabError as error:
            status = error.response_code
            if status in (403, 404):
                raise RunbookError(
                    f"{failed}: {host} does not find it, or not for this token (HTTP {status}). Check the number, "
                    "GITLAB_PROJECT, and that the token has the scope read_api."
                ) from error
            raise Unreachable(f"{failed}: {host} answered HTTP {status}. Try again later.") from error
        except requests.RequestException as error:
            raise Unreachable(
                f"{failed}: {host} cannot be reached ({type(error).__name__}). Try again later."
            ) from error

    def _built(self, what: str, build: Callable[[], T]) -> T:
        try:
            return build()
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise CannotTell(f"Could not {what} of {self.name}: the answer is not of the form expected.") from error


def _pipeline(it: Any) -> Pipeline:
    return Pipeline(it["id"], it["sha"], it["ref"], it["status"], it["web_url"])


def _bridge(it: Any) -> Iterator[Bridge]:
    found = re.fullmatch(r"functional:(?:run_)?(dev|lts)(?:_([a-z0-9_]+))?", it["name"])
    if found:
        started = it.get("downstream_pipeline")
        yield Bridge(it["name"], it["status"], found[1], found[2] or "", started["id"] if started else None)


def _job(it: Any, bridge: Bridge) -> FunctionalJob:
    until = it.get("artifacts_expire_at")
    return FunctionalJob(
        id=int(it["id"]),
        name=str(it["name"]),
        stage=str(it["stage"]),
        status=str(it["status"]),
        reason=it.get("failure_reason") or "",
        environment=bridge.environment,
        platform=bridge.platform,
        size=int((it.get("artifacts_file") or {}).get("size") or 0),
        expired=bool(until) and datetime.fromisoformat(until) < datetime.now(UTC),
        url=str(it.get("web_url") or ""),
    )
