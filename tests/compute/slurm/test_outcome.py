"""What became of a test, from its files and from what Slurm says."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from runbook_lib.compute.slurm.client import OVER
from runbook_lib.compute.slurm.jobs import GONE, SlurmJob, saved_state
from runbook_lib.compute.slurm.outcome import MatrixOutcome, conclude
from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.slurm.site import Resources
from runbook_lib.compute.workloads import Workload
from runbook_lib.failures.evidence import Failure
from runbook_lib.failures.patterns import FailureKind
from runbook_lib.golden.measure import Verdict

FILE, SECOND = "golden_values_dev_dgx_h100.json", "golden_values_dev_dgx_h100_2nd.json"
GOLDEN = '{"lm loss": {"start_step": 1, "end_step": 2, "step_interval": 1, "values": {"1": 10.5, "2": 10.4}}}'
DRIFT, FAR, CUT = GOLDEN.replace("10.5", "10.51"), GOLDEN.replace("10.4", "20.4"), GOLDEN[:40]
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: the cause\n'
COMPARED = {"job.log": "AssertionError: The following metrics failed: lm loss\n"}
RANK = "assets/logs/1/x/attempt_0/3/stderr.log"
TEST = Workload("r", "gpt", "a", "dev", "dgx_h100", (), Resources(1, 8, 1), "true")


def look(
    folder: Path, state: str = "COMPLETED", files: Mapping[str, str] | None = None, *, reason: str = "",
    more: tuple[str, ...] = (),
) -> MatrixOutcome:  # fmt: skip
    """The outcome of a job with these results; without a state as the job itself wrote it."""
    for name, text in (files or {}).items():
        (folder / "0" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "0" / name).write_text(text)
    entry = SelectedTest(TEST, golden=dict.fromkeys((FILE, *more), GOLDEN))
    job = SlurmJob(entry, folder / "0", 7, state, reason)
    return conclude(job if state else saved_state(job))


def failure(found: MatrixOutcome) -> Failure:
    assert found.failure is not None
    return found.failure


def word(state: str, cause: FailureKind | None, verdicts: tuple[Verdict, ...], missing: tuple[str, ...]) -> str:
    judgements = tuple(SimpleNamespace(verdict=verdict) for verdict in verdicts)
    job = SlurmJob(SelectedTest(TEST), Path("/x"), 7, state)
    told = Failure("a", "", cause, "") if cause else None
    return MatrixOutcome(job, told, judgements, missing).word  # type: ignore[arg-type]


STATES = (*OVER, "", "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "A_NEW_STATE", GONE)
CAUSES: tuple[FailureKind | None, ...] = (None, "golden drift", "unknown", "hang", "flaky infrastructure")
VERDICTS: tuple[tuple[Verdict, ...], ...] = (
    (), ("unchanged",), ("refresh",), ("held back",), ("refused",), ("unchanged", "refresh"), ("refresh", "refused"),
)  # fmt: skip


def test_no_state_of_slurm_but_success_lets_a_test_pass() -> None:
    for state, cause, verdicts, missing in itertools.product(STATES, CAUSES, VERDICTS, ((), (FILE,))):
        found, succeeded = word(state, cause, verdicts, missing), state == "COMPLETED"
        assert (found == "passed") == (succeeded and not missing and set(verdicts) <= {"unchanged"})
        if found == "drifted":
            assert "refresh" in verdicts
            assert succeeded or (state == "FAILED" and cause == "golden drift")
        assert (found == "not over") == (state not in OVER and state != GONE)
        assert (found == "unknown") == (state == GONE)


@pytest.mark.parametrize(
    ("state", "files", "word", "verdicts"),
    [
        ("COMPLETED", {f"assets/{FILE}": GOLDEN}, "passed", ["unchanged"]),
        ("COMPLETED", {f"assets/{FILE}": DRIFT}, "drifted", ["refresh"]),
        ("COMPLETED", {f"assets/{FILE}": FAR}, "to be judged", ["held back"]),
        ("COMPLETED", {f"assets/{FILE}": CUT}, "to be judged", ["refused"]),
        ("COMPLETED", {f"assets/{FILE}": GOLDEN, "assets/golden_values_lts_dgx_h100.json": FAR}, "passed", [
            "unchanged",
        ]),
        ("COMPLETED", {"assets/other.json": FAR, "job.log": "well\n"}, "failed", []),
        ("COMPLETED", {f"assets/{FILE}/x": ""}, "failed", []),  # a folder
        ("RUNNING", {f"assets/{FILE}": FAR}, "not over", []),
        # Drift alone is no failure, but lost steps need a judgement.
        ("FAILED", {**COMPARED, f"assets/{FILE}": DRIFT}, "drifted", ["refresh"]),
        ("FAILED", {**COMPARED, f"assets/{FILE}": FAR}, "to be judged", ["held back"]),
        ("FAILED", COMPARED, "failed", []),
        # A job that failed never passes for unchanged values.
        ("", {"ended": "1\n", "job.log": "started\n", f"assets/{FILE}": GOLDEN}, "failed", ["unchanged"]),
        ("", {**COMPARED, "ended": "1\n", f"assets/{FILE}": GOLDEN}, "failed", ["unchanged"]),
    ],
)  # fmt: skip
def test_state_and_golden_values_decide(
    tmp_path: Path, state: str, files: dict[str, str], word: str, verdicts: list[str]
) -> None:
    found = look(tmp_path, state, files)
    assert (found.word, [one.verdict for one in found.judgements]) == (word, verdicts)
    assert found.row["outcome"] == word
    assert "step 5" not in str(found.row["next"]) or verdicts != ["unchanged"]
    assert (found.missing == (FILE,)) == (not verdicts and word == "failed")


def test_missing_values_are_named(tmp_path: Path) -> None:
    found = look(tmp_path, files={"job.log": "well\n"})
    assert found.row["golden values"] == f"{FILE} was not written"
    assert failure(found).cause.count("no golden values") == 1
    files = {**COMPARED, f"assets/{FILE}": DRIFT}
    assert look(tmp_path, "FAILED", files, more=(SECOND,)).word == "failed"


@pytest.mark.parametrize(
    ("state", "files", "reason", "kind", "cause"),
    [
        ("NODE_FAIL", {"job.log": "began\n"}, "", "flaky infrastructure", "A node failed"),
        ("PREEMPTED", {"job.log": "began\n"}, "", "flaky infrastructure", "The job was preempted"),
        ("BOOT_FAIL", {"job.log": "began\n"}, "BootFail", "flaky infrastructure", "A node did not boot"),
        ("CANCELLED", {"job.log": "began\n"}, "", "unknown", "The job was cancelled."),
        ("TIMEOUT", {"job.log": "began\n"}, "", "hang", "The job reached its time limit"),
        ("OUT_OF_MEMORY", {"job.log": "began\n"}, "", "out of memory", "The node's memory (not the GPU's) ran out"),
        (GONE, {"job.log": "began\n"}, "", "unknown", "Neither Slurm nor the job"),
        ("FAILED", {"job.log": "began\n"}, "", "unknown", "The log names no cause"),
        ("FAILED", {}, "", "unknown", "It wrote no log. Either its node cannot see the results folder"),
        ("OUT_OF_MEMORY", {}, "", "out of memory", "The node's memory (not the GPU's) ran out"),
        # The traceback of a rank has precedence.
        *((state, {"job.log": "srun: error: node1: task 0: Exited\n", RANK: TRACE}, "", "program error", cause)
          for state, cause in (
              ("FAILED", "Rank 3 failed with ValueError: the cause"),
              (GONE, "Neither Slurm nor the job shows how it ended. Rank 3 failed with ValueError: the cause"),
          )),
    ],
)  # fmt: skip
def test_the_state_of_slurm_and_the_logs_are_a_cause(
    tmp_path: Path, state: str, files: dict[str, str], reason: str, kind: str, cause: str
) -> None:
    found = look(tmp_path, state, files, reason=reason)
    assert (found.word, failure(found).kind) == ("unknown" if state == GONE else "failed", kind)
    assert failure(found).cause.startswith(cause)
    assert reason in failure(found).cause
    assert failure(found).next


def test_a_known_problem_in_a_nodes_log_is_named(tmp_path: Path) -> None:
    found = look(tmp_path, "FAILED", {"node-0.err.log": "bash: line 1: uv: command not found\n"})
    assert "CI Dockerfile" in str(found.row["next"])


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
    (tmp_path / "job.log").write_text(log)
    texts = {"143\n": state, "0\n": "COMPLETED", **dict.fromkeys(("", "7 1", "x", "-1"), "")}
    for text, expected in texts.items():
        (tmp_path / "ended").write_text(text)
        assert saved_state(SlurmJob(SelectedTest(TEST), tmp_path, 7)).state == expected
