"""The second CI of the practice environment: scripted pipelines of commits, which end at once.

A commit that the forge tests has one, and one for each that somebody started for a branch of the copy.  Its builds are
green if the pins of the commit agree, and red if one lags.  Its nightly test drifts with a new image.
"""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from runbook_lib.errors import RunbookError
from runbook_lib.practice import values
from runbook_lib.practice.ci import scenario
from runbook_lib.practice.git import BareRepository, read_texts
from runbook_lib.practice.runs import PracticeRefusal, StoredFile
from runbook_lib.text import yaml_spans
from runbook_lib.world.gitlab.models import Bridge, NoSuchRef, Pipeline, PipelineJob
from runbook_lib.world.machine import files

_BUILD, _JOB = ".gitlab/stages/01.build.yml", "test:pre_build_image"
_PINS = ("docker/.ngc_version.dev", "docker/.ngc_version.lts")
_GOLDEN = "tests/functional_tests/test_cases/gpt/gpt3_mcore_tp1_pp4/golden_values_dev_dgx_h100.json"
_INSIDE = "results/iteration=0/restart=0/assets/basic/gpt3-mcore-tp1-pp4-dev-dgx-h100"
_TEST = 90  # the position of the nightly test among a pipeline's jobs
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
        started = json.loads(self._file.read_text()) if self._file.exists() else {}
        started.setdefault(sha, []).append((ref, dict(variables)))
        files.write(self._file, json.dumps(started))
        return self.pipelines(sha)[0]

    def pipeline(self, number: int) -> Pipeline:
        return self._asked(number)[0]

    def pipelines(self, sha: str) -> tuple[Pipeline, ...]:
        numbers = [int(f"{place}{sha[:8]}", 16) for place in range(1, 1 + len(self._all(sha)))]
        return tuple(map(self.pipeline, reversed(numbers)))

    def variables(self, pipeline: int) -> dict[str, str]:
        return self._asked(pipeline)[1]

    def bridges(self, pipeline: int) -> tuple[Bridge, ...]:
        builds = [status for _, status, _ in self._builds(self.pipeline(pipeline).sha)]
        child = None if "failed" in builds else _CHILDREN * pipeline
        names = ("dev", "lts")
        return tuple(Bridge(f"functional:run_{name}_dgx_h100", "success", name, "dgx_h100", child) for name in names)

    def jobs(self, pipeline: int) -> tuple[PipelineJob, ...]:
        if pipeline >= _CHILDREN << 32:  # one that a bridge started
            parent = pipeline // _CHILDREN
            if self.variables(parent).get("FUNCTIONAL_TEST_SCOPE", "nightly") != "nightly":
                return ()
            drift = self._drift(parent)
            status = "failed" if drift else "success"
            return (PipelineJob(pipeline + _TEST, "gpt3_mcore_tp1_pp4", "gpt", status, "", "", len(drift)),)
        builds = enumerate(self._builds(self.pipeline(pipeline).sha), _CHILDREN * pipeline)
        return tuple(PipelineJob(number, name, "build", status, "", "") for number, (name, status, _) in builds)

    def artifact(self, job: int) -> StoredFile:
        return StoredFile(partial(self._read, job, "artifacts"))

    def log(self, job: int) -> StoredFile:
        return StoredFile(partial(self._read, job, "log"))

    def _read(self, job: int, what: str) -> bytes:
        pipeline, position = divmod(job, _CHILDREN)
        logs = [log for _, _, log in self._builds(self.pipeline(pipeline).sha)]
        if what == "artifacts" and position == _TEST and (drift := self._drift(pipeline)):
            return drift
        if what != "log" or position >= len(logs):
            raise PracticeRefusal(f"there are no {what} of job {job}")
        return logs[position].encode()

    def _drift(self, pipeline: int) -> bytes:
        """Return the artifact of the nightly test, if it ran and the commit has other values than it measured."""
        found, variables = self._asked(pipeline)
        main = self._forge.tip("main") or found.sha
        before, tested = (read_texts(self._copy, sha, _GOLDEN, _PINS[0]) for sha in (main, found.sha))
        drift = scenario()["causes"]["drift"]["values"]
        measured = values.remeasure(before[_GOLDEN], drift, tested[_PINS[0]])
        same_image = before[_PINS[0]] == tested[_PINS[0]]
        if variables.get("FUNCTIONAL_TEST_SCOPE") != "nightly" or same_image or measured == tested[_GOLDEN]:
            return b""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as packed:
            packed.writestr(f"{_INSIDE}/{_GOLDEN.rpartition('/')[2]}", measured)
        return buffer.getvalue()

    def _asked(self, number: int) -> tuple[Pipeline, dict[str, str]]:
        """Return a pipeline, and the variables with which it was started."""
        digits = f"{number:x}"
        sha = self._copy.resolve(digits[1:]) if len(digits) == 9 else None
        asked = self._all(sha)[int(digits[0], 16) - 1 :] if sha else []
        if sha is None or not asked:
            raise RunbookError(f"Could not read pipeline {number}: practice does not find it.", "Check the number.")
        status = "failed" if any(status == "failed" for _, status, _ in self._builds(sha)) else "success"
        return Pipeline(number, sha, asked[0][0], status, f"{self._pages}/{sha}.html"), asked[0][1]

    def _all(self, sha: str) -> list[tuple[str, dict[str, str]]]:
        """Return the branch and the variables of each pipeline of a commit, the oldest first."""
        pointing = ("--points-at", sha, "--format=%(refname:lstrip=2)", "refs/heads/pull-request")
        mirrors = (self._forge.tried("for-each-ref", *pointing) or "").splitlines()
        tested = ["main"] if self._forge.contains("main", sha) else mirrors
        started = json.loads(self._file.read_text()) if self._file.exists() else {}
        return [*((ref, {}) for ref in tested[:1]), *started.get(sha, [])]

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
