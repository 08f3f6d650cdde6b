"""Golden files out of the artifacts of a run: read by ranges, matched, and whatever is not to be had is named."""

import json
import random
import warnings
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from stores import TOKEN, Fault, Store, packed, remote

from runbook_lib.golden import collect as artifacts
from runbook_lib.golden.collect import FunctionalTestJob, GoldenCollection, GoldenSource
from runbook_lib.world.github.models import Artifact
from runbook_lib.world.transport.http import RemoteFile

RUN = 4711
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
H100, GB200 = "golden_values_dev_dgx_h100.json", "golden_values_dev_dgx_gb200.json"
LOGS = {f"logs/1/run/attempt_0/{rank}/stdout.log": random.Random(rank).randbytes(40_000) for rank in range(8)}
VALUES = json.dumps({"lm loss": {"values": {"1": 10.5, "2": 1e-05}}}).encode()


def job(number: int, name: str = "gpt/a", *, at: int = 0, until: int = 600, state: str = "failed", **more: str) -> Any:
    model, case = name.split("/")
    start, end = NOON + timedelta(seconds=at), NOON + timedelta(seconds=until)
    return FunctionalTestJob(number, f"{name} - latest", model, case, state, start, end, **more)  # type: ignore[arg-type]


def upload(
    number: int, case: str = "a", *, at: int = 600, unique: int = 0, ending: str = "", expired: bool = False
) -> Artifact:
    name = f"logs-{case}-{RUN}-{unique or number:08x}-0000-4000-8000-000000000000{ending}"
    return Artifact(number, name, 0, expired, NOON + timedelta(seconds=at))


