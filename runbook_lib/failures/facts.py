"""Facts for the report of a failure: numbers, memory, the rank that stopped first.  Pure."""

import math
import re
from collections.abc import Mapping, Sequence

from runbook_lib.failures.evidence import LogSummary, MetricComparison
from runbook_lib.images.drivers import DRIVER, DriverRequirement
from runbook_lib.images.months import cuda_release

#: A relative difference of a loss that is too large for drift: ten times the tolerance of CI's comparison.
FAR = 0.5
#: A loss that ends this many times above its first value has diverged.
_DIVERGED = 1.1


def wrong_numbers(comparisons: Sequence[MetricComparison], logs: Sequence[LogSummary]) -> str:
    """Return why numbers are wrong and not just different, as the beginning of a sentence; empty if they are not."""
    for comparison in comparisons:
        if comparison.metric.startswith(("iteration-time", "mem-", "throughput")):
            continue
        for new, old in zip(comparison.actual, comparison.golden, strict=False):
            if math.isfinite(old) and not math.isfinite(new):
                return f"{comparison.metric} is not finite"
            if "loss" in comparison.metric and math.isfinite(old) and abs(new - old) > FAR * abs(old):
                return f"{comparison.metric} is more than {FAR:.0%} off"
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
    match = re.search(r"(\d[\d.]{0,12} [KMGT]iB) memory in use", message)
    if match is None:
        match = re.search(r"allocated memory (\d[\d.]{0,12} [KMGT]iB) is allocated", message)
    return match[1] if match else ""


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


def stopped_rank(logs: Sequence[LogSummary]) -> int | None:
    """Return the first rank to stop in a hang, from the watchdogs' sequence numbers or the ranks' progress.

    That rank is behind, or silent while the others report.  None if all are alike.
    """
    enqueued: dict[int, int] = {}
    reporters: dict[int, int] = {}
    trained: dict[int, int] = {}
    ranks: set[int] = set()
    for log in logs:
        enqueued.update(log.enqueued)
        reporters.update(log.reporters)
        if log.rank is not None:
            ranks.add(log.rank)
            if log.iteration is not None:
                trained[log.rank] = log.iteration
    silent = _silent(ranks, {*enqueued, *reporters})
    stopped = (_slowest(enqueued), _slowest(reporters), silent, _slowest(trained))
    return next((rank for rank in stopped if rank is not None), None)


def _silent(ranks: set[int], reporting: set[int]) -> int | None:
    """Return the first of a few ranks that report no time-out while all others do."""
    if len(reporting) < 2:
        return None
    expected = ranks | reporting | set(range(max(reporting) + 1))
    silent = sorted(expected - reporting)
    return silent[0] if silent and len(silent) < len(reporting) else None


def _slowest(steps_by_rank: Mapping[int, int]) -> int | None:
    """Return the lowest rank with the fewest steps; None if all have the same number."""
    if len(set(steps_by_rank.values())) < 2:
        return None
    return min(steps_by_rank, key=lambda rank: (steps_by_rank[rank], rank))
