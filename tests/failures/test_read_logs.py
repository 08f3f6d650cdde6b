"""Reading what is needed of the logs of failed jobs, from a local server and from folders."""

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import stores

from runbook_lib.errors import CannotTell
from runbook_lib.failures import read_logs
from runbook_lib.failures.evidence import FailedJob, Failure
from runbook_lib.failures.read_logs import JobLogs

JOB = FailedJob("gpt/gpt3 - latest", "https://github.com/o/r/actions/runs/1/job/2")
FRAME = 'Traceback (most recent call last):\n  File "/opt/megatron-lm/x.py", line 3, in forward\n    call()\n'
CAUSE = f"{FRAME}ValueError: the cause\n"
LOST = f"{FRAME}torch.distributed.DistBackendError: NCCL error: remote process exited\n"
SUMMARY = (
    "Failures:\n[1]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 1)\n"
    "Root Cause (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 2)\n  exitcode  : 1 (pid: 3)\n"
)
Texts = dict[str, str]


@pytest.fixture
def store() -> stores.Store:
    return stores.Store()


def rank(number: int, stream: str, repeat: int = 1, attempt: int = 0) -> str:
    return f"logs/{repeat}/none_a/attempt_{attempt}/{number}/std{stream}.log"


def all_ranks(**more: str) -> Texts:
    """Logs of four ranks, with noise; ``more`` is what ``out2`` (rank 2) or ``err0`` holds."""
    texts = {rank(it, stream): f"talk of {it}\n" * 50 for it in range(4) for stream in ("out", "err")}
    return texts | {rank(int(name[3:]), name[:3]): text for name, text in more.items()}


def artifact(store: stores.Store, texts: Texts, number: int = 1, job: FailedJob = JOB) -> JobLogs:
    store.contents[number] = stores.packed({name: text.encode() for name, text in texts.items()})
    return JobLogs(job, stores.remote(f"{store.forge}/{number}", store), len(store.contents[number]))


def with_log(store: stores.Store, asked: JobLogs, text: str) -> JobLogs:
    store.contents[99] = text.encode()
    return replace(asked, log=stores.remote(f"{store.forge}/99", store))


def find(asked: JobLogs) -> Failure:
    (found,) = read_logs.diagnose_all([asked])
    return found


# -- what says nothing ------------------------------------------------------------------------------------------------


def test_without_jobs_and_without_logs() -> None:
    assert read_logs.diagnose_all([]) == ()
    found = find(JobLogs(JOB))
    assert found.cause == "The job left neither an artifact nor a log."


@pytest.mark.parametrize("texts", [{}, {"golden_values_dev.json": "{}"}, {"logs/nccl_debug.log": CAUSE}])
def test_an_artifact_without_logs(store: stores.Store, texts: Texts) -> None:
    found = find(artifact(store, texts))
    assert (found.kind, found.evidence) == ("unknown", ())
    assert "no log" in found.cause


@pytest.mark.parametrize("kind", ["artifact", "log"])
def test_unreadable_files_are_reported(kind: str) -> None:
    asked = replace(JobLogs(JOB), **{kind: stores.remote("http://127.0.0.1:9/1")})  # type: ignore[arg-type]
    found = find(asked)
    assert found.kind == "unknown"
    assert "could not be read" in found.cause


@pytest.mark.parametrize("status", [404, 410])
def test_deleted_logs(store: stores.Store, status: int) -> None:
    asked = with_log(store, JobLogs(JOB), "text")
    store.faults.append(stores.Fault("storage", status, times=9))
    found = find(asked)
    assert found.kind == "unknown"
    assert "run the job again" in found.cause


def test_an_expired_artifact_leaves_the_jobs_log(store: stores.Store) -> None:
    expired = JobLogs(JOB, stores.remote(f"{store.forge}/1", store), 1_000_000)
    found = find(with_log(store, expired, CAUSE + "talk\n" * 120_000))
    assert "the cause" in found.cause
    assert "artifact is unavailable" in found.details["problem"]


