"""What a request to a registry that brought no answer means, in words."""

import re
import ssl
import time

import httpx


class TooSlow(httpx.ReadTimeout):
    """An answer that began and did not end."""


def is_tls(error: BaseException | None) -> bool:
    """Whether a certificate or its handshake is behind an error."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


def explained(error: httpx.RequestError) -> str:
    """The part of a sentence that says why there was no answer."""
    if is_tls(error):
        clock = f"; this machine's clock says {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, is that right?"
        dated = clock if re.search("expired|not yet valid", str(error)) else ""
        return f"its TLS certificate is not accepted ({error}); a company's own CA goes into SSL_CERT_FILE{dated}"
    if isinstance(error, TooSlow):
        return str(error)
    if isinstance(error, httpx.TimeoutException):
        return "it did not answer in time"
    if isinstance(error, httpx.TooManyRedirects):
        return "it redirects without end"
    return f"the connection failed ({str(error) or type(error).__name__})"
