"""The second CI of the practice environment: scripted pipelines of commits, which end at once.

A commit that the forge tests has one, and one for each that somebody started for a branch of the copy.  Its builds are
green if the pins of the commit agree, and red if one lags.  Its nightly test drifts with a new image.
"""

import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runbook_lib.practice import values
from runbook_lib.practice.ci import scenario
from runbook_lib.practice.git import BareRepository, read_texts
from runbook_lib.practice.runs import PracticeRefusal, StoredFile
from runbook_lib.practice.store import Record, Store, transactions
from runbook_lib.text import yaml_spans
from runbook_lib.world.gitlab.models import Bridge, NoSuchRef, Pipeline, PipelineJob

_BUILD, _JOB = ".gitlab/stages/01.build.yml", "test:pre_build_image"
_DEV, _LTS = "docker/.ngc_version.dev", "docker/.ngc_version.lts"
_GOLDEN = "tests/functional_tests/test_cases/gpt/gpt3_mcore_tp1_pp4/golden_values_dev_dgx_h100.json"
_INSIDE = "results/iteration=0/restart=0/assets/basic/gpt3-mcore-tp1-pp4-dev-dgx-h100/golden_values_dev_dgx_h100.json"


@transactions
class PracticeSecondCi:
    """The pipelines of ``repository``; its ``copy`` shares the forge's objects, and ``pages`` show commits."""

    url = "https://gitlab.practice.invalid"

    def __init__(self, store: Store, repository: str, forge: Path, copy: Path, pages: str) -> None:
        self.store, self._repository, self._pages = store, repository, pages
        self._forge, self._copy = BareRepository(forge), BareRepository(copy)

    def addresses(self) -> tuple[str, ...]:
        return (f"{self.url}/{self._repository}", str(self._copy.path))

    def protected(self) -> tuple[str, ...]:
        return "main", "dev", "core_*"

    def start(self, ref: str, variables: Mapping[str, str]) -> Pipeline:
        if (sha := self._copy.tip(ref)) is None:
            raise NoSuchRef(f"Could not start a pipeline of {ref}: Reference not found. Push it, then run again.")
        return self._shown(self._started(sha, ref, variables))

    def pipeline(self, number: int) -> Pipeline:
        return self._shown(self._record(number))

    def pipelines(self, sha: str) -> tuple[Pipeline, ...]:
        pointing = ("--points-at", sha, "--format=%(refname:lstrip=2)", "refs/heads/pull-request")
        mirrors = (self._forge.tried("for-each-ref", *pointing) or "").splitlines()
        tested = ["main"] if self._forge.contains("main", sha) else mirrors[:1]
        known = [record for record in self.store.state.pipelines if record.sha == sha]
        known += [self._started(sha, ref, {}) for ref in tested if ref not in {record.ref for record in known}]
        return tuple(map(self._shown, reversed(known)))

    def _record(self, number: int) -> Record:
        found: list[Record] = [record for record in self.store.state.pipelines if record.id == number]
        if not found:
            raise PracticeRefusal(f"pipeline {number}")
        return found[0]

    def _shown(self, record: Record) -> Pipeline:
        return Pipeline(record.id, record.sha, record.ref, record.status, f"{self._pages}/{record.sha}.html")

    def variables(self, pipeline: int) -> dict[str, str]:
        return dict(self._record(pipeline).variables)

    def bridges(self, pipeline: int) -> tuple[Bridge, ...]:
        child = self._record(pipeline).child
        names = ("dev", "lts")
        return tuple(Bridge(f"functional:run_{name}_dgx_h100", "success", name, "dgx_h100", child) for name in names)

    def jobs(self, pipeline: int) -> tuple[PipelineJob, ...]:
        return tuple(
            PipelineJob(number, name, stage, "failed" if error or drift else "success", "", "", len(_archive(drift)))
            for number, owner, name, stage, error, drift in self._jobs() if owner == pipeline
        )  # fmt: skip

    def artifact(self, job: int) -> StoredFile:
        return StoredFile(lambda: self.read(job, "artifact"))

    def log(self, job: int) -> StoredFile:
        return StoredFile(lambda: self.read(job, "log"))

    def read(self, job: int, what: str) -> bytes:
        """Return the artifact of a job, or the log of one that builds an image.  Raises PracticeRefusal."""
        for number, _, name, stage, error, drift in self._jobs():
            if number == job and (stage == "build" if what == "log" else drift):
                return f"$ docker build {name}\n{error}".encode() if what == "log" else _archive(drift)
        raise PracticeRefusal(f"the {what} of job {job}")

    def _jobs(self) -> Iterator[list[Any]]:
        return (job for record in self.store.state.pipelines for job in record.jobs)

    def _started(self, sha: str, ref: str, variables: Mapping[str, str]) -> Record:
        """Start a pipeline, of which everything is decided; its bridges start another one, ``child``."""
        record = Record(id=self.store.next_id(), sha=sha, ref=ref, variables=[*variables.items()], child=None, jobs=[])
        texts = read_texts(self._copy, sha, _BUILD, _GOLDEN, _DEV, _LTS)
        pins = [texts[pin].strip() for pin in (_DEV, _LTS)]
        # The pipeline of each job, its name, its stage, and with what it fails: an error, or other golden values.
        jobs: list[tuple[int, str, str, str, str]] = []
        for row in yaml_spans.load(texts[_BUILD])[_JOB]["parallel"]["matrix"]:
            image, name = row["BASE_IMAGE"], f"{_JOB}: [{', '.join(row.values())}]"
            lags = "/pytorch:" in image and image not in pins
            error = f"ERROR: {image} is not the pinned image {pins[0]}.\n" if lags else ""
            jobs.append((record.id, name, "build", error, ""))
        record.status = "failed" if any(error for *_, error, _ in jobs) else "success"
        scope = variables.get("FUNCTIONAL_TEST_SCOPE")
        if record.status == "success":
            record.child = self.store.next_id()
            if scope in (None, "nightly"):
                jobs.append((record.child, "gpt3_mcore_tp1_pp4", "gpt", "", self._drift(texts) if scope else ""))
        record.jobs = [[self.store.next_id(), *job] for job in jobs]
        self.store.state.pipelines.append(record)
        return record

    def _drift(self, texts: Mapping[str, str]) -> str:
        """Return what the nightly test measures with another image than main's, unless these are the golden values."""
        before = read_texts(self._forge, self._forge.tip("main") or "HEAD", _GOLDEN, _DEV)
        measured = values.remeasure(before[_GOLDEN], scenario()["causes"]["drift"]["values"], texts[_DEV])
        return "" if texts[_DEV] == before[_DEV] or texts[_GOLDEN] == measured else measured


def _archive(golden: str) -> bytes:
    """Return the zip of golden values, if there are any."""
    if not golden:
        return b""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        packed.writestr(_INSIDE, golden)
    return buffer.getvalue()
