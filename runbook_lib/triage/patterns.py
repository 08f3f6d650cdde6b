"""The meaning of lines in a log, as data.  Pure.

Each pattern is linear: no repetition within a repetition, and every gap bounded.  Lines are short by then (64 KB).
The flaky ones cover the failures that Megatron-LM's launchers retry, up to three times; the expressions are our own.
Its list has three more, which are not flaky here: ``The following metrics failed`` (drift), ``found NaN in`` (numerics:
a person judges), and the watchdog's time-out (a hang).
"""

import re
from dataclasses import dataclass
from typing import Literal

FailureKind = Literal[
    "golden drift", "flaky infrastructure", "hang", "out of memory", "shape", "import error", "container build",
    "lint", "unit tests", "regression", "unknown",
]  # fmt: skip

_NEMO = "tests/test_utils/python_scripts/launch_nemo_run_workload.py"
_JET = "tests/test_utils/python_scripts/launch_jet_workload.py"
_GITHUB = "messages of GitHub's runners"
_GITLAB = "messages of GitLab's runners and of Slurm"
_TORCH = "messages of PyTorch"
_DOCKER = "messages of docker and of registries"
_PYTEST = "tests/functional_tests/python_test_utils"
_CORE = "megatron/core and megatron/training"


@dataclass(frozen=True)
class LogPattern:
    """An expression for lines; ``finding`` ends the sentence "The log shows …"; ``retry``: a new run may succeed."""

    kind: FailureKind
    finding: str
    regex: re.Pattern[str]
    source: str
    retry: bool = False


def _flaky(finding: str, regex: str, source: str, *, retry: bool = True) -> LogPattern:
    return LogPattern("flaky infrastructure", finding, re.compile(regex), source, retry)


def _of(kind: FailureKind, finding: str, regex: str, source: str, *, retry: bool = False) -> LogPattern:
    return LogPattern(kind, finding, re.compile(regex), source, retry)


#: Faults that end a process.
FATAL: tuple[LogPattern, ...] = (
    _flaky("that the GPU's memory is broken (ECC)", r"uncorrectable .{0,40}ECC|ECC error encountered", _NEMO),
    _flaky("that a GPU was lost", r"fallen off the bus|no CUDA-capable device is detected", _TORCH),
    _flaky("that a process crashed", r"Segmentation fault|Segfault encountered|SIGSEGV", _NEMO),
    _flaky(
        "that the heap was corrupted",
        r"double free or corrup|\binvalid pointer|malloc\(\): |corrupted (?:unsorted|size|double)|Fatal glibc error",
        _NEMO,
    ),
    _flaky("that a kernel accessed memory that is not its own", r"illegal memory access", _NEMO),
    _flaky("that a processor met an unknown instruction", r"[Ii]llegal instruction", _NEMO),
    _flaky("that a kernel failed", r"unspecified launch failure|Call to CUDA function failed", _NEMO),
    _flaky("that no port was free", r"failed to listen on any local network|Address already in use", _NEMO),
    _flaky("that a name could not be resolved", r"failure in name resolution|Could not resolve host", _NEMO),
    _flaky("that Hugging Face could not be reached", r"couldn't connect to .https://huggingface\.co", _NEMO),
    _flaky("that the disk is full", r"Disk quota exceeded|No space left on device", _JET, retry=False),
    _flaky("that a file could not be written", r"basic_ios::clear: iostream error", _JET),
    _flaky("that the runner was shut down", r"runner has received a shutdown signal", _GITHUB),
    _flaky("that the runner was lost", r"runner .{0,80}lost communication with the server", _GITHUB),
    _flaky("that the runner's system failed", r"Job failed \(system failure\)", _GITLAB),
    _flaky("that the registry limits requests", r"toomanyrequests|TLS handshake timeout|Client\.Timeout exce", _DOCKER),
    _flaky("that a server failed", r"\b50[234] (?:Bad Gateway|Service Unavailable|Gateway Time-?out)", _DOCKER),
)

#: Faults that a program may survive, or that follow from another: a hang explains more than they do.
WEAK: tuple[LogPattern, ...] = (
    _flaky("that a download was interrupted", r"Unpack failed: incomplete input|Connection broken", _NEMO),
    _flaky("that an answer took too long", r"[Rr]ead operation timed out|Read timed out|\bTimeoutError\b", _NEMO),
    _flaky(
        "that a container could not be removed",
        r"removal of container|Error deleting container|\bis already in progress",
        _NEMO,
    ),
    _flaky("that NCCL failed", r"Some NCCL operations have failed|NCCL error|ncclSystemError|ncclRemoteError", _NEMO),
    _flaky("that a connection of torch.distributed failed", r"\bDistNetworkError\b", _NEMO),
    _flaky("that a connection was lost", r"Connection reset by peer", _NEMO),
    _flaky("that CUDA failed", r"passing CUDA_LAUNCH_BLOCKING", _NEMO),
)

FLAKY = (*FATAL, *WEAK)

HANG: tuple[LogPattern, ...] = (
    _of("hang", "that a collective timed out", r"Watchdog caught collective operation timeout", _NEMO, retry=True),
    _of("hang", "that the time limit was reached", r"exceeded the maximum execution time", _GITHUB, retry=True),
    _of(
        "hang", "that the time limit was reached",
        r"execution took longer than \S{1,20} seconds|DUE TO TIME LIMIT|Timed out waiting for barrier", _GITLAB,
        retry=True,
    ),
)  # fmt: skip

