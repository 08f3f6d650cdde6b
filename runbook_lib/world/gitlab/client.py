"""GitLab: pipelines and their jobs; functional jobs run in pipelines that bridges start.

Source: GitLab's REST API, version 4.  Only ``start`` changes anything.
"""

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from runbook_lib.errors import RunbookError
from runbook_lib.world.api import Api
from runbook_lib.world.gitlab.models import Bridge, Pipeline, PipelineJob
from runbook_lib.world.transport import urls
from runbook_lib.world.transport.archives import FileInParts


class GitLab(Api):
    """One project on GitLab, as one token sees it; ``world.ports.SecondCi`` says what the methods return."""

    variable = "GITLAB_URL"
    moved = "Set GITLAB_URL or GITLAB_PROJECT to that one."

    def __init__(self, env: Mapping[str, str] = os.environ, *, transport: httpx.BaseTransport | None = None) -> None:
        """Prepare with GITLAB_URL, GITLAB_TOKEN and GITLAB_PROJECT (path or number).  Sends nothing yet."""
        url, token, project = (env.get(name, "").strip() for name in ("GITLAB_URL", "GITLAB_TOKEN", "GITLAB_PROJECT"))
        urls.service_address("GITLAB_URL", url, "https://gitlab.example.com")
        if not re.fullmatch(r"[!-~]+", token):
            raise RunbookError("There is no token for GitLab.", "Set GITLAB_TOKEN to one with the scope read_api.")
        if not re.fullmatch(r"[0-9]+|[\w.-]+(/[\w.-]+)+", project):
            raise RunbookError("GITLAB_PROJECT is not a project's path (group/name) or number.")
        api = f"{url.rstrip('/')}/api/v4/projects/{quote(project, safe='')}"
        super().__init__(project, api, token, {"PRIVATE-TOKEN": token}, transport)

    def is_protected(self, branch: str) -> bool:
        return branch in self._list(
            f"look for {branch}", "/repository/branches", lambda it: it["protected"] and it["name"],
            query={"search": branch},
        )  # fmt: skip

    def start(self, ref: str, variables: Mapping[str, str]) -> Pipeline:
        fields = {"ref": ref, "variables": [{"key": name, "value": value} for name, value in variables.items()]}
        return self._ask("start a pipeline", "/pipeline", Pipeline.of, "POST", content=fields)

    def pipeline(self, number: int) -> Pipeline:
        return self._ask(f"read pipeline {number}", f"/pipelines/{number}", Pipeline.of)

    def pipelines(self, sha: str) -> tuple[Pipeline, ...]:
        def build(data: Any) -> Pipeline | None:
            return None if data.get("source") == "parent_pipeline" else Pipeline.of(data)

        query = {"sha": sha, "order_by": "id", "sort": "desc"}
        return self._list(f"list the pipelines of {sha[:10]}", "/pipelines", build, query=query)

    def variables(self, pipeline: int) -> dict[str, str]:
        action, path = f"read the variables of pipeline {pipeline}", f"/pipelines/{pipeline}/variables"
        return dict(self._list(action, path, lambda it: (str(it["key"]), str(it["value"]))))

    def bridges(self, pipeline: int) -> tuple[Bridge, ...]:
        action = f"list the bridges of pipeline {pipeline}"
        return self._list(action, f"/pipelines/{pipeline}/bridges", Bridge.of)

    def jobs(self, pipeline: int) -> tuple[PipelineJob, ...]:
        return self._list(f"list the jobs of pipeline {pipeline}", f"/pipelines/{pipeline}/jobs", PipelineJob.of)

    def artifact(self, job: int) -> FileInParts:
        return self._file(f"/jobs/{job}/artifacts")

    def log(self, job: int) -> FileInParts:
        return self._file(f"/jobs/{job}/trace")

    def _refusal(self, problem: str, reply: httpx.Response, message: str) -> RunbookError:
        if reply.status_code not in (401, 403, 404):
            return super()._refusal(problem, reply, message)
        return RunbookError(
            f"{problem} does not find it, or not for this token (HTTP {reply.status_code}){message}.",
            "Check the number, the project (GITLAB_PROJECT, or the remote gitlab), and that GITLAB_TOKEN is valid and "
            "has the scope read_api; to start pipelines api, and the role Developer or higher.",
        )