@pytest.mark.parametrize("data", [b"", b"no zip", stores.packed({"a.log": b"x" * 999})[:-30]])
def test_an_archive_that_is_not_a_zip(store: stores.Store, data: bytes) -> None:
    asked = artifact(store, {})
    store.contents[1] = data
    found = find(JobLogs(JOB, asked.artifact, len(data)))
    assert found.kind == "unknown"
    assert "archive" in found.cause or "zip" in found.cause


def test_a_member_that_is_broken_does_not_hide_the_others(store: stores.Store) -> None:
    asked = artifact(store, all_ranks(err1="x" * 5000, err3=CAUSE))
    with zipfile.ZipFile(io.BytesIO(store.contents[1])) as opened:
        at = opened.getinfo(rank(1, "err")).header_offset
    data = bytearray(store.contents[1])
    data[at : at + 4] = b"gone"
    store.contents[1] = bytes(data)
    found = find(asked)
    assert found.rank == 3
    assert "1/stderr.log" in found.details["problem"]


# -- where the cause is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("place", ["err0", "err2", "err3", "out0", "out1", "out3"])
def test_the_cause_is_found_in_any_log(store: stores.Store, place: str, ranges: bool) -> None:
    store.ranges = ranges
    others = {f"err{it}": LOST for it in range(4)}
    middle = "talk\n" * 9000 + CAUSE
    found = find(artifact(store, all_ranks(**(others | {place: middle}))))
    assert "the cause" in found.cause
    assert found.where is not None
    assert (found.where.file, found.where.line) == (rank(int(place[3]), place[:3]), 9004)
    assert found.evidence == tuple(CAUSE.splitlines())


@pytest.mark.parametrize("has_summary", [False, True])
def test_no_more_is_read_than_the_cause_needs(store: stores.Store, has_summary: bool) -> None:
    """Standard errors suffice, and of these that of the rank that torchrun saw fail first."""
    big = "".join(f"{number} {number * 7919 % 104729}\n" for number in range(200_000))
    more = {f"err{it}": big + LOST for it in (0, 1, 3)} if has_summary else {f"out{it}": big for it in range(4)}
    asked = artifact(store, all_ranks(err2=CAUSE, **more))
    found = find(with_log(store, asked, f"{LOST}{SUMMARY}") if has_summary else asked)
    assert found.rank == 2
    assert store.sent < asked.size / 10


def test_all_ranks_are_read_if_that_one_has_no_cause(store: stores.Store) -> None:
    found = find(with_log(store, artifact(store, all_ranks(err2=LOST, out1=CAUSE)), SUMMARY))
    assert found.rank == 1


def test_failed_golden_values_need_only_the_end_of_the_jobs_log(store: stores.Store) -> None:
    drift = "E   AssertionError: The following metrics failed: lm loss\n"
    asked = with_log(store, artifact(store, all_ranks(err0=CAUSE)), "talk\n" * 200_000 + drift)
    found = find(asked)
    assert found.kind == "golden drift"
    assert store.sent < 2**19
    assert found.where is not None
    assert found.where.line == 0  # counting would need the whole


def test_a_job_without_artifact_has_its_log_read_from_the_start(store: stores.Store) -> None:
    found = find(with_log(store, JobLogs(JOB), CAUSE + "talk\n" * 120_000))
    assert "the cause" in found.cause
    assert found.where
    assert found.where.place == "the job's log, line 4"


def test_the_complete_log_is_read_where_nothing_else_has_a_cause(store: stores.Store) -> None:
    text = "fatal: Segmentation fault\n" + "talk\n" * 120_000
    found = find(with_log(store, artifact(store, all_ranks()), text))
    assert found.kind == "crash"


