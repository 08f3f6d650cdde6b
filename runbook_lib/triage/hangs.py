"""The rank that stopped first in a hang, from the watchdogs' sequence numbers or the ranks' progress.  Pure."""

from collections.abc import Mapping, Sequence

from runbook_lib.triage.log_summary import LogSummary


def stopped_rank(logs: Sequence[LogSummary]) -> int | None:
    """Return the rank that is behind, or silent while the others report; None if all are alike."""
    enqueued: dict[int, int] = {}
    reporters: dict[int, int] = {}
    trained: dict[int, int] = {}
    world_size = 0
    ranks: set[int] = set()
    for log in logs:
        enqueued.update(log.enqueued)
        reporters.update(log.reporters)
        world_size = max(world_size, log.world_size)
        if log.rank is not None:
            ranks.add(log.rank)
            if log.iteration is not None:
                trained[log.rank] = log.iteration
    behind = _slowest(enqueued)
    if behind is None:
        behind = _slowest(reporters)
    if behind is None:
        behind = _silent(ranks, set(enqueued) | set(reporters), world_size)
    return _slowest(trained) if behind is None else behind


def _silent(ranks: set[int], reporting: set[int], world_size: int) -> int | None:
    """Return the first of a few ranks that report no time-out while all others do."""
    if len(reporting) < 2:
        return None
    expected = ranks | reporting | set(range(max(max(reporting) + 1, world_size)))
    silent = sorted(expected - reporting)
    return silent[0] if silent and len(silent) < len(reporting) else None


def _slowest(steps_by_rank: Mapping[int, int]) -> int | None:
    """Return the lowest rank with the fewest steps; None if all have the same number."""
    if len(set(steps_by_rank.values())) < 2:
        return None
    return min(steps_by_rank, key=lambda rank: (steps_by_rank[rank], rank))
