"""What became of a test, from its files and from what Slurm says."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from runbook_lib.compute.slurm.client import OVER
from runbook_lib.compute.slurm.jobs import GONE, ObservedTest, SlurmJob, saved_state
from runbook_lib.compute.slurm.outcome import MatrixOutcome, conclude
from runbook_lib.compute.slurm.selection import config_of
from runbook_lib.failures.failure import Failure
from runbook_lib.failures.patterns import FailureKind
from runbook_lib.golden.form import Verdict
from runbook_lib.recipes.workloads import Workload

FILE, SECOND = "golden_values_dev_dgx_h100.json", "golden_values_dev_dgx_h100_2nd.json"
GOLDEN = '{"lm loss": {"start_step": 1, "end_step": 2, "step_interval": 1, "values": {"1": 10.5, "2": 10.4}}}'
DRIFT, FAR, CUT = GOLDEN.replace("10.5", "10.51"), GOLDEN.replace("10.4", "20.4"), GOLDEN[:40]
CONFIG = "MODEL_ARGS:\n  --tensor-model-parallel-size: 2\n  '--micro-batch-size': 4\n"
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: the cause\n'


TEST = Workload("r", "gpt", "a", "dev", "dgx_h100", (), 1, 8, 60, "true")


def texts(*more: str) -> dict[str, str | None]:
    """The commit's settings and golden files."""
    folder = config_of(TEST).removesuffix("model_config.yaml")
    return {config_of(TEST): CONFIG, **{f"{folder}{name}": GOLDEN for name in (FILE, *more)}}


def job_in(folder: Path) -> SlurmJob:
    """A job whose results are in the folder 0."""
    (folder / "0").mkdir(parents=True, exist_ok=True)
    return SlurmJob(TEST, folder / "0", 7)


def look(
    folder: Path, state: str = "COMPLETED", files: Mapping[str, str] | None = None, *, reason: str = "",
    over: bool = True, more: tuple[str, ...] = (),
) -> MatrixOutcome:  # fmt: skip
    for name, text in (files or {}).items():
        (folder / "0" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "0" / name).write_text(text)
    now = ObservedTest(job_in(folder), state, reason)
    assert now.over == over
    return conclude(now, texts(*more))


def word(state: str, cause: FailureKind | None, verdicts: tuple[Verdict, ...], missing: tuple[str, ...]) -> str:
    failure = Failure("a", "", cause, "") if cause else None
    judgements = tuple(SimpleNamespace(verdict=verdict) for verdict in verdicts)
    observed = ObservedTest(SlurmJob(TEST, Path("/x"), 7), state)
    return MatrixOutcome(observed, failure, judgements, (), missing).word  # type: ignore[arg-type]


