"""What an answer from the network may cost: so many seconds from first to last byte, so many bytes once unpacked.

The time limits of sockets count anew with every byte, unpacking makes a thousand bytes of one, and Python needs up to
forty bytes of memory for one of JSON.
"""

import json
import queue
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

#: Values and names of a JSON answer.  A hundred jobs of a hundred steps have some 200,000 together.
_VALUES = 500_000
_SIGNS = (b",", b"[", b"{")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


class Unusual(Exception):
    """An answer that is packed in a way that was not asked for, or is broken."""


class TooLarge(Exception):
    """An answer of too many bytes, or of too many values."""


def within(seconds: float, ask: Callable[[], T]) -> T:
    """Return what ``ask`` returns, or raise what it raises; raise TimeoutError if it takes longer.

    The thread is then left behind: it ends with its connection, at the latest with the process.
    """
    done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            done.put((ask(), None))
        except BaseException as error:  # whatever it is, it is raised in the thread of whoever waits
            done.put((None, error))

    threading.Thread(target=work, name="asking", daemon=True).start()
    try:
        answer, error = done.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]


def unpacked(pieces: Iterable[bytes], encoding: str, largest: int) -> Iterator[bytes]:
    """Yield the content of an answer with this header Content-Encoding, in pieces.

    Raises Unusual for another packing than gzip, TooLarge beyond ``largest`` bytes.
    """
    total = 0
    for piece in _inflated(pieces, largest) if _is_packed(encoding) else pieces:
        total += len(piece)
        if total > largest:
            raise TooLarge
        yield piece


def strict(text: bytes) -> Any:
    """Return the content of JSON by the letter of its standard: without NaN and Infinity, which Python reads.

    Raises ValueError, and TooLarge for more values than an answer needs.
    """

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no number")

    require_few_values(text)
    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def require_few_values(text: bytes) -> None:
    """Raise TooLarge for JSON that holds more values than an answer needs, without reading it into memory."""
    if sum(map(text.count, _SIGNS)) <= _VALUES:
        return
    # Texts may be full of commas.  Where they end is certain for UTF-8 alone, which holds no zero bytes.
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


def until(end: float, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces that come before a moment of the monotonic clock; then raise TimeoutError."""
    for piece in pieces:
        if time.monotonic() > end:
            raise TimeoutError
        yield piece


def limit_to(largest: int, seconds: float) -> "Callable[[httpx.Response], None]":
    """Return a hook for httpx that bounds what is read and unpacked of an answer, as ``unpacked`` does.

    A thread that was left behind with it ends as well after ``seconds``.
    """
    import httpx

    class Limited(httpx.SyncByteStream):
        def __init__(self, stream: Any, encoding: str) -> None:
            self._stream, self._encoding = stream, encoding

        def __iter__(self) -> Iterator[bytes]:
            return unpacked(until(time.monotonic() + seconds, self._stream), self._encoding, largest)

        def close(self) -> None:
            self._stream.close()

    def limit(response: httpx.Response) -> None:
        response.stream = Limited(response.stream, response.headers.pop("Content-Encoding", ""))

    return limit


def _is_packed(encoding: str) -> bool:
    named = encoding.strip().lower()
    if named not in ("", "identity", "gzip", "x-gzip"):
        raise Unusual(f"it is packed as {named[:40]!r}, which nobody asked for")
    return named.endswith("gzip")


def _inflated(pieces: Iterable[bytes], largest: int) -> Iterator[bytes]:
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
    any_ = False
    for piece in pieces:
        any_ = any_ or bool(piece)
        try:
            yield unpacking.decompress(piece, largest + 1)
        except zlib.error as error:
            raise Unusual("it is packed, and broken") from error
        if unpacking.unconsumed_tail:
            raise TooLarge
    if any_ and not unpacking.eof:
        raise Unusual("it is packed, and breaks off")
