"""The ways in which a network or a server goes wrong: for each its name, and what it does with one request."""

import gzip
import json
import re
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from functools import cache
from typing import Any

from fault_proxy import Exchange, Headers, Real, answer

Work = Callable[[Exchange], None]
JSON: Headers = [("Content-Type", "application/json; charset=utf-8")]
HTML: Headers = [("Content-Type", "text/html")]
_PAGE = b"<html><body><h1>Sign in</h1> to the network of the hotel</body></html>"


@dataclass(frozen=True)
class Kind:
    """``slow``: it keeps its client waiting.  ``targets``: where it makes sense, all without any.

    ``lie``: an answer in good order, of other text: nobody can tell who has no digest and knows no form.  ``passing``:
    one more try may mend it, so that it matters whether it comes once or always.  ``ends``: what it leaves behind on
    a connection is read as the next answer there (httpcore keeps what came too much), so it is tried on new ones.
    """

    work: Work
    slow: bool = False
    targets: frozenset[str] = frozenset()
    lie: bool = False
    passing: bool = True
    ends: bool = False


def says(status: int, body: bytes = b'{"message": "no"}', headers: Headers | None = None, *, lie: bool = False) -> Kind:
    """An answer of its own, at once; the request is not carried out."""

    def work(it: Exchange) -> None:
        it.send(answer(status, body, headers if headers is not None else JSON))

    return Kind(work, lie=lie, passing=status == 429 or status >= 500)


def turned(change: Callable[[Real], bytes], *targets: str, close: bool = False, lie: bool = False) -> Kind:
    """The real answer, made into other bytes; the request is carried out."""

    def work(it: Exchange) -> None:
        it.send(change(it.real()))
        if close:
            it.close()

    return Kind(work, targets=frozenset(targets), lie=lie, passing=False)


def of_json(change: Callable[[Any], Any]) -> Kind:
    def made(real: Real) -> bytes:
        try:
            return answer(real.status, json.dumps(change(json.loads(real.body))).encode(), real.headers)
        except ValueError:  # no JSON, or a client that asks for bytes
            return answer(real.status, b"\0" * len(real.body), real.headers)

    return turned(made, lie=True)


def waits(work: Work) -> Kind:
    return Kind(work, slow=True)


# -- connections ----------------------------------------------------------------------------------------------------


def _reset(it: Exchange) -> None:
    it.reset()


def _closed(it: Exchange) -> None:
    it.close()


def _part(cut: Callable[[bytes], int], end: Work) -> Work:
    def work(it: Exchange) -> None:
        whole = bytes(it.real())
        it.send(whole[: cut(whole)])
        end(it)

    return work


def _in_headers(whole: bytes) -> int:
    return whole.index(b"\r\n") + 12


