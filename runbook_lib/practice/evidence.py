"""What a job of the practice CI leaves behind: its log, and its artifact.  Pure, and the same each time."""

import io
import uuid
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime

from runbook_lib.practice.ci import Planned

RANKS = 8
#: The tests whose first upload failed, so that their artifact's name ends in ``-retry``.
UPLOADED_AGAIN = frozenset({("moe/gpt3_moe_mcore_te_ep8", "dgx_gb200")})

_NCCL_NOISE = (
    "[rank{rank}]:[W] ProcessGroupNCCL.cpp:1250] Warning: WARNING: destroy_process_group() was not called before "
    "program exit, which can leak resources."
)


def artifact_name(job: Planned, run_id: int, job_id: int) -> str:
    """``logs-<test_case>-<run_id>-<uuid>``: neither model nor platform is in it."""
    unique = uuid.uuid5(uuid.NAMESPACE_OID, str(job_id))
    again = "-retry" if (f"{job.model}/{job.test_case}", job.platform) in UPLOADED_AGAIN else ""
    return f"logs-{job.test_case}-{run_id}-{unique}{again}".replace("/", "-").replace("*", "-")


def archive(job: Planned, golden: Mapping[str, str], started: float) -> bytes:
    """The artifact's zip: golden values at the top, and each rank's output."""
    folder = "" if job.kind == "unit" else "logs/"
    members = dict(golden)
    for rank in range(RANKS):
        attempt = f"{folder}1/practice_run/attempt_0/{rank}"
        members[f"{attempt}/stdout.log"] = "\n".join(_output(job, rank)) + "\n"
        members[f"{attempt}/stderr.log"] = "\n".join(_errors(job, rank)) + "\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in members.items():
            entry = zipfile.ZipInfo(name, datetime.fromtimestamp(started, UTC).timetuple()[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, text)
    return buffer.getvalue()


def log(job: Planned, started: float) -> str:
    """The log of a job as GitHub gives it: a time before each line."""
    lines = [f"##[group]Run {job.name}", f"launching test: {job.test_case or job.name}", "##[endgroup]"]
    for rank in range(RANKS if job.kind in ("unit", "functional") else 1):
        lines += [f"[{rank}]: {line}" for line in (*_output(job, rank), *_errors(job, rank)) if line]
    lines += _ENDS.get(job.cause, ["Process completed with exit code 0."])
    stamp = datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return "".join(f"{stamp}.{number:07}Z {line}\n" for number, line in enumerate(lines))


#: How the harness, not the training, ends the log of a job.
_ENDS: Mapping[str, list[str]] = {
    "drift": [
        "E   AssertionError: The following metrics failed: ['lm loss', 'num-zeros']",
        "##[error]Process completed with exit code 1.",
    ],
    "regression": [
        "E   AssertionError: The following metrics failed: ['lm loss']",
        "##[error]Process completed with exit code 1.",
    ],
    "memory": ["##[error]Process completed with exit code 1."],
    "nccl": [
        "WARNING: Detected flaky failure, attempt restart.",
        "##[error]Process completed with exit code 1.",
    ],
    "hang": [
        "##[error]The job has exceeded the maximum execution time of 1h0m0s",
        "##[error]The operation was canceled.",
    ],
    "refused": ["##[error]The deployment to the environment 'test' was rejected."],
    "broken": ["##[error]Process completed with exit code 1."],
}


def _output(job: Planned, rank: int) -> list[str]:
    if job.kind not in ("unit", "functional"):
        return []
    if job.kind == "unit":
        return [f"tests collected in {job.test_case}", "1 failed" if job.cause == "broken" else "all passed"]
    stop = {"hang": 12, "memory": 3, "nccl": 7}.get(job.cause, 50)
    loss = [
        10.9 - 0.02 * step if job.cause != "regression" or step < 26 else 10.4 + 0.4 * (step - 26)
        for step in range(stop)
    ]
    return [
        f" iteration {step + 1:8}/      50 | elapsed time per iteration (ms): 140.1 | lm loss: {value:.6E} |"
        for step, value in enumerate(loss)
        if rank == RANKS - 1
    ]


def _errors(job: Planned, rank: int) -> list[str]:
    noise = _NCCL_NOISE.format(rank=rank)
    if job.cause == "memory" and rank == 3:
        return [
            "[rank3]: Traceback (most recent call last):",
            '[rank3]:   File "/opt/megatron-lm/megatron/core/transformer/moe/experts.py", line 302, in forward',
            "[rank3]:     fc1_output = gmm(permuted_local_hidden_states, w1, tokens_per_expert)",
            "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total "
            "capacity of 79.11 GiB of which 1.12 GiB is free.",
        ]
    if job.cause == "nccl":
        return [
            f"[rank{rank}]:[E] ProcessGroupNCCL.cpp:629] [Rank {rank}] Some NCCL operations have failed or timed out. "
            "Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted data."
        ]
    if job.cause == "broken":
        return [f"[rank{rank}]: RuntimeError: practice failure of {job.name}"] if rank == 0 else []
    return [noise] if job.cause in ("memory", "hang", "drift", "regression") else [""]
