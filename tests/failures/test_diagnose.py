"""From the lines of logs to one cause: what says nothing first, then each class, then what logs look like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.failures import diagnose
from runbook_lib.failures.evidence import FailedJob, Failure, LogSummary, driver_verdict
from runbook_lib.failures.log_lines import clean, split
from runbook_lib.failures.log_scanner import LONGEST, Scanner
from runbook_lib.practice import evidence
from runbook_lib.practice.ci import Job
from runbook_lib.text.redact import Redactor

TEST = "gpt/gpt3_mcore_tp2_pp2 - latest"


def scan(data: bytes | str, name: str = "log", rank: int | None = None, step: int = 1 << 16) -> LogSummary:
    raw = data.encode() if isinstance(data, str) else data
    scanner = Scanner(name, rank)
    for start in range(0, len(raw), step):
        scanner.feed(raw[start : start + step])
    return scanner.summary()


def find(*logs: bytes | str, job: str = TEST, conclusion: str = "failure", ranks: bool = True) -> Failure:
    readings = [scan(log, f"{rank}/stderr.log", rank if ranks else None) for rank, log in enumerate(logs)]
    return diagnose.conclude(FailedJob(job, conclusion=conclusion), readings, Redactor({}).text)


def raised(error: str, *frames: tuple[str, str], more: str = "") -> str:
    frames = frames or (("pretrain_gpt.py", "<module>"),)
    told = "".join(f'  File "/opt/megatron-lm/{file}", line 12, in {name}\n    call()\n' for file, name in frames)
    return f"Traceback (most recent call last):\n{told}{error}\n{more}"


PROGRESS = (
    " [2026-07-01 10:00:0{0}.000001] iteration        {0}/      50 | lm loss: {1} | number of nan iterations:   0 |\n"
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.11 GiB "
    "of which 1.12 GiB is free. Process 77 has 77.95 GiB memory in use."
)
DRIFT = """\
INFO     common:common.py:300 Actual values: 10.9, 10.8, 10.7
INFO     common:common.py:303 Golden values: 10.9, 10.8, 10.5
ERROR    common:common.py:320 Exact comparison of lm loss: FAILED
>       assert all_test_passed, f"The following metrics failed: {', '.join(failed_metrics)}"
E       AssertionError: The following metrics failed: lm loss, num-zeros

tests/functional_tests/python_test_utils/common.py:330: AssertionError
"""
NOISE = """\
[rank1]:[W] ProcessGroupNCCL.cpp:1250] Warning: destroy_process_group() was not called before program exit
[rank1]:[W701 10:00:00.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3): Connection reset by peer
W0701 10:00:01.000000 17 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 21 closing signal SIGTERM
"""


# -- what says nothing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "log",
    [
        "",
        PROGRESS.format(1, "1.0E+01"),
        NOISE,
        raised("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", more="pretrain_gpt.py FAILED\n"),
        raised("torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 15"),
        raised(OOM) + PROGRESS.format(7, "9.1E+00"),
        raised("KeyboardInterrupt"),
        "##[group]Run tests\n##[endgroup]\n",
    ],
)
def test_logs_without_a_cause_are_unknown(log: str) -> None:
    found = find(log)
    assert found.kind == "unknown"
    assert not found.retry
    assert found.cause.endswith(".")


def test_a_job_that_did_not_fail_is_not_triaged() -> None:
    found = find(raised("ValueError: no"), conclusion="skipped")
    assert (found.kind, found.cause) == ("unknown", "The job did not fail: it ended with skipped.")


def test_what_a_job_without_logs_says() -> None:
    said = "The artifact has expired. Run the job again."
    found = diagnose.conclude(FailedJob(TEST), [], problem=said)
    assert (found.kind, found.cause, found.evidence) == ("unknown", said, ())
    assert diagnose.conclude(FailedJob(TEST, conclusion="timed_out"), []).kind == "hang"
    assert "cancelled" in find("training\n", conclusion="cancelled").cause


# -- classes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "log", "kind"),
    [
        ("linting", "would reformat megatron/x.py\n##[error]Process completed with exit code 1.\n", "lint"),
        ("linting", raised("SystemExit: 1") + "error: golden_values_dev.json holds NaN\n", "lint"),
        ("linting", "", "lint"),
        ("linting", "fatal: Could not resolve host: github.com\n", "flaky infrastructure"),
        ("cicd-container-build / Build CI container", "ERROR: failed to solve: exit code 1\n", "container build"),
        ("cicd-container-build / Build CI container", "error: toomanyrequests: slow down\n", "rate limit"),
        ("test:pre_build_image", "##[error]x\n", "container build"),
        ("tests/unit_tests/moe - latest", "[rank0]: RuntimeError: no\n", "unit tests"),
        ("tests/unit_tests/moe - latest", "Segmentation fault (core dumped)\n", "crash"),
        ("gpt/x - latest", "##[error]Process completed with exit code 1.\n", "unknown"),
    ],
)
def test_the_kind_of_the_job_decides_where_its_log_does_not(job: str, log: str, kind: str) -> None:
    assert find(log, job=job).kind == kind


def test_failed_unit_tests_are_named() -> None:
    log = """\
