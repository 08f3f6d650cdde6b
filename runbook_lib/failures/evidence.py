"""Failures and their evidence: the facts of one log, as data, and what all logs of a job show.  Pure.

The evidence is ranked by how much it explains.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from runbook_lib.failures.patterns import BY_ID, GENERIC, RERUN, TRACEBACK, FailureKind, LogPattern
from runbook_lib.images.drivers import DRIVER, DriverRequirement
from runbook_lib.images.months import cuda_release

QUOTED = 30  # maximum number of lines of evidence
SHOWN = 1000  # characters of a line that are quoted
DRIFT = BY_ID["golden-values-differ"]
_TESTS = 4.5  # the tier of a failed test
_CONFIDENCE = 0.8  # of an exception that no rule explains
_WARNING = 0.3  # reduction of the confidence for a warning
_ERROR = 0.05  # an exception explains this much more than a line of the same rule
_CONSEQUENCE = 0.9  # the tier of a consequence of another rank's death, if nothing else is known
#: Maximum number of lines that a rank prints after the exception that ends it.
_DYING = 400
_SPOILED_LIMIT = 1.5  # the tier of a time limit that is explained by a process's death
_DEATHS = ("process-failed", "signal-of-rank", "slurm-oom")
#: A relative difference of a loss that is too large for drift: ten times the tolerance of CI's comparison.
_FAR = 0.5
#: A loss that ends this many times above its first value has diverged.
_DIVERGED = 1.1


@dataclass(frozen=True)
class FailedJob:
    """A job as listed by the forge; ``conclusion`` in the forge's words, ``failed_steps`` if it reports any."""

    name: str
    url: str = ""
    conclusion: str = "failure"
    failed_steps: tuple[str, ...] = ()

    @property
    def timed_out(self) -> bool:
        return self.conclusion in ("timed_out", "timed out")


@dataclass(frozen=True)
class Clue:
    """A line that a rule matches; ``rule`` is empty for an error that no rule explains.

    ``line`` counts from 1, and is 0 in a log of which only the end was read.
    """

    file: str
    line: int
    text: str
    rule: str = ""

    @property
    def place(self) -> str:
        """Log and line, in words."""
        return f"{self.file}, line {self.line}" if self.line else self.file


@dataclass(frozen=True)
class Failure:
    """The cause of a job's failure.  ``evidence`` is verbatim except for colours, control characters and secrets.

    A cause that ends with ``…`` is cut.  ``where`` is the decisive line of the evidence.  ``tests`` are pytest's IDs of
    the tests that failed.
    """

    job: str
    url: str
    kind: FailureKind
    cause: str
    evidence: tuple[str, ...] = ()
    where: Clue | None = None
    next: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    rank: int | None = None
    confidence: float = 0.9
    clues: tuple[Clue, ...] = ()
    consequences: tuple[Clue, ...] = ()
    tests: tuple[str, ...] = ()

    @property
    def retry(self) -> bool:
        """True if the class says nothing about the change; for other failures, a second run proves nothing."""
        return self.kind in RERUN


