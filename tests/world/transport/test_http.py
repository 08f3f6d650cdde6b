"""Requests with a deadline, a size limit, redirects that are judged, and further attempts."""

import gzip
import ssl
import threading
import tracemalloc
import zlib
from collections.abc import Callable

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.world.replies import parse_json
from runbook_lib.world.transport import http
from runbook_lib.world.transport.http import Client, NoReply, join, requested_pause

HOME = httpx.URL("https://forge.example")
SECRET = {"PRIVATE-TOKEN": "secret-of-the-forge"}
Handle = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr(http, "PAUSES", (1, 2))
    monkeypatch.setattr(http.time, "sleep", waits.append)
    return waits


def client(handle: Handle) -> Client:
    return Client(HOME, 100, httpx.MockTransport(handle))


@pytest.mark.parametrize(
    ("replies", "waits"),
    [
        ([200], []),
        ([404], []),
        ([503, 200], [1]),
        ([503, 408, 200], [1, 2]),
        ([503, 503, 503], [1, 2]),
    ],
)
def test_temporary_refusals_are_tried_again(replies: list[int], waits: list[float], slept: list[float]) -> None:
    queue = [*replies]
    asked = client(lambda _: httpx.Response(queue.pop(0)))
    if replies[-1] == 503:
        with pytest.raises(NoReply, match="it has an internal problem"):
            asked.request("GET", HOME, {})
    else:
        assert asked.request("GET", HOME, {}).status_code == replies[-1]
    assert (queue, slept) == ([], waits)


@pytest.mark.parametrize(("asked", "waits"), [("7", [7, 7]), ("61", []), ("0", [1, 2]), ("soon", [1, 2])])
def test_a_server_may_name_the_pause_within_limits(asked: str, waits: list[float], slept: list[float]) -> None:
    with pytest.raises(NoReply, match="HTTP 429"):
        client(lambda _: httpx.Response(429, headers={"Retry-After": asked})).request("GET", HOME, {})
    assert slept == pytest.approx(waits, abs=0.1)


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("/other", True),
        ("https://forge.example/other", True),
        ("https://forge.example:444/other", False),
        ("https://other.example/", False),
        ("https://forge.example.evil.example/", False),
    ],
)
def test_a_redirect_takes_a_secret_to_no_other_origin(location: str, shown: bool) -> None:
    headers: list[httpx.Headers] = []

    def handle(request: httpx.Request) -> httpx.Response:
        headers.append(request.headers)
        return httpx.Response(302, headers={"Location": location}) if len(headers) == 1 else httpx.Response(200)

    reply = client(handle).request("GET", HOME, {}, secret=SECRET)
    assert reply.url == HOME.join(location)
    assert ["PRIVATE-TOKEN" in each for each in headers] == [True, shown]


def test_a_reply_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "DEADLINE", 0.05)
    end = threading.Event()

    def handle(_: httpx.Request) -> httpx.Response:
        end.wait(5)
        return httpx.Response(200)

    with pytest.raises(NoReply, match=r"did not finish"):
        client(handle).request("GET", HOME, {})
    end.set()


def test_a_reply_is_limited_in_size() -> None:
    with pytest.raises(NoReply, match="more than 100 bytes"):
        client(lambda _: httpx.Response(200, content=bytes(101))).request("GET", HOME, {})
    assert client(lambda _: httpx.Response(200, content=bytes(100))).request("GET", HOME, {}).content == bytes(100)


@pytest.mark.parametrize(
    ("headers", "body"),
    [({"Retry-After": "1"}, b""), ({"X-RateLimit-Remaining": "0"}, b""), ({}, b"a secondary rate limit")],
)  # fmt: skip
def test_a_limit_of_the_rate_may_come_as_403(headers: dict[str, str], body: bytes) -> None:
    queue = [httpx.Response(403, headers=headers, content=body), httpx.Response(200)]
    assert client(lambda _: queue.pop(0)).request("GET", HOME, {}).status_code == 200
    assert client(lambda _: httpx.Response(403, content=b"no")).request("GET", HOME, {}).status_code == 403


def packed(data: bytes, encoding: str = "gzip") -> Handle:
    headers = {"Content-Encoding": encoding}
    return lambda _: httpx.Response(200, headers=headers, stream=httpx.ByteStream(data))


def test_a_reply_is_unpacked_within_its_limit() -> None:
    assert client(packed(gzip.compress(b"a" * 100), "GZIP")).request("GET", HOME, {}).content == b"a" * 100
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(60)) + packer.flush()
    tracemalloc.start()
    try:
        with pytest.raises(NoReply, match="more than 100 bytes"):
            client(packed(bomb)).request("GET", HOME, {})
        assert tracemalloc.get_traced_memory()[1] < 150 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("data", "encoding"), [(b"abc", "br"), (b"abc", "gzip, gzip"), (b"no gzip at all", "gzip")])
def test_other_packing_is_no_reply(data: bytes, encoding: str) -> None:
    with pytest.raises(NoReply):
        client(packed(data, encoding)).request("GET", HOME, {})


def test_json_is_read_by_its_letter() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    for text in (b"NaN", b'{"id": Infinity}', b"[-Infinity]", b"", b"<html>", b"[" * 10_000, '"a"'.encode("utf-16"),
                 b"[" + b"[]," * 600_000 + b"1]"):  # fmt: skip
        with pytest.raises(ValueError):  # noqa: PT011 - of whatever kind
            parse_json(text)


CERTIFICATE = httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]")
CERTIFICATE.__cause__ = ssl.SSLCertVerificationError()


@pytest.mark.parametrize(
    ("error", "words", "attempts"),
    [
        (httpx.ReadTimeout("slow"), "it did not answer in time", 3),
        (httpx.ConnectTimeout(""), "it did not answer in time", 3),
        (httpx.ConnectError("[Errno 111] Connection refused"), "Connection refused", 3),
        (httpx.RemoteProtocolError(""), "the connection failed (RemoteProtocolError)", 3),
        (httpx.ProxyError("407"), "the proxy refused the connection", 3),
        (CERTIFICATE, "its TLS certificate is not accepted ([SSL: CERTIFICATE_VERIFY_FAILED]); a company's own CA", 1),
    ],
)
def test_no_reply_is_a_clause(error: Exception, words: str, attempts: int) -> None:
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        raise error

    with pytest.raises(NoReply) as caught:
        client(handle).request("GET", HOME, {})
    assert words in str(caught.value)
    assert len(asked) == attempts


@given(st.text(max_size=40))
def test_any_text_of_a_server_is_read(text: str) -> None:
    assert isinstance(join(HOME, text), httpx.URL)
    assert 0 <= requested_pause(httpx.Headers([(b"Retry-After", text.encode("latin-1", "replace"))])) < 1e12
