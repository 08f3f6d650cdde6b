"""Reading parts of a file over HTTP, from many threads, politely.

A forge answers with a redirect to a storage of its own, under an address that is good for a short time.  The token
goes to the forge alone.  Busy servers (429, secondary rate limits, 5xx) and lost connections are tried again, for a
bounded time; when a server asks to wait, all threads wait.
"""

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar

import httpx

from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.transport.client import (
    DEFAULTS,
    explain,
    is_redirect_allowed,
    is_same_origin,
    is_temporary,
    is_tls,
    join,
    open_transport,
    retry_after,
)
from runbook_lib.transport.limits import within
from runbook_lib.transport.urls import is_private

_TIMEOUT = httpx.Timeout(30, connect=10)  # seconds without a byte
_LIMIT = 60.0  # seconds until an answer begins; and for its body so many more than at the slowest rate
_SLOWEST = 2**15  # bytes a second
_PAUSES = (0.5, 2.0, 8.0)  # seconds before each further attempt
_PATIENCE = 120.0  # seconds; a server that asks for more is asked again by the person, not by us
_REDIRECTS = 5
_WORDS = 4096  # bytes of a refusal that are read
#: Threads that share a pool of connections: for each request httpcore looks at all pairs of connections of a pool.
_IN_A_POOL = 8
# int() refuses numbers of thousands of digits, and no file has more bytes than this.
_NUMBER = "([0-9]{1,18})"
_PART, _UNSATISFIED = re.compile(rf"bytes {_NUMBER}-{_NUMBER}/{_NUMBER}"), re.compile(rf"bytes \*/{_NUMBER}")


T = TypeVar("T")
R = TypeVar("R")


class Gone(RunbookError):
    """The server says that the thing is not there (any more), or not for this token."""


class NoRanges(Exception):
    """The server answers with the whole file when asked for a part of it."""


@dataclass(frozen=True)
class Address:
    """Where a file lies.  ``headers`` hold the token and go to this origin alone."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class _Again(Exception):
    """Another try may help, not before ``pause`` seconds have passed."""

    def __init__(self, problem: str, pause: float = 0.0, *, polite: bool = False) -> None:
        super().__init__(problem)
        self.pause = pause
        self.polite = polite


class Web:
    """Connections for ``workers`` threads; ``received`` counts the bytes of bodies."""

    def __init__(
        self,
        workers: int,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        pools = max(1, workers // _IN_A_POOL)
        limits = httpx.Limits(
            max_connections=2 * -(-workers // pools), max_keepalive_connections=2 * -(-workers // pools)
        )
        self._clients = [
            httpx.Client(timeout=_TIMEOUT, transport=transport or open_transport(limits)) for _ in range(pools)
        ]
        self._sleep = sleep
        self._clock = clock
        self._not_before = 0.0
        self._lock = threading.Lock()
        self._stopped = False
        self._of_thread = threading.local()
        self._threads = itertools.count()
        self.received = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        for client in self._clients:
            client.close()

    def each(
        self, pool: Executor, work: Callable[[T], R], items: Sequence[T], name: Callable[[T], str],
        progress: Callable[[int, int, str], object] | None = None,
    ) -> tuple[R, ...]:  # fmt: skip
        """Return the results of ``work`` for all items, in their order, computed in the threads of ``pool``.

        ``progress`` hears done, total and the name of what was done last.  What ends it early, Ctrl-C too, stops all
        requests, so that no thread is waited for.
        """
        done: dict[int, R] = {}
        try:
            waiting = {pool.submit(work, item): at for at, item in enumerate(items)}
            for ended in as_completed(waiting):
                at = waiting[ended]
                done[at] = ended.result()
                if progress:
                    progress(len(done), len(items), name(items[at]))
        finally:
            if len(done) < len(items):
                self.stop()
        return tuple(done[at] for at in range(len(items)))

    def stop(self) -> None:
        """Stop all further attempts."""
        self._stopped = True

    def file(self, address: Address) -> "RemoteFile":
        """Return a file to be read; nothing is sent yet."""
        return RemoteFile(self, address)

    def retried(self, name: str, attempt: Callable[[], bytes]) -> bytes:
        """Carry out an attempt until it succeeds, or the pauses are used up."""
        for pause in (*_PAUSES, None):
            if self._stopped:
                raise Unreachable(f"Reading {name} was given up.")
            self._wait()
            try:
                return attempt()
            except httpx.RequestError as error:
                again = _Again(explain(error))
                if is_tls(error):
                    raise Unreachable(f"{name} could not be read: {again}.") from error
            except _Again as error:
                again = error
            if pause is None or again.pause > _PATIENCE:
                break
            if again.polite:  # all threads wait: more requests would only lengthen the limit
                with self._lock:
                    self._not_before = max(self._not_before, self._clock() + max(pause, again.pause))
            else:
                self._sleep(max(pause, again.pause))
        asked = f" It asks to be left alone for {again.pause:.0f} s." if again.pause else ""
        raise Unreachable(f"{name} could not be read: {again}.{asked} Try again later.")

    def _wait(self) -> None:
        with self._lock:
            left = self._not_before - self._clock()
        if left > 0:
            self._sleep(left)

    @contextmanager
    def stream(self, url: httpx.URL, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Yield one answer, its body not yet read.  Raises _Again for what is temporary."""
        sent = {**DEFAULTS, **headers}
        if not hasattr(self._of_thread, "client"):
            self._of_thread.client = self._clients[next(self._threads) % len(self._clients)]
        client: httpx.Client = self._of_thread.client
        request = client.build_request("GET", url, headers=sent)
        try:
            answer = within(_LIMIT, lambda: client.send(request, stream=True, follow_redirects=False))
        except TimeoutError as error:
            raise httpx.ReadTimeout("its headers did not arrive in time") from error
        try:
            _raise_if_busy(answer)
            yield answer
        finally:
            answer.close()

    def count(self, size: int) -> None:
        """Add to the bytes received."""
        with self._lock:
            self.received += size


