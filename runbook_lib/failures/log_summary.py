"""The facts of one log, as data.  Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from runbook_lib.failures.patterns import LogPattern

QUOTED = 30  # maximum number of lines of evidence


@dataclass(frozen=True)
class Traceback:
    """A traceback, or an error shown by pytest.  ``line`` counts from 1; ``time`` is month to second, if known."""

    error: str
    message: str
    lines: tuple[str, ...]
    line: int
    rank: int | None = None
    time: str = ""
    consequence: bool = False
    survived: bool = False  # the program continued afterwards
    by_pytest: bool = False
    end: int = 0  # its last line
    pattern: LogPattern | None = None  # the rule that explains it
    mild: bool = False  # logged with a warning
    error_line: int = 0  # the line of its error, 0 if unknown

    @property
    def text(self) -> str:
        return self.error


@dataclass(frozen=True)
class LineMatch:
    """A line explained by a pattern, and the lines before it."""

    pattern: LogPattern
    text: str
    lines: tuple[str, ...]
    line: int
    rank: int | None = None
    time: str = ""
    survived: bool = False
    mild: bool = False  # a warning, or after the step had ended

    @property
    def tier(self) -> float:
        """A number for how well the line explains a failure."""
        return self.pattern.tier - 2 * self.mild


@dataclass(frozen=True)
class FailedTest:
    """A failed test by ID, with its error if the line shows one."""

    name: str
    error: str
    line: int
    text: str
    rank: None = None
    time: str = ""


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
    tracebacks: tuple[Traceback, ...] = ()
    matches: tuple[LineMatch, ...] = ()
    failed_tests: tuple[FailedTest, ...] = ()
    comparisons: tuple[MetricComparison, ...] = ()
    progress: str = ""
    iteration: int | None = None
    losses: tuple[float, float] | None = None  # the first and the last that were printed
    not_finite: bool = False
    first_rank: tuple[int, int] | None = None  # the first to fail according to torchrun: global and local rank
    exit_code: int | None = None
    enqueued: dict[int, int] = field(default_factory=dict)  # rank -> its last collective, from the watchdog
    reporters: dict[int, int] = field(default_factory=dict)  # rank -> the collective that timed out
    world_size: int = 0
    tail: tuple[str, ...] = ()
    lines: int = 0
    problem: str = ""
    platform: tuple[str, ...] = ()  # lines with the image's month or the node's driver
    resumed: bool = False  # the failed comparison is between a resumed run and its first run


def without_secrets(found: Any, hide: Callable[[str], str]) -> Any:
    """Apply ``hide`` to all texts of a log before any part of them is used, to lines together."""
    if isinstance(found, str):
        return hide(found)
    if isinstance(found, tuple) and found and all(isinstance(each, str) for each in found):
        return tuple(hide("\n".join(found)).split("\n"))
    if isinstance(found, tuple):
        return tuple(without_secrets(each, hide) for each in found)
    if isinstance(found, LogSummary | Traceback | LineMatch | FailedTest | MetricComparison):
        parts = {each.name: without_secrets(getattr(found, each.name), hide) for each in fields(found)}
        return replace(found, **parts)
    return found
