"""Looks again and again at something that takes hours, less and less often, until it is over."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from runbook_lib.errors import Unreachable

#: Seconds: the first and the longest pause between two looks, and how long to go on (a cell may take 8 hours).
PAUSE, LONGEST_PAUSE, LIMIT = 1.0, 60.0, 7.5 * 3600
#: So many looks in a row may fail before following ends; at the longest pause, some minutes.
MAX_LOST = 12

T = TypeVar("T")


@dataclass(frozen=True)
class Seen:
    """What a look saw: a sentence, said whenever ``mark`` is another; whether it is over; the seconds to go on."""

    sentence: str
    over: bool
    mark: str = ""
    limit: float = LIMIT


def patiently(ask: Callable[[], T], sleep: Callable[[float], None], say: Callable[[str], object]) -> T:
    """Return one answer, requested again while there is none."""
    return follow(ask, lambda _: Seen("", over=True), wait=True, sleep=sleep, say=say)


def follow(
    look: Callable[[], T],
    judge: Callable[[T], Seen],
    *,
    wait: bool,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], object] = print,
    lost: str = "Trying again.",
) -> T:
    """Return the last state: with ``wait`` the one that is final, or is read when the time is up; else the first.

    A look that raises Unreachable is tried again, after the sentence ``lost``; the last of MAX_LOST in a row raises it.
    """
    begun, pause, failed, said = clock(), PAUSE, 0, ""
    while True:
        try:
            found, failed = look(), 0
        except Unreachable as error:
            failed += 1
            if not wait or failed >= MAX_LOST:
                raise
            say(f"{error} {lost}")
        else:
            seen = judge(found)
            mark = seen.mark or seen.sentence
            if wait and seen.sentence and mark != said:
                say(f"{(clock() - begun) / 60:5.1f} min  {seen.sentence}")
                said = mark
            if not wait or seen.over or clock() - begun > seen.limit:
                return found
        sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)
