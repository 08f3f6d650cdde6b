"""HTTP as every client of this library speaks it.

A reply has a deadline and a size limit; redirects are judged hop by hop; secrets go only to one origin; requests that
only read are tried again after a temporary failure, and when a server asks for a pause, all threads wait.
"""

import os
import re
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import closing
from functools import cache
from typing import Any

import httpx

from runbook_lib.errors import RunbookError
from runbook_lib.world.transport.urls import is_loopback, may_redirect

USER_AGENT = "base-image-runbook"
_DEFAULTS = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
TIMEOUT = httpx.Timeout(30, connect=10)  # seconds without a byte
DEADLINE, _SLOWEST = 60.0, 2**15  # seconds for a reply, and bytes per second, for which a long reply gets more seconds
PAUSES = (0.5, 2.0, 4.0)  # seconds before each further attempt to read
_PATIENCE = 60.0  # seconds; if a server asks for a longer pause, the user has to retry
LARGEST_FILE = 8 * 2**30  # bytes of a file that a server without ranges may send
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=100)
_REDIRECTS = 5


class NoReply(Exception):
    """A request without a reply; the reason is a part of a sentence in which "it" is the server."""


@cache
def _certificates(bundle: str | None, *_: str | None) -> ssl.SSLContext:
    """Return whom to trust by these variables, which takes longer to read than most replies."""
    certificates = httpx.create_ssl_context()
    # httpx does not know this variable, which many companies set; it adds to the others.
    if bundle and os.path.isfile(bundle):
        certificates.load_verify_locations(cafile=bundle)
    return certificates