def test_the_last_attempt_of_the_last_repeat_comes_first(store: stores.Store) -> None:
    old = f"{FRAME}ValueError: old\n"
    texts = {rank(0, "err", 2, attempt=9): old, rank(0, "err", 10, attempt=2): old}
    found = find(artifact(store, texts | {rank(0, "err", 10, attempt=10): CAUSE}))
    assert "the cause" in found.cause
    # An earlier one is read where the last has no cause.
    texts = {rank(0, "err"): CAUSE, rank(0, "err", repeat=2): "fine\n", rank(0, "out", repeat=2): "fine\n"}
    found = find(artifact(store, texts, 2))
    assert found.where is not None
    assert found.where.file == rank(0, "err")


def test_the_folders_of_gitlab(store: stores.Store) -> None:
    place = "results/iteration={}/restart={}/assets/basic/gpt3-dev/"
    texts = {
        place.format(0, 0) + rank(0, "err"): f"{FRAME}ValueError: of the first iteration\n",
        place.format(1, 0) + rank(0, "err"): f"{FRAME}ValueError: of the first restart\n",
        place.format(1, 1) + rank(1, "err"): CAUSE,
        place.format(1, 1) + "jet_assets/output_logs/output_script-0.log": "talk\n",
    }
    found = find(artifact(store, texts))
    assert "the cause" in found.cause
    texts[place.format(1, 1) + rank(1, "err")] = "fine\n"
    texts[place.format(1, 1) + "jet_assets/output_logs/output_script-0.log"] = CAUSE
    found = find(artifact(store, texts, 2))
    assert "the cause" in found.cause


def test_unit_tests_are_named_from_the_output(store: stores.Store) -> None:
    job = FailedJob("tests/unit_tests/moe - latest")
    texts = {
        "1/none_a/attempt_0/0/stderr.log": CAUSE,
        "1/none_a/attempt_0/0/stdout.log": "E   assert 1 == 2\nFAILED tests/unit_tests/moe/test_a.py::test_b - x\n",
    }
    found = find(artifact(store, texts, job=job))
    assert (found.kind, found.tests) == ("unit tests", ("tests/unit_tests/moe/test_a.py::test_b",))


def test_many_jobs_keep_their_order(store: stores.Store) -> None:
    asked = [
        artifact(store, all_ranks(err1=f"{FRAME}ValueError: of {number}\n"), number, FailedJob(str(number)))
        for number in range(20)
    ]
    found = read_logs.diagnose_all(asked)
    assert [it.job for it in found] == [str(number) for number in range(20)]
    assert all(f"of {it.job}" in it.cause for it in found)


def test_secrets_are_redacted(store: stores.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "a-very-secret-value")
    asked = artifact(store, all_ranks(err1=f"{FRAME}ValueError: a-very-secret-value\n"))
    found = find(asked)
    assert "a-very-secret-value" not in repr(found)
    assert stores.TOKEN not in repr(asked)


# -- on the disk ------------------------------------------------------------------------------------------------------


def lay(folder: Path, texts: Texts) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_a_folder_a_zip_and_a_single_log(tmp_path: Path) -> None:
    lay(tmp_path / "folder", all_ranks(err0=LOST, err2=CAUSE))
    found = read_logs.diagnose_folder(tmp_path / "folder")
    assert found.where
    assert (found.where.file, found.where.line, found.job) == (rank(2, "err"), 4, "folder")
    for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        members = {name: text.encode() for name, text in all_ranks(out3="talk\n" * 150_000 + CAUSE).items()}
        (tmp_path / "a.zip").write_bytes(stores.packed(members, kind))
        assert "the cause" in read_logs.diagnose_folder(tmp_path / "a.zip", JOB).cause
    lay(tmp_path, {"job.log": CAUSE})
    assert "the cause" in read_logs.diagnose_folder(tmp_path / "job.log", JOB).cause


@pytest.mark.parametrize("name", ["", "missing", "empty.zip"])
def test_a_folder_without_logs_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.zip").write_bytes(b"")
    with pytest.raises(CannotTell):
        read_logs.diagnose_folder(tmp_path / name)


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(CAUSE)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").symlink_to(tmp_path / "secret")
    (tmp_path / "logs" / "b.log").write_text("fine\n")
    assert "the cause" not in read_logs.diagnose_folder(tmp_path / "logs").cause
