"""Further attempts at a request: after which failures, how many, and how long to wait for them."""

import email.utils
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import httpx

T = TypeVar("T")


class NoReply(Exception):
    """A request without a reply; the reason is a part of a sentence in which "it" is the server."""


class TooSlow(httpx.ReadTimeout):
    """A reply that began and did not end in time."""


class Temporary(Exception):
    """A failure that another attempt may fix, after ``pause`` seconds at the earliest.

    ``response`` is the complete reply, if there is one.  ``for_all``: the server limits the rate of requests, so that
    no thread sends another request before the pause is over.
    """

    def __init__(
        self, problem: str, pause: float = 0.0, *, for_all: bool = False, response: httpx.Response | None = None
    ) -> None:
        super().__init__(problem)
        self.pause = pause
        self.for_all = for_all
        self.response = response


class Retries:
    """The attempts of all threads that use one server.

    ``pauses`` are the seconds before each further attempt.  A server that asks for more than ``patience`` seconds gets
    no further request.
    """

    def __init__(
        self, pauses: Sequence[float], patience: float, sleep: Callable[[float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._pauses = pauses
        self._patience = patience
        self._sleep = sleep
        self._clock = clock
        self._not_before = 0.0
        self._lock = threading.Lock()

    def run(self, attempt: Callable[[], T]) -> T:
        """Return the result of the first attempt that succeeds.  Raises the last Temporary, and NoReply."""
        for pause in self._pauses:
            try:
                return self.once(attempt)
            except Temporary as failure:
                if failure.pause > self._patience:
                    raise
                delay = max(pause, failure.pause)
                if failure.for_all:
                    with self._lock:
                        self._not_before = max(self._not_before, self._clock() + delay)
                else:
                    self._wait(delay)
        return self.once(attempt)

    def once(self, attempt: Callable[[], T]) -> T:
        """Return the result of one attempt.  Raises as ``run``."""
        with self._lock:
            delay = self._not_before - self._clock()
        if delay > 0:
            self._wait(delay)
        try:
            return attempt()
        except httpx.RequestError as error:
            if is_tls(error) or isinstance(error, TooSlow | httpx.UnsupportedProtocol):
                raise NoReply(explain(error)) from error
            raise Temporary(explain(error)) from error

    def _wait(self, seconds: float) -> None:
        (self._sleep or time.sleep)(seconds)


def is_temporary(status: int) -> bool:
    """Return True if the same request may succeed later."""
    return status in (408, 429) or status >= 500


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds in Retry-After (a number or a date, by the server's own clock); 0 if there is none."""
    value = headers.get("Retry-After", "")
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    date = _timestamp(value)
    if date is None:
        return 0.0
    return max(0.0, date - (_timestamp(headers.get("Date", "")) or time.time()))


def request_of(pause: float) -> str:
    """Return a sentence about the pause that a server asks for; empty if there is none."""
    return f" It asks for a pause of {pause:.0f} s." if pause else ""


def _timestamp(value: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def is_tls(error: BaseException | None) -> bool:
    """Return True if a certificate or its handshake is behind an error."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


def explain(error: Exception) -> str:
    """Return why there was no reply, as a part of a sentence in which "it" is the server."""
    if is_tls(error):
        advice = "a company's own CA goes into SSL_CERT_FILE"
        if re.search("expired|not yet valid", str(error)):
            clock = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
            advice = f"{advice}; is this machine's clock ({clock}) right?"
        return f"its TLS certificate is not accepted ({error}); {advice}"
    if isinstance(error, TooSlow | httpx.DecodingError | httpx.UnsupportedProtocol):
        return str(error)
    if isinstance(error, httpx.TimeoutException):
        return "it did not answer in time"
    if isinstance(error, httpx.ProxyError):
        return "the proxy refused the connection; check HTTPS_PROXY and NO_PROXY"
    if isinstance(error, httpx.TooManyRedirects):
        return "it redirects without end"
    return f"the connection failed ({str(error) or type(error).__name__})"
