"""The evidence for a job's failure in the summaries of its logs, ranked by how much it explains.  Pure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runbook_lib.failures.failure import Clue
from runbook_lib.failures.log_summary import DRIFT, Finding, LogSummary
from runbook_lib.failures.patterns import TRACEBACK, FailureKind, LogPattern

#: Maximum number of lines that a rank prints after the exception that ends it.
_DYING = 400
_SPOILED_LIMIT = 1.5  # the tier of a time limit that is explained by a process's death
_DEATHS = ("process-failed", "signal-of-rank", "slurm-oom")


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
