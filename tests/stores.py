"""A forge and its storage on this machine: the one redirects to the other, which gives ranges, slowly if asked to."""

import io
import re
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "secret-of-the-forge"
Content = bytes | Callable[[int, int], bytes]


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
class Store:
    """``contents`` are the files by their number; ``sent`` counts bytes of bodies, ``seen`` holds (place, headers)."""

    contents: dict[int, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    ranges: bool = True
    sent: int = 0
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    forge: str = ""
    storage: str = ""
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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: Store
    place: str

    def do_GET(self) -> None:
        store = self.store
        with store.lock:
            store.seen.append((self.place, {name.lower(): value for name, value in self.headers.items()}))
        fault = store.fault(self.place)
        if fault and not fault.cut:
            if not fault.status:
                self.close_connection = True
                return
            self.answer(fault.status, fault.body, fault.headers)
        elif self.place == "forge":
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self.answer(401, b"", {})
            else:
                number = re.findall(r"\d+", self.path)[-1]
                self.answer(302, b"", {"Location": f"{store.storage}/blob/{number}?sig=1"})
        else:
            self.blob(int(re.findall(r"/blob/(\d+)", self.path)[0]), fault is not None)

    def blob(self, number: int, cut: bool) -> None:
        if number not in self.store.contents:
            return self.answer(404, b"", {})
        data = self.store.content(number)
        size = len(data)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked is None or not self.store.ranges:
            return self.answer(200, data, {}, cut)
        first, last = int(asked[1]), min(int(asked[2]), size - 1)
        if first > last:
            return self.answer(416, b"", {"Content-Range": f"bytes */{size}"})
        headers = {"Content-Range": f"bytes {first}-{last}/{size}"}
        return self.answer(206, memoryview(data)[first : last + 1], headers, cut)

    def answer(self, status: int, body: Any, headers: Mapping[str, str], cut: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if cut:
            body, self.close_connection = body[: len(body) // 2], True
        for start in range(0, len(body), 1 << 18):
            piece = body[start : start + (1 << 18)]
            with self.store.lock:
                self.store.sent += len(piece)
            try:
                self.wfile.write(piece)
            except OSError:  # whoever asked has read enough
                self.close_connection = True
                return

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """A client that went away is no concern of the test."""


@contextmanager
def serve(store: Store) -> Iterator[Store]:
    servers = []
    for place in ("forge", "storage"):
        handler = type("Handler", (_Handler,), {"store": store, "place": place})
        server = _Server(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        setattr(store, place, f"http://127.0.0.1:{server.server_address[1]}")
        servers.append(server)
    yield store
    for server in servers:
        server.shutdown()
        server.server_close()


def packed(members: Mapping[str, bytes] | list[tuple[str, bytes]], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for name, data in members.items() if isinstance(members, Mapping) else members:
            archive.writestr(zipfile.ZipInfo(name), data, kind)
    return buffer.getvalue()
