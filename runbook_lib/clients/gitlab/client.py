"""GitLab: pipelines and their jobs, the functional ones of which run in pipelines that bridges start.

python-gitlab carries the requests.  Only ``start`` changes anything; the token goes to GitLab's own host alone, and
appears in no message.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

from runbook_lib.clients.gitlab.models import (
    Branch,
    Bridge,
    FunctionalJob,
    Job,
    Pipeline,
    Project,
    branch_of,
    bridges_of,
    functional_job_of,
    items_of,
    job_of,
    pipeline_of,
    project_of,
)
from runbook_lib.clients.gitlab.session import LARGEST, client
from runbook_lib.errors import CannotTell, RunbookError, Unreachable
from runbook_lib.transport import urls
from runbook_lib.transport.limits import TooLarge, strict

if TYPE_CHECKING:
    import gitlab

__all__ = ["Bridge", "FunctionalJob", "GitLab", "NoSuchRef", "Pipeline"]

_PER_PAGE, _MAX_PAGES = 100, 50
_LARGEST_LISTING = 64 * 2**20  # bytes of all pages; five thousand jobs have 40 MB
_LONGEST_LISTING = 600.0  # seconds for all pages
_TOKEN_FOR = {
    "read_api": "GITLAB_PROJECT, and that the token has the scope read_api",
    "api": "GITLAB_PROJECT, and that the token has the scope api and your role in the project is Developer or higher",
}
T = TypeVar("T")


class NoSuchRef(RunbookError):
    """GitLab does not know the branch: one that was pushed a moment ago, or none at all."""


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
        url = urls.of_service("GITLAB_URL", url, "https://gitlab.example.com")
        if not re.fullmatch(r"[!-~]+", token):
            raise RunbookError("There is no token for GitLab. Set GITLAB_TOKEN to one with the scope read_api.")
        if not re.fullmatch(r"[0-9]+|[\w.-]+(/[\w.-]+)+", project):
            raise RunbookError("GITLAB_PROJECT is not a project's path (group/name) or number.")
        return cls(client(url, token), project, token)

    @property
    def url(self) -> str:
        """The address of the server."""
        return str(self._client.url)

    def project(self) -> Project:
        """The project itself."""
        it = self._ask("read the project", lambda: self._client.projects.get(self.name).asdict())
        return self._built("read the project", lambda: project_of(it))

    def branch(self, name: str) -> Branch | None:
        """A branch of the repository; None without one."""
        import gitlab

        what = f"read the branch {name}"

        def get() -> dict[str, Any] | None:
            try:
                return self._project.branches.get(name).asdict()
            except gitlab.exceptions.GitlabGetError as error:
                # A project that this token may not see is not found either, in other words.
                if error.response_code == 404 and "branch" in str(error.error_message).lower():
                    return None
                raise

        it = self._ask(what, get)
        return None if it is None else self._built(what, lambda: branch_of(it))

    def protected(self) -> tuple[str, ...]:
        """The names of the protected branches, in which ``*`` stands for any text."""
        return self._listed("list the protected branches", "protected_branches", lambda it: [str(it["name"])])

    def start(self, ref: str, variables: Mapping[str, str]) -> Pipeline:
        """Start a pipeline of a branch's newest commit; never sent twice, even where the answer is lost.

        Raises NoSuchRef, RunbookError for what GitLab refuses, and Unreachable where it is not known what became of it.
        """
        what = f"start a pipeline of {ref}"
        asked = {"ref": ref, "variables": [{"key": name, "value": value} for name, value in variables.items()]}
        # python-gitlab would send it again after an answer such as 502, with a second pipeline of the first's making.
        it = self._ask(
            what, lambda: self._project.pipelines.create(asked, retry_transient_errors=False).asdict(), scope="api"
        )
        return self._built(what, lambda: pipeline_of(it))

    def pipeline(self, number: int) -> Pipeline:
        """One pipeline."""
        it = self._ask(f"read pipeline {number}", lambda: self._project.pipelines.get(number).asdict())
        return self._built("read pipeline", lambda: pipeline_of(it))

    def pipelines(self, sha: str) -> tuple[Pipeline, ...]:
        """The pipelines of a commit, the newest first; those that others started for their tests are not among them."""
        return self._listed(
            f"list the pipelines of {sha[:10]}", "pipelines",
            lambda it: [] if it.get("source") == "parent_pipeline" else [pipeline_of(it)],
            {"sha": sha, "order_by": "id", "sort": "desc"},
        )  # fmt: skip

    def bridges(self, pipeline: int) -> tuple[Bridge, ...]:
        """The bridges of a pipeline that start functional tests of an image type; other bridges leave no values."""
        return self._listed(f"list the bridges of pipeline {pipeline}", f"pipelines/{pipeline}/bridges", bridges_of)

    def pipeline_jobs(self, pipeline: int) -> tuple[Job, ...]:
        """The jobs of a pipeline itself, the last attempt of each."""
        what = f"list the jobs of pipeline {pipeline}"
        return self._listed(what, f"pipelines/{pipeline}/jobs", lambda it: [job_of(it)])

    def jobs(self, bridge: Bridge) -> tuple[FunctionalJob, ...]:
        """The jobs of a bridge's pipeline, the last attempt of each."""
        if bridge.pipeline is None:
            return ()
        what = f"list the jobs of pipeline {bridge.pipeline}"
        return self._listed(what, f"pipelines/{bridge.pipeline}/jobs", lambda it: [functional_job_of(it, bridge)])

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

    def _listed(
        self, what: str, path: str, build: Callable[[Any], Iterable[T]], query: Mapping[str, str] | None = None
    ) -> tuple[T, ...]:
        """All items of all pages, built.

        Not python-gitlab's own paging: that has no end, and believes the header which tells how many items will come.
        """
        built: list[T] = []
        size, end = 0, time.monotonic() + _LONGEST_LISTING
        address = f"/projects/{self._project.encoded_id}/{path}"
        failed = f"Could not {what} of {self.name}: {urlsplit(self.url).hostname} "
        for page in range(1, _MAX_PAGES + 1):
            asked = {**(query or {}), "per_page": _PER_PAGE, "page": page}
            answer = self._ask(what, lambda: self._client.http_request("get", address, query_data=asked))  # noqa: B023
            items = self._built(what, lambda: items_of(strict(answer.content)))  # noqa: B023
            built += self._built(what, lambda: [each for it in items for each in build(it)])  # noqa: B023
            if "next" not in answer.links:
                return tuple(built)
            size += len(answer.content)
            if size > _LARGEST_LISTING:
                raise CannotTell(f"{failed}sends more than {_LARGEST_LISTING // 2**20} MB.")
            if time.monotonic() > end:
                raise Unreachable(f"{failed}did not send all pages in {_LONGEST_LISTING:.0f} s. Try again later.")
        raise CannotTell(f"{failed}lists more than {_MAX_PAGES * _PER_PAGE}, which is more than this tool reads.")

    def _ask(self, what: str, ask: Callable[[], T], scope: str = "read_api") -> T:
        import gitlab
        import requests

        host = urlsplit(self._client.url).hostname
        failed = f"Could not {what} of {self.name}"
        try:
            return ask()
        except TooLarge as error:
            raise CannotTell(f"{failed}: {host} sends more than {LARGEST // 2**20} MB, or too many values.") from error
        except gitlab.exceptions.GitlabAuthenticationError as error:
            raise RunbookError(f"{failed}: GitLab does not accept the token. Renew GITLAB_TOKEN ({scope}).") from error
        except gitlab.exceptions.GitlabParsingError as error:
            raise CannotTell(f"{failed}: {host} answered with no JSON. Check GITLAB_URL.") from error
        except gitlab.exceptions.RedirectError as error:
            raise RunbookError(f"{failed}: {host} redirects elsewhere. Set GITLAB_URL to its own address.") from error
        except gitlab.exceptions.GitlabError as error:
            raise self._refused(failed, host or "", error, scope) from error
        except requests.RequestException as error:
            ours = isinstance(error, requests.exceptions.RetryError | requests.exceptions.InvalidURL)
            why = str(error) if ours else type(error).__name__
            raise Unreachable(f"{failed}: {host} cannot be reached ({why}). Try again later.") from error
        # python-gitlab reads answers too, and those that are errors without catching what is nested too deeply.
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
            raise CannotTell(f"{failed}: the answer is not of the form expected.") from error

    def _refused(self, failed: str, host: str, error: "gitlab.exceptions.GitlabError", scope: str) -> RunbookError:
        status = error.response_code
        if status in (403, 404):
            return RunbookError(
                f"{failed}: {host} does not find it, or not for this token (HTTP {status}). Check the number, "
                f"{_TOKEN_FOR[scope]}."
            )
        if status in (400, 409, 422):
            said = " ".join(str(error.error_message).replace(self._token, "***").split())[:300]
            kind = NoSuchRef if "reference not found" in said.lower() else RunbookError
            return kind(
                f"{failed}: {host} refuses it (HTTP {status}), and says: {said.rstrip('.')}. Mend what it names, then "
                "run again."
            )
        if status == 429:
            return Unreachable(f"{failed}: {host} limits how often it may be asked (HTTP 429). Try again later.")
        return Unreachable(f"{failed}: {host} answered HTTP {status}. Try again later.")

    def _built(self, what: str, build: Callable[[], T]) -> T:
        try:
            return build()
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise CannotTell(f"Could not {what} of {self.name}: the answer is not of the form expected.") from error
