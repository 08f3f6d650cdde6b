"""Slurm's messages in job logs: the final state of a job, and failed nodes."""

import os
import re
from pathlib import Path

from runbook_lib.slurm.submissions import RoundTest

#: Messages that Slurm writes to a job's log when it ends the job, the most reliable first.
_LOG_SIGNS = (
    ("TIMEOUT", b"DUE TO TIME LIMIT"), ("PREEMPTED", b"DUE TO PREEMPTION"), ("NODE_FAIL", b"DUE TO NODE FAILURE"),
    ("NODE_FAIL", b"Node failure on"), ("NODE_FAIL", b"srun: error: Task launch for"),
    ("OUT_OF_MEMORY", b"oom_kill"), ("OUT_OF_MEMORY", b"oom-kill"), ("CANCELLED", b" CANCELLED AT "),
)  # fmt: skip
_FAILED_NODE = re.compile(
    rb"(?:Node failure on|Task launch for \S{1,80} failed on node) ([A-Za-z0-9][\w.,\[\]-]{0,200})"
)
_LOG_TAIL = 16384  # bytes


def log_tail(path: Path, size: int = _LOG_TAIL) -> bytes:
    """Return the last bytes of a log; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size)
    except OSError:
        return b""


def state_in_log(folder: Path) -> str:
    """Return the state that Slurm wrote at the end of a job's log; empty if there is none."""
    tail = log_tail(folder / "job.log").rpartition(b"DUE TO JOB REQUEUE")[2]  # before it is an earlier attempt
    return next((state for state, sign in _LOG_SIGNS if sign in tail), "")


def failed_nodes(entry: RoundTest) -> set[str]:
    """Return the nodes that failed in any attempt of a test, according to Slurm; names may be lists (``n[1-2]``)."""
    logs = [log_tail(folder / "job.log") for folder in (entry.folder, *entry.earlier)]
    return {name.decode().rstrip(".,") for name in _FAILED_NODE.findall(b"\n".join(logs))}
