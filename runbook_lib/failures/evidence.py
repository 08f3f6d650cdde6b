"""What logs show: the facts of one log, as data, and the evidence for a job's failure in all of its logs.  Pure.

The evidence is ranked by how much it explains.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from runbook_lib.failures.failure import Clue
from runbook_lib.failures.patterns import BY_ID, GENERIC, TRACEBACK, FailureKind, LogPattern

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
        if self.is_exception and not self.pattern.by_words:
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
    first_rank: tuple[int, int] | None = None  # the first to fail according to torchrun: global and local rank
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
    lines = (each for each in log.findings if each.form == "line" and each.line < limit.line)
    died = any(each.pattern is not None and each.pattern.id in _DEATHS for each in lines)
    return died or any(each is not log and root_exception([each]) for each in logs)


def root_exception(logs: Sequence[LogSummary]) -> Candidate | None:
    """Return the most likely exception that ended its process."""
    possible = candidates([log for log in logs if any(each.is_exception for each in log.findings)])
    return next((candidate for candidate in possible if candidate.ends_its_process), None)


def first_failed_ranks(logs: Sequence[LogSummary]) -> tuple[int, ...]:
    """Return the global and the local rank that failed first according to torchrun; empty if no log has them."""
    return next((log.first_rank for log in logs if log.first_rank is not None), ())


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
    first = next((log for log in logs if log.first_rank is not None), None)
    if first is None or first.first_rank is None or first.exit_code != 1:
        return None
    read = {log.rank for log in logs} | {found.rank for log in logs for found in log.findings}
    return first.first_rank[0] if read.isdisjoint(first.first_rank) else None
