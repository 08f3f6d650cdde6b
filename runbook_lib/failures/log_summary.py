"""The facts of one log, as data.  Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

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
    frames: tuple[tuple[str, str], ...] = ()  # file and function, the outermost first
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


def without_secrets(log: LogSummary, hide: Callable[[str], str]) -> LogSummary:
    """Apply ``hide`` to all texts of the log before any part of them is used."""

    def hide_lines(lines: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(hide("\n".join(lines)).split("\n")) if lines else lines

    tracebacks = []
    for trace in log.tracebacks:
        lines = hide_lines(trace.lines)
        tracebacks.append(replace(trace, error=hide(trace.error), message=hide(trace.message), lines=lines))
    failed_tests = []
    for test in log.failed_tests:
        failed_tests.append(replace(test, name=hide(test.name), error=hide(test.error), text=hide(test.text)))
    matches = [replace(match, text=hide(match.text), lines=hide_lines(match.lines)) for match in log.matches]
    comparisons = [replace(comparison, metric=hide(comparison.metric)) for comparison in log.comparisons]
    return replace(
        log, tracebacks=tuple(tracebacks), matches=tuple(matches), failed_tests=tuple(failed_tests),
        comparisons=tuple(comparisons), progress=hide(log.progress), tail=hide_lines(log.tail),
        platform=hide_lines(log.platform),
    )  # fmt: skip
