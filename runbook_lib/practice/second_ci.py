"""The second CI of the practice environment: scripted pipelines of commits, which end at once.

A commit that the forge tests has one, and one for each that somebody started for a branch of the copy.  Its builds are
green if the pins of the commit agree, and red if one lags.  Its nightly test drifts with a new image.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.practice import values
from runbook_lib.practice.evidence import packed
from runbook_lib.practice.git import BareRepository, read_texts
from runbook_lib.practice.runs import StoredFile, one
from runbook_lib.practice.store import Record, Store, matching, scripted, transactions
from runbook_lib.text import yaml_spans
from runbook_lib.world.gitlab.models import Bridge, Pipeline, PipelineJob

_BUILD, _JOB = ".gitlab/stages/01.build.yml", "test:pre_build_image"
_DEV, _LTS = "docker/.ngc_version.dev", "docker/.ngc_version.lts"
_GOLDEN = "tests/functional_tests/test_cases/gpt/gpt3_mcore_tp1_pp4/golden_values_dev_dgx_h100.json"
_INSIDE = "results/iteration=0/restart=0/assets/basic/gpt3-mcore-tp1-pp4-dev-dgx-h100/golden_values_dev_dgx_h100.json"


@transactions
class PracticeSecondCi:
    """The pipelines of the repository; its ``copy`` shares the forge's objects, and ``pages`` show commits.

    Each is decided when it starts.  ``jobs`` are, one by one: its ID, the pipeline that it belongs to, its name, its
    stage, and what it fails with: an error, or other golden values.
    """

    def __init__(self, store: Store, copy: Path, pages: str) -> None:
        self.store, self._copy, self._pages = store, BareRepository(copy), pages

    def is_protected(self, branch: str) -> bool:
        return branch in ("main", "dev")

    def start(self, ref: str, variables: Mapping[str, str]) -> Pipeline:
        if (sha := self._copy.tip(ref)) is None:
            raise RunbookError(f"Could not start a pipeline of {ref}: Reference not found.", "Push it, then run again.")
        return self._shown(self._started(sha, ref, variables))

    def pipeline(self, number: int) -> Pipeline:
        return self._shown(self._record(number))

    def pipelines(self, sha: str) -> tuple[Pipeline, ...]:
        state = self.store.state
        mirrors = {run.head_branch for run in matching(state.runs, head_sha=sha)}
        for ref in {mirror.removeprefix("gh-readonly-queue/").partition("/pr-")[0] for mirror in mirrors}:
            if not matching(state.pipelines, sha=sha, ref=ref):
                self._started(sha, ref, {})
        return tuple(map(self._shown, reversed(matching(state.pipelines, sha=sha))))

    def _record(self, number: int) -> Record:
        return one(matching(self.store.state.pipelines, id=number))

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
        return StoredFile(b"".join(_archive(drift) for number, *_, drift in self._jobs() if number == job))

    def log(self, job: int) -> StoredFile:
        builds = [it for it in self._jobs() if it[0] == job and it[3] == "build"]
        return StoredFile(b"".join(f"$ docker build {name}\n{error}\n".encode() for _, _, name, _, error, _ in builds))

    def _jobs(self) -> Iterator[list[Any]]:
        return (job for record in self.store.state.pipelines for job in record.jobs)

    def _started(self, sha: str, ref: str, variables: Mapping[str, str]) -> Record:
        number, child = self.store.next_id(), self.store.next_id()
        texts = read_texts(self._copy, sha, _BUILD, _GOLDEN, _DEV, _LTS)
        pins, jobs = [texts[pin].strip() for pin in (_DEV, _LTS)], list[tuple[int, str, str, str, str]]()
        for row in yaml_spans.load(texts[_BUILD])[_JOB]["parallel"]["matrix"]:
            image, name = row["BASE_IMAGE"], f"{_JOB}: [{', '.join(row.values())}]"
            lags = "/pytorch:" in image and image not in pins
            jobs.append((number, name, "build", f"ERROR: {image} is not the pinned image {pins[0]}." * lags, ""))
        is_red, scope = any(error for *_, error, _ in jobs), variables.get("FUNCTIONAL_TEST_SCOPE")
        if not is_red and scope in (None, "nightly"):
            jobs.append((child, "gpt3_mcore_tp1_pp4", "gpt", "", self._drift(texts) if scope else ""))
        record = Record(
            id=number, child=None if is_red else child, sha=sha, ref=ref, variables=[*variables.items()],
            status="failed" if is_red else "success", jobs=[(self.store.next_id(), *job) for job in jobs],
        )  # fmt: skip
        self.store.state.pipelines.append(record)
        return record

    def _drift(self, texts: Mapping[str, str]) -> str:
        """Return what the nightly test measures with another image than main's, unless these are the golden values."""
        before = read_texts(self._copy, "main", _GOLDEN, _DEV)
        measured = values.remeasure(before[_GOLDEN], scripted("scenario")["causes"]["drift"]["values"], texts[_DEV])
        return "" if texts[_DEV] == before[_DEV] or texts[_GOLDEN] == measured else measured


def _archive(golden: str) -> bytes:
    """Return the zip of golden values, if there are any."""
    return packed({_INSIDE: golden}) if golden else b""
