"""The second CI of the practice environment: one scripted pipeline for each commit.

A commit that the forge tests has one, and so has a branch of the copy for which somebody started it.  It ends at once:
green if the pins of the commit agree, and red if one lags.
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from runbook_lib.clients.gitlab.models import Bridge, NoSuchRef, Pipeline, PipelineJob
from runbook_lib.errors import RunbookError
from runbook_lib.practice.git import BareRepository, read_texts
from runbook_lib.practice.runs import PracticeRefusal, StoredFile
from runbook_lib.system import files
from runbook_lib.text import yaml_spans

_BUILD, _JOB = ".gitlab/stages/01.build.yml", "test:pre_build_image"
_PINS = ("docker/.ngc_version.dev", "docker/.ngc_version.lts")
_CHILDREN = 100  # the numbers of a pipeline's jobs, and of the pipeline that its bridges start, begin with its own


class PracticeSecondCi:
    """The pipelines of ``repository``; its ``copy`` shares the forge's objects, and ``pages`` show commits."""

    url = "https://gitlab.practice.invalid"

    def __init__(self, repository: str, forge: Path, copy: Path, pages: str) -> None:
        self._repository, self._pages = repository, pages
        self._forge, self._copy = BareRepository(forge), BareRepository(copy)
        self._file = copy / "started-pipelines.json"

    def addresses(self) -> tuple[str, ...]:
        return (f"{self.url}/{self._repository}", str(self._copy.path))

    def protected(self) -> tuple[str, ...]:
        return "main", "dev", "core_*"

    def start(self, ref: str, variables: Mapping[str, str]) -> Pipeline:
        if (sha := self._copy.tip(ref)) is None:
            raise NoSuchRef(f"Could not start a pipeline of {ref}: Reference not found. Push it, then run again.")
        asked = {"ref": ref, "variables": dict(variables)}
        files.write(self._file, json.dumps({**self._started(), sha: asked}))
        return self._pipeline(sha)

    def pipeline(self, number: int) -> Pipeline:
        sha = self._copy.resolve(f"{number:x}"[1:]) if 2**32 <= number < 2**33 else None
        if sha is None or not self._ref(sha):
            raise RunbookError(f"Could not read pipeline {number}: practice does not find it. Check the number.")
        return self._pipeline(sha)

    def pipelines(self, sha: str) -> tuple[Pipeline, ...]:
        return (self._pipeline(sha),) if self._ref(sha) else ()

    def variables(self, pipeline: int) -> dict[str, str]:
        variables: dict[str, str] = self._started().get(self.pipeline(pipeline).sha, {}).get("variables", {})
        return variables

    def bridges(self, pipeline: int) -> tuple[Bridge, ...]:
        child = _CHILDREN * pipeline if self.pipeline(pipeline).status == "success" else None
        names = ("dev", "lts")
        return tuple(Bridge(f"functional:run_{name}_dgx_h100", "success", name, "dgx_h100", child) for name in names)

    def jobs(self, pipeline: int) -> tuple[PipelineJob, ...]:
        if pipeline >= 2**33:  # one that a bridge started
            return (PipelineJob(pipeline, "gpt3_mcore_tp1_pp4", "gpt", "success", "", ""),)
        builds = enumerate(self._builds(self.pipeline(pipeline).sha), _CHILDREN * pipeline)
        return tuple(PipelineJob(number, name, "build", status, "", "") for number, (name, status, _) in builds)

    def artifact(self, job: int) -> StoredFile:
        return StoredFile(partial(self._read, job, "artifacts"))

    def log(self, job: int) -> StoredFile:
        return StoredFile(partial(self._read, job, "log"))

    def _read(self, job: int, what: str) -> bytes:
        pipeline, position = divmod(job, _CHILDREN)
        logs = [log for _, _, log in self._builds(self.pipeline(pipeline).sha)]
        if what != "log" or position >= len(logs):
            raise PracticeRefusal(f"there are no {what} of job {job}")
        return logs[position].encode()

    def _pipeline(self, sha: str) -> Pipeline:
        status = "failed" if any(status == "failed" for _, status, _ in self._builds(sha)) else "success"
        return Pipeline(int(f"1{sha[:8]}", 16), sha, self._ref(sha), status, f"{self._pages}/{sha}.html")

    def _builds(self, sha: str) -> Iterator[tuple[str, str, str]]:
        """Yield the name, the status and the log of each job that builds an image."""
        texts = read_texts(self._copy, sha, _BUILD, *_PINS)
        pins = [texts[pin].strip() for pin in _PINS]
        for row in yaml_spans.load(texts[_BUILD])[_JOB]["parallel"]["matrix"]:
            image, status = row["BASE_IMAGE"], "success"
            log = f"$ docker build --build-arg FROM_IMAGE_NAME={image} .\n"
            if "/pytorch:" in image and image not in pins:
                status, log = "failed", f"{log}ERROR: {image} is not the pinned image {pins[0]}.\n"
            yield f"{_JOB}: [{', '.join(row.values())}]", status, log

    def _ref(self, sha: str) -> str:
        """Return the branch with whose pipeline a commit was tested; empty if it was not."""
        if self._forge.contains("main", sha):
            return "main"
        pointing = ("--points-at", sha, "--format=%(refname:lstrip=2)", "refs/heads/pull-request")
        mirrors = (self._forge.tried("for-each-ref", *pointing) or "").splitlines()
        return str(mirrors[0] if mirrors else self._started().get(sha, {}).get("ref", ""))

    def _started(self) -> dict[str, Any]:
        return json.loads(self._file.read_text()) if self._file.exists() else {}