STATES = (*OVER, "", "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "A_NEW_STATE", GONE)
CAUSES: tuple[FailureKind | None, ...] = (None, "golden drift", "unknown", "hang", "flaky infrastructure")
VERDICTS: tuple[tuple[Verdict, ...], ...] = (
    (), ("unchanged",), ("refresh",), ("held back",), ("refused",), ("unchanged", "refresh"), ("refresh", "refused"),
)  # fmt: skip


@pytest.mark.parametrize("state", sorted(STATES))
def test_no_state_of_slurm_but_success_lets_a_test_pass(state: str) -> None:
    for cause, verdicts, missing in itertools.product(CAUSES, VERDICTS, ((), (FILE,))):
        found = word(state, cause, verdicts, missing)
        succeeded = state == "COMPLETED"
        assert (found == "passed") == (succeeded and not missing and set(verdicts) <= {"unchanged"})
        if found == "drifted":
            assert "refresh" in verdicts
            assert succeeded or (state == "FAILED" and cause == "golden drift")
        assert (found == "not over") == (state not in OVER and state != GONE)
        assert (found == "unknown") == (state == GONE)


@pytest.mark.parametrize("message", ["", "AssertionError: The following metrics failed: lm loss\n"])
def test_a_job_that_failed_never_passes_for_unchanged_values(tmp_path: Path, message: str) -> None:
    files = {"ended": "1\n", "job.log": f"started\n{message}", f"assets/{FILE}": GOLDEN}
    for name, text in files.items():
        (tmp_path / "0" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "0" / name).write_text(text)
    outcome = conclude(saved_state(job_in(tmp_path)), texts())
    assert (outcome.word, outcome.row["outcome"], outcome.row["class"]) == ("failed", "failed", "unknown")
    assert "step 5" not in str(outcome.row["next"])


def test_a_golden_file_that_cannot_be_read_is_missing(tmp_path: Path) -> None:
    (tmp_path / "0/assets" / FILE).mkdir(parents=True)
    outcome = look(tmp_path)
    assert (outcome.word, outcome.missing) == ("failed", (FILE,))


@pytest.mark.parametrize("state", ["", "PENDING", "RUNNING"])
def test_a_test_that_is_not_over_has_no_verdict(tmp_path: Path, state: str) -> None:
    found = look(tmp_path, state, {f"assets/{FILE}": FAR}, over=False)
    assert (found.word, found.failure, found.judgements) == ("not over", None, ())


@pytest.mark.parametrize(
    ("files", "word", "verdicts"),
    [
        ({f"assets/{FILE}": GOLDEN}, "passed", ["unchanged"]),
        ({f"assets/{FILE}": DRIFT}, "drifted", ["refresh"]),
        ({f"assets/{FILE}": FAR}, "to be judged", ["held back"]),
        ({f"assets/{FILE}": CUT}, "to be judged", ["refused"]),
        ({f"assets/{FILE}": GOLDEN, "assets/golden_values_lts_dgx_h100.json": FAR}, "passed", ["unchanged"]),
        ({"assets/other.json": FAR, "job.log": "well\n"}, "failed", []),
    ],
)
def test_golden_values_decide_about_a_test_that_succeeded(
    tmp_path: Path, files: dict[str, str], word: str, verdicts: list[str]
) -> None:
    found = look(tmp_path, files=files)
    assert (found.word, [one.verdict for one in found.judgements]) == (word, verdicts)


def test_missing_values_are_named(tmp_path: Path) -> None:
    found = look(tmp_path, files={"job.log": "well\n"})
    assert found.row["golden values"] == f"{FILE} was not written"
    assert found.failure is not None
    assert found.failure.cause.count("no golden values") == 1


@pytest.mark.parametrize(
    ("state", "reason", "kind", "cause"),
    [
        ("NODE_FAIL", "", "flaky infrastructure", "A node failed"),
        ("PREEMPTED", "", "flaky infrastructure", "The job was preempted"),
        ("BOOT_FAIL", "BootFail", "flaky infrastructure", "A node did not boot"),
        ("CANCELLED", "", "unknown", "The job was cancelled."),
        ("TIMEOUT", "", "hang", "The job reached its time limit"),
        ("OUT_OF_MEMORY", "", "out of memory", "The node's memory (not the GPU's) ran out"),
        (GONE, "", "unknown", "Neither Slurm nor the job"),
        ("FAILED", "", "unknown", "The log names no cause"),
    ],
)
def test_the_state_of_slurm_is_a_cause(tmp_path: Path, state: str, reason: str, kind: str, cause: str) -> None:
    found = look(tmp_path, state, {"job.log": "began\n"}, reason=reason)
    assert found.failure is not None
    assert (found.word, found.failure.kind) == ("unknown" if state == GONE else "failed", kind)
    assert found.failure.cause.startswith(cause)
    assert reason in found.failure.cause
    assert found.failure.next


@pytest.mark.parametrize("state", ["FAILED", "TIMEOUT", GONE])
def test_the_traceback_of_a_rank_has_precedence(tmp_path: Path, state: str) -> None:
    files = {"job.log": "srun: error: node1: task 0: Exited\n", "assets/logs/1/x/attempt_0/3/stderr.log": TRACE}
    found = look(tmp_path, state, files)
    assert found.failure is not None
    assert "Rank 3 failed with ValueError: the cause" in found.failure.cause


def test_a_test_without_a_log_names_the_shared_folder(tmp_path: Path) -> None:
    found = look(tmp_path, "FAILED")
    assert found.failure is not None
    assert "its node cannot see the results folder" in found.failure.cause


def test_an_out_of_memory_error_is_shown_with_the_sizes_of_the_test(tmp_path: Path) -> None:
    text = TRACE.replace("ValueError: the cause", "torch.OutOfMemoryError: CUDA out of memory.")
    found = look(tmp_path, "FAILED", {"node-0.err.log": text})
    assert found.failure is not None
    told = {"parallelism": "TP 2, CP 1, PP 1, DP 4", "micro batch size": "4", "GPUs": "1 × 8"}
    assert found.failure.details | told == found.failure.details


def test_drift_alone_is_not_a_failure_but_lost_steps_need_a_judgement(tmp_path: Path) -> None:
    log = {"job.log": "AssertionError: The following metrics failed: lm loss\n"}
    assert look(tmp_path / "a", "FAILED", {**log, f"assets/{FILE}": DRIFT}).word == "drifted"
    assert look(tmp_path / "b", "FAILED", {**log, f"assets/{FILE}": FAR}).word == "to be judged"
    assert look(tmp_path / "c", "FAILED", log).word == "failed"
    assert look(tmp_path / "d", "FAILED", {**log, f"assets/{FILE}": DRIFT}, more=(SECOND,)).word == "failed"


def test_known_problems_in_a_nodes_log_are_named(tmp_path: Path) -> None:
    files = {"node-0.err.log": "bash: line 1: uv: command not found\n", "assets/logs/1/x/attempt_0/3/stderr.log": TRACE}
    found = look(tmp_path, "FAILED", files)
    assert ["CI Dockerfile" in it.fix for it in found.pitfalls] == [True]


@pytest.mark.parametrize(
    ("log", "state"),
    [
        ("", "FAILED"), ("*** JOB 1 CANCELLED AT x DUE TO TIME LIMIT ***", "TIMEOUT"),
        ("*** JOB 1 CANCELLED AT x DUE TO PREEMPTION ***", "PREEMPTED"),
        ("srun: error: Node failure on n", "NODE_FAIL"),
        ("slurmstepd: error: Detected 1 oom_kill event", "OUT_OF_MEMORY"),
        ("*** STEP 1.0 CANCELLED AT x", "CANCELLED"),
    ],
)  # fmt: skip
def test_a_failed_job_is_queried_for_slurms_reason(tmp_path: Path, log: str, state: str) -> None:
    test, ended = job_in(tmp_path), tmp_path / "0/ended"
    (tmp_path / "0/job.log").write_text(log)
    for text, expected in {
        "143\n": state, "0\n": "COMPLETED", **dict.fromkeys(("", "7 1", "x", "-1"), "")
    }.items():  # fmt: skip
        ended.write_text(text)
        assert saved_state(test).state == expected
