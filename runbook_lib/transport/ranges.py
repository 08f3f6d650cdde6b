"""Files that are read in parts, by many threads: over HTTP with bounded attempts.

A forge replies with a redirect to its storage, with a URL that is valid for a short time.  The token goes only to the
forge.  When a server asks for a pause, all threads wait.  A server without ranges sends the complete file, which goes
to a temporary one.
"""

import itertools
import os
import re
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import IO, Self, TypeVar

import httpx

from runbook_lib.errors import Unreachable
from runbook_lib.transport.client import DEFAULTS, send
from runbook_lib.transport.connections import Transport
from runbook_lib.transport.downloads import MissingFile
from runbook_lib.transport.limits import call_within
from runbook_lib.transport.retries import NoReply, Retries, Temporary, is_temporary, request_of, retry_after
from runbook_lib.transport.urls import is_private

TIMEOUT = httpx.Timeout(30, connect=10)  # seconds without a byte
LIMIT = 60.0  # seconds until a reply begins, and for its body; larger bodies get more seconds
_SLOWEST = 2**15  # bytes per second
PAUSES = (0.5, 2.0, 8.0)  # seconds before each further attempt
_PATIENCE = 120.0  # seconds; if a server asks for a longer pause, the user has to retry
_REFUSAL = 4096  # bytes of a refusal that are read
LARGEST_FILE = 8 * 2**30  # bytes that a server without ranges may send
#: Threads that share a pool of connections: for each request httpcore looks at all pairs of connections of a pool.
_THREADS_PER_POOL = 8
# int() refuses numbers of thousands of digits, and no file has more bytes than this.
_NUMBER = "([0-9]{1,18})"
_PART, _UNSATISFIED = re.compile(rf"bytes {_NUMBER}-{_NUMBER}/{_NUMBER}"), re.compile(rf"bytes \*/{_NUMBER}")

#: Meanings of replies without a file.
_MISSING = {
    401: "does not let this token read it", 403: "does not let this token read it",
    404: "does not find it, or not for this token", 410: "reports that it has expired",
}  # fmt: skip

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Address:
    """The URL of a file.  ``headers`` contain the token and go only to this origin."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def open(self, web: "Web") -> "RemoteFile":
        """Return the file for reading; no request is sent yet.  Raises Unreachable like RemoteFile."""
        return RemoteFile(web, self)


class Web:
    """Connections for ``workers`` threads; ``received`` counts the bytes of bodies."""

    def __init__(
        self, workers: int, *, transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        connections = 2 * min(workers, 2 * _THREADS_PER_POOL)
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._connect: Callable[[], httpx.BaseTransport] = lambda: transport or Transport(limits)
        self._pools: list[httpx.BaseTransport] = []
        self._pool_numbers = itertools.cycle(range(max(1, workers // _THREADS_PER_POOL)))
        self._retries = Retries(PAUSES, _PATIENCE, sleep, clock)
        self._lock = threading.Lock()
        self._stopped = False
        self._of_thread = threading.local()
        self.received = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        for pool in self._pools:
            pool.close()

    @property
    def connections(self) -> httpx.BaseTransport:
        """The connections of this thread.  Raises RunbookError if none can be set up."""
        if not hasattr(self._of_thread, "pool"):
            with self._lock:  # files in memory need no connections, which take long to set up
                number = next(self._pool_numbers)
                if number == len(self._pools):
                    self._pools.append(self._connect())
                self._of_thread.pool = self._pools[number]
        pool: httpx.BaseTransport = self._of_thread.pool
        return pool

    def each(
        self, pool: Executor, work: Callable[[T], R], items: Sequence[T], name: Callable[[T], str],
        progress: Callable[[int, int, str], object] | None = None,
    ) -> tuple[R, ...]:  # fmt: skip
        """Return the results of ``work`` for all items, in order, computed in the threads of ``pool``.

        ``progress`` receives the number of results, the number of items, and the name of the last item.  An exception,
        Ctrl-C too, stops all requests, so that no thread is waited for.
        """
        results: dict[int, R] = {}
        try:
            positions = {pool.submit(work, item): position for position, item in enumerate(items)}
            for future in as_completed(positions):
                position = positions[future]
                results[position] = future.result()
                if progress:
                    progress(len(results), len(items), name(items[position]))
        finally:
            if len(results) < len(items):
                self._stopped = True
        return tuple(results[position] for position in range(len(items)))

    def attempt(self, name: str, read: Callable[[], T]) -> T:
        """Return the result of ``read``, retrying if necessary.  Raises Unreachable; ``name`` is the server's."""

        def read_unless_stopped() -> T:
            if self._stopped:
                raise Unreachable(f"Reading from {name} was cancelled.")
            return read()

        try:
            return self._retries.run(read_unless_stopped)
        except Temporary as failure:
            request = request_of(failure.pause)
            raise Unreachable(f"{name} could not be read: {failure}.{request} Try again later.") from failure
        except NoReply as error:
            raise Unreachable(f"{name} could not be read: {error}.") from error

    def body(self, response: httpx.Response) -> Iterator[bytes]:
        """Yield the body as it arrives.  httpx limits only the pause between two bytes, not the complete reply."""
        start, received = time.monotonic(), 0
        for piece in response.iter_raw():
            received += len(piece)
            if time.monotonic() - start > LIMIT + received / _SLOWEST:
                raise Temporary("it sends too slowly")
            with self._lock:
                self.received += len(piece)
            yield piece


