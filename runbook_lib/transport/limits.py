"""Limits on the cost of a reply from the network: seconds from first to last byte, and unpacked bytes.

The time limits of sockets restart with every byte, unpacking can turn one byte into a thousand, and Python needs up to
forty bytes of memory for one of JSON.
"""

import json
import queue
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import httpx

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


def decompress(pieces: Iterable[bytes], encoding: str, largest: int) -> Iterator[bytes]:
    """Yield the content of a reply with this Content-Encoding header: gzip or none.  Raises TooLarge."""
    encoding = encoding.strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise httpx.DecodingError(f"it is compressed as {encoding[:40]!r}, which was not requested")
    if encoding.endswith("gzip"):
        pieces = _decompress_gzip(pieces, largest)
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > largest:
            raise TooLarge
        yield piece


def _decompress_gzip(pieces: Iterable[bytes], largest: int) -> Iterator[bytes]:
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16)
    is_empty = True
    for piece in pieces:
        is_empty = is_empty and not piece
        try:
            yield decompressor.decompress(piece, largest + 1)
        except zlib.error as error:
            raise httpx.DecodingError("its compressed content is broken") from error
        if decompressor.unconsumed_tail:
            raise TooLarge
    if not is_empty and not decompressor.eof:
        raise httpx.DecodingError("its compressed content is incomplete")


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