def _connections(transport: httpx.BaseTransport | None) -> Mapping[bool, httpx.Client]:
    """Return the client for this machine, which never uses a proxy, as True, and the one for all others as False.

    A proxy would receive the token in clear text, and would connect to its own machine.  NO_PROXY is not sufficient:
    it would have to list every loopback address.  Raises RunbookError if the environment has an unusable proxy or
    certificate file.
    """
    try:
        certificates = _certificates(*map(os.environ.get, ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")))
        return {
            is_local: httpx.Client(verify=certificates, trust_env=not is_local, limits=_LIMITS, transport=transport)
            for is_local in (True, False)
        }
    except (ValueError, ImportError, OSError) as error:
        raise RunbookError(
            f"No connection could be set up ({type(error).__name__}).",
            "Check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY (http:// or https:// addresses), and SSL_CERT_FILE (a file "
            "of certificates).",
        ) from error


class Client(httpx.BaseTransport):
    """Requests to a service at ``home`` and its redirects; the transport of GitHub's library, too.

    Replies are complete: read and unpacked within DEADLINE and ``largest`` bytes.  A GET is sent again after each of
    PAUSES, while it fails for a reason that may pass.  A request may have its own limit of bytes, in the extension
    ``largest``, and in ``store`` a function that opens a file for the body of a reply of status 200.
    """

    def __init__(
        self, home: httpx.URL, largest: int, *, transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:  # fmt: skip
        """Raise RunbookError if no connection can be set up."""
        self.home, self._largest, self._sleep = home, largest, sleep or time.sleep
        self._not_before = 0.0
        self._connections = _connections(transport)
        # Not every user closes a client of GitLab, which lives as long as its step.
        weakref.finalize(self, _close, self._connections)

    def disconnect(self) -> None:
        """Close the connections.  ``close`` does nothing: GitHub's library calls it after each request."""
        _close(self._connections)

    def request(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], *, secret: Mapping[str, str] | None = None,
        content: Any = None, follow: bool = True, source: httpx.URL | None = None, **extensions: Any,
    ) -> httpx.Response:  # fmt: skip
        """Return the complete reply, regardless of status; the headers ``secret`` go only to the origin of ``url``.

        ``source`` is the URL that has led to ``url``, by default ``home``.  Raises NoReply.
        """
        origin, source = url, source or self.home
        for _ in range(_REDIRECTS + 1):
            if not (url.host and may_redirect((source.scheme, source.host), (url.scheme, url.host))):
                raise NoReply(
                    f"{source.host} leads to {url.scheme}://{url.host}, which is not followed: a redirect must lead to "
                    "https://, and never from the network to an address of this machine or of a private network"
                )
            own = (secret or {}) if is_same_origin(url, origin) else {}
            request = httpx.Request(
                method, url, headers={**_DEFAULTS, **headers, **own}, json=content,
                extensions={"timeout": TIMEOUT.as_dict(), **extensions},
            )  # fmt: skip
            response = self.handle_request(request)
            response.request = request
            if not (follow and response.has_redirect_location):
                return response
            source, url = url, join(url, response.headers["Location"])
        raise NoReply("it redirects without end")

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the reply, regardless of status; a redirect is one.  Raises NoReply."""
        pauses = list(PAUSES) if request.method == "GET" else []
        while True:
            if (delay := self._not_before - time.monotonic()) > 0:
                self._sleep(delay)
            asked = 0.0
            try:
                response = self._read(request)
                asked = requested_pause(response.headers)
                if not pauses or not is_temporary(response) or asked > _PATIENCE:
                    return response
            except httpx.RequestError as error:
                if not pauses or _is_tls(error) or isinstance(error, _TooSlow):
                    raise NoReply(_explain(error)) from error
            pause = pauses.pop(0)
            if asked:
                self._not_before = max(self._not_before, time.monotonic() + max(pause, asked))
            else:
                self._sleep(pause)

    def _read(self, request: httpx.Request) -> httpx.Response:
        end = time.monotonic() + DEADLINE
        response = self._begun(request)
        largest, write, size = request.extensions.get("largest", self._largest), None, 0
        body: list[bytes] = []
        with closing(response):
            encoding = response.headers.get("Content-Encoding", "").strip().lower()
            if encoding not in ("", "identity", "gzip", "x-gzip"):
                raise httpx.DecodingError(f"it is compressed as {encoding[:40]!r}, which was not requested")
            if response.status_code == 200 and "store" in request.extensions:
                write, largest = request.extensions["store"]().write, LARGEST_FILE
            for piece in response.iter_bytes():
                size += len(piece)
                if size > largest:
                    raise NoReply(f"it sent more than {largest} bytes, which were not read")
                if time.monotonic() > end + size / _SLOWEST:
                    raise _TooSlow
                (write or body.append)(piece)
        response.headers.pop("Content-Encoding", None)
        return httpx.Response(response.status_code, headers=response.headers, content=b"".join(body))

    def _begun(self, request: httpx.Request) -> httpx.Response:
        """Return a reply whose headers came in time: httpx limits only the pause between two bytes.

        After DEADLINE the thread is abandoned: it ends with its connection, at the latest with the process.
        """
        client = self._connections[is_loopback(request.url.host)]
        begun = Future[httpx.Response]()

        def send() -> None:
            try:
                begun.set_result(client.send(request, stream=True))
            except BaseException as error:  # any exception is raised in the waiting thread
                begun.set_exception(error)

        threading.Thread(target=send, name="request", daemon=True).start()
        try:
            return begun.result(DEADLINE)
        except TimeoutError:
            raise _TooSlow from None


def _close(connections: Mapping[bool, httpx.Client]) -> None:
    for client in connections.values():
        client.close()


class _TooSlow(httpx.ReadTimeout):
    """A reply that did not end in time."""

    def __init__(self) -> None:
        super().__init__(f"it did not finish its answer within {DEADLINE:g} s")


def is_same_origin(url: httpx.URL, origin: httpx.URL) -> bool:
    """Return True if scheme, host and port are the same, so that a secret of the origin may go to the URL."""
    return (url.scheme, url.netloc) == (origin.scheme, origin.netloc)


def join(source: httpx.URL, location: str) -> httpx.URL:
    """Return the target of a Location header; a URL without a host if it is not a URL."""
    try:
        return source.join(location)
    except httpx.InvalidURL:
        return httpx.URL("")


def is_temporary(response: httpx.Response) -> bool:
    """Return True if the same request may succeed later: GitHub's limits of the rate come as 403, too."""
    status, headers = response.status_code, response.headers
    if status == 403:
        named = b"rate limit" in response.content[:4096].lower()
        return named or "Retry-After" in headers or headers.get("X-RateLimit-Remaining") == "0"
    return status in (408, 429) or status >= 500


def requested_pause(headers: Mapping[str, str]) -> float:
    """Return the seconds in Retry-After, else in GitHub's headers; 0 for any other form."""
    value, reset = headers.get("Retry-After", ""), headers.get("X-RateLimit-Reset", "")
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    if headers.get("X-RateLimit-Remaining") == "0" and re.fullmatch(r"[0-9]{1,11}", reset):
        return max(1.0, int(reset) - time.time())
    return 0.0


def pause_sentence(headers: Mapping[str, str]) -> str:
    """Return a sentence about the pause that a server asks for; empty if there is none."""
    pause = requested_pause(headers)
    return f" It asks for a pause of {pause:.0f} s." if pause else ""


def _is_tls(error: BaseException | None) -> bool:
    """Return True if a certificate or its handshake is behind an error."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


def _explain(error: Exception) -> str:
    """Return why there was no reply, as a part of a sentence in which "it" is the server."""
    if _is_tls(error):
        advice = "a company's own CA goes into SSL_CERT_FILE"
        if re.search("expired|not yet valid", str(error)):
            clock = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
            advice = f"{advice}; is this machine's clock ({clock}) right?"
        return f"its TLS certificate is not accepted ({error}); {advice}"
    if isinstance(error, _TooSlow | httpx.DecodingError):
        return str(error)
    if isinstance(error, httpx.TimeoutException):
        return "it did not answer in time"
    if isinstance(error, httpx.ProxyError):
        return "the proxy refused the connection; check HTTPS_PROXY and NO_PROXY"
    return f"the connection failed ({str(error) or type(error).__name__})"