@dataclass(frozen=True)
class Finding:
    """Something in a log that may explain the failure: a line, an exception, an error shown by pytest, a failed test.

    ``message`` begins with the decisive line, whose number ``line`` counts from 1, or is 0 if unknown.  ``lines`` are
    quoted, ``time`` is month to second, if known, and ``end`` is the last line of a traceback.
    """

    form: Literal["line", "exception", "pytest", "test"]
    message: str
    lines: tuple[str, ...]
    line: int
    rank: int | None = None
    time: str = ""
    pattern: LogPattern | None = None  # the rule that explains it
    end: int = 0
    mild: bool = False  # a warning, or after the step had ended
    consequence: bool = False  # an exception that follows from the death of another process

    @property
    def text(self) -> str:
        """The decisive line."""
        return self.message.partition("\n")[0][:SHOWN]

    @property
    def is_exception(self) -> bool:
        """True for an exception, whoever printed it."""
        return self.form in ("exception", "pytest")

    @property
    def kind(self) -> FailureKind:
        """The class of the failure, if this is its cause."""
        if self.pattern is not None:
            return self.pattern.kind
        return "program error" if self.form == "exception" else "unit tests"

    @property
    def tier(self) -> float:
        """A number for how much this explains."""
        explained = self.pattern.tier if self.pattern else 0.0
        if self.form == "test":
            return _TESTS
        if self.form == "line":
            return explained - 2 * self.mild
        if not self.consequence:
            return max(TRACEBACK, explained) + _ERROR - self.mild
        if self.pattern is None or self.pattern.by_words:
            return min(explained, _CONSEQUENCE)
        return min(explained, TRACEBACK - 0.5)

    @property
    def confidence(self) -> float:
        """The share of failures with such evidence that get the right class."""
        if self.pattern is None:
            return _CONFIDENCE
        if self.is_exception and not self.consequence and not self.pattern.by_words:
            return max(_CONFIDENCE, self.pattern.confidence)
        return self.pattern.confidence - _WARNING * (self.form == "line" and self.mild)


def as_cause(pattern: LogPattern | None) -> LogPattern | None:
    """Return the rule for an exception, which says more by itself than a generic rule does."""
    return None if pattern is None or (pattern.tier <= GENERIC and not pattern.by_words) else pattern


@dataclass(frozen=True)
class MetricComparison:
    """The values of one metric printed by the comparison with golden values."""

    metric: str
    actual: tuple[float, ...]
    golden: tuple[float, ...]


@dataclass
class LogSummary:
    """The facts of one log.  ``problem`` is the reason why it could not be read completely."""

    name: str
    rank: int | None = None
    findings: tuple[Finding, ...] = ()
    tests: dict[str, str] = field(default_factory=dict)  # the ID of a failed test -> its error, if a line shows one
    comparisons: tuple[MetricComparison, ...] = ()
    progress: str = ""
    iteration: int | None = None
    losses: tuple[float, float] | None = None  # the first and the last that were printed
    not_finite: bool = False
    first_rank: tuple[int, ...] = ()  # the first to fail according to torchrun: global and local rank
    exit_code: int | None = None
    enqueued: dict[int, int] = field(default_factory=dict)  # rank -> its last collective, from the watchdog
    reporters: dict[int, int] = field(default_factory=dict)  # rank -> the collective that timed out
    tail: tuple[str, ...] = ()
    lines: int = 0
    problem: str = ""
    platform: tuple[str, ...] = ()  # lines with the image's month or the node's driver
    resumed: bool = False  # the failed comparison is between a resumed run and its first run


def without_secrets(found: Any, hide: Callable[[str], str]) -> Any:
    """Apply ``hide`` to all texts of a log before any part of them is used, to lines together."""
    if isinstance(found, str):
        return hide(found)
    if isinstance(found, dict):
        return {without_secrets(key, hide): without_secrets(value, hide) for key, value in found.items()}
    if isinstance(found, tuple) and found and all(isinstance(each, str) for each in found):
        return tuple(hide("\n".join(found)).split("\n"))
    if isinstance(found, tuple):
        return tuple(without_secrets(each, hide) for each in found)
    if is_dataclass(found) and not isinstance(found, LogPattern | type):
        parts = {each.name: without_secrets(getattr(found, each.name), hide) for each in fields(found)}
        return replace(found, **parts)
    return found


@dataclass(frozen=True)
class Candidate:
    """A possible cause, with its log; ``tier`` says how much it explains among the job's logs."""

    log: LogSummary
    finding: Finding
    tier: float

    @property
    def clue(self) -> Clue:
        """The decisive line."""
        found = self.finding
        return Clue(self.log.name, found.line, found.text, found.pattern.id if found.pattern else "")

    @property
    def ends_its_process(self) -> bool:
        """True for an exception that no other caused, if the log of its rank ends with it and its aftermath."""
        found = self.finding
        return found.is_exception and not found.consequence and _is_last(self.log, found)


