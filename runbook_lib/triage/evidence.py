"""The evidence for a job's failure among the summaries of its logs: root traceback, drift, telling line.  Pure."""

import math
from collections.abc import Sequence

from runbook_lib.triage.log_summary import LineMatch, LogSummary, Traceback
from runbook_lib.triage.patterns import ERRORS, FLAKY, LINES, LogPattern

#: Lines that a rank prints at most after the exception that ends it.
_DYING = 400
_PRIORITY = {pattern: number for number, pattern in enumerate(LINES)}


def root_traceback(logs: Sequence[LogSummary]) -> tuple[LogSummary, Traceback] | None:
    """Return the earliest traceback that its program did not survive, with its log.

    The earliest by time where all have one, else on the rank that torchrun saw fail first, else by rank and position.
    """
    candidates: list[tuple[LogSummary, Traceback]] = []
    final: list[tuple[LogSummary, Traceback]] = []
    for log in logs:
        for trace in log.tracebacks:
            if trace.ends_its_process:
                candidates.append((log, trace))
                if ends_with(log, trace):
                    final.append((log, trace))
    candidates = final or candidates
    if candidates and all(trace.time for _, trace in candidates):
        return min(candidates, key=lambda candidate: candidate[1].time)
    first_ranks = first_failed_ranks(logs)
    of_first = [candidate for candidate in candidates if candidate[1].rank in first_ranks]
    return min(of_first or candidates, key=_by_rank, default=None)


def _by_rank(candidate: tuple[LogSummary, Traceback]) -> float:
    rank = candidate[1].rank
    return math.inf if rank is None else rank


def ends_with(log: LogSummary, trace: Traceback) -> bool:
    """Report if a rank's log ends with a traceback, and what is printed while dying: else its program went on."""
    return log.rank is None or log.lines - max(trace.end, trace.line) <= _DYING


def first_failed_ranks(logs: Sequence[LogSummary]) -> tuple[int, ...]:
    """Return the global and the local rank that torchrun saw fail first; none where no log has them."""
    for log in logs:
        if log.first_rank is not None:
            return log.first_rank
    return ()


def golden_drift(logs: Sequence[LogSummary]) -> tuple[LogSummary, Traceback | LineMatch] | None:
    """Return the first failed comparison with golden values, with its log."""
    for log in logs:
        for trace in log.tracebacks:
            pattern = first_match(ERRORS, trace.message)
            if pattern is not None and pattern.kind == "golden drift":
                return log, trace
        for match in log.matches:
            if match.pattern.kind == "golden drift":
                return log, match
    return None


def telling_line(logs: Sequence[LogSummary]) -> tuple[LogSummary, LineMatch] | None:
    """Return the line that explains most, with its log; of consequences alone, one that names a fault."""
    candidates = []
    for log in logs:
        candidates += [(log, match) for match in log.matches if not match.survived]
        for trace in log.tracebacks:
            pattern = first_match(FLAKY, trace.message)
            if pattern is not None and trace.consequence and not trace.survived:
                match = LineMatch(pattern, trace.error, trace.lines, trace.line, trace.rank, trace.time)
                candidates.append((log, match))
    return min(candidates, key=_by_priority, default=None)


def _by_priority(candidate: tuple[LogSummary, LineMatch]) -> tuple[int, str]:
    match = candidate[1]
    return _PRIORITY[match.pattern], match.time or "~"


def unread_rank(logs: Sequence[LogSummary]) -> int | None:
    """Return the rank that torchrun saw fail first, by an exception, where nothing of it was read.

    The log of a job shows the first and the last rank alone: their lines about others are no cause.
    """
    first = next((log for log in logs if log.first_rank is not None), None)
    if first is None or first.first_rank is None or first.exit_code != 1:
        return None
    read: set[int | None] = set()
    for log in logs:
        read.update([log.rank], (match.rank for match in log.matches))
    return first.first_rank[0] if read.isdisjoint(first.first_rank) else None


def first_match(patterns: Sequence[LogPattern], message: str) -> LogPattern | None:
    """Return the first of these patterns that an error's message has."""
    return next((pattern for pattern in patterns if pattern.regex.search(message)), None)
