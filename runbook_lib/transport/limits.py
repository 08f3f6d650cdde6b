"""Limits on the cost of a reply from the network: seconds from first to last byte, and unpacked bytes.

The time limits of sockets restart with every byte, unpacking can turn one byte into a thousand, and Python needs up to
forty bytes of memory for one of JSON.
"""

import json
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

#: Values and names in a JSON reply.  A hundred jobs of a hundred steps have some 200,000 together.
_VALUES = 500_000
_SIGNS = (b",", b"[", b"{")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


class TooLarge(Exception):
    """A reply of too many bytes, or of too many values."""


def call_within(seconds: float, function: Callable[[], T]) -> T:
    """Return the function's result or raise its exception; raise TimeoutError if it takes too long.

    The thread is then abandoned: it ends with its connection, at the latest with the process.
    """
    results: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            results.put((function(), None))
        except BaseException as error:  # any exception is raised in the waiting thread
            results.put((None, error))

    threading.Thread(target=work, name="request", daemon=True).start()
    try:
        result, error = results.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def before_deadline(end: float, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces that come before a moment of the monotonic clock; then raise TimeoutError."""
    for piece in pieces:
        if time.monotonic() > end:
            raise TimeoutError
        yield piece


def parse_json(text: bytes) -> Any:
    """Return the content of JSON without NaN and Infinity.  Raises ValueError, and TooLarge for too many values."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not a number")

    _require_few_values(text)
    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _require_few_values(text: bytes) -> None:
    """Raise TooLarge for JSON that has more values than a reply needs, without reading it into memory."""
    if sum(map(text.count, _SIGNS)) <= _VALUES:
        return
    # Strings may be full of commas.  Their ends are certain only in UTF-8, which has no zero bytes.
    if b"\0" in text:
        raise TooLarge
    values = end = 0
    for string in _STRING.finditer(text):
        values += 1 + sum(text.count(sign, end, string.start()) for sign in _SIGNS)
        end = string.end()
        if values > _VALUES:
            raise TooLarge
    if values + sum(text.count(sign, end) for sign in _SIGNS) > _VALUES:
        raise TooLarge
