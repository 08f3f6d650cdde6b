"""What the ranks of a practice job print, and what the harness around them says.  Pure, and the same each time.

Written by hand in the style of torchrun, NCCL, Megatron-LM's training loop, pytest, docker and pip: short, and with
what makes real logs hard to read.  The rank that failed tells why; the others tell that they lost it.
"""

import hashlib
from collections.abc import Mapping

from runbook_lib.practice.ci.plan import Planned

RANKS = 8
#: The detail of a job that a push or a person stopped.
STOPPED = "stopped"
#: The rank in which a test fails, by cause; where it is none of these, no rank alone is to blame.
CULPRIT: Mapping[str, int] = {"memory": 3, "hang": 2, "nccl": 5, "shape": 1, "import": 0}
_STEPS = 50
_CAME_TO: Mapping[str, int] = {STOPPED: 21, "hang": 12, "memory": 3, "nccl": 7, "shape": 0, "import": 0, "broken": 0}
_GROUP = "[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"


def cause_of(job: Planned) -> str:
    """Why a functional job fails, more closely than CI knows it."""
    return job.detail if job.cause == "broken" and job.detail in CULPRIT else job.cause


def output(job: Planned, rank: int) -> list[str]:
    """A rank's standard output."""
    if job.kind == "unit":
        return _unit_test(job, rank)
    if job.kind != "functional":
        return []
    cause = cause_of(job)
    lines = ["using world size: 8, data-parallel size: 8, context-parallel size: 1"] if rank == 0 else []
    if cause in ("import", "broken"):
        return lines
    lines += ["> building GPT model ...", "> setting tensorboard ..."] if rank == 0 else []
    stop = _CAME_TO.get(job.detail if job.detail == STOPPED else cause, _STEPS)
    return lines + ([_progress(step, _loss(cause, step)) for step in range(stop)] if rank == RANKS - 1 else [])


