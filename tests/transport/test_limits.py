"""How long an answer may take, and how large it may become."""

import gzip
import threading
import tracemalloc
import zlib
from collections.abc import Iterator

import httpx
import pytest

from runbook_lib.transport.client import decompress
from runbook_lib.transport.limits import TooLarge, call_within, parse_json


def pieces(data: bytes, size: int = 7) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("encoding", ["", "identity", " Identity "])
def test_uncompressed_content_is_passed_through(encoding: str) -> None:
    assert list(decompress(iter([b"ab", b"", b"c"]), encoding, 3)) == [b"ab", b"", b"c"]


def test_an_empty_answer_may_say_that_it_is_packed() -> None:
    assert b"".join(decompress(iter([]), "gzip", 3)) == b""


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_gzip_is_decompress(size: int) -> None:
    data = bytes(range(256)) * 20
    assert b"".join(decompress(pieces(gzip.compress(data), size), "GZIP", len(data))) == data


def test_an_excessive_size_is_reported_before_reading() -> None:
    packed = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packed.compress(bytes(2**20)) for _ in range(100)) + packed.flush()
    held: list[bytes] = []
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            held.extend(decompress(pieces(bomb, 2**16), "gzip", 2**20))
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()
    assert sum(map(len, held)) <= 2**20
    with pytest.raises(TooLarge):
        list(decompress(iter([b"abcd"]), "", 3))


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "deflate", "x" * 500])
def test_other_packing_is_unusual(encoding: str) -> None:
    with pytest.raises(httpx.DecodingError) as caught:
        list(decompress(iter([b"abc"]), encoding, 10))
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("data", [b"no gzip at all", gzip.compress(b"hello" * 100, mtime=0)[:-9]])
def test_broken_packing_is_unusual(data: bytes) -> None:
    with pytest.raises(httpx.DecodingError):
        list(decompress(pieces(data), "gzip", 1000))


def test_answers_and_exceptions_are_passed_on() -> None:
    assert call_within(60, lambda: threading.current_thread().daemon) is True
    with pytest.raises(ZeroDivisionError):
        call_within(60, lambda: 1 // 0)


def test_slow_work_is_abandoned() -> None:
    go_on = threading.Event()
    with pytest.raises(TimeoutError):
        call_within(0.05, lambda: go_on.wait(5))
    go_on.set()


def test_json_is_read_by_its_letter() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    for text in (b"NaN", b'{"id": Infinity}', b"[-Infinity]", b"", b"<html>"):
        with pytest.raises(ValueError):  # noqa: PT011 - of whatever kind
            parse_json(text)
