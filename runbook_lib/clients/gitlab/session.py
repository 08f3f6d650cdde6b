"""The connections to GitLab: python-gitlab's client with limits, and with a token that reaches its own host alone."""

import io
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from runbook_lib.transport import urls
from runbook_lib.transport.limits import Unusual, require_few_values, unpacked, until, within

if TYPE_CHECKING:
    import gitlab
    import requests

#: Bytes of an answer; a page of a hundred jobs has less than one million.
LARGEST = 16 * 2**20
_TIMEOUT = 30.0  # seconds without a byte
_LIMIT = 60.0  # seconds for one answer from first to last byte, however it drips
_PATIENCE = 120  # seconds; a server that asks for more is asked again by the person, not by us
#: After 0.1, 0.2, 0.4, 0.8 and 1.6 seconds, or when the server says.
_RETRIES = 5


def client(url: str, token: str) -> "gitlab.Gitlab":
    """Return python-gitlab's client for a server.  Sends nothing yet."""
    import gitlab

    class Client(gitlab.Gitlab):
        """Its own ten retries of everything take 102 seconds where nobody answers."""

        def http_request(self, *arguments: Any, **named: Any) -> "requests.Response":
            return super().http_request(*arguments, **{"max_retries": _RETRIES, **named})

    return Client(
        url, private_token=token, timeout=_TIMEOUT, retry_transient_errors=True, user_agent="base-image-runbook",
        session=_session(url), keep_base_url=True,
    )  # fmt: skip


def _session(home: str) -> "requests.Session":
    """Connections that show the token to the host of ``home`` alone, and wait for nobody without end."""
    import requests
    import urllib3
    from requests.adapters import HTTPAdapter

    def require_allowed(source: object, target: object) -> None:
        there = _place(target)
        if not urls.may_redirect(_place(source), there):
            raise requests.exceptions.InvalidURL(
                f"it redirects to {there[0]}://{there[1]}, by plain http:// or from the network to an address of this "
                "machine or of a private network, which is not followed"
            )

    class Adapter(HTTPAdapter):
        """Reads an answer within our limits: requests has none for the whole of it."""

        def send(self, request: requests.PreparedRequest, *arguments: Any, **options: Any) -> requests.Response:
            if urls.is_loopback(urlsplit(str(request.url)).hostname):
                options["proxies"] = {}
                request.headers.pop("Proxy-Authorization", None)

            def ask() -> tuple[requests.Response, bytes]:
                answer = super(Adapter, self).send(request, *arguments, **options)
                packing = answer.headers.pop("Content-Encoding", "")
                with answer.raw as raw:
                    pieces = until(time.monotonic() + _LIMIT, raw.stream(2**16, decode_content=False))
                    return answer, b"".join(unpacked(pieces, packing, LARGEST))

            try:
                answer, body = within(_LIMIT, ask)
            except TimeoutError as error:
                raise requests.exceptions.ReadTimeout("it did not answer in time") from error
            except (Unusual, urllib3.exceptions.HTTPError) as error:
                raise requests.exceptions.ChunkedEncodingError(str(error)) from error
            require_few_values(body)
            answer.raw = urllib3.HTTPResponse(io.BytesIO(body), preload_content=False)
            return answer

    class Session(requests.Session):
        """requests takes another kind of token off a redirect, but not GitLab's; nor does it bound a pause."""

        def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
            # Redirects come through here too.
            if _origin(request.url) != _origin(home):
                request.headers.pop("PRIVATE-TOKEN", None)
            require_allowed(home, request.url)
            answer = super().send(request, **options)
            if answer.status_code == 429 or answer.status_code >= 500:
                answer.headers.pop("RateLimit-Reset", None)
                wait = answer.headers.pop("Retry-After", "")
                if re.fullmatch(r"[0-9]{1,9}", wait):
                    if int(wait) > _PATIENCE:
                        raise requests.exceptions.RetryError(f"it asks to be left alone for {int(wait)} s")
                    answer.headers["Retry-After"] = wait
            return answer

        def get_redirect_target(self, resp: requests.Response) -> str | None:
            location: str | None = super().get_redirect_target(resp)
            if location is None:
                return None
            require_allowed(resp.url, urljoin(str(resp.url), location))
            return location

    session = Session()
    session.headers["Accept-Encoding"] = "gzip"
    for scheme in ("http://", "https://"):
        session.mount(scheme, Adapter())
    return session


def _origin(url: object) -> tuple[str, str]:
    parts = urlsplit(str(url))
    return parts.scheme, parts.netloc


def _place(url: object) -> urls.Place:
    parts = urlsplit(str(url))
    return parts.scheme, parts.hostname