#: Meanings of errors, the first that fits.  Searched for in an exception's own line and the lines of its message.
ERRORS: tuple[LogPattern, ...] = (
    _of(
        "out of memory", "that memory ran out",
        r"\bOutOfMemoryError\b|CUDA out of memory|CUBLAS_STATUS_ALLOC_FAILED|\bMemoryError\b|CUDA error: out of memory",
        _TORCH,
    ),
    _of(
        "import error", "that something could not be imported",
        r"^(?:ImportError|ModuleNotFoundError)\b|undefined symbol: |cannot open shared object file", _TORCH,
    ),
    _of("regression", "that numbers are not finite", r"found (?:NaN|Inf) in|Detected NaN|Unexpected result (?:nan|inf)",
        _CORE),
    _of(
        "golden drift", "that values differ from the golden values",
        r"The following metrics failed|(?:Exact|Approximate) comparison of .{1,80}: FAILED|update golden values|"
        r"(?:Token|Logprobs length|Generated text|Routing indices) mismatch|Logprobs differ at|"
        r"^E? *AssertionError: Memory is too (?:low|high) for mem|not within .{1,12} of golden value",
        _PYTEST,
    ),
    _of(
        "shape", "that sizes do not match",
        r"divisible by|size mismatch|shapes? cannot be multiplied|must match the (?:existing )?size|"
        r"[Ss]hape mismatch|shapes? .{0,80}(?:not match|mismatch|incompatible|not aligned|is invalid)|"
        r"is invalid for input of size|Expected size .{1,20} but got size|Sizes of tensors must match",
        _CORE,
    ),
)  # fmt: skip

BUILD: tuple[LogPattern, ...] = (
    _of("container build", "that the image could not be built",
        r"failed to solve|failed to build|did not complete successfully|returned a non-zero code", _DOCKER),
    _of("container build", "that an image is missing", r"manifest unknown|manifest for .{1,200} not found", _DOCKER),
)  # fmt: skip

#: Lines that report a failure, and not its cause.
PLAIN: tuple[LogPattern, ...] = (
    _of("unknown", "that the deployment was refused", r"[Dd]eployment .{0,100}(?:rejected|refused|denied)", _GITHUB),
    _of(
        "unknown", "what failed",
        r"^(?:[A-Za-z_][\w.]{0,100}(?:Error|Exception)|ERROR|[Ee]rror|fatal): |: error: ", _TORCH,
    ),
    _of("unknown", "what failed", r"##\[error\]", _GITHUB),
)  # fmt: skip

#: Lines of a log, in the order in which they explain a failure where no traceback does.
LINES: tuple[LogPattern, ...] = (*ERRORS, *FATAL, *HANG, *WEAK, *BUILD, *PLAIN)

#: Consequences and chatter: no cause by themselves.
NOISE = re.compile(
    r"destroy_process_group|(?:TCPStore|c10d|socket\.cpp|sendBytes|recvValue|recvVector).{0,400}"
    r"(?:Connection (?:reset|closed)|Broken pipe|[Ff]ailed to recv|[Ff]ailed to send|unavailable)|"
    r"Sending process \d{1,9} closing signal|\bHeartbeatMonitor\b|resource_tracker|^Exception ignored in"
)
#: Exceptions that follow when another rank has died, and those of a stopped process.
CONSEQUENCE = re.compile(
    r"^(?:[\w.]{0,100}\.)?(?:ChildFailedError|SignalException|DistBackendError|DistStoreError|DistNetworkError|"
    r"KeyboardInterrupt|SystemExit|BrokenPipeError|ConnectionResetError|ProcessExitedException|"
    r"ProcessRaisedException|RendezvousConnectionError|RendezvousClosedError|CalledProcessError|BdbQuit)\b"
    r"|NCCL (?:communicator was aborted|error|Error|watchdog)|Watchdog caught collective"
)

#: Every line that matters in the log of a rank has one of these, so that blocks without them are skipped.
RANK_STEMS: tuple[bytes, ...] = (
    b"rror",
    b"Traceback",
    b"ailed",
    b"FAILED",
    b"Seg",
    b"corrupt",
    b"(): ",
    b"Connection",
    b"imeout",
    b"NaN",
    b"E   ",
)
#: The same for all other logs, and for rank 0, which prints the arguments.
STEMS: tuple[bytes, ...] = (
    *RANK_STEMS, b"ailure", b"llegal", b"Fatal", b"imed out", b"ECC", b"SIG", b"invalid pointer", b"TIME LIMIT",
    b"maximum execution time", b"longer than",
    b"resolve host", b"connect to", b"container", b"in progress", b"No space", b"quota", b"runner", b"toomany",
    b"_BLOCKING", b"Inf in", b"the bus", b"no CUDA", b"Address alr", b"Gateway", b"Unavailable", b"aiting for",
    b"mismatch", b"mat1", b"restart", b"exitcode", b"arallel", b"last enqueued", b" values: ", b"Unexpected result",
    b"rank      :", b"first observed",
    b"did not complete", b"non-zero code", b"manifest", b"eployment", b"fatal: ", b"incomplete input",
)  # fmt: skip
