"""Polling of long operations, with growing pauses, until they end."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from runbook_lib.errors import Unreachable

#: Seconds: the first and the longest pause between two polls, and the time limit (a cell may take 8 hours).
PAUSE, LONGEST_PAUSE, LIMIT = 1.0, 60.0, 7.5 * 3600
#: Consecutive polls that may fail before polling ends; at the longest pause, a few minutes.
MAX_FAILURES = 12

T = TypeVar("T")


@dataclass(frozen=True)
class Observation:
    """A state in words, shown whenever ``mark`` changes, until it is ``over``; ``limit`` is in seconds."""

    sentence: str
    over: bool
    mark: str = ""
    limit: float = LIMIT


def _elapsed(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def patiently(read: Callable[[], T], sleep: Callable[[float], None]) -> T:
    """Return one state, read again while the server cannot be reached."""
    return follow(read, lambda _: Observation("", over=True), sleep)


def follow(
    read: Callable[[], T], judge: Callable[[T], Observation], sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:  # fmt: skip
    """Print each change of a state, and return the final one, or the one read when the time is up.

    A poll that raises Unreachable is repeated; the last of MAX_FAILURES in a row raises it.
    """
    start, pause, failures, shown = clock(), PAUSE, 0, ""
    while True:
        try:
            state, failures = read(), 0
        except Unreachable as error:
            failures += 1
            if failures >= MAX_FAILURES:
                raise
            print(f"{error.message} What was started continues meanwhile. Trying again.")
        else:
            observation = judge(state)
            mark = observation.mark or observation.sentence
            if observation.sentence and mark != shown and not observation.over:  # the caller shows the end
                print(f"{_elapsed(clock() - start):>6}  {observation.sentence}")
                shown = mark
            if observation.over or clock() - start > observation.limit:
                return state
        sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)
