"""Connections: their use of proxies, and the certificates that they accept."""

import functools
import os
import ssl

import httpx

from runbook_lib.errors import RunbookError
from runbook_lib.transport.urls import is_loopback


class Transport(httpx.BaseTransport):
    """Connections that never use a proxy for this machine.

    A proxy would receive the token in clear text, and would connect to its own machine.  NO_PROXY is not sufficient:
    it would have to list every loopback address.
    """

    def __init__(self, limits: httpx.Limits | None = None) -> None:
        """Raise RunbookError if the environment has an unusable proxy or certificate file."""
        limits = limits or httpx.Limits()
        try:
            self._direct = httpx.HTTPTransport(verify=_certificates(), trust_env=False, limits=limits)
            # A client, because httpx reads the proxy variables nowhere else.
            self._environment = httpx.Client(verify=_certificates(), limits=limits)
        except (ValueError, ImportError, OSError) as error:
            raise RunbookError(
                f"No connection could be set up ({type(error).__name__}). Check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY "
                "(http:// or https:// addresses), and SSL_CERT_FILE (a file of certificates)."
            ) from error

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        if is_loopback(request.url.host):
            return self._direct.handle_request(request)
        return self._environment.send(request, stream=True, follow_redirects=False)

    def close(self) -> None:
        """Close the connections."""
        self._direct.close()
        self._environment.close()


def _certificates() -> ssl.SSLContext:
    """Return the certificates for verifying https: httpx's own, and those in REQUESTS_CA_BUNDLE."""
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
    return _read_certificates(*(os.environ.get(name, "") for name in names))


@functools.cache  # reading them takes longer than most requests
def _read_certificates(_file: str, _folder: str, bundle: str) -> ssl.SSLContext:
    context = httpx.create_ssl_context()
    # httpx does not know this variable, which many companies set; it adds to the others.
    if os.path.isfile(bundle):
        context.load_verify_locations(cafile=bundle)
    return context