def candidates(logs: Sequence[LogSummary]) -> list[Candidate]:
    """Return the possible causes, the most likely first; consequences of another class are left out."""
    possible = [candidate for log in logs for candidate in _of_log(log, logs) if candidate.tier > 0]
    kinds: set[FailureKind] = set()
    for candidate in possible:
        pattern = candidate.finding.pattern
        # A rule that is a consequence of any other class only wraps the cause.
        if pattern is None or "*" not in pattern.consequence_of:
            kinds.add(candidate.finding.kind)
    roots = [candidate for candidate in possible if not _follows(candidate.finding.pattern, kinds)]
    highest = max((candidate.tier for candidate in roots), default=0.0)
    first_ranks = first_failed_ranks(logs)
    timed = all(candidate.finding.time for candidate in roots if candidate.tier == highest)

    def order(candidate: Candidate) -> tuple[float, str, bool, float, int]:
        rank = math.inf if candidate.log.rank is None else candidate.log.rank
        found = candidate.finding
        return -candidate.tier, found.time if timed else "", found.rank not in first_ranks, rank, found.line

    return sorted(roots, key=order)


def _follows(pattern: LogPattern | None, kinds: set[FailureKind]) -> bool:
    if pattern is None or not pattern.consequence_of:
        return False
    others = kinds - {pattern.kind}
    return bool(others) if "*" in pattern.consequence_of else not others.isdisjoint(pattern.consequence_of)


def _of_log(log: LogSummary, logs: Sequence[LogSummary]) -> Iterator[Candidate]:
    of_ranks = (each for each in log.findings if each.form == "exception" and each.rank is not None)
    rank_died = not all(each.consequence for each in of_ranks)
    for found in log.findings:
        tier = found.tier
        if found.form == "test" and rank_died:  # the tests failed because a rank did
            tier = TRACEBACK - 0.5
        elif found.is_exception and not found.consequence and not _is_last(log, found):
            tier -= TRACEBACK / 2
        elif found.form == "line" and found.pattern and found.pattern.limit and _explains_limit(log, found, logs):
            tier = _SPOILED_LIMIT
        yield Candidate(log, found, tier)


def _is_last(log: LogSummary, found: Finding) -> bool:
    """Return True if a rank's log ends with an exception and its aftermath; otherwise the program continued."""
    return log.rank is None or log.lines - max(found.end, found.line) <= _DYING


def _explains_limit(log: LogSummary, limit: Finding, logs: Sequence[LogSummary]) -> bool:
    """Return True if a process ended before the time limit, so that the others waited for it."""
    for found in log.findings:
        is_death = found.form == "line" and found.pattern is not None and found.pattern.id in _DEATHS
        is_root = Candidate(log, found, 0).ends_its_process and not found.mild
        if found.line < limit.line and (is_death or is_root):
            return True
    return any(each is not log and root_exception([each]) for each in logs)


def root_exception(logs: Sequence[LogSummary]) -> Candidate | None:
    """Return the most likely exception that ended its process."""
    possible = candidates([log for log in logs if any(each.is_exception for each in log.findings)])
    return next((candidate for candidate in possible if candidate.ends_its_process), None)


def first_failed_ranks(logs: Sequence[LogSummary]) -> tuple[int, ...]:
    """Return the global and the local rank that failed first according to torchrun; empty if no log has them."""
    return next((log.first_rank for log in logs if log.first_rank), ())


def golden_drift(logs: Sequence[LogSummary]) -> Candidate | None:
    """Return the first failed comparison with golden values; its exception names the metrics."""
    for log in logs:
        drift = [each for each in log.findings if each.pattern is DRIFT]
        if drift:
            first = min(drift, key=lambda each: each.form == "line")
            return Candidate(log, first, first.tier)
    return None