def _in_body(whole: bytes) -> int:
    start = whole.index(b"\r\n\r\n") + 4
    # An answer without a body is broken off one byte before its end.
    return min((start + len(whole)) // 2, len(whole) - 1)


def _stall(it: Exchange) -> None:
    it.stall()


def _drip_body(it: Exchange) -> None:
    it.real()
    it.send(answer(200, b"[", JSON, length=10**7))
    it.drip(b" ", 0.02)


def _drip_headers(it: Exchange) -> None:
    it.real()
    it.send(b"HTTP/1.1 200 OK\r\n")
    it.drip(b"X-Slow: 1\r\n", 0.1)


def _drip_line(it: Exchange) -> None:
    it.send(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    it.drip(b"1", 0.02)


def _after(*ends: bytes) -> Work:
    """Carry the request out, and lose the answer, or give another."""

    def work(it: Exchange) -> None:
        it.real()
        for end in ends:
            it.send(end)
        if not ends:
            it.reset()

    return work


# -- bodies ---------------------------------------------------------------------------------------------------------


def _endless(it: Exchange) -> None:
    it.real()
    it.send(answer(200, b"[", JSON, length=-1)[:-5] + b"\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n[\r\n")
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    for _ in range(2000):  # 131 MB: whoever takes all of it has no limit
        it.send(piece)
    it.outlasted()


@cache
def _packed() -> bytes:
    packed = zlib.compressobj(9, wbits=31)
    body = b"".join(packed.compress(b" " * 2**20) for _ in range(80)) + packed.flush()
    return body


def _bomb(_: Real) -> bytes:
    return answer(200, _packed(), [*JSON, ("Content-Encoding", "gzip")])


def _bomb_in_bomb(_: Real) -> bytes:
    return answer(200, gzip.compress(_packed(), 1), [*JSON, ("Content-Encoding", "gzip, gzip")])


def _chunked(real: Real, *, cut: bool) -> bytes:
    head = answer(real.status, b"", [*real.headers, ("X-Transfer", "chunked")], length=-1)
    head = head.replace(b"X-Transfer", b"Transfer-Encoding")
    size, half = len(real.body), len(real.body) // 2
    if cut:
        return head + f"{size:x}\r\n".encode() + real.body[:half]
    return head + b"zz\r\n" + real.body + b"\r\n0\r\n\r\n"


def _lengths(real: Real, *lengths: str) -> bytes:
    head = answer(real.status, b"", real.headers, length=-1)[:-2]
    return head + b"".join(f"Content-Length: {it}\r\n".encode() for it in lengths) + b"\r\n" + real.body


def _too_long(it: Exchange) -> None:
    real = it.real()
    it.send(_lengths(real, str(len(real.body) + 9)))
    it.stall()


def _other_numbers(value: float) -> Callable[[Any], Any]:
    def change(it: Any) -> Any:
        if isinstance(it, dict):
            return {name: change(each) for name, each in it.items()}
        if isinstance(it, list):
            return [change(each) for each in it]
        return value if isinstance(it, int) and not isinstance(it, bool) else it

    return change


def _other_shape(it: Any) -> Any:
    return {} if isinstance(it, list) else [it]


def _flipped(real: Real) -> bytes:
    """Another word within valid JSON: what only a digest can show."""
    return answer(real.status, re.sub(rb"linux|sha256:[0-9a-f]{4}", rb"sha256:0000", real.body), real.headers)


def _with(*more: tuple[str, str]) -> Callable[[Real], bytes]:
    names = {name.lower() for name, _ in more}

    def made(real: Real) -> bytes:
        kept = [(name, value) for name, value in real.headers if name.lower() not in names]
        return answer(real.status, real.body, [*kept, *more])

    return made


def _ranged(*, shift: int = 0, total: int = 0, named: bool = True) -> Callable[[Real], bytes]:
    """A part of a file that is none, or another than was asked for."""

    def made(real: Real) -> bytes:
        told = next((value for name, value in real.headers if name.lower() == "content-range"), "")
        headers = [(name, value) for name, value in real.headers if name.lower() != "content-range"]
        if found := re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", told):
            first, last, size = map(int, found.groups())
            if named:
                headers.append(("Content-Range", f"bytes {first + shift}-{last + shift}/{size + total}"))
        return answer(206, real.body, headers)

    return made


def _whole(it: Exchange) -> None:
    """As a server that knows no ranges."""
    headers = [(name, value) for name, value in it.asked.headers if name.lower() != "range"]
    object.__setattr__(it.asked, "headers", headers)
    it.send(bytes(it.real()))


def _to(location: str) -> Kind:
    """A redirect; ``*`` stands for the stranger, ``.`` for the place itself."""

    def work(it: Exchange) -> None:
        to = it.asked.target if location == "." else location.replace("*", STRANGER[0])
        it.send(answer(302, b"", [("Location", to)] if to else []))

    return Kind(work, lie="*" in location, passing=False)


#: The address of the other host, while a test runs.
STRANGER = [""]
_DAY = str(86400)


def _limited(status: int, *headers: tuple[str, str], body: bytes = b'{"message": "API rate limit exceeded"}') -> Kind:
    return says(status, body, [*JSON, *headers])


def _dated(it: Exchange) -> None:
    it.send(answer(429, b"{}", [*JSON, ("Retry-After", formatdate(time.time() + 2, usegmt=True))]))


def _reset_at(it: Exchange) -> None:
    soon = [("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", str(int(time.time()) + 2))]
    it.send(answer(403, b'{"message": "API rate limit exceeded"}', [*JSON, *soon]))


def _interim(it: Exchange) -> None:
    it.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + bytes(it.real()))


_SECONDARY = b'{"message": "You have exceeded a secondary rate limit. Please wait a few minutes."}'
_DEEP = b"[" * 200_000

KINDS: Mapping[str, Kind] = {
    "connection reset after the request": Kind(_reset),
    "connection closed after the request": Kind(_closed),
    "reset in the headers": Kind(_part(_in_headers, _reset)),
    "closed in the headers": Kind(_part(_in_headers, _closed)),
    "reset in the body": Kind(_part(_in_body, _reset)),
    "half a body": Kind(_part(_in_body, _closed)),
    "no answer": waits(_stall),
    "stall in the headers": waits(_part(_in_headers, _stall)),
    "stall in the body": waits(_part(_in_body, _stall)),
    "body that drips": waits(_drip_body),
    "headers that drip": waits(_drip_headers),
    "header that drips": waits(_drip_line),
    "429, Retry-After in seconds": _limited(429, ("Retry-After", "2")),
    "429, Retry-After as a date": Kind(_dated),
    "429, Retry-After a day": _limited(429, ("Retry-After", _DAY)),
    "429, Retry-After negative": _limited(429, ("Retry-After", "-5")),
    "429, Retry-After a word": _limited(429, ("Retry-After", "soon")),
    "429, Retry-After of 400 digits": _limited(429, ("Retry-After", "9" * 400)),
    "429, nothing more": _limited(429),
    "403, no requests remaining": Kind(_reset_at),
    "403, secondary rate limit": says(403, _SECONDARY),
    "500, JSON": says(500),
    "500, HTML": says(500, _PAGE, HTML),
    "500, empty": says(500, b""),
    "502, HTML": says(502, _PAGE, HTML),
    "503, Retry-After": says(503, b"", [("Retry-After", "1")]),
    "503, Retry-After a day": says(503, b"", [("Retry-After", _DAY)]),
    "504, empty": says(504, b""),
    "401": says(401),
    "403": says(403),
    "404": says(404),
    "408": says(408),
    "409": says(409),
    "410": says(410),
    "422": says(422),
    "451": says(451),
    "redirect to itself": _to("."),
    "redirect to another host": _to("*/elsewhere"),
    "redirect to plain HTTP far away": _to("http://192.0.2.1/elsewhere"),
    "redirect to a file": _to("file:///etc/passwd"),
    "redirect to nowhere": _to(""),
    "redirect to no address": _to("http://[/"),
    "Content-Length too long": waits(_too_long),
    "Content-Length too short": turned(lambda it: _lengths(it, str(max(0, len(it.body) - 3))), close=True, lie=True),
    "Content-Length negative": turned(lambda it: _lengths(it, "-7"), close=True),
    "Content-Length twice": turned(lambda it: _lengths(it, str(len(it.body)), "1"), close=True),
    "chunks that break off": turned(lambda it: _chunked(it, cut=True), close=True),
    "chunks of no size": turned(lambda it: _chunked(it, cut=False), close=True),
    "gzip that is none": turned(_with(("Content-Encoding", "gzip"))),
    "gzip that breaks off": turned(
        lambda it: _with(("Content-Encoding", "gzip"))(replace(it, body=gzip.compress(it.body)[:-9]))
    ),
    "gzip bomb": turned(_bomb),
    "gzip bomb in gzip": turned(_bomb_in_bomb),
    "unknown encoding": turned(_with(("Content-Encoding", "x-nothing"))),
    "JSON that is cut": turned(lambda it: answer(it.status, it.body[: len(it.body) // 2], it.headers), lie=True),
    "JSON of another shape": of_json(_other_shape),
    "JSON null": turned(lambda it: answer(it.status, b"null", it.headers), lie=True),
    "JSON in depth": turned(lambda it: answer(it.status, _DEEP, it.headers), lie=True),
    "NaN for numbers": of_json(_other_numbers(float("nan"))),
    "Infinity for numbers": of_json(_other_numbers(float("inf"))),
    "HTML with 200": says(200, _PAGE, HTML, lie=True),
    "empty with 200": says(200, b"", lie=True),
    "204": says(204, b""),
    "endless body": Kind(_endless, lie=True),
    "UTF-16": turned(lambda it: answer(it.status, it.body.decode("latin-1").encode("utf-16"), it.headers), lie=True),
    "unknown charset": turned(_with(("Content-Type", "application/json; charset=klingon"))),
    "byte order mark": turned(lambda it: answer(it.status, b"\xef\xbb\xbf" + it.body, it.headers), lie=True),
    "answer sent twice": replace(turned(lambda it: bytes(it) * 2), ends=True),
    "answer lost after it was done": Kind(_after()),
    "502 after it was done": Kind(_after(answer(502, _PAGE, HTML))),
    "500 after it was done": Kind(_after(answer(500, b"", JSON))),
    "100 and 103 before the answer": Kind(_interim),
    "HTTP/0.9": turned(lambda it: it.body or b"hello", close=True),
    "noise": turned(lambda _: bytes(range(256)) * 20, close=True),
    "header of 1 MB": turned(_with(("X-Large", "x" * 2**20))),
    "10000 headers": turned(_with(*((f"X-{n}", "y") for n in range(10_000)))),
    "cookie": turned(_with(("Set-Cookie", "session=stolen; Domain=localhost; Path=/"))),
    "clock of 1970": turned(_with(("Date", "Thu, 01 Jan 1970 00:00:00 GMT"))),
    "304 to nobody": says(304, b""),
    "connection not kept": turned(bytes, close=True),
    "answer without a length": turned(lambda it: answer(it.status, it.body, it.headers, length=-1), close=True),
    "digest that differs": turned(_flipped, "registry"),
    "header of another digest": turned(_with(("Docker-Content-Digest", f"sha256:{'0' * 64}")), "registry"),
    "header of no digest": turned(_with(("Docker-Content-Digest", "sha1:../../x")), "registry"),
    "range not satisfiable": Kind(says(416, b"").work, lie=True, targets=frozenset({"storage"})),
    "range ignored": Kind(_whole, targets=frozenset({"storage"})),
    "another range": turned(_ranged(shift=7), "storage"),
    "range of a larger file": turned(_ranged(total=10**6), "storage"),
    "range without its place": turned(_ranged(named=False), "storage"),
}
