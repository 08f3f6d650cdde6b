"""The facts of one log, as data.  Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from runbook_lib.failures.patterns import BY_ID, GENERIC, TRACEBACK, FailureKind, LogPattern

QUOTED = 30  # maximum number of lines of evidence
SHOWN = 1000  # characters of a line that are quoted
DRIFT = BY_ID["golden-values-differ"]
_TESTS = 4.5  # the tier of a failed test
_CONFIDENCE = 0.8  # of an exception that no rule explains
_WARNING = 0.3  # reduction of the confidence for a warning
_ERROR = 0.05  # an exception explains this much more than a line of the same rule
_CONSEQUENCE = 0.9  # the tier of a consequence of another rank's death, if nothing else is known


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
