"""HTTP as every client of this library speaks it, and files that many threads read in parts over it.

A reply has a deadline and a size limit; redirects are judged hop by hop; secrets go only to one origin; requests that
only read are tried again after a temporary failure, and when a server asks for a pause, all threads wait.
"""

import io
import os
import re
import ssl
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import closing
from functools import cache
from typing import IO, Any

import httpx

from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.world.transport.archives import MissingFile
from runbook_lib.world.transport.urls import is_loopback, may_redirect

USER_AGENT = "base-image-runbook"
_DEFAULTS = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
TIMEOUT = httpx.Timeout(30, connect=10)  # seconds without a byte
DEADLINE, _SLOWEST = 60.0, 2**15  # seconds for a reply, and bytes per second, for which a long reply gets more seconds
_TOO_SLOW = f"it did not finish its answer within {DEADLINE:g} s"
PAUSES = (0.5, 2.0, 4.0)  # seconds before each further attempt to read
_PATIENCE = 60.0  # seconds; if a server asks for a longer pause, the user has to retry
_LARGEST_FILE = 8 * 2**30  # bytes of a file that a server without ranges may send
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=100)
_REDIRECTS = 5
_REFUSAL = 2**16  # bytes of a reply that is no file
# int() refuses numbers of thousands of digits, and no file has more bytes than this.
_PART = re.compile(r"bytes (?:([0-9]{1,18})-[0-9]{1,18}|\*)/([0-9]{1,18})")

#: Meanings of replies without a file.
_MISSING = {
    401: "does not let this token read it", 403: "does not let this token read it",
    404: "does not find it, or not for this token", 410: "reports that it has expired",
}  # fmt: skip


class NoReply(Exception):
    """A request without a usable reply; the reason is a part of a sentence in which "it" is the server.

    ``response`` is a refusal that may pass, if the server has sent one.
    """

    def __init__(self, reason: str, response: httpx.Response | None = None) -> None:
        super().__init__(reason)
        self.response = response


@cache
def _certificates(bundle: str | None, *_: str | None) -> ssl.SSLContext:
    """Return whom to trust by these variables, which takes longer to read than most replies."""
    certificates = httpx.create_ssl_context()
    # httpx does not know this variable, which many companies set; it adds to the others.
    if bundle and os.path.isfile(bundle):
        certificates.load_verify_locations(cafile=bundle)
    return certificates


