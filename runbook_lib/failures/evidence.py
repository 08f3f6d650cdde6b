"""The evidence for a job's failure in the summaries of its logs, ranked by how much it explains.  Pure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runbook_lib.failures.log_summary import FailedTest, LineMatch, LogSummary, Traceback
from runbook_lib.failures.patterns import BY_ID, GENERIC, TRACEBACK, FailureKind, LogPattern

#: Maximum number of lines that a rank prints after the exception that ends it.
_DYING = 400
_TESTS = 4.5
_TRACEBACK_CONFIDENCE = 0.8
_WARNING = 0.3  # reduction of the confidence for a warning
_SPOILED_LIMIT = 1.5  # reduction of the tier for a time limit explained by a process's death
_ERROR = 0.05  # a traceback explains this much more than a line of the same rule
_CONSEQUENCE = 0.9  # the tier of a consequence of another rank's death, if nothing else is known
_DEATHS = ("process-failed", "signal-of-rank", "slurm-oom")


@dataclass(frozen=True)
class Candidate:
    """A possible cause: a traceback, a line, or a failed test, with its log and the rule that explains it.

    ``kind`` is the class of the failure if this is its cause.
    """

    log: LogSummary
    entry: Traceback | LineMatch | FailedTest
    tier: float
    kind: FailureKind
    pattern: LogPattern | None = None

    @property
    def rule(self) -> str:
        """The rule's ID; empty if no rule explains the candidate."""
        if self.pattern is None:
            return ""
        return self.pattern.id

    @property
    def confidence(self) -> float:
        if self.pattern is None:
            return _TRACEBACK_CONFIDENCE
        if isinstance(self.entry, Traceback) and not self.pattern.by_words:
            return max(_TRACEBACK_CONFIDENCE, self.pattern.confidence)
        if isinstance(self.entry, LineMatch) and self.entry.mild:
            return self.pattern.confidence - _WARNING
        return self.pattern.confidence


def candidates(logs: Sequence[LogSummary]) -> list[Candidate]:
    """Return the possible causes, the most likely first; consequences of another class are left out."""
    possible: list[Candidate] = []
    for log in logs:
        possible += [candidate for candidate in _of_log(log, logs) if candidate.tier > 0]
    kinds: set[FailureKind] = set()
    for candidate in possible:
        # A rule that is a consequence of any other class only wraps the cause.
        if candidate.pattern is None or "*" not in candidate.pattern.consequence_of:
            kinds.add(candidate.kind)
    roots = [candidate for candidate in possible if not _follows(candidate.pattern, kinds)]
    highest = max((candidate.tier for candidate in roots), default=0.0)
    first_ranks = first_failed_ranks(logs)
    timed = all(candidate.entry.time for candidate in roots if candidate.tier == highest)

    def order(candidate: Candidate) -> tuple[float, str, bool, float, int]:
        rank = math.inf if candidate.log.rank is None else candidate.log.rank
        time = candidate.entry.time if timed else ""
        return -candidate.tier, time, candidate.entry.rank not in first_ranks, rank, candidate.entry.line

    return sorted(roots, key=order)


def _follows(pattern: LogPattern | None, kinds: set[FailureKind]) -> bool:
    if pattern is None or not pattern.consequence_of:
        return False
    others = kinds - {pattern.kind}
    if "*" in pattern.consequence_of:
        return bool(others)
    return not others.isdisjoint(pattern.consequence_of)


def _of_log(log: LogSummary, logs: Sequence[LogSummary]) -> Iterator[Candidate]:
    for trace in log.tracebacks:
        if not trace.survived:
            yield _of_traceback(log, trace)
    for match in log.matches:
        if not match.survived:
            tier = match.tier
            if match.pattern.limit and _explains_limit(log, match, logs):
                tier = _SPOILED_LIMIT
            yield Candidate(log, match, tier, match.pattern.kind, match.pattern)
    tier = _TESTS
    for trace in log.tracebacks:  # the tests failed because a rank did
        if trace.rank is not None and not (trace.consequence or trace.survived or trace.by_pytest):
            tier = TRACEBACK - 0.5
    for test in log.failed_tests:
        yield Candidate(log, test, tier, "unit tests")


def _of_traceback(log: LogSummary, trace: Traceback) -> Candidate:
    pattern = trace.pattern
    if pattern is not None and pattern.tier <= GENERIC and not pattern.by_words:
        pattern = None
    kind: FailureKind = "program error"
    explained = 0.0
    if pattern is not None:
        kind, explained = pattern.kind, pattern.tier
    elif trace.by_pytest:
        kind = "unit tests"
    if trace.consequence:
        if pattern is None or pattern.by_words:
            explained = min(explained, _CONSEQUENCE)
        return Candidate(log, trace, min(explained, TRACEBACK - 0.5), kind, pattern)
    tier = max(TRACEBACK, explained) + _ERROR - trace.mild
    if not ends_with(log, trace):
        tier -= TRACEBACK / 2
    return Candidate(log, trace, tier, kind, pattern)


def _explains_limit(log: LogSummary, limit: LineMatch, logs: Sequence[LogSummary]) -> bool:
    """Return True if a process ended before the time limit, so that the others waited for it."""
    died = any(match.pattern.id in _DEATHS and match.line < limit.line for match in log.matches)
    return died or any(each is not log and root_traceback([each]) for each in logs)


def root_traceback(logs: Sequence[LogSummary]) -> Candidate | None:
    """Return the most likely traceback that ended its process, with its log."""
    for candidate in candidates([log for log in logs if log.tracebacks]):
        trace = candidate.entry
        if isinstance(trace, Traceback) and not trace.consequence and ends_with(candidate.log, trace):
            return candidate
    return None


def ends_with(log: LogSummary, trace: Traceback) -> bool:
    """Return True if a rank's log ends with a traceback and its aftermath; otherwise the program continued."""
    return log.rank is None or log.lines - max(trace.end, trace.line) <= _DYING


def first_failed_ranks(logs: Sequence[LogSummary]) -> tuple[int, ...]:
    """Return the global and the local rank that failed first according to torchrun; empty if no log has them."""
    for log in logs:
        if log.first_rank is not None:
            return log.first_rank
    return ()


def golden_drift(logs: Sequence[LogSummary]) -> tuple[LogSummary, Traceback | LineMatch] | None:
    """Return the first failed comparison with golden values, with its log."""
    drift = BY_ID["golden-values-differ"]
    for log in logs:
        for trace in log.tracebacks:
            if any(drift.regex.search(line) for line in trace.message.splitlines()):
                return log, trace
        for match in log.matches:
            if match.pattern is drift:
                return log, match
    return None


def unread_rank(logs: Sequence[LogSummary]) -> int | None:
    """Return the rank that failed first, with an exception, according to torchrun, if its log was not read.

    The log of a job shows only the first and the last rank, whose lines about other ranks are not a cause.
    """
    first = next((log for log in logs if log.first_rank is not None), None)
    if first is None or first.first_rank is None or first.exit_code != 1:
        return None
    read: set[int | None] = set()
    for log in logs:
        read.update([log.rank], (match.rank for match in log.matches), (trace.rank for trace in log.tracebacks))
    if read.isdisjoint(first.first_rank):
        return first.first_rank[0]
    return None
