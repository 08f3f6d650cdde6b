"""The meaning of lines in a log, read once from ``rules.toml``."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

FailureKind = Literal[
    "golden drift", "resume mismatch", "flaky infrastructure", "hang", "out of memory", "shape", "import error",
    "container build", "lint", "unit tests", "regression", "unknown",
]  # fmt: skip


@dataclass(frozen=True)
class LogPattern:
    """An expression for lines; ``finding`` ends the sentence "The log shows …"; ``retry``: a new run may succeed."""

    kind: FailureKind
    finding: str
    regex: re.Pattern[str]
    source: str
    retry: bool = False
    weak: bool = False


def read_table(name: str) -> dict[str, Any]:
    """Return a table of rules that ships with this package."""
    return tomllib.loads(resources.files("runbook_lib.triage").joinpath(name).read_text("utf-8"))


def _read_pattern(rule: Mapping[str, Any]) -> LogPattern:
    regex = re.compile(rule["pattern"])
    return LogPattern(
        rule["class"], rule["cause"], regex, rule["source"], rule.get("retry", False), rule.get("weak", False)
    )


_TABLE = read_table("rules.toml")
ADVICE: Mapping[FailureKind, str] = _TABLE["advice"]
#: Lines of a log, in the order in which they explain a failure where no traceback does.
LINES = tuple(_read_pattern(rule) for rule in _TABLE["rule"])
FLAKY = tuple(pattern for pattern in LINES if pattern.kind == "flaky infrastructure")
#: Lines that report a failure, and not its cause.
PLAIN = tuple(pattern for pattern in LINES if pattern.kind == "unknown")
_NO_ERRORS = ("flaky infrastructure", "hang", "container build", "unknown")
#: Meanings of errors, the first that fits.  Searched for in an exception's own line and the lines of its message.
ERRORS = tuple(pattern for pattern in LINES if pattern.kind not in _NO_ERRORS)
RANK_STEMS = tuple(stem.encode() for stem in _TABLE["stems"]["rank"])
STEMS = (*RANK_STEMS, *(stem.encode() for stem in _TABLE["stems"]["other"]))

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
