"""The output of the ranks of a practice job, and of the harness around them.  This module is pure and repeatable.

The texts, most of which are in ``logs``, have the style of torchrun, NCCL, Megatron-LM's training loop, pytest, docker
and pip: short, and with the features that make real logs hard to read.  The rank that failed reports the cause; the
others report that they lost it.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from runbook_lib.practice.ci.plan import Planned

RANKS = 8
#: The ``detail`` of a job that a push or a person stopped.
STOPPED = "stopped"
#: Cause → the rank in which the test fails; for other causes it is not a single rank.
CULPRIT: Mapping[str, int] = {"memory": 3, "hang": 2, "nccl": 5}
_STEPS = 50
_LAST_STEP: Mapping[str, int] = {STOPPED: 21, "hang": 12, "memory": 3, "nccl": 7}
_EXIT = "##[error]Process completed with exit code {}."
_RESTART = "WARNING:__main__:Detected flaky failure, attempt restart."


def output(job: Planned, rank: int) -> list[str]:
    """Return the standard output of a rank."""
    if job.kind == "unit":
        name = "unit-failed" if job.cause == "broken" else "unit-passed"
        return _lines(name, folder=job.test_case.rstrip("/"), rank=rank)
    if job.kind != "functional":
        return []
    if rank == 0:
        lines = ["using world size: 8, data-parallel size: 8, context-parallel size: 1"]
        if job.cause != "broken":
            lines += ["> building GPT model ...", "> setting tensorboard ..."]
        return lines
    if rank < RANKS - 1 or job.cause == "broken":
        return []
    stop = _LAST_STEP.get(job.detail, _LAST_STEP.get(job.cause, _STEPS))
    return [_progress(step, diverges=job.cause == "regression") for step in range(stop)]


def _progress(step: int, *, diverges: bool) -> str:
    """Return the line that the last rank prints for each step."""
    loss = 10.9 - 0.02 * step
    if diverges and step >= 26:
        loss = 10.4 + 0.4 * (step - 26)
    return (
        f" [2026-05-07 03:12:{step:02}.417] iteration {step + 1:8}/{_STEPS:8} | consumed samples: {32 * step + 32:12} "
        f"| elapsed time per iteration (ms): {3101.2 if step == 0 else 140.1} | learning rate: 1.500000E-04 | "
        f"global batch size:    32 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {2.1 - step / 100:.3f} | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def errors(job: Planned, rank: int) -> list[str]:
    """Return the standard error of a rank: irrelevant warnings, then its failure or the loss of another rank."""
    if job.kind != "functional":
        return []
    if job.cause == "broken":
        return [] if rank else _lines("failure-broken")
    lines = _lines("rank-start", rank=rank)
    if job.cause in ("", "drift", "regression", "slower"):
        return lines + _lines("rank-end", rank=rank)
    if rank == CULPRIT[job.cause]:
        return lines + _lines(f"failure-{job.cause}")
    if job.cause in ("memory", "nccl"):
        lines += _lines("lost-rank", rank=rank)
    if job.cause == "memory":
        # The traceback of a rank that lost another one explains nothing.
        lines += _lines("lost-rank-traceback", rank=rank)
    return lines


def harness(job: Planned) -> list[str]:
    """Return the end of the log of a job, after the output of the ranks."""
    cause = job.cause
    if job.detail == STOPPED:
        return ["##[error]The operation was canceled."]
    if cause == "refused":
        return ["##[error]The deployment to the environment 'test' was rejected."]
    if job.kind == "functional":
        return _functional_end(cause)
    if cause != "broken":
        return []
    lines = _lines(f"job-{job.kind}") if job.kind in ("build", "lint", "configure") else []
    return [*lines, *job.detail.splitlines(), _EXIT.format(100 if job.kind == "build" else 1)]


def _functional_end(cause: str) -> list[str]:
    if not cause:
        return []
    if cause == "hang":
        return _lines("harness-hang")
    if cause in ("drift", "regression", "slower"):
        return [*_lines(f"harness-{cause}"), _RESTART, _EXIT.format(1)]
    report = _lines("harness-child-failed", rank=CULPRIT.get(cause, 0))
    # The harness also mistakes the messages of the other ranks for a flaky failure.
    if cause in ("nccl", "memory"):
        report.append(_RESTART)
    return [*report, _EXIT.format(1)]


def tries(job: Planned) -> int:
    """Return how often the harness ran a functional job: three times if the failure looks transient."""
    return 3 if job.kind == "functional" and _RESTART in harness(job) else 1


@cache
def _template(name: str) -> str:
    return files(__package__).joinpath(f"logs/{name}.txt").read_text(encoding="utf-8")


def _lines(name: str, **values: object) -> list[str]:
    """Return the lines of a file of ``logs``, with these values in place of ``{name}``."""
    return _template(name).format(**values).splitlines()
