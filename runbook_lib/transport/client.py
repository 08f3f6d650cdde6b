"""HTTP as every client of this library speaks it.

A request has a deadline and its reply a size limit; redirects are judged hop by hop; secrets go to one origin alone;
this machine is never reached through a proxy; certificates are those of SSL_CERT_FILE or SSL_CERT_DIR, else
certifi's, and those of REQUESTS_CA_BUNDLE.
"""

import email.utils
import functools
import os
import re
import ssl
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import httpx

from runbook_lib.errors import RunbookError
from runbook_lib.transport.limits import Unusual, unpacked, until, within
from runbook_lib.transport.urls import is_loopback, may_redirect

USER_AGENT = "base-image-runbook"
DEFAULTS = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
_REDIRECTS = 5


class NoReply(Exception):
    """A request without a reply: a part of a sentence says why; in it, "it" is the server."""


class TooSlow(httpx.ReadTimeout):
    """A reply that began and did not end in time."""


@dataclass(frozen=True)
class Reply:
    """An HTTP reply, read to its end and unpacked; ``url`` is where redirects led."""

    status: int
    url: httpx.URL
    headers: httpx.Headers
    body: bytes


class Transport(httpx.BaseTransport):
    """Connections that never go to a proxy for an address on this machine.

    A proxy would be sent the token in the clear, and would look for the address on its own machine.  NO_PROXY cannot
    do this: it would have to name every address of loopback.
    """

    def __init__(self, limits: httpx.Limits | None = None) -> None:
        limits = limits or httpx.Limits()
        self._direct = httpx.HTTPTransport(verify=_certificates(), trust_env=False, limits=limits)
        # A client, because httpx reads the proxy variables nowhere else.
        self._environment = httpx.Client(verify=_certificates(), limits=limits)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        if is_loopback(request.url.host):
            return self._direct.handle_request(request)
        return self._environment.send(request, stream=True, follow_redirects=False)

    def close(self) -> None:
        """Close the connections."""
        self._direct.close()
        self._environment.close()


def open_transport(limits: httpx.Limits | None = None) -> Transport:
    """Return a transport; raise RunbookError if the environment names an unusable proxy or file of certificates."""
    try:
        return Transport(limits)
    except (ValueError, ImportError, OSError) as error:
        raise RunbookError(
            f"No connection could be set up ({type(error).__name__}). Check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY "
            "(http:// or https:// addresses), and SSL_CERT_FILE (a file of certificates)."
        ) from error


class Client:
    """Requests to a service, and to where it redirects.

    ``home`` is the service's address.  ``timeout`` limits the time without a byte, ``deadline`` that of the complete
    reply, in seconds; ``largest`` is the limit of its bytes, unpacked.  ``pauses`` are the seconds before each further
    attempt; a server that asks for more than ``patience`` seconds is not asked again.
    """

    def __init__(
        self, home: httpx.URL, *, timeout: httpx.Timeout, deadline: float, largest: int, pauses: Sequence[float],
        patience: float, transport: httpx.BaseTransport | None = None, sleep: Callable[[float], None] | None = None,
    ) -> None:  # fmt: skip
        self.home = home
        self._deadline = deadline
        self._largest = largest
        self._pauses = pauses
        self._patience = patience
        self._sleep = sleep
        self._http = httpx.Client(timeout=timeout, transport=transport or open_transport())
        # Not every user closes a client of GitLab, which lives as long as its step.
        weakref.finalize(self, self._http.close)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def request(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], *, secret: Mapping[str, str] | None = None,
        content: Any = None, follow: bool = True, retry: bool = True,
    ) -> Reply:  # fmt: skip
        """Return the reply, whatever its status, after further attempts at what may be temporary.

        ``secret`` are headers that go to the origin of ``url`` alone; ``content`` is sent as JSON.  Raises NoReply,
        and TooLarge.
        """
        pauses = [*self._pauses] if retry else []
        while True:
            pause = 0.0
            try:
                reply = self._attempt(method, url, headers, secret or {}, content, follow)
            except httpx.RequestError as error:
                if not pauses or is_tls(error) or isinstance(error, TooSlow | httpx.UnsupportedProtocol):
                    raise NoReply(explain(error)) from error
            else:
                pause = retry_after(reply.headers)
                if not is_temporary(reply.status) or not pauses or pause > self._patience:
                    return reply
            (self._sleep or time.sleep)(max(pauses.pop(0), pause))

    def _attempt(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], secret: Mapping[str, str], content: Any,
        follow: bool,
    ) -> Reply:  # fmt: skip
        """Return the reply of the last hop within the deadline: httpx limits only the pause between two bytes."""

        def work() -> Reply:
            source, target = self.home, url
            for _ in range(_REDIRECTS + 1):
                _require_allowed(source, target)
                own = secret if is_same_origin(target, url) else {}
                request = self._http.build_request(method, target, headers={**DEFAULTS, **headers, **own}, json=content)
                with closing(self._http.send(request, stream=True, follow_redirects=False)) as response:
                    if not (follow and response.has_redirect_location):
                        return self._read(response)
                    source, target = target, join(target, response.headers["Location"])
            raise httpx.TooManyRedirects("")

        try:
            return within(self._deadline, work)
        except TimeoutError:
            raise TooSlow(f"it did not finish its answer within {self._deadline:g} s") from None

    def _read(self, response: httpx.Response) -> Reply:
        assert isinstance(response.stream, httpx.SyncByteStream)
        pieces = until(time.monotonic() + self._deadline, response.stream)
        try:
            body = b"".join(unpacked(pieces, response.headers.get("Content-Encoding", ""), self._largest))
        except Unusual as error:
            raise httpx.DecodingError(str(error)) from error
        return Reply(response.status_code, response.url, response.headers, body)


