"""What one log tells, as data.  Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from runbook_lib.triage.patterns import Pattern

QUOTED = 30  # lines of evidence at most


@dataclass(frozen=True)
class Traceback:
    """A traceback, or an error as pytest shows it.  ``line`` counts from 1; ``time`` is month to second, if told."""

    error: str
    message: str
    lines: tuple[str, ...]
    line: int
    rank: int | None = None
    time: str = ""
    consequence: bool = False
    survived: bool = False  # the program went on afterwards
    frames: tuple[tuple[str, str], ...] = ()  # file and function, the outermost first
    by_pytest: bool = False
    end: int = 0  # its last line


@dataclass(frozen=True)
class Hit:
    """A telling line, and the lines before it."""

    pattern: Pattern
    text: str
    lines: tuple[str, ...]
    line: int
    rank: int | None = None
    time: str = ""
    survived: bool = False


@dataclass(frozen=True)
class Comparison:
    """What the comparison with golden values printed of one metric: the values that it compared."""

    metric: str
    actual: tuple[float, ...]
    golden: tuple[float, ...]


@dataclass(frozen=True)
class Reading:
    """What one log tells.  ``problem`` says why it could not be read, or not to its end."""

    name: str
    rank: int | None = None
    tracebacks: tuple[Traceback, ...] = ()
    hits: tuple[Hit, ...] = ()
    failed_tests: tuple[str, ...] = ()
    parallelism: Mapping[str, str] = field(default_factory=dict)
    comparisons: tuple[Comparison, ...] = ()
    progress: str = ""
    iteration: int | None = None
    losses: tuple[float, float] | None = None  # the first and the last that were printed
    not_finite: bool = False
    first_rank: tuple[int, int] | None = None  # which torchrun saw fail first: of all, and of its node
    exit_code: int | None = None
    enqueued: Mapping[int, int] = field(default_factory=dict)  # rank -> its last collective, from the watchdog
    tail: tuple[str, ...] = ()
    lines: int = 0
    problem: str = ""


def without_secrets(reading: Reading, hide: Callable[[str], str]) -> Reading:
    """The same with ``hide`` applied to all that the log said: before anything is made of a part of it."""

    def lines(of: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(hide("\n".join(of)).split("\n")) if of else of

    return replace(
        reading,
        tracebacks=tuple(
            replace(it, error=hide(it.error), message=hide(it.message), lines=lines(it.lines))
            for it in reading.tracebacks
        ),
        hits=tuple(replace(it, text=hide(it.text), lines=lines(it.lines)) for it in reading.hits),
        failed_tests=tuple(map(hide, reading.failed_tests)),
        parallelism={name: hide(value) for name, value in reading.parallelism.items()},
        comparisons=tuple(replace(it, metric=hide(it.metric)) for it in reading.comparisons),
        progress=hide(reading.progress),
        tail=lines(reading.tail),
    )
