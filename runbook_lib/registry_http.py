"""HTTP to one repository of an OCI registry: sign-in by token, time limits, few retries, bounded answers.

The part of ``registry`` that knows no manifest.  Standards: the OCI distribution specification and the token
challenge of the distribution project, which nvcr.io and most others give.
"""

import base64
import email.utils
import json
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from runbook_lib.errors import CannotTell, RunbookError, Unreachable

_LARGEST = 4 * 2**20  # bytes; the specification lets a registry refuse larger manifests
_TIMEOUT = httpx.Timeout(10, connect=5)  # seconds
_PAUSES = (0.5, 1.5)  # seconds before the second and the third attempt
_PATIENCE = 10.0  # seconds; a registry that asks for more is asked again by the person, not by us
_TEMPORARY = (429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Answer:
    """An HTTP answer, read to its end; ``url`` is where redirects led."""

    status: int
    url: httpx.URL
    headers: httpx.Headers
    body: bytes

    def json(self) -> Any:
        """The body as JSON; raises Unreachable if it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise Unreachable(f"{self.url.host} answered something that is not JSON. Try again later.") from None


class Connection:
    """GET requests to one repository.  ``key``, if any, goes to the registry's own token service and nowhere else."""

    def __init__(
        self,
        address: httpx.URL,
        repository: str,
        key: str = "",
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.address = address
        self.repository = repository
        self._key = key
        self._sleep = sleep
        self._authorization: dict[str, str] = {}
        # httpx drops Authorization when a redirect leaves the host: blobs often live on another.
        self._client = httpx.Client(timeout=_TIMEOUT, follow_redirects=True, max_redirects=5, transport=transport)

    @property
    def name(self) -> str:
        """Host and repository, for sentences."""
        return f"{self.address.netloc.decode()}/{self.repository}"

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, path: str, accept: str) -> Answer | None:
        """GET ``/v2/<repository>/<path>``; None when the registry says that there is no such thing.

        Raises Unreachable for whatever is no answer of a registry, CannotTell for one that does not end.
        """
        url = self.address.join(f"/v2/{self.repository}/{path}")
        answer = self._ask(url, {"Accept": accept, **self._authorization})
        # A challenge from where a redirect led is not the registry's: it gets nothing.
        if answer.status == 401 and _origin(answer.url) == _origin(self.address):
            self._authorization = self._sign_in(answer)
            answer = self._ask(url, {"Accept": accept, **self._authorization})
        if answer.status in (401, 403):
            raise Unreachable(f"{self.name} refuses to be read (HTTP {answer.status}). {self._key_advice()}")
        if "html" in answer.headers.get("Content-Type", ""):
            raise Unreachable(
                f"{answer.url.host} answered with a web page (HTTP {answer.status}) instead of a registry's answer. "
                "A proxy or a sign-in page may stand in between, or RUNBOOK_REGISTRY may name the wrong address."
            )
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise Unreachable(f"{self.name} answered HTTP {answer.status}, which we did not expect. Try again later.")
        return answer

    def _sign_in(self, challenged: Answer) -> dict[str, str]:
        """Get a token as the challenge says; the key is sent over TLS only."""
        challenge = re.search(r"\bBearer\s+(.*)", challenged.headers.get("WWW-Authenticate", ""), re.IGNORECASE)
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge[1])) if challenge else {}
        realm = _url(fields.get("realm", ""))
        if realm is None:
            raise Unreachable(f"{self.name} asks for a sign-in of a kind that we do not know. {self._key_advice()}")
        headers = {"Accept": "application/json"}
        if self._key and (realm.scheme == "https" or realm.host in ("127.0.0.1", "::1", "localhost")):
            headers["Authorization"] = "Basic " + base64.b64encode(f"$oauthtoken:{self._key}".encode()).decode()
        # Our own scope, not the challenge's: that may ask for the right to push.
        query = {"service": fields.get("service", ""), "scope": f"repository:{self.repository}:pull"}
        answer = self._ask(realm.copy_merge_params(query), headers, follow=False)
        if answer.status != 200:
            raise Unreachable(
                f"{realm.host} gives no token for {self.name} (HTTP {answer.status}). {self._key_advice()}"
            )
        document = answer.json()
        granted = document if isinstance(document, dict) else {}
        token = granted.get("token") or granted.get("access_token")
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise Unreachable(f"{realm.host} gave no usable token for {self.name}. Try again later.")
        return {"Authorization": f"Bearer {token}"}

    def _key_advice(self) -> str:
        if self._key:
            return "Renew NGC_API_KEY, or unset it: a public image needs none."
        return "If the image is not public, set NGC_API_KEY to a key that may read it."

    def _ask(self, url: httpx.URL, headers: Mapping[str, str], *, follow: bool = True) -> Answer:
        """GET, tried again when that may help.  Any status that is not temporary is an answer."""
        for pause in (*_PAUSES, None):
            asked = 0.0
            try:
                answer = self._once(url, headers, follow)
            except httpx.RequestError as error:
                problem, again = _explain(error), not _is_tls(error)
            else:
                if answer.status not in _TEMPORARY:
                    return answer
                problem, again = f"it answers HTTP {answer.status}", True
                asked = _retry_after(answer.headers.get("Retry-After", ""))
            if pause is None or not again or asked > _PATIENCE:
                break
            self._sleep(max(pause, asked))
        later = f" It asks to be left alone for {asked:.0f} s." if asked else ""
        raise Unreachable(
            f"The registry {self.name} could not be read: asked at {url.host}, {problem}.{later} "
            "Try again later, check network and proxy, or name another address for it in RUNBOOK_REGISTRY."
        )

    def _once(self, url: httpx.URL, headers: Mapping[str, str], follow: bool) -> Answer:
        sent = {**headers, "Accept-Encoding": "identity", "User-Agent": "base-image-runbook"}
        request = self._client.build_request("GET", url, headers=sent)
        response = self._client.send(request, stream=True, follow_redirects=follow)
        try:
            body = b""
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > _LARGEST:
                    raise CannotTell(f"{response.url.host} sent more than {_LARGEST} bytes for {self.name}: not read.")
        finally:
            response.close()
        return Answer(response.status_code, response.url, response.headers, body)


def parse_address(text: str) -> httpx.URL:
    """The value of RUNBOOK_REGISTRY; raises RunbookError, which does not repeat it: it may hold a password."""
    url = _url(text)
    if url is None or url.userinfo or url.path != "/" or url.query or url.fragment:
        raise RunbookError(
            "RUNBOOK_REGISTRY is not the address of a registry: expected scheme, host and port alone, "
            "such as http://127.0.0.1:5001 or https://mirror.example.com."
        )
    return url


def _url(text: str) -> httpx.URL | None:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return None
    return url if url.scheme in ("http", "https") and url.host else None


def _origin(url: httpx.URL) -> tuple[str, bytes]:
    return url.scheme, url.netloc


def _retry_after(value: str) -> float:
    """Seconds that a Retry-After header asks for (RFC 9110: a number or a date); 0 for none."""
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0


def _is_tls(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


def _explain(error: httpx.RequestError) -> str:
    if _is_tls(error):
        return f"its TLS certificate is not accepted ({error}); a company's own CA goes into SSL_CERT_FILE"
    if isinstance(error, httpx.TimeoutException):
        return "it did not answer in time"
    if isinstance(error, httpx.TooManyRedirects):
        return "it redirects without end"
    return f"the connection failed ({str(error) or type(error).__name__})"