def _require_allowed(source: httpx.URL, target: httpx.URL) -> None:
    if not is_redirect_allowed(source, target):
        raise httpx.UnsupportedProtocol(
            f"{source.host} leads on to {target.scheme}://{target.host}, by plain http:// or from the network to an "
            "address of this machine or of a private network: not followed"
        )


def is_redirect_allowed(source: httpx.URL, target: httpx.URL) -> bool:
    """Return whether a redirect from one address to another is followed."""
    return bool(target.host) and may_redirect((source.scheme, source.host), (target.scheme, target.host))


def is_same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    """Return whether scheme, host and port are the same, so that a secret of the one may go to the other."""
    return (one.scheme, one.netloc) == (other.scheme, other.netloc)


def join(source: httpx.URL, location: str) -> httpx.URL:
    """Return where a header Location leads; an address without a host if it is not an address."""
    try:
        return source.join(location)
    except httpx.InvalidURL:
        return httpx.URL("")


def is_temporary(status: int) -> bool:
    """Return whether the same request may succeed later."""
    return status in (408, 429) or status >= 500


def retry_after(headers: httpx.Headers) -> float:
    """Return the seconds that Retry-After asks for (RFC 9110: a number or a date); 0 for none.

    A date is compared with the server's own Date, for this machine's clock may be wrong.
    """
    value = headers.get("Retry-After", "")
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    then = _timestamp(value)
    if then is None:
        return 0.0
    return max(0.0, then - (_timestamp(headers.get("Date", "")) or time.time()))


def _timestamp(value: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def is_tls(error: BaseException | None) -> bool:
    """Return whether a certificate or its handshake is behind an error."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


def explain(error: Exception) -> str:
    """Return why there was no reply, as a part of a sentence; in it, "it" is the server."""
    if is_tls(error):
        clock = f"; this machine's clock says {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, is that right?"
        dated = clock if re.search("expired|not yet valid", str(error)) else ""
        return f"its TLS certificate is not accepted ({error}); a company's own CA goes into SSL_CERT_FILE{dated}"
    if isinstance(error, TooSlow | Unusual | httpx.DecodingError | httpx.UnsupportedProtocol):
        return str(error)
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return "it did not answer in time"
    if isinstance(error, httpx.ProxyError):
        return "the proxy refused the connection; check HTTPS_PROXY and NO_PROXY"
    if isinstance(error, httpx.TooManyRedirects):
        return "it redirects without end"
    return f"the connection failed ({str(error) or type(error).__name__})"


def _certificates() -> ssl.SSLContext:
    """Return what https is verified with.  Raises OSError for a file that cannot be read or has no certificates."""
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
    return _read_certificates(*(os.environ.get(name, "") for name in names))


@functools.cache  # reading them takes longer than most requests
def _read_certificates(_file: str, _folder: str, bundle: str) -> ssl.SSLContext:
    context = httpx.create_ssl_context()
    # httpx does not know this variable, which many companies set; it adds to the others.
    if os.path.isfile(bundle):
        context.load_verify_locations(cafile=bundle)
    return context
