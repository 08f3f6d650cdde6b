"""HTTP as every client of this library speaks it.

A request has a deadline and its reply a size limit; redirects are checked hop by hop; secrets go only to one origin;
requests that only read are tried again after a temporary failure.
"""

import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import httpx

from runbook_lib.transport.connections import Transport
from runbook_lib.transport.limits import TooLarge, before_deadline, call_within
from runbook_lib.transport.retries import NoReply, Retries, Temporary, TooSlow, is_temporary, retry_after
from runbook_lib.transport.urls import may_redirect

USER_AGENT = "base-image-runbook"
DEFAULTS = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
_REDIRECTS = 5


class BoundedTransport(httpx.BaseTransport):
    """Replies that are complete: read and unpacked within ``deadline`` seconds and ``largest`` bytes.

    Requests that only read are retried as described in ``retries``; others are sent once.  Raises NoReply, and
    TooLarge.
    """

    def __init__(
        self, *, deadline: float, largest: int, retries: Retries, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._deadline = deadline
        self._largest = largest
        self._retries = retries
        self._transport = transport or Transport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; return the reply, regardless of its status."""
        attempts = self._retries.run if request.method == "GET" else self._retries.once
        try:
            return attempts(lambda: self._attempt(request))
        except Temporary as failure:
            if failure.response is None:
                raise NoReply(str(failure)) from failure
            return failure.response

    def _attempt(self, request: httpx.Request) -> httpx.Response:
        """Return the reply within the deadline: httpx limits only the pause between two bytes."""
        try:
            response = call_within(self._deadline, lambda: self._read(request))
        except TimeoutError:
            raise TooSlow(f"it did not finish its answer within {self._deadline:g} s") from None
        if is_temporary(response.status_code):
            raise Temporary(f"it answers HTTP {response.status_code}", retry_after(response.headers), response=response)
        return response

    def _read(self, request: httpx.Request) -> httpx.Response:
        with closing(self._transport.handle_request(request)) as response:
            assert isinstance(response.stream, httpx.SyncByteStream)
            pieces = before_deadline(time.monotonic() + self._deadline, response.stream)
            encoding = response.headers.pop("Content-Encoding", "")
            body = b"".join(decompress(pieces, encoding, self._largest))
        return httpx.Response(response.status_code, headers=response.headers, content=body)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()


class Client:
    """Requests to a service and its redirects.

    ``home`` is the service's URL.  ``timeout`` limits the seconds without a byte, ``deadline`` the seconds for the
    complete reply; ``largest`` limits its unpacked bytes.  ``pauses`` and ``patience`` are those of
    Retries.
    """

    def __init__(
        self, home: httpx.URL, *, timeout: httpx.Timeout, deadline: float, largest: int, pauses: Sequence[float],
        patience: float, transport: httpx.BaseTransport | None = None, sleep: Callable[[float], None] | None = None,
    ) -> None:  # fmt: skip
        self.home = home
        retries = Retries(pauses, patience, sleep)
        self._timeout = timeout
        self._transport = BoundedTransport(deadline=deadline, largest=largest, retries=retries, transport=transport)
        # Not every user closes a client of GitLab, which lives as long as its step.
        weakref.finalize(self, self._transport.close)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def request(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], *, secret: Mapping[str, str] | None = None,
        content: Any = None, follow: bool = True,
    ) -> httpx.Response:  # fmt: skip
        """Return the complete reply, regardless of status; the headers ``secret`` go only to the origin of ``url``."""
        headers = {**DEFAULTS, **headers}
        try:
            with send(
                self._transport, self._timeout, url, headers, method=method, content=content, source=self.home,
                origin=url, secret=secret or {}, follow=follow,
            ) as response:  # fmt: skip
                return response
        except httpx.RequestError as error:
            raise NoReply(str(error)) from error


@contextmanager
def send(
    transport: httpx.BaseTransport, timeout: httpx.Timeout, url: httpx.URL, headers: Mapping[str, str], *,
    source: httpx.URL, origin: httpx.URL, secret: Mapping[str, str], method: str = "GET", content: Any = None,
    follow: bool = True,
) -> Iterator[httpx.Response]:  # fmt: skip
    """Yield the reply to a request, at the end of its redirects.

    ``source`` is the URL that redirected to ``url``.  ``secret`` are headers that go only to ``origin``.  Raises
    UnsupportedProtocol for a redirect that is not followed, and TooManyRedirects.
    """
    for _ in range(_REDIRECTS + 1):
        _require_allowed(source, url)
        own = secret if is_same_origin(url, origin) else {}
        # Not an httpx client: it would keep cookies, which takes as much processor time as the rest of a request.
        request = httpx.Request(
            method, url, headers={**headers, **own}, json=content, extensions={"timeout": timeout.as_dict()}
        )
        with closing(transport.handle_request(request)) as response:
            response.request = request
            if not (follow and response.has_redirect_location):
                yield response
                return
            source, url = url, join(url, response.headers["Location"])
    raise httpx.TooManyRedirects("it redirects without end")


def _require_allowed(source: httpx.URL, target: httpx.URL) -> None:
    if not (target.host and may_redirect((source.scheme, source.host), (target.scheme, target.host))):
        raise httpx.UnsupportedProtocol(
            f"{source.host} leads to {target.scheme}://{target.host}, which is not followed: a redirect must lead to "
            "https://, and never from the network to an address of this machine or of a private network"
        )


def is_same_origin(url: httpx.URL, origin: httpx.URL) -> bool:
    """Return True if scheme, host and port are the same, so that a secret of the origin may go to the URL."""
    return (url.scheme, url.netloc) == (origin.scheme, origin.netloc)


def join(source: httpx.URL, location: str) -> httpx.URL:
    """Return the target of a Location header; a URL without a host if it is not a URL."""
    try:
        return source.join(location)
    except httpx.InvalidURL:
        return httpx.URL("")


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