def unread_rank(logs: Sequence[LogSummary]) -> int | None:
    """Return the rank that failed first, with an exception, according to torchrun, if its log was not read.

    The log of a job shows only the first and the last rank, whose lines about other ranks are not a cause.
    """
    first = next((log for log in logs if log.first_rank), None)
    if first is None or first.exit_code != 1:
        return None
    read = {log.rank for log in logs} | {found.rank for log in logs for found in log.findings}
    return first.first_rank[0] if read.isdisjoint(first.first_rank) else None


def wrong_numbers(comparisons: Sequence[MetricComparison], logs: Sequence[LogSummary]) -> str:
    """Return why numbers are wrong and not just different, as the beginning of a sentence; empty if they are not."""
    for comparison in comparisons:
        if comparison.metric.startswith(("iteration-time", "mem-", "throughput")):
            continue
        for new, old in zip(comparison.actual, comparison.golden, strict=False):
            if math.isfinite(old) and not math.isfinite(new):
                return f"{comparison.metric} is not finite"
            if "loss" in comparison.metric and math.isfinite(old) and abs(new - old) > _FAR * abs(old):
                return f"{comparison.metric} is more than {_FAR:.0%} off"
    if any(log.not_finite for log in logs):
        return "The loss is not finite"
    if any(log.losses and log.losses[1] > _DIVERGED * log.losses[0] > 0 for log in logs):
        return "The loss diverges"
    return ""


def worst_difference(comparisons: Sequence[MetricComparison]) -> dict[str, str]:
    """Return the expected and the actual value at the largest difference."""
    largest = -1.0
    details = {}
    for comparison in comparisons:
        for number, (new, old) in enumerate(zip(comparison.actual, comparison.golden, strict=False), 1):
            difference = _relative_difference(new, old)
            if difference > largest:
                largest = difference
                details = {
                    "metric": comparison.metric, "expected": f"{old:g}", "found": f"{new:g}",
                    "value number": str(number),
                }  # fmt: skip
    return details


def _relative_difference(new: float, old: float) -> float:
    if new == old:
        return 0.0
    if math.isnan(new) and math.isnan(old):
        return -1.0
    if old and math.isfinite(new - old):
        return abs(new - old) / abs(old)
    return math.inf


def losses(logs: Sequence[LogSummary]) -> dict[str, str]:
    """Return the first and the last loss of the first log that has any."""
    for log in logs:
        if log.losses:
            return {"lm loss": f"{log.losses[0]:g} at first, {log.losses[1]:g} at last"}
    return {}


def peak_of(message: str) -> str:
    """Return a process's memory in use when it ran out, from PyTorch's message."""
    size = r"(\d[\d.]{0,12} [KMGT]iB)"
    match = re.search(f"{size} memory in use|allocated memory {size} is allocated", message)
    return match[1] or match[2] if match else ""


def driver_verdict(text: str) -> str:
    """Return the verdict on the driver for the image in these lines; empty if they name no image.

    The image is identified by its CUDA release or NGC month; PyTorch reports the release that a driver supports.
    """
    shown = re.sub(
        r"Driver Version: [^\n]{0,200}", "", text
    )  # nvidia-smi prints the CUDA release that the driver supports
    named = re.search(r"cuda ?>= ?(\d{1,2}\.\d)|\bCUDA(?:_VERSION| [Vv]ersion|)[ :=]{1,3}(\d{1,2}\.\d)", shown)
    month = re.search(r"(?:NVIDIA Release |nvcr\.io/nvidia/\w{1,40}:)(\d\d\.\d\d)\b", text)
    supported = re.search(r"driver on your system is too old \(found version (\d{1,2})0(\d)0\)", text)
    cuda = ""
    if month:
        cuda, _ = cuda_release(month[1])
    if named and not cuda:
        cuda = named[1] or named[2]
    if not cuda:
        return f"The node's driver supports CUDA {supported[1]}.{supported[2]} at most." if supported else ""
    driver = re.search(rf"(?:[Dd]river(?: [Vv]ersion|_VERSION|)[ :=]{{1,3}}|but version )({DRIVER})", text)
    needed = DriverRequirement(cuda)
    return (needed.judge(driver[1]) if driver else needed.summary).reason