class Client:
    """Requests to a service at ``home``, and their redirects.

    Replies are complete: read and unpacked within DEADLINE and ``largest`` bytes.  A GET is sent again after each of
    PAUSES, while it fails for a reason that may pass.
    """

    def __init__(self, home: httpx.URL, largest: int, transport: httpx.BaseTransport | None = None) -> None:
        """Raise RunbookError if the environment has an unusable proxy or certificate file."""
        self.home, self._largest, self._not_before = home, largest, 0.0
        # A proxy would receive a token for this machine in clear text, and would connect to its own machine.  NO_PROXY
        # is not sufficient: it would have to list every loopback address.
        trust_env = not is_loopback(home.host)
        try:
            certificates = _certificates(*map(os.environ.get, ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")))
            self._connections = httpx.Client(
                verify=certificates, trust_env=trust_env, limits=_LIMITS, transport=transport
            )
        except (ValueError, ImportError, OSError) as error:
            raise RunbookError(
                f"No connection could be set up ({type(error).__name__}).",
                "Check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY (http:// or https:// addresses), and SSL_CERT_FILE (a "
                "file of certificates).",
            ) from error
        weakref.finalize(self, self._connections.close)

    def request(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], *, secret: Mapping[str, str] | None = None,
        content: Any = None, follow: bool = True, **extensions: Any,
    ) -> httpx.Response:  # fmt: skip
        """Return the complete reply, regardless of status; the headers ``secret`` go only to the origin of ``url``.

        The extension ``largest`` is another limit of bytes; ``store`` opens a file for the body of a reply of status
        200, which has it as the extension ``file``.  Raises NoReply.
        """
        origin, source = url, self.home
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
            response = self.answer(request)
            response.request = request
            if not (follow and response.has_redirect_location):
                return response
            source, url = url, join(url, response.headers["Location"])
        raise NoReply("it redirects without end")

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Return the reply, unless it is a refusal that may pass; a redirect is one.  Raises NoReply."""
        pauses = list(PAUSES) if request.method == "GET" else []
        while True:
            if (delay := self._not_before - time.monotonic()) > 0:
                time.sleep(delay)
            asked = 0.0
            try:
                response = self._read(request)
                if not (problem := _temporary(response)):
                    return response
                if asked := requested_pause(response.headers):
                    problem += f" and asks for a pause of {asked:.0f} s"
                if not pauses or asked > _PATIENCE:
                    raise NoReply(problem, response)
            except httpx.RequestError as error:
                if not pauses or _is_tls(error):
                    raise NoReply(_explain(error)) from error
            pause = pauses.pop(0)
            if asked:
                self._not_before = max(self._not_before, time.monotonic() + max(pause, asked))
            else:
                time.sleep(pause)

    def _read(self, request: httpx.Request) -> httpx.Response:
        end, largest = time.monotonic() + DEADLINE, request.extensions.get("largest", self._largest)
        body: IO[bytes] = io.BytesIO()
        with closing(self._begun(request)) as response:
            encoding = response.headers.get("Content-Encoding", "").strip().lower()
            if encoding not in ("", "identity", "gzip", "x-gzip"):
                raise NoReply(f"its answer is compressed as {encoding[:40]!r}, which was not requested")
            if response.status_code == 200 and "store" in request.extensions:
                body, largest = request.extensions["store"](), _LARGEST_FILE
            for piece in response.iter_bytes():
                size = body.tell() + len(piece)
                if size > largest:
                    raise NoReply(f"it sent more than {largest} bytes, which were not read")
                if time.monotonic() > end + size / _SLOWEST:
                    raise NoReply(_TOO_SLOW)
                body.write(piece)
        response.headers.pop("Content-Encoding", None)
        content = body.getvalue() if isinstance(body, io.BytesIO) else b""
        return httpx.Response(
            response.status_code, headers=response.headers, content=content, extensions={"file": body}
        )

    def _begun(self, request: httpx.Request) -> httpx.Response:
        """Return a reply whose headers came in time: httpx limits only the pause between two bytes.

        After DEADLINE the thread is abandoned: it ends with its connection, at the latest with the process.
        """
        client, begun = self._connections, Future[httpx.Response]()

        def send() -> None:
            try:
                begun.set_result(client.send(request, stream=True))
            except BaseException as error:  # any exception is raised in the waiting thread
                begun.set_exception(error)

        threading.Thread(target=send, name="request", daemon=True).start()
        try:
            return begun.result(DEADLINE)
        except TimeoutError:
            raise NoReply(_TOO_SLOW) from None


def is_same_origin(url: httpx.URL, origin: httpx.URL) -> bool:
    """Return True if scheme, host and port are the same, so that a secret of the origin may go to the URL."""
    return (url.scheme, url.netloc) == (origin.scheme, origin.netloc)


def join(source: httpx.URL, location: str) -> httpx.URL:
    """Return the target of a Location header; a URL without a host if it is not a URL."""
    try:
        return source.join(location)
    except httpx.InvalidURL:
        return httpx.URL("")


def _temporary(response: httpx.Response) -> str:
    """Return why the same request may succeed later, like the reason of NoReply; empty if there is no such reason."""
    status, headers = response.status_code, response.headers
    if status >= 500 or status == 408:
        return f"it has an internal problem (HTTP {status})"
    # GitHub's limits of the rate come as 403, too.
    named = b"rate limit" in response.content[:4096].lower() or "Retry-After" in headers
    if status == 429 or (status == 403 and (named or headers.get("X-RateLimit-Remaining") == "0")):
        return f"it limits the rate of requests (HTTP {status})"
    return ""


def requested_pause(headers: Mapping[str, str]) -> float:
    """Return the seconds in Retry-After, else in GitHub's headers; 0 for any other form."""
    value, reset = headers.get("Retry-After", ""), headers.get("X-RateLimit-Reset", "")
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    if headers.get("X-RateLimit-Remaining") == "0" and re.fullmatch(r"[0-9]{1,11}", reset):
        return max(1.0, int(reset) - time.time())
    return 0.0


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
    if isinstance(error, httpx.DecodingError):
        return f"its answer cannot be unpacked ({error})"
    if isinstance(error, httpx.TimeoutException):
        return "it did not answer in time"
    if isinstance(error, httpx.ProxyError):
        return "the proxy refused the connection; check HTTPS_PROXY and NO_PROXY"
    return f"the connection failed ({str(error) or type(error).__name__})"


class RemoteFile:
    """One file on a server; ``size`` in bytes is known after the first part.

    A forge replies with a redirect to its storage, with a URL that is valid for a short time.  ``secret`` are the
    headers with the token, which go only to the forge, at ``url``.  A server without ranges, as for GitLab's logs,
    sends the complete file, which goes to a temporary one.
    """

    def __init__(self, client: Client, url: httpx.URL, secret: Mapping[str, str]) -> None:
        self._client, self._origin, self._secret = client, url, secret
        self._stored = url  # the target of the redirects
        self.size = 0
        self._complete: IO[bytes] | None = None  # the file of a server without ranges

    def part(self, start: int, size: int) -> bytes:
        """Return ``size`` bytes from ``start``, or fewer at the end.

        Raises MissingFile or Unreachable; for a server without ranges OSError, if the file cannot be stored.
        """
        if not self._complete:
            response = self._request(self._stored, start, size)
            # The storage's URL may have expired.
            if response.status_code in (401, 403, 404) and self._stored != self._origin:
                response = self._request(self._origin, start, size)
            self._stored = response.url
            if not self._complete:
                return self._content(response, start, size)
        return os.pread(self._complete.fileno(), size, start)

    def _content(self, response: httpx.Response, start: int, size: int) -> bytes:
        """Return the part in a reply, if it is the one that was requested.  Raises MissingFile or Unreachable."""
        host, status = response.url.host, response.status_code
        if problem := _MISSING.get(status, ""):
            raise MissingFile(f"{host} {problem} (HTTP {status})")
        match = _PART.fullmatch(response.headers.get("Content-Range", ""))
        if match is None or status != (206 if match[1] else 416):
            raise Unreachable(f"{host} answered a request for a file with an unusable HTTP {status}.")
        self.size = int(match[2])
        if status == 416:
            return b""
        if int(match[1]) != start or len(response.content) != min(size, self.size - start):
            raise Unreachable(f"{host} sent a different part of the file than requested.")
        return response.content

    def _request(self, address: httpx.URL, start: int, size: int) -> httpx.Response:
        """Return the reply to a request for a part, or with status 200 set the complete file."""
        try:
            response = self._client.request(
                "GET", address, {"Range": f"bytes={start}-{start + size - 1}"},
                secret=self._secret if address == self._origin else {}, largest=max(size, _REFUSAL), store=self._store,
            )  # fmt: skip
        except NoReply as error:
            host = self._origin.host
            raise Unreachable(f"{host} could not be read: {error}.", "Try again later.") from error
        if response.status_code == 200:
            complete = response.extensions["file"]
            complete.flush()
            self.size, self._complete = complete.tell(), complete
        return response

    def _store(self) -> IO[bytes]:
        """Return a temporary file, which lives as long as this one."""
        file = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, file.close)
        return file
