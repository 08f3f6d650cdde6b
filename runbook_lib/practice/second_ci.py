"""The second CI of the practice environment: one scripted pipeline for each commit, answered in this process.

A commit that the forge tests has one, and so has a branch of the copy for which somebody started it.  It ends at once:
green if the pins of the commit agree, and red if one lags.
"""

import json
from pathlib import Path
from typing import Any

import httpx

from runbook_lib.practice.git import BareRepository
from runbook_lib.system import files
from runbook_lib.text import yaml_spans

_BUILD, _JOB = ".gitlab/stages/01.build.yml", "test:pre_build_image"
_PINS = ("docker/.ngc_version.dev", "docker/.ngc_version.lts")


class SecondCi(httpx.BaseTransport):
    """GitLab's replies about ``repository``, whose ``copy`` shares the forge's objects; ``pages`` show commits."""

    def __init__(self, repository: str, forge: Path, copy: Path, pages: str) -> None:
        self._repository, self._pages = repository, pages
        self._forge, self._copy = BareRepository(forge), BareRepository(copy)
        self._file = copy / "started-pipelines.json"

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        path = request.url.path.partition(self._repository)[2].strip("/")
        try:
            return httpx.Response(200, json=self._answer(path, request))
        except LookupError:
            return httpx.Response(404, json={"message": "404 Branch or Pipeline Not Found"})

    def _answer(self, path: str, request: httpx.Request) -> Any:
        address, sha = str(self._copy.path), request.url.params.get("sha", "")
        match path.split("/"):
            case [""]:
                return {"path_with_namespace": self._repository, "default_branch": "main", "ssh_url_to_repo": address}
            case ["protected_branches"]:
                return [{"name": "main"}, {"name": "dev"}, {"name": "core_*"}]
            case ["repository", "branches", *names]:
                commit = self._copy.commit(self._copy.tips()["/".join(names)])
                shown = {"id": commit.sha, "title": commit.message.split("\n")[0], "author_name": commit.author}
                return {"protected": False, "commit": {**shown, "committed_date": commit.committed}}
            case ["pipeline"]:
                asked = json.loads(request.read())
                sha = self._copy.tips()[asked["ref"]]
                files.write(self._file, json.dumps({**self._started(), sha: asked}))
                return self._pipeline(sha)
            case ["pipelines"]:
                return [self._pipeline(sha)] if self._ref(sha) else []
            case ["pipelines", number, *part]:
                return self._part(int(number), "".join(part))
        raise LookupError(path)

    def _pipeline(self, sha: str) -> dict[str, Any]:
        status = "failed" if "failed" in self._builds(sha).values() else "success"
        number, page = int(f"1{sha[:8]}", 16), f"{self._pages}/{sha}.html"
        return {"id": number, "sha": sha, "ref": self._ref(sha), "status": status, "web_url": page}

    def _part(self, number: int, part: str) -> Any:
        """Return a pipeline or a part of it; the number of a bridge's pipeline has one digit more."""
        if number >= 2**33:
            return [{"id": number, "name": "gpt3_mcore_tp1_pp4", "stage": "gpt", "status": "success"}]
        if (sha := self._copy.resolve(f"{number:x}"[1:])) is None:
            raise LookupError(number)
        pipeline = self._pipeline(sha)
        if part == "variables":
            return self._started().get(sha, {}).get("variables", [])
        if part == "bridges":
            child = {"id": 10 * number} if pipeline["status"] == "success" else None
            shown = {"status": "success", "downstream_pipeline": child}
            return [{"name": f"functional:run_{environment}_dgx_h100", **shown} for environment in ("dev", "lts")]
        if part == "jobs":
            builds = enumerate(self._builds(sha).items(), number)
            return [{"id": id, "name": name, "stage": "build", "status": status} for id, (name, status) in builds]
        return pipeline

    def _builds(self, sha: str) -> dict[str, str]:
        """Return the name and the status of each job that builds an image."""
        texts, builds = self._copy.texts(sha, _BUILD, *_PINS), {}
        for row in yaml_spans.load(texts[_BUILD])[_JOB]["parallel"]["matrix"]:
            lags = "/pytorch:" in row["BASE_IMAGE"] and row["BASE_IMAGE"] not in [texts[pin].strip() for pin in _PINS]
            builds[f"{_JOB}: [{', '.join(row.values())}]"] = "failed" if lags else "success"
        return builds

    def _ref(self, sha: str) -> str:
        """Return the branch with whose pipeline a commit was tested; empty if it was not."""
        if self._forge.contains("main", sha):
            return "main"
        mirrors = [name for name, tip in self._forge.tips().items() if name.startswith("pull-request/") and tip == sha]
        return str(mirrors[0] if mirrors else self._started().get(sha, {}).get("ref", ""))

    def _started(self) -> dict[str, Any]:
        return json.loads(self._file.read_text()) if self._file.exists() else {}