class Run:
    """A run with its artifacts in the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.jobs: list[FunctionalTestJob] = []
        self.uploads: list[Artifact] = []
        self.lines: list[tuple[int, int, str]] = []

    def add(self, made: Any, left: Artifact, content: dict[str, bytes] | list[tuple[str, bytes]] | bytes) -> None:
        if made is not None:
            self.jobs.append(made)
        data = content if isinstance(content, bytes) else packed(content)
        self.store.contents[left.id] = data
        self.uploads.append(replace(left, size=len(data)))

    def collect(self, **options: Any) -> GoldenCollection:
        pairs = artifacts.match_uploads(self.jobs, self.uploads, RUN)
        source = GoldenSource("CI run 4711", tuple(self.jobs), pairs, self.address)
        progress = lambda done, total, name: self.lines.append((done, total, name))  # noqa: E731
        known = options.get("known", {place(f"{job.model}/{job.test_case}") for job in self.jobs})
        return artifacts.collect(source, known, progress=progress)

    def address(self, it: Artifact) -> RemoteFile:
        return remote(f"{self.store.forge}/artifacts/{it.id}", self.store)


@pytest.fixture
def run() -> Run:
    return Run(Store())


def told(found: GoldenCollection) -> str:
    return "\n".join(f"{it.job}|{it.artifact}|{it.file}|{it.sentence}" for it in found.problems)


def place(name: str, file: str = H100) -> str:
    return f"tests/functional_tests/test_cases/{name}/{file}"


# -- nothing to do ----------------------------------------------------------------------------------------------------


def test_jobs_that_passed_are_not_read(run: Run) -> None:
    run.add(job(1, state="passed"), upload(1), {H100: VALUES})
    assert run.collect() == GoldenCollection((), ())
    assert not run.store.seen


def test_no_golden_file_by_design(run: Run) -> None:
    run.add(job(1), upload(1), LOGS)
    run.jobs.append(job(2, "gpt/b"))
    run.add(job(3, "gpt/c"), upload(3, "c", expired=True), LOGS)
    assert run.collect(known={place("gpt/other")}).problems == ()


# -- what is there ----------------------------------------------------------------------------------------------------


def test_only_golden_members_are_read(run: Run) -> None:
    second = H100.replace(".json", "_2nd.json")
    run.add(job(1), upload(1), {**LOGS, H100: VALUES, second: b"{}", "tensorboard/events": b"x" * 999})
    found = run.collect(known={place("gpt/a"), place("gpt/a", second)})
    assert not found.problems
    assert [(it.path, it.bytes) for it in found.files] == [
        (place("gpt/a"), VALUES),
        (place("gpt/a", second), b"{}"),
    ]
    assert found.files[0].job == "gpt/a - latest"
    assert run.store.sent < 4000 < len(run.store.contents[1])
    assert run.lines == [(1, 1, "gpt/a - latest")]


# -- matching ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [600, 900])  # together, or one after the other
def test_platforms_of_one_test_case(run: Run, end: int) -> None:
    run.add(job(1, until=600), upload(1, at=600), {H100: VALUES})
    run.add(job(2, until=end), upload(2, at=end), {GB200: b"{}"})
    found = run.collect()
    assert not found.problems
    assert {it.path: it.bytes for it in found.files} == {place("gpt/a"): VALUES, place("gpt/a", GB200): b"{}"}


@pytest.mark.parametrize("state", ["passed", "cancelled", "timed out"])
def test_jobs_that_end_together_with_different_results(run: Run, state: str) -> None:
    run.add(job(1), upload(1), {H100: VALUES})
    run.add(job(2, state=state), upload(2), {GB200: b"{}"})
    found = run.collect()
    assert found.files == ()
    assert {problem.artifact for problem in found.problems} >= {upload.name for upload in run.uploads}


def test_the_platform_of_the_files_names_the_job_of_those_that_end_together(run: Run) -> None:
    run.add(job(1, platform="dgx_h100"), upload(1), {H100: VALUES})
    run.add(job(2, platform="dgx_gb200", state="passed"), upload(2), {GB200: b"{}"})
    assert [it.path for it in run.collect().files] == [place("gpt/a")]


def test_one_test_case_in_two_models(run: Run) -> None:
    run.add(job(1, "gpt/a", until=300), upload(1, at=300), {H100: VALUES})
    run.add(job(2, "moe/a", at=400), upload(2), {H100: b"{}"})
    assert {it.path: it.bytes for it in run.collect().files} == {place("gpt/a"): VALUES, place("moe/a"): b"{}"}
    run.jobs[1] = job(2, "moe/a", until=301)
    run.uploads[1] = replace(run.uploads[1], created=NOON + timedelta(seconds=301))
    found = run.collect()
    assert found.files == ()
    assert "moe/a - latest (failed)" in told(found)


def test_artifacts_of_earlier_attempts_and_other_runs(run: Run) -> None:
    run.add(job(1, at=1000, until=1600), upload(1, at=600), {H100: b"1"})
    run.add(None, upload(2, at=1600), {H100: VALUES})
    other = Artifact(9, run.uploads[0].name.replace(str(RUN), "1"), 1, False, NOON + timedelta(seconds=1600))
    run.uploads.append(other)
    assert [it.bytes for it in run.collect().files] == [VALUES]


def test_the_second_try_to_upload_counts(run: Run) -> None:
    run.add(job(1), upload(1, unique=7), b"half of a z")
    run.add(None, upload(2, unique=7, ending="-retry"), {H100: VALUES})
    found = run.collect()
    assert not found.problems
    assert [it.bytes for it in found.files] == [VALUES]


@pytest.mark.parametrize("other", [H100, GB200])
def test_two_artifacts_of_one_job(run: Run, other: str) -> None:
    run.add(job(1), upload(1), {H100: VALUES})
    run.add(None, upload(2), {other: b"{}"})
    found = run.collect()
    assert found.files == ()
    assert {problem.artifact for problem in found.problems} == {upload.name for upload in run.uploads}


def test_fewer_artifacts_than_jobs(run: Run) -> None:
    run.add(job(1), upload(1), {H100: VALUES})
    run.jobs.append(job(2))
    found = run.collect()
    assert [it.path for it in found.files] == [place("gpt/a")]
    assert {problem.job for problem in found.problems} == {"gpt/a - latest"}


def test_gitlab_the_last_restart_of_the_last_iteration() -> None:
    base = "results/iteration={}/{}/assets/basic/a-dev-dgx-h100/{}"
    names = [
        base.format(0, "restart_2", H100), base.format(2, "restart_9", H100),
        base.format(2, "restart_10", "generations_dev_dgx_h100.json"), base.format(10, "restart_1", "other.json"),
    ]  # fmt: skip
    assert artifacts.golden_members(names, gitlab=True) == (names[2],)
    assert artifacts.golden_members(["x/../../" + H100, "x/" + H100], gitlab=True) == ("x/../../" + H100,)


# -- what is not to be had --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["cancelled", "timed out", "unfinished"])
def test_values_of_jobs_that_did_not_end_are_not_used(run: Run, state: str) -> None:
    run.add(job(1, state=state), upload(1), {H100: VALUES})
    found = run.collect()
    assert found.files == ()
    assert [(problem.job, problem.by_job) for problem in found.problems] == [("gpt/a - latest", True)]
    assert not run.store.seen


def test_each_missing_file_has_a_problem(run: Run) -> None:
    run.add(job(1, "gpt/a"), upload(1, expired=True), {H100: VALUES})
    run.jobs.append(job(2, "gpt/b"))
    run.add(job(3, "gpt/c"), upload(3, "c"), LOGS)
    run.add(job(4, "gpt/d"), upload(4, "d"), {H100: VALUES})
    run.add(job(5, "gpt/e"), upload(5, "e"), {H100: VALUES})
    second = H100.replace(".json", "_2nd.json")
    known = {place(f"gpt/{name}") for name in "abcd"} | {place("gpt/d", second), place("gpt/d", GB200)}
    found = run.collect(known=known)
    assert [it.path for it in found.files] == [place("gpt/d"), place("gpt/e")]
    problems = {problem.job[:5]: (problem.artifact, problem.file, problem.by_job) for problem in found.problems}
    assert problems == {
        "gpt/a": (run.uploads[0].name, "", False),
        "gpt/b": ("", "", False),
        "gpt/c": (run.uploads[1].name, "", True),
        "gpt/d": (run.uploads[2].name, place("gpt/d", second), False),
    }


# -- a network that misbehaves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranged", [True, False])
@pytest.mark.parametrize("fault", [Fault("forge", 503), Fault("forge", 429), Fault("storage", 0, times=2, cut=True)])
def test_temporary_errors_are_retried(run: Run, fault: Fault, ranged: bool) -> None:
    run.store.ranges = ranged
    run.store.faults.append(replace(fault))
    run.add(job(1), upload(1), {**LOGS, H100: VALUES})
    found = run.collect()
    assert told(found) == ""
    assert [it.bytes for it in found.files] == [VALUES]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("forge", 410, times=99), "it has expired (HTTP 410)"),
        (Fault("forge", 401, times=99), "does not let this token read it"),
        (Fault("forge", 302, times=99, headers={"Location": "/artifacts/1"}), "redirects without end"),
        (Fault("forge", 302, times=99, headers={"Location": "file:///etc/passwd"}), "not followed"),
        (Fault("storage", 206, times=99, headers={"Content-Range": "bytes 5-6/99"}), "different part"),
        (Fault("storage", 206, times=99, body=b"x" * 9), "HTTP 206"),
    ],
)
def test_permanent_errors_are_reported(run: Run, fault: Fault, words: str) -> None:
    run.add(job(1), upload(1), {H100: VALUES})
    run.add(job(2, "gpt/b"), upload(2, "b"), {H100: VALUES})
    run.store.faults.append(fault)
    found = run.collect()
    assert found.files == ()
    assert len(found.problems) == 2
    assert words in told(found)
    assert TOKEN not in told(found)


def test_an_expired_address_is_requested_again(run: Run) -> None:
    run.add(job(1), upload(1), {**LOGS, H100: VALUES, **{f"logs/{n}": b"" for n in range(99)}})
    good = run.store.content

    def expiring(number: int) -> bytes:
        if sum(where == "storage" for where, _ in run.store.seen) == 1:
            run.store.faults.append(Fault("storage", 403))
        return good(number)

    run.store.content = expiring  # type: ignore[method-assign]
    assert [it.bytes for it in run.collect().files] == [VALUES]
    assert [where for where, _ in run.store.seen].count("forge") == 2


# -- archives that misbehave ------------------------------------------------------------------------------------------


def flipped() -> bytes:
    data = bytearray(packed({H100: VALUES}, zipfile.ZIP_STORED))
    data[data.index(b"10.5")] ^= 1
    return bytes(data)


def twice() -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return packed([(H100, VALUES), (H100, b"{}")])


WHOLE = packed({**LOGS, H100: VALUES})


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (flipped(), "cannot be unpacked"),
        (twice(), "2 members of this name"),
        (packed({H100: VALUES, H100.replace("golden_values", "generations"): b"{}"}), "2 members of artifacts"),
        *[(WHOLE[:size], "zip file") for size in (0, 22, 1000, len(WHOLE) - 1)],
    ],
)
@pytest.mark.parametrize("ranged", [True, False])
def test_archives_that_are_refused(run: Run, archive: bytes, words: str, ranged: bool) -> None:
    run.store.ranges = ranged
    run.add(job(1), upload(1), archive)
    found = run.collect()
    assert found.files == ()
    assert words in told(found)
