"""A forge and its storage: the one redirects to the other, which gives ranges, without a server."""

import io
import re
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from loopback import Handler, serving

from runbook_lib.world.transport.http import Client, RemoteFile

TOKEN = "secret-of-the-forge"
AUTH = {"Authorization": f"Bearer {TOKEN}"}


def remote(url: str, transport: httpx.BaseTransport | None = None) -> RemoteFile:
    """Return a file of the forge, for which it wants a token."""
    return RemoteFile(Client(httpx.URL(url), 2**16, transport), httpx.URL(url), AUTH)


@dataclass
class Fault:
    """What the next so many requests to a place get: a status (0: the connection is lost) and headers."""

    place: str
    status: int
    times: int = 1
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: bool = False  # the right headers, and half the body


@dataclass
class Store(httpx.BaseTransport):
    """``contents`` are the files by their number; ``sent`` counts bytes of bodies, ``seen`` holds (place, headers)."""

    contents: dict[int, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    ranges: bool = True
    sent: int = 0
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    forge: str = "https://forge.test"
    storage: str = "https://storage.test"
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self, place: str) -> Fault | None:
        with self.lock:
            for it in self.faults:
                if it.place == place and it.times:
                    it.times -= 1
                    return it
        return None

    def content(self, number: int) -> bytes:
        return self.contents[number]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        place = "storage" if request.url.path.startswith("/blob/") else "forge"
        with self.lock:
            self.seen.append((place, dict(request.headers)))
        fault = self.fault(place)
        if fault and not fault.cut:
            if not fault.status:
                raise httpx.RemoteProtocolError("the connection is lost")
            return self._answer(fault.status, fault.body, fault.headers)
        number = int(re.findall(r"\d+", request.url.path)[-1])
        if place == "storage":
            return self._blob(number, request.headers.get("Range", ""), fault is not None)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, b"", {})
        return self._answer(302, b"", {"Location": f"{self.storage}/blob/{number}?sig=1"})

    def _blob(self, number: int, asked: str, cut: bool) -> httpx.Response:
        if number not in self.contents:
            return self._answer(404, b"", {})
        data = self.content(number)
        size = len(data)
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", asked)
        if match is None or not self.ranges:
            return self._answer(200, data, {}, cut)
        first, last = int(match[1]), min(int(match[2]), size - 1)
        if first > last:
            return self._answer(416, b"", {"Content-Range": f"bytes */{size}"})
        headers = {"Content-Range": f"bytes {first}-{last}/{size}"}
        return self._answer(206, memoryview(data)[first : last + 1], headers, cut)

    def _answer(self, status: int, body: Any, headers: Mapping[str, str], cut: bool = False) -> httpx.Response:
        given = {**headers, "Content-Length": str(len(body))}
        return httpx.Response(status, headers=given, stream=_Body(self, body, cut))


class _Body(httpx.SyncByteStream):
    def __init__(self, store: Store, body: Any, cut: bool) -> None:
        self.store, self.body, self.cut = store, body[: len(body) // 2] if cut else body, cut

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self.body), 1 << 18):
            piece = bytes(self.body[start : start + (1 << 18)])
            with self.store.lock:
                self.store.sent += len(piece)
            yield piece
        if self.cut:
            raise httpx.RemoteProtocolError("the body is incomplete")


@contextmanager
def serve(store: Store) -> Iterator[Store]:
    """Serve it on this machine, for another process."""

    class StoreHandler(Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            request = httpx.Request("GET", f"http://127.0.0.1{self.path}", headers=dict(self.headers))
            response = store.handle_request(request)
            self.send_response(response.status_code)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # whoever asked has read enough
                for piece in response.iter_raw():
                    self.wfile.write(piece)
                return
            self.close_connection = True

    with serving(StoreHandler) as store.forge:
        store.storage = store.forge
        yield store


def packed(members: Mapping[str, bytes] | list[tuple[str, bytes]], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for name, data in members.items() if isinstance(members, Mapping) else members:
            archive.writestr(zipfile.ZipInfo(name), data, kind)
    return buffer.getvalue()
