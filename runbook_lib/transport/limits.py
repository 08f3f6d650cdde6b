"""Limits on the cost of a reply: seconds until it begins, and the memory that its JSON takes."""

import json
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

#: Values and names in a JSON reply, each of which takes Python up to 150 bytes; a hundred jobs have 200,000.
_VALUES = 1_000_000


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


def parse_json(content: bytes) -> Any:
    """Return the content of JSON without NaN and Infinity.  Raises ValueError, and TooLarge for too many values."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not a number")

    if content.count(b",") + content.count(b"[") + content.count(b"{") > _VALUES:
        raise TooLarge
    try:
        return json.loads(content.decode("utf-8-sig"), parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
