"""How the HTTP clients of this library reach a server: this machine directly, all others as the environment says."""

import httpx

from runbook_lib.transport.tls import trusted
from runbook_lib.transport.urls import is_loopback


class Transport(httpx.BaseTransport):
    """Connections that never go to a proxy for an address on this machine.

    A proxy would be sent the token in the clear, and would look for the address on its own machine.  NO_PROXY cannot
    do this: it would have to name every address of loopback.
    """

    def __init__(self, limits: httpx.Limits | None = None) -> None:
        limits = limits or httpx.Limits()
        self._direct = httpx.HTTPTransport(verify=trusted(), trust_env=False, limits=limits)
        # A client, because httpx reads the proxy variables nowhere else.
        self._environment = httpx.Client(verify=trusted(), limits=limits)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        if is_loopback(request.url.host):
            return self._direct.handle_request(request)
        return self._environment.send(request, stream=True, follow_redirects=False)

    def close(self) -> None:
        """Close the connections."""
        self._direct.close()
        self._environment.close()