____________ TestRouter.test_aux ____________
    def test_aux(self):
>       assert loss == 1
E       assert 2 == 1
E        +  where 2 = f()

tests/unit_tests/moe/test_router.py:40: AssertionError
=========== short test summary info ===========
FAILED tests/unit_tests/moe/test_router.py::TestRouter::test_aux - assert 2 == 1
ERROR tests/unit_tests/moe/test_layer.py - ImportError: no
"""
    found = find("", log, job="tests/unit_tests/moe/**/*.py - latest")
    assert found.kind == "unit tests"
    assert list(found.tests) == [
        "tests/unit_tests/moe/test_router.py::TestRouter::test_aux", "tests/unit_tests/moe/test_layer.py",
    ]  # fmt: skip
    assert "E       assert 2 == 1" in found.evidence
    many = "".join(f"FAILED tests/unit_tests/test_a.py::test_{number} - assert 0\n" for number in range(60))
    assert len(find("", many, job="tests/unit_tests/moe/**/*.py - latest").tests) == 60  # each can be left out of CI


# -- the root among many ----------------------------------------------------------------------------------------------


def test_the_root_is_not_a_consequence() -> None:
    died = raised("torch.distributed.DistBackendError: NCCL error in: x.cpp:3, remote process exited")
    found = find(died, NOISE + died, NOISE, raised(OOM), died)
    assert (found.kind, found.rank, found.details["peak"]) == ("out of memory", 3, "77.95 GiB")
    assert found.where
    assert found.where.place == "3/stderr.log, line 4"


def test_a_consequence_below_an_exception_is_no_part_of_its_message() -> None:
    died = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    found = find(raised("RuntimeError: \n        CUDA Setup failed. Inspect the output above", more=died))
    assert "CUDA Setup failed" in found.cause
    assert "ChildFailedError" not in found.evidence[-1]


def test_a_consequence_alone_means_flaky_infrastructure() -> None:
    found = find(raised("torch.distributed.DistBackendError: NCCL error: unhandled system error, ncclSystemError"))
    assert (found.kind, found.retry) == ("flaky infrastructure", True)


def test_the_earliest_by_time_where_all_have_one() -> None:
    stamp = "[2026-07-01 10:00:{:02}.5] "
    found = find(
        stamp.format(9) + "x\n" + raised("ValueError: later"), stamp.format(3) + "x\n" + raised("ValueError: first")
    )
    assert "first" in found.cause
    # Where one has no time, the rank decides.
    found = find(raised("ValueError: of rank 0"), stamp.format(3) + "x\n" + raised("ValueError: of rank 1"))
    assert "of rank 0" in found.cause


def test_the_rank_that_torchrun_saw_first() -> None:
    summary = "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 7)\n"
    readings = [scan(raised(f"ValueError: of rank {rank}"), rank=rank) for rank in range(3)]
    found = diagnose.conclude(FailedJob(TEST), [*readings, scan(summary, "the job's log")])
    assert "of rank 1" in found.cause


def test_a_rank_that_continued_survived_its_traceback() -> None:
    found = find(raised("ImportError: optional") + "talk\n" * 2000, raised(OOM))
    assert found.kind == "out of memory"


@pytest.mark.parametrize(
    ("link", "deep"),
    [
        ("During handling of the above exception, another exception occurred", 1),
        ("The above exception was the direct cause of the following exception", 40),
    ],
)
def test_the_first_of_a_chain_is_the_root(link: str, deep: int) -> None:
    between = f"\n{link}:\n\n"
    last = raised("RuntimeError: training failed", *[("megatron/training/training.py", "train")] * deep)
    found = find(raised("ImportError: cannot import name 'x'") + between + last + between + last)
    assert found.kind == "import error"
    assert any(line.startswith("ImportError") for line in found.evidence)
    assert not any("training failed" in line for line in found.evidence)


def test_only_the_last_attempt_counts() -> None:
    again = "WARNING: Detected flaky failure, attempt restart.\n"
    drift = find(raised("ValueError: of the first try") + again + DRIFT, ranks=False)
    assert drift.kind == "golden drift"
    assert find(raised("ValueError: of the first try") + again + "nothing\n", ranks=False).kind == "program error"
    assert "of the first try" in find(raised("ValueError: of the first try") + again, ranks=False).cause


def test_interleaved_ranks_are_separated() -> None:
    one = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    g()", "ValueError: of one"]
    two = ["Traceback (most recent call last):", '  File "b.py", line 1, in f', "ConnectionResetError: of two", ""]
    log = "".join(f"[default1]:[rank1]: {a}\n[default2]:[rank2]: {b}\n" for a, b in zip(one, two, strict=True))
    found = find(log, ranks=False)
    assert (found.cause, found.rank) == ("Rank 1 failed with ValueError: of one.", 1)
    assert not any("of two" in line for line in found.evidence)


# -- facts ------------------------------------------------------------------------------------------------------------


def test_a_hang_names_the_last_progress_and_who_stopped_first() -> None:
    watchdog = (
        "[rank{0}]:[E] ProcessGroupNCCL.cpp:600] [Rank {0}] Watchdog caught collective operation timeout: x\n"
        "[rank{0}]:[E] [PG 0 Rank {0}] Timeout at NCCL work: 9, last enqueued NCCL work: {1}, "
        "last completed NCCL work: 8.\n"
    )
    found = find(watchdog.format(0, 12), watchdog.format(1, 9), PROGRESS.format(7, "9.0E+00") + watchdog.format(2, 12))
    assert (found.kind, found.retry) == ("hang", False)
    assert found.cause.startswith("Rank 1 stopped first or is silent. ")
    assert found.cause.endswith("its last iteration is 7.")
    assert "iteration        7/" in found.evidence[-1]


def test_a_root_traceback_explains_the_hang_of_the_others() -> None:
    found = find("[rank0]:[E] [Rank 0] Watchdog caught collective operation timeout\n", raised("ValueError: x"))
    assert found.kind == "program error"
    assert "Rank 1 failed with ValueError" in found.cause


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("", "hang"),
        (raised("ValueError: x"), "program error"),
        ("srun: error: h-1: task 1: Segmentation fault\n", "crash"),
        (raised("ValueError: x") + PROGRESS.format(7, "9.0E+00"), "hang"),  # it trained on
        ("WARNING: it is tried again\n" + raised("ValueError: x"), "hang"),
    ],
)
def test_a_time_limit_is_explained_by_a_process_that_had_died(log: str, kind: str) -> None:
    limit = "slurmstepd: error: *** STEP 7.0 ON h-1 CANCELLED AT 2026-03-01T12:00:00 DUE TO TIME LIMIT ***\n"
    assert find(log + limit, ranks=False).kind == kind
    assert kind == "hang" or find(limit + log, ranks=False).kind == "hang"  # what follows explains nothing


def test_drift_shows_expected_and_found_values() -> None:
    found = find(DRIFT)
    assert found.details["metrics"] == "lm loss, num-zeros"
    assert (found.details["expected"], found.details["found"], found.details["value number"]) == ("10.5", "10.7", "3")


@pytest.mark.parametrize(
    ("trained", "values", "kind"),
    [
        ("", "10.9, 10.8, 10.7", "golden drift"),
        ("", "10.9, inf, 10.7", "regression"),
        ("", "10.9, 10.8, 17.0", "regression"),
        ("", "", "golden drift"),
        ("1.09E+01 1.04E+01 2.0E+01", "10.9, 10.8, 10.7", "regression"),  # it diverges
        ("1.09E+01 nan nan", "10.9, 10.8, 10.7", "regression"),
        ("1.09E+01 1.04E+01 1.03E+01", "10.9, 10.8, 10.7", "golden drift"),
    ],
)
def test_drift_or_regression(trained: str, values: str, kind: str) -> None:
    log = "".join(PROGRESS.format(step, loss) for step, loss in enumerate(trained.split(), 1)) + DRIFT
    found = find(log.replace("10.9, 10.8, 10.7", values))
    assert (found.kind, found.retry) == (kind, False)
    assert find(DRIFT.replace("lm loss", "iteration-time").replace("10.9, 10.8, 10.7", "99")).kind == "golden drift"


TOO_OLD = "RuntimeError: The NVIDIA driver on your system is too old (found version 12020)."
SMI = "| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2     |"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ""),
        (SMI, ""),
        (TOO_OLD, "supports CUDA 12.2 at most"),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.9", "CUDA 12.9 needs driver 575"),
        (f"NVIDIA Release 25.04 (build 1)\n{SMI}\n{TOO_OLD}", "Driver 535.104.05 CUDA 12.9"),
        ("NVIDIA Release 26.04 (build 1)", "CUDA 13.2 driver 595"),
        (f"docker run nvcr.io/nvidia/pytorch:25.04-py3\n{TOO_OLD}", "CUDA 12.9 needs"),
    ],
)
def test_the_driver_is_judged_for_the_image_that_the_log_names(text: str, parts: str) -> None:
    verdict = driver_verdict(text)
    assert [part for part in parts.split() if part not in verdict] == []
    assert bool(verdict) == bool(parts)


# -- how logs look ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07text", "text"),
        (b"\x1b]8;;http://x\x1b\\link", "link"),
        (b"\xff\xfeT\x00r\x08", "��Tr"),
        ("\u202eevil".encode(), "evil"),
        (b"\ttabs stay", "\ttabs stay"),
    ],
)
def test_clean(raw: bytes, text: str) -> None:
    assert clean(raw) == text


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("2026-07-01T10:00:00.1234567Z text", ("07-01T10:00:00.1234567", None, "text")),
        ("2026-07-01T10:00:00.123456Z 01O text", ("07-01T10:00:00.123456", None, "text")),
        ("[default2]:[rank10]: text", ("", 10, "text")),
        ("task-1/0 [7]: text", ("", 7, "text")),
        (" 3: text", ("", 3, "text")),
        ("[2026] text", ("", None, "[2026] text")),
    ],
)
def test_prefixes(line: str, parts: tuple[str, int | None, str]) -> None:
    assert split(line) == parts


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("step", [1, 7, 1 << 16])
def test_a_log_as_it_comes_from_github(end: str, step: int) -> None:
    lines = ["\x1b[36mstarting\x1b[0m", *raised("ValueError: \x1b[31mred\x1b[0m").splitlines(), "bye"]
    log = end.join(f"2026-07-01T10:00:0{at}.0000000Z task-1/0 [default5]:{line}" for at, line in enumerate(lines))
    failure = diagnose.conclude(FailedJob(TEST), [scan(log, step=step)])
    assert failure.cause == "Rank 5 failed with ValueError: red."
    assert failure.where
    assert failure.where.place == "log, line 5"
    assert failure.evidence[0] == "2026-07-01T10:00:01.0000000Z task-1/0 [default5]:Traceback (most recent call last):"


def test_progress_bars_and_long_lines_are_cut() -> None:
    bar = b"".join(b"\r%3d%% done" % percent for percent in range(20000))
    long = b"x" * (3 * LONGEST)
    log = b"\n".join([bar + b"\rValueError: after the bar", long + b"Segmentation fault", b"last"])
    reading = scan(log, step=4096)
    assert reading.lines == 3
    assert [it.text for it in reading.findings] == ["ValueError: after the bar"]
    assert max(map(len, reading.tail)) <= 1000


def test_evidence_is_short_and_has_no_secret() -> None:
    secret = "ghp_" + "a" * 36
    frames = [("megatron/x.py", f"f{number}") for number in range(100)]
    found = find(raised(f"ValueError: {secret}", *frames, more="y" * 5000))
    assert len(found.evidence) <= 30
    assert max(map(len, found.evidence)) <= 1000
    assert secret not in repr(found)
    assert "lines left out" in found.evidence[1]


@given(st.lists(st.binary(max_size=200), max_size=20), st.integers(1, 50))
def test_any_bytes_are_scanned(pieces: list[bytes], step: int) -> None:
    assert find(b"\n".join(pieces), b"".join(pieces)).cause
    log = b"\r\n".join(pieces)
    split, complete = scan(log, step=step), scan(log)
    places = [[(found.line, found.text, found.end) for found in each.findings] for each in (split, complete)]
    assert places[0] == places[1]
    assert (split.lines, split.tail) == (complete.lines, complete.tail)


# -- the practice environment ------------------------------------------------------------------------------------


def test_the_logs_of_the_practice_environment() -> None:
    queue = Job("cicd-wait-in-queue", "queue", 0, 1, "failure", "refused")
    assert "deployment was refused" in diagnose.conclude(FailedJob(queue.name), [scan(evidence.log(queue))]).cause
    # Two ranks do not explain the death of a third.
    found = diagnose.conclude(FailedJob(TEST), [scan(evidence.log(Job(TEST, "functional", 0, 1, "failure", "memory")))])
    assert (found.kind, found.retry, found.rank) == ("unknown", False, 3)


# -- a resumed run -----------------------------------------------------------------------------------------------------

_TESTS = "tests/functional_tests/python_test_utils"
_GOLDEN = f"Running pytest checks against golden values\n{_TESTS}/test_pretraining_regular_pipeline.py::test_regular\n"
_RESUME = (
    f"Running pytest 1st vs 2nd run comparison\n{_TESTS}/test_pretraining_resume_checkpoint_pipeline.py::test_resume\n"
)
_FRAMES = (
    f"{_TESTS}/test_pretraining_resume_checkpoint_pipeline.py:79:\n{_TESTS}/test_pretraining_regular_pipeline.py:120:\n"
)
_FAILED = "FAILED {}/test_pretraining_{}.py::test_{} - AssertionError: The following metrics failed: lm loss\n"
_RESUME_FAILED = _FAILED.format(_TESTS, "resume_checkpoint_pipeline", "resume_checkpoint_pipeline")
_GOLDEN_FAILED = _FAILED.format(_TESTS, "regular_pipeline", "regular_pipeline")


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        (_GOLDEN + DRIFT + _GOLDEN_FAILED, "golden drift"),
        (_GOLDEN + _RESUME + _FRAMES + DRIFT + _RESUME_FAILED, "resume mismatch"),
        (DRIFT + _RESUME_FAILED, "resume mismatch"),  # the end of a log
        (_GOLDEN + _RESUME + _GOLDEN + DRIFT, "golden drift"),  # the second repeat
        (_RESUME + DRIFT.replace("10.9, 10.8, 10.7", "10.9, nan, nan"), "resume mismatch"),
        (_GOLDEN + _RESUME + raised("RuntimeError: CUDA out of memory."), "out of memory"),
    ],
)
def test_a_resumed_run_that_differs_from_its_first_run_is_not_drift(log: str, kind: str) -> None:
    failure = find(log, ranks=False)
    assert failure.kind == kind
    if kind == "resume mismatch":
        assert "lm loss" in failure.cause
        assert "refresh them" not in failure.next