def _progress(step: int, loss: float) -> str:
    """The last rank tells of each step."""
    return (
        f" [2026-05-07 03:12:{step:02}.417] iteration {step + 1:8}/{_STEPS:8} | consumed samples: {32 * step + 32:12} "
        f"| elapsed time per iteration (ms): {3101.2 if step == 0 else 140.1} | learning rate: 1.500000E-04 | "
        f"global batch size:    32 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {2.1 - step / 100:.3f} | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def _loss(cause: str, step: int) -> float:
    return 10.4 + 0.4 * (step - 26) if cause == "regression" and step >= 26 else 10.9 - 0.02 * step


def errors(job: Planned, rank: int) -> list[str]:
    """A rank's standard error: warnings that mean nothing, then the failure, or that another rank was lost."""
    if job.kind != "functional":
        return []
    cause = cause_of(job)
    noise = [
        f"[rank{rank}]:[W507 03:11:58.204 ProcessGroupNCCL.cpp:5023] {_GROUP.format(rank=rank)} using GPU {rank} as "
        "device used by this process is currently unknown. This can potentially cause a hang if this rank to GPU "
        "mapping is incorrect."
    ]
    if cause in ("import", "broken"):
        noise = []
    if cause in ("", "drift", "regression"):
        return [
            *noise,
            f"[rank{rank}]:[W507 03:13:02.118 ProcessGroupNCCL.cpp:1553] Warning: WARNING: destroy_process_group() was "
            "not called before program exit, which can leak resources.",
        ]
    if rank == CULPRIT.get(cause, 0):
        return noise + _TOLD[cause]
    if cause in ("memory", "shape", "nccl"):
        return noise + _lost(rank, cause)
    return noise


def _lost(rank: int, cause: str) -> list[str]:
    """What a rank says when another is gone: a traceback too, of which nothing is to be learned."""
    group = _GROUP.format(rank=rank)
    lines = [
        f"[rank{rank}]:[E507 03:12:31.{rank}90 ProcessGroupNCCL.cpp:632] {group} Some NCCL operations have failed or "
        "timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on "
        "corrupted/incomplete data.",
        f"[rank{rank}]:[E507 03:12:31.{rank}91 ProcessGroupNCCL.cpp:2057] {group} Process group watchdog "
        "thread terminated with exception: NCCL error: remote process exited or there was a network error, "
        "NCCL version 2.28.9",
    ]
    if cause != "nccl":
        lines += [
            f"[rank{rank}]: Traceback (most recent call last):",
            f'[rank{rank}]:   File "/opt/megatron-lm/megatron/core/distributed/param_and_grad_buffer.py", line 412, in '
            "finish_grad_sync",
            f"[rank{rank}]:     self.grad_reduce_handle.wait()",
            f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2094, "
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        ]
    return lines


_TOLD: Mapping[str, list[str]] = {
    "memory": [
        "[rank3]: Traceback (most recent call last):",
        '[rank3]:   File "/opt/megatron-lm/pretrain_gpt.py", line 298, in <module>',
        "[rank3]:     pretrain(",
        '[rank3]:   File "/opt/megatron-lm/megatron/training/training.py", line 2311, in train_step',
        "[rank3]:     losses_reduced = forward_backward_func(",
        '[rank3]:   File "/opt/megatron-lm/megatron/core/transformer/moe/experts.py", line 302, in forward',
        "[rank3]:     fc1_output = gmm(permuted_local_hidden_states, w1, tokens_per_expert)",
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity "
        "of 79.11 GiB of which 1.12 GiB is free. Including non-PyTorch memory, this process has 77.98 GiB memory in "
        "use. Of the allocated memory 74.31 GiB is allocated by PyTorch, and 1.87 GiB is reserved by PyTorch but "
        "unallocated.",
    ],
    "hang": [
        "/usr/lib/python3.12/multiprocessing/popen_fork.py:66: DeprecationWarning: This process (pid=1412) is "
        "multi-threaded, use of fork() may lead to deadlocks in the child.",
    ],
    "nccl": [
        "dgx-17:1409:1733 [5] misc/socket.cc:881 NCCL WARN Call to recv from 10.12.4.17<41234> failed : Connection "
        "reset by peer",
        "[rank5]:[E507 03:12:30.882 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) Rank 5] Some NCCL "
        "operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU "
        "operations might run on corrupted/incomplete data.",
    ],
    "shape": [
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/opt/megatron-lm/megatron/training/training.py", line 1204, in pretrain',
        "[rank1]:     model, optimizer, opt_param_scheduler = setup_model_and_optimizer(",
        '[rank1]:   File "/opt/megatron-lm/megatron/core/utils.py", line 81, in divide',
        "[rank1]:     ensure_divisibility(numerator, denominator)",
        "[rank1]: AssertionError: 12 is not divisible by 8",
    ],
    "import": [
        "Traceback (most recent call last):",
        '  File "/opt/megatron-lm/pretrain_gpt.py", line 31, in <module>',
        "    from megatron.core.extensions.transformer_engine import TESpecProvider",
        '  File "/opt/megatron-lm/megatron/core/extensions/transformer_engine.py", line 14, in <module>',
        "    import transformer_engine as te",
        "ImportError: libcublasLt.so.12: cannot open shared object file: No such file or directory",
    ],
    "broken": ["Traceback (most recent call last):", "RuntimeError: practice failure"],
}


def _unit_test(job: Planned, rank: int) -> list[str]:
    folder = job.test_case.rstrip("/")
    lines = ["============================= test session starts ==============================", "collected 48 items"]
    if job.cause != "broken":
        return [*lines, f"{folder}/test_practice.py {'.' * 48} [100%]", "======== 48 passed in 31.07s ========"]
    test = f"{folder}/test_practice.py::TestPractice::test_shapes[{rank}]"
    return [
        *lines,
        f"{folder}/test_practice.py {'.' * 31}F{'.' * 16} [100%]",
        "=================================== FAILURES ===================================",
        f"{folder}/test_practice.py:88: in test_shapes",
        "    torch.testing.assert_close(actual, expected)",
        "E   AssertionError: Tensor-likes are not close!",
        "E   Mismatched elements: 3 / 4096 (0.1%)",
        "=========================== short test summary info ============================",
        f"FAILED {test} - AssertionError: Tensor-likes are not close!",
        "======== 1 failed, 47 passed in 31.88s ========",
    ]


def harness(job: Planned) -> list[str]:
    """What the log of a job says after the output of the ranks."""
    cause = cause_of(job)
    if job.detail == STOPPED:
        return ["##[error]The operation was canceled."]
    if job.kind == "functional":
        return _functional_end(job, cause)
    if cause == "broken":
        return [*_BROKEN.get(job.kind, []), *job.detail.splitlines(), _EXIT.format(100 if job.kind == "build" else 1)]
    if cause == "refused":
        return ["##[error]The deployment to the environment 'test' was rejected."]
    return []


_EXIT = "##[error]Process completed with exit code {}."
_BROKEN: Mapping[str, list[str]] = {
    "build": [
        "#23 [main  7/14] RUN bash docker/common/install_nccl.sh",
        "#23 1.482 Get:1 https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64  Packages",
        "#23 2.114 E: Version '2.29.3-1+cuda13.1' for 'libnccl2' was not found",
        '#23 ERROR: process "/bin/sh -c bash docker/common/install_nccl.sh" did not complete successfully: exit code: '
        "100",
        "------",
        " > [main  7/14] RUN bash docker/common/install_nccl.sh:",
        "2.114 E: Version '2.29.3-1+cuda13.1' for 'libnccl2' was not found",
        "------",
        'ERROR: failed to build: failed to solve: process "/bin/sh -c bash docker/common/install_nccl.sh" did not '
        "complete successfully: exit code: 100",
    ],
    "lint": ["Checking golden values and formatting of the changed files ..."],
    "configure": ["fatal: couldn't find remote ref of the merge commit: the pull request conflicts with its base"],
}


def _functional_end(job: Planned, cause: str) -> list[str]:
    if not cause:
        return []
    if cause == "hang":
        return [
            "##[error]The job has exceeded the maximum execution time of 1h0m0s",
            "##[error]The operation was canceled.",
        ]
    if cause in ("drift", "regression"):
        metrics = ["lm loss"] if cause == "regression" else ["lm loss", "num-zeros"]
        return [*_comparison(job, metrics), _RESTART, _EXIT.format(1)]
    rank = CULPRIT.get(cause, 0)
    ended = [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "============================================================",
        "/opt/megatron-lm/pretrain_gpt.py FAILED",
        "Root Cause (first observed failure):",
        "[0]:",
        f"  rank      : {rank} (local_rank: {rank})",
        "  exitcode  : 1 (pid: 1409)",
        "  error_file: <N/A>",
        "============================================================",
        "ERROR:__main__:Job failed with status: FAILED",
    ]
    # The harness takes the noise of the other ranks for a flaky failure too.
    restart = [_RESTART] if cause in ("nccl", "memory", "shape") else []
    return [*ended, *restart, _EXIT.format(1)]


_RESTART = "WARNING:__main__:Detected flaky failure, attempt restart."


def _comparison(job: Planned, metrics: list[str]) -> list[str]:
    test = "tests/functional_tests/python_test_utils/test_pretraining_regular_pipeline.py::test_regular_pipeline"
    return [
        f"{test} FAILED",
        *(f"ERROR    common:common.py:361 The exact test of metric {metric} failed." for metric in metrics),
        f"E   AssertionError: The following metrics failed: {', '.join(metrics)}",
        f"FAILED {test} - AssertionError: The following metrics failed: {', '.join(metrics)}",
        "ERROR:__main__:Job failed with status: FAILED",
    ]


def tries(job: Planned) -> int:
    """How often the harness ran a functional job: three times where the failure looks as if it might pass."""
    return 3 if job.kind == "functional" and _RESTART in harness(job) else 1


def run_id(job: Planned, number: int) -> str:
    """The folder in which torchrun keeps the logs of one try."""
    return f"none_{hashlib.sha256(f'{job.name} {job.platform} {number}'.encode()).hexdigest()[:8]}"
