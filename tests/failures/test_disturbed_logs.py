"""The verdict on a log stays, whatever surrounds its cause: consequences, other ranks, prefixes, colours, noise."""

import random
import re
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st
from labelled_failures import CASES, Case, diagnosed

from runbook_lib.failures.evidence import Failure

#: Lines that follow from a cause in any process, and explain nothing.
CONSEQUENCES = (
    "srun: error: h-3: task 5: Exited with exit code 1",
    "srun: Terminating StepId=77.0",
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
    "slurmstepd: error: *** STEP 77.0 ON h-3 CANCELLED AT 2026-03-01T12:00:00 ***",
    "W1105 04:00:00.100000 66 torch/distributed/elastic/api.py:900] Sending process 91 closing signal SIGTERM",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "[W1105 04:00:00.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=60): Connection reset by peer",
    "[W1105 04:00:00.1 ProcessGroupNCCL.cpp:1600] [PG ID 0 Rank 5] Failed to check a flag on TCPStore, Broken pipe",
    "##[error]Process completed with exit code 1.",
    "subprocess.CalledProcessError: Command '['torchrun']' returned non-zero exit status 1.",
    "ERROR: Job failed: exit code 1",
)  # fmt: skip
#: What stands behind these belongs to a later step, so it explains no failure before them.
ENDS_A_STEP = ("##[error]", "ERROR: Job failed")
CHATTER = (
    " [2026-07-01 10:00:00.1] samples read, all is well",
    "NCCL version 2.27.3+cuda13.0",
    "node-1:77:900 [3] NCCL INFO Channel 05/0 : 4[4] -> 5[5] via P2P/IPC",
    "Loading checkpoint shards: 100%|##########| 5/5 [00:01<00:00]",
    "/opt/venv/lib/python3.12/site-packages/x.py:20: FutureWarning: this will change",
)
PREFIXES = {
    "torchrun": "[default6]:", "Slurm": "3: ", "GitHub": "2026-04-01T10:00:00.1234567Z ", "none": "",
    "nemo-run": "0000-steps/0 [default6]:",
}  # fmt: skip
#: Logs with prefixes of their own, whose rank is that of another line, or whose verdict is that of a whole job.
_PREFIXED = re.compile(
    r"^(?:\d{1,3}: |\[(?:default|rank)\d|\[\d,\d|\d{4}-\d\d-\d\dT|\(\w+ pid=|#\d+ |i\.lab|\S+/\d+ |\[\d{4}|"
    r"(?:\[?[EWIF]\d{3,4} ))", re.MULTILINE
)  # fmt: skip
PLAIN = [case for case in CASES if not _PREFIXED.search(case.log)]
#: What these lines would explain: a cancelled step is the cause where there is no other, and a rank of another.
_TAKES_ANY = {"cancelled", "unknown"}
SOLID = [case for case in CASES if case.kind not in _TAKES_ANY]


@cache
def verdict(log: str) -> tuple[str, str]:
    failure = diagnosed(log)
    return failure.kind, decisive(failure)


def decisive(failure: Failure) -> str:
    """Return the cause without the rank and the progress that other lines give it."""
    cause = re.sub(r"^(?:A process|Rank \d+)( stopped first or is silent\.)?", "", failure.cause)
    return re.sub(r"; its last iteration is \d+|\.$", "", cause)


def disturbed(case: Case, chance: random.Random) -> str:
    """Return the log within chatter, and consequences in any order."""
    within = [line for line in CONSEQUENCES if not line.startswith(ENDS_A_STEP)]
    before = chance.choices([*CHATTER, *chance.sample(within, k=2)], k=chance.randrange(30))
    between = chance.sample(CONSEQUENCES, k=chance.randrange(1, len(CONSEQUENCES)))
    after = chance.choices([*between, *CHATTER], k=30)
    return "\n".join([*before, case.log.rstrip("\n"), *between, *after]) + "\n"


def coloured(log: str, chance: random.Random) -> str:
    lines = []
    for line in log.split("\n"):
        at = chance.randrange(len(line) + 1)
        lines.append(f"\x1b[3{chance.randrange(8)}m{line[:at]}\x1b[0m{line[at:]}\x1b[0m")
    return "\n".join(lines)


@given(st.sampled_from(SOLID), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_consequences_and_chatter_change_no_verdict(case: Case, chance: random.Random) -> None:
    assert verdict(case.log) == verdict(disturbed(case, chance))


@given(st.sampled_from(PLAIN), st.sampled_from(sorted(PREFIXES)), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_prefixes_and_colours_change_no_verdict(case: Case, launcher: str, chance: random.Random) -> None:
    prefixed = "".join(f"{PREFIXES[launcher]}{line}" for line in case.log.splitlines(keepends=True))
    assert verdict(coloured(prefixed, chance)) == verdict(case.log)