class RemoteFile:
    """One file: parts of it, or all of it.  For use by one thread."""

    def __init__(self, web: Web, address: Address) -> None:
        self._web = web
        self._origin = _usable(address.url)
        self._headers = address.headers
        self._stored: httpx.URL | None = None  # where redirects have led
        self._renewed = False
        self.size = 0  # bytes, known after the first part

    def again(self) -> "RemoteFile":
        """Return the same file for another thread, which need not follow the redirects again."""
        other = RemoteFile(self._web, Address(str(self._origin), self._headers))
        other._stored, other.size = self._stored, self.size
        return other

    def part(self, start: int, size: int) -> bytes:
        """Return ``size`` bytes from ``start``, or fewer at the end of the file.

        Raises NoRanges, Gone, or Unreachable.
        """
        return self._web.retried(self._name, lambda: self._part(start, size))

    def whole(self, write: Callable[[bytes], object], restart: Callable[[], object], limit: int) -> None:
        """Pass the complete file to ``write`` in pieces; ``restart`` is called before each attempt."""

        def attempt() -> bytes:
            restart()
            with self._open({}) as answer:
                if answer.status_code != 200:
                    raise Unreachable(f"{self._name} answered HTTP {answer.status_code}, which we did not expect.")
                got = 0
                for piece in _steady(answer):
                    self._web.count(len(piece))
                    got += len(piece)
                    if got > limit:
                        raise Unreachable(f"{self._name} sends more than {limit} bytes: not read.")
                    write(piece)
            return b""

        self._web.retried(self._name, attempt)

    @property
    def _name(self) -> str:
        return self._origin.host

    def _part(self, start: int, size: int) -> bytes:
        with self._open({"Range": f"bytes={start}-{start + size - 1}"}) as answer:
            if answer.status_code == 200:
                raise NoRanges
            if answer.status_code == 416 and (found := _UNSATISFIED.fullmatch(_range(answer))):
                self.size = int(found[1])
                return b""
            found = _PART.fullmatch(_range(answer))
            if answer.status_code != 206 or found is None or int(found[1]) != start:
                raise Unreachable(f"{answer.url.host} answered a request for a part of a file with something else.")
            first, last, self.size = map(int, found.groups())
            if last - first + 1 != min(size, self.size - first):
                raise Unreachable(f"{answer.url.host} answered a request for a part of a file with another part.")
            body = bytearray()
            for piece in _steady(answer):
                self._web.count(len(piece))
                body += piece
                if len(body) > size:
                    raise Unreachable(f"{answer.url.host} sent more than was asked for.")
            if len(body) != last - first + 1:
                raise _Again("the answer broke off")
        return bytes(body)

    @contextmanager
    def _open(self, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Yield the answer of the last hop.  The token reaches no other host; a short-lived address may be renewed."""
        url, known = self._stored or self._origin, self._stored is not None
        for _ in range(_REDIRECTS):
            home = is_same_origin(url, self._origin)
            with self._web.stream(url, {**headers, **(self._headers if home else {})}) as answer:
                if answer.is_redirect:
                    url = _redirected(url, answer.headers.get("Location", ""))
                    continue
                if answer.status_code in (401, 403, 404) and known and not self._renewed:
                    self._stored, self._renewed = None, True  # the address was good for a short time only
                    raise _Again("the address of the storage is no longer good")
                if answer.status_code in (401, 403, 404, 410):
                    raise Gone(_gone(answer))
                if answer.status_code not in (200, 206, 416):
                    raise Unreachable(f"{answer.url.host} answered HTTP {answer.status_code}, which we did not expect.")
                if answer.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
                    raise Unreachable(f"{answer.url.host} packs what it sends, and was asked not to.")
                self._stored = url
                yield answer
                return
        raise Unreachable(f"{self._name} redirects without end.")


def _steady(answer: httpx.Response) -> Iterator[bytes]:
    """Yield the body as it comes.  httpx limits the pause between two bytes only, not the complete answer."""
    begun, got = time.monotonic(), 0
    for piece in answer.iter_raw():
        got += len(piece)
        if time.monotonic() - begun > _LIMIT + got / _SLOWEST:
            raise _Again("it sends too slowly")
        yield piece


def _gone(answer: httpx.Response) -> str:
    if answer.status_code == 410:
        return f"{answer.url.host} says that it has expired (HTTP 410)"
    if answer.status_code == 404:
        return f"{answer.url.host} does not find it, or not for this token (HTTP 404)"
    return f"{answer.url.host} does not let this token read it (HTTP {answer.status_code})"


def _raise_if_busy(answer: httpx.Response) -> None:
    """Raise _Again for GitHub's limits: 429, or 403 with Retry-After, no requests remaining, or words about it."""
    status, headers = answer.status_code, answer.headers
    if status < 400:
        return
    reset = headers.get("X-RateLimit-Reset", "")
    pause = retry_after(headers)
    if status in (403, 429):
        none_left = headers.get("X-RateLimit-Remaining") == "0"
        if not pause and none_left and re.fullmatch(r"[0-9]{1,11}", reset):
            pause = max(1.0, int(reset) - time.time())
        # A page of the whole file would not come with 403: what there is to read is a few words.
        if status == 429 or pause or none_left or b"rate limit" in _few_words(answer):
            raise _Again(f"{answer.url.host} limits how often it may be asked (HTTP {status})", pause, polite=True)
    if is_temporary(status):
        raise _Again(f"{answer.url.host} answers HTTP {status}", pause, polite=bool(pause))


def _few_words(answer: httpx.Response) -> bytes:
    body = b""
    for piece in _steady(answer):
        body += piece
        if len(body) >= _WORDS:
            break
    return body[:_WORDS].lower()


def _usable(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if not url.host or not is_private(url.scheme, url.host):
        raise Unreachable("The forge names an address for a download that is not https://.")
    return url


def _redirected(source: httpx.URL, location: str) -> httpx.URL:
    target = join(source, location)
    if not is_redirect_allowed(source, target):
        raise Unreachable(
            f"{source.host} redirects to {target.host or 'no address'}, which is not followed: a redirect must lead to "
            "https://, and never from the network to an address of this machine or of a private network. Check the "
            "address of the forge and its setting for the storage of artifacts."
        )
    return target


def _range(answer: httpx.Response) -> str:
    return str(answer.headers.get("Content-Range", ""))