class RemoteFile:
    """One file on a server."""

    def __init__(self, web: Web, address: Address) -> None:
        """Raise Unreachable for a URL that is not https, or of this machine."""
        self._web = web
        self._headers = address.headers
        try:
            self._origin = httpx.URL(address.url)
        except httpx.InvalidURL:
            self._origin = httpx.URL("")
        if not self._origin.host or not is_private(self._origin.scheme, self._origin.host):
            raise Unreachable("The forge returned a download URL that is not https://.")
        self._stored = self._origin  # the target of the redirects
        self.size = 0  # bytes, known after the first part
        self._complete: IO[bytes] | None = None  # the file of a server without ranges
        self._storing = threading.Lock()

    def part(self, start: int, size: int) -> bytes:
        """Return ``size`` bytes from ``start``, or fewer at the end.

        Raises MissingFile or Unreachable; for a server without ranges OSError, if the file cannot be stored.
        """
        if self._complete:
            return os.pread(self._complete.fileno(), size, start)
        return self._web.attempt(self._origin.host, lambda: self._part(start, size))

    def _store(self, response: httpx.Response) -> IO[bytes]:
        """Store the complete file, which a server without ranges sends, until nobody reads it any more."""
        with self._storing:
            if self._complete is None:
                complete = tempfile.TemporaryFile()  # noqa: SIM115
                weakref.finalize(self, complete.close)
                for piece in self._web.body(response):
                    if complete.tell() + len(piece) > LARGEST_FILE:
                        host = self._origin.host
                        raise Unreachable(f"{host} sends more than {LARGEST_FILE} bytes, which were not read.")
                    complete.write(piece)
                complete.flush()
                self.size, self._complete = complete.tell(), complete
            return self._complete

    def _part(self, start: int, size: int) -> bytes:
        with self._open({"Range": f"bytes={start}-{start + size - 1}"}) as response:
            if response.status_code == 200:
                return os.pread(self._store(response).fileno(), size, start)
            content_range = response.headers.get("Content-Range", "")
            if response.status_code == 416 and (match := _UNSATISFIED.fullmatch(content_range)):
                self.size = int(match[1])
                return b""
            match = _PART.fullmatch(content_range)
            if response.status_code != 206 or match is None:
                raise _unexpected(response)
            first, last, self.size = map(int, match.groups())
            if first != start or last - first + 1 != min(size, self.size - first):
                raise Unreachable(f"{response.url.host} sent a different part of the file than requested.")
            body = bytearray()
            for piece in self._web.body(response):
                body += piece
                if len(body) > size:
                    raise Unreachable(f"{response.url.host} sent more than was requested.")
            if len(body) != last - first + 1:
                raise Temporary("the reply is incomplete")
        return bytes(body)

    @contextmanager
    def _open(self, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Yield the reply of the last hop, its body not yet read."""
        address = self._stored
        redirected = send(
            self._web.connections, TIMEOUT, address, {**DEFAULTS, **headers}, source=self._origin,
            origin=self._origin, secret=self._headers,
        )  # fmt: skip
        with ExitStack() as stack:
            try:
                response = call_within(LIMIT, lambda: stack.enter_context(redirected))
            except TimeoutError as error:
                raise httpx.ReadTimeout("its headers did not arrive in time") from error
            self._require_free(response)
            if response.status_code in (401, 403, 404) and address != self._origin:
                self._stored = self._origin
                raise Temporary("the storage URL has expired")
            host = response.url.host
            if problem := _MISSING.get(response.status_code):
                raise MissingFile(f"{host} {problem} (HTTP {response.status_code})")
            if response.status_code not in (200, 206, 416):
                raise _unexpected(response)
            if response.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
                raise Unreachable(f"{host} compresses its replies, although the request forbids it.")
            self._stored = response.url
            yield response

    def _require_free(self, response: httpx.Response) -> None:
        """Raise Temporary for a server's trouble, and for GitHub's limits of the rate of requests.

        A limit is 429, or 403 with Retry-After, with no requests remaining, or with a message about a limit.
        """
        status, headers = response.status_code, response.headers
        if status < 400:
            return
        pause = retry_after(headers)
        if status in (403, 429):
            none_left = headers.get("X-RateLimit-Remaining") == "0"
            reset = headers.get("X-RateLimit-Reset", "")
            if not pause and none_left and re.fullmatch(r"[0-9]{1,11}", reset):
                pause = max(1.0, int(reset) - time.time())
            # The file itself would not come with 403, so the body is only a short message.
            if status == 429 or pause or none_left or self._names_limit(response):
                problem = f"{response.url.host} limits the rate of requests (HTTP {status})"
                raise Temporary(problem, pause, for_all=True)
        if is_temporary(status):
            raise Temporary(f"{response.url.host} answers HTTP {status}", pause, for_all=bool(pause))

    def _names_limit(self, response: httpx.Response) -> bool:
        body = b""
        for piece in self._web.body(response):
            body += piece
            if len(body) >= _REFUSAL:
                break
        return b"rate limit" in body[:_REFUSAL].lower()


def _unexpected(response: httpx.Response) -> Unreachable:
    return Unreachable(
        f"{response.url.host} answered a request for a file with an unusable HTTP {response.status_code}."
    )
