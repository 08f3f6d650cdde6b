"""A proxy of TCP that understands HTTP: it forwards all to one server, and breaks what a test has named."""

import contextlib
import http.client
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

#: Seconds for which a fault that keeps its client waiting goes on at the most; whoever waits longer hangs.
PATIENCE = 10.0
Headers = list[tuple[str, str]]


class Gone(Exception):
    """The connection to the client has ended."""


@dataclass(frozen=True)
class Asked:
    """One request; ``target`` is path and query."""

    method: str
    target: str
    headers: Headers
    body: bytes


@dataclass(frozen=True)
class Real:
    """What the server behind the proxy answered."""

    status: int
    headers: Headers
    body: bytes

    def __bytes__(self) -> bytes:
        return answer(self.status, self.body, self.headers)


def answer(status: int, body: bytes = b"", headers: Headers | None = None, *, length: int | None = None) -> bytes:
    """The bytes of an answer; ``length`` is what it claims of its body, -1 for nothing."""
    named = [(name, value) for name, value in headers or [] if name.lower() not in _OURS]
    if length != -1 and status not in (204, 304):
        named.append(("Content-Length", str(len(body) if length is None else length)))
    head = "".join(f"{name}: {value}\r\n" for name, value in named)
    return f"HTTP/1.1 {status} {http.client.responses.get(status, 'Odd')}\r\n{head}\r\n".encode("latin-1") + body


_OURS = ("content-length", "transfer-encoding", "connection")


@dataclass
class Exchange:
    """A request whose answer is to be broken."""

    proxy: "Proxy"
    asked: Asked
    client: socket.socket
    forward: Callable[[Asked], Real]
    fault: "Fault | None" = None

    def real(self) -> Real:
        """Let the server carry the request out."""
        return self.forward(self.asked)

    def send(self, data: bytes) -> None:
        try:
            self.client.sendall(data)
        except OSError as error:
            raise Gone from error

    def close(self) -> None:
        """End the connection in good order."""
        raise Gone

    def reset(self) -> None:
        """End it with RST."""
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Gone

    def wait(self, pause: float) -> None:
        """Say nothing for so long, unless the client goes, or its call has ended."""
        if self.fault is not None and self.fault.over:
            raise Gone
        readable = select.select([self.client], [], [], pause)[0]
        with contextlib.suppress(OSError):
            if readable and not self.client.recv(1, socket.MSG_PEEK):
                raise Gone

    def drip(self, piece: bytes, pause: float) -> None:
        """Send a piece again and again; the client that is still there at the end hangs."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.send(piece)
            self.wait(pause)
        self.outlasted()

    def stall(self) -> None:
        """Wait for the client to give up."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.wait(0.1)
        self.outlasted()

    def outlasted(self) -> None:
        """The client is still there."""
        if self.fault is not None:
            self.fault.outlasted = True


@dataclass
class Fault:
    """What is broken; ``struck``: how often it was, ``outlasted``: a client waited to its end, ``over``: no more."""

    work: Callable[[Exchange], None]
    method: str
    target: re.Pattern[str]
    left: int
    struck: int = 0
    outlasted: bool = False
    over: bool = False


@dataclass
class Proxy:
    """Before ``upstream``, an address of this machine; ``seen`` are method and target of each request that came."""

    upstream: str
    seen: list[tuple[str, str]] = field(default_factory=list)
    _armed: Fault | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: set[socket.socket] = field(default_factory=set)
    _listener: socket.socket | None = None
    _rude: bool = False
    _reset: bool = False
    port: int = 0

    def __post_init__(self) -> None:
        self.listen()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def broken(self, work: Callable[[Exchange], None], method: str, target: str, times: int = 10**9) -> Iterator[Fault]:
        """Break the next so many requests of a method whose target matches."""
        fault = Fault(work, method, re.compile(target), times)
        with self._lock:
            self._armed = fault
        try:
            yield fault
        finally:
            with self._lock:
                self._armed, fault.over = None, True

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Nobody listens at this port."""
        self.close()
        try:
            yield
        finally:
            self.listen()

    @contextmanager
    def rude(self, *, reset: bool) -> Iterator[None]:
        """End every connection before anything was read from it."""
        self.drop()
        self._rude, self._reset = True, reset
        try:
            yield
        finally:
            self._rude = False

    def listen(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self._listener, self.port = listener, listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(listener,), daemon=True, name="fault proxy").start()

    def close(self) -> None:
        """Stop listening, and end all connections."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.drop()

    def drop(self) -> None:
        with self._lock:
            for client in self._open:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(client,), daemon=True, name="fault proxy").start()

    def _serve(self, client: socket.socket) -> None:
        with self._lock:
            self._open.add(client)
        host = self.upstream.partition("://")[2]
        server = http.client.HTTPConnection(host, timeout=60)
        requests = client.makefile("rb")
        try:
            if self._rude:
                if self._reset:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            while (asked := _read(requests)) is not None:
                self.seen.append((asked.method, asked.target))
                fault = self._struck_by(asked)
                exchange = Exchange(self, asked, client, lambda it: self._forward(server, host, it), fault)
                if fault is not None:
                    fault.work(exchange)
                else:
                    exchange.send(bytes(exchange.real()))
        except (Gone, OSError, http.client.HTTPException):
            pass
        finally:
            with self._lock:
                self._open.discard(client)
            requests.close()
            client.close()
            server.close()

    def _struck_by(self, asked: Asked) -> Fault | None:
        with self._lock:
            it = self._armed
            if it is None or not it.left or it.method not in ("", asked.method) or not it.target.search(asked.target):
                return None
            it.left -= 1
            it.struck += 1
            return it

    def _forward(self, server: http.client.HTTPConnection, host: str, asked: Asked) -> Real:
        server.putrequest(asked.method, asked.target, skip_host=True, skip_accept_encoding=True)
        for name, value in asked.headers:
            server.putheader(name, host if name.lower() == "host" else value)
        server.endheaders(asked.body)
        got = server.getresponse()
        body = got.read()
        # What the server says of its own address must lead through here.
        headers = [(name, value.replace(host, f"127.0.0.1:{self.port}")) for name, value in got.getheaders()]
        return Real(got.status, headers, body)


def _read(requests: BinaryIO) -> Asked | None:
    first = requests.readline(1 << 16).decode("latin-1").split()
    if len(first) != 3:
        return None
    headers: Headers = []
    while line := requests.readline(1 << 16).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name, value.strip()))
    size = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return Asked(first[0], first[1], headers, requests.read(size))


@dataclass
class Stranger:
    """Another host, to which a redirect leads: it keeps whatever it is sent."""

    received: bytes = b""

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://localhost:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True, name="stranger").start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                with client:
                    self.received += client.recv(1 << 16)
                    client.sendall(answer(200, b"welcome", [("Content-Type", "text/plain"), ("Connection", "close")]))
            except OSError:
                return

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
