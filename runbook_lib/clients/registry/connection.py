"""HTTP to one repository of an OCI registry: sign-in, time limits, few retries, bounded answers, a cache.

The part of ``registry`` that knows no manifest.  Standards: the OCI distribution specification and the token
challenge of the distribution project, which nvcr.io and most others give.
"""

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from runbook_lib.clients.registry.cache import Cache
from runbook_lib.clients.registry.challenge import KNOWN, Challenge, is_private, token, web_address
from runbook_lib.clients.registry.credentials import CredentialLookup
from runbook_lib.errors import CannotTell, RunbookError, Unreachable
from runbook_lib.transport import urls
from runbook_lib.transport.client import Client, NoReply, Reply, is_same_origin, is_temporary, retry_after
from runbook_lib.transport.limits import TooLarge, strict

_LARGEST = 4 * 2**20  # bytes; the specification lets a registry refuse larger manifests
_TIMEOUT = httpx.Timeout(10, connect=5)  # seconds
_LIMIT = 30.0  # seconds for one answer from first to last byte, however it drips
_PAUSES = (0.5, 1.5)  # seconds before the second and the third attempt
_PATIENCE = 10.0  # seconds; a registry that asks for more is asked again by the person, not by us
_KEPT = ("Content-Type", "Docker-Content-Digest", "ETag", "Link")  # headers that the cache keeps
_ASKS_TOKEN = {"Accept": "application/json"}
_CHALLENGE_AGE = 24 * 3600.0  # seconds for which a challenge is believed without being refused first


@dataclass(frozen=True)
class RegistryAnswer(Reply):
    """A registry's reply.

    ``cached``: from the cache, without a request; ``age``: seconds since the registry gave it, 0 for now or for content
    by digest.
    """

    cached: bool = False
    age: float = 0.0

    def json(self) -> Any:
        """Return the body as JSON.  Raises Unreachable if it is none, and CannotTell for too many values."""
        try:
            return strict(self.body)
        except TooLarge:
            raise CannotTell(f"{self.url.host} sent more values than an answer of a registry has: not read.") from None
        except ValueError:
            raise Unreachable(f"{self.url.host} answered something that is not JSON. Try again later.") from None


class Connection:
    """GET requests to one repository.

    ``find`` is called when the registry wants credentials, as well-known ones always do; what it returns goes to the
    registry and to the token service that it names, over TLS, and nowhere else.  A registry at plain HTTP gets nothing,
    nor does a token service that it names: anybody may have answered in its place.  An answer in the cache of at most
    ``max_age`` seconds is not asked for again.
    """

    def __init__(
        self,
        address: httpx.URL,
        repository: str,
        find: Callable[[], CredentialLookup] = CredentialLookup,
        *,
        cache: Cache | None = None,
        max_age: float = 0.0,
        limit: float | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.address = address
        self.repository = repository
        self._find = find
        self._cache = cache
        self._max_age = max_age
        self._authorization: dict[str, str] = {}
        self._signing = threading.Lock()
        self._prepared = False
        self._credentials: CredentialLookup | None = None
        self._client = Client(
            address, timeout=_TIMEOUT, deadline=_LIMIT if limit is None else limit, largest=_LARGEST, pauses=_PAUSES,
            patience=_PATIENCE, transport=transport, sleep=sleep,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """Host and repository, for sentences."""
        return f"{self.address.netloc.decode()}/{self.repository}"

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, path: str, accept: str) -> RegistryAnswer | None:
        """Return the answer to GET ``/v2/<repository>/<path>``; None if the registry says that there is no such thing.

        Raises Unreachable for whatever is no answer of a registry, CannotTell for one that does not end.
        """
        cached = self.remembered(path)
        if cached and (_digest(path) or 0 <= cached.age <= self._max_age):
            return cached
        url = self.address.join(f"/v2/{self.repository}/{path}")
        headers = {"Accept": accept}
        if cached and "ETag" in cached.headers:
            headers["If-None-Match"] = cached.headers["ETag"]
        answer = self._signed_in(url, headers)
        if answer.status in (401, 403):
            raise Unreachable(f"{self.name} refuses to be read (HTTP {answer.status}). {self._advice()}")
        if answer.status == 304 and cached:
            return RegistryAnswer(200, url, cached.headers, cached.body)
        if "html" in answer.headers.get("Content-Type", ""):
            raise Unreachable(
                f"{answer.url.host} answered with a web page (HTTP {answer.status}) instead of a registry's answer. "
                "A proxy or a sign-in page may stand in between, or RUNBOOK_REGISTRY may name the wrong address."
            )
        if answer.status == 404:
            if cached and self._cache:
                self._cache.forget(str(url))
            return None
        if answer.status != 200:
            raise Unreachable(f"{self.name} answered HTTP {answer.status}, which we did not expect. Try again later.")
        return answer

    def remembered(self, path: str) -> RegistryAnswer | None:
        """Return the last answer that made sense, without a request."""
        if self._cache is None:
            return None
        url = self.address.join(f"/v2/{self.repository}/{path}")
        if digest := _digest(path):
            body = self._cache.content(digest)
            return None if body is None else RegistryAnswer(200, url, httpx.Headers(), body, cached=True)
        entry = self._cache.entry(str(url))
        if entry is None:
            return None
        return RegistryAnswer(200, url, httpx.Headers(dict(entry.headers)), entry.body, cached=True, age=entry.age)

    def keep(self, path: str, answer: RegistryAnswer) -> None:
        """Store an answer that has proved to make sense."""
        if self._cache is None or answer.cached:
            return
        if digest := _digest(path):
            self._cache.keep_content(digest, answer.body)
        else:
            cached = {name: answer.headers[name] for name in _KEPT if name in answer.headers}
            self._cache.keep(str(self.address.join(f"/v2/{self.repository}/{path}")), answer.body, cached)

    def _signed_in(self, address: httpx.URL, headers: Mapping[str, str]) -> RegistryAnswer:
        """Return the answer to a request, after signing in if the registry wants that."""
        if not self._authorization:
            self._prepare()
        sent = self._authorization
        answer = self._ask(address, headers, sent)
        # A challenge from where a redirect led is not the registry's: it gets nothing.
        if answer.status != 401 or not is_same_origin(answer.url, self.address):
            return answer
        with self._signing:
            if self._authorization is sent:  # else another thread has signed in meanwhile
                header = answer.headers.get("WWW-Authenticate", "")
                self._authorization = self._sign_in(header)
                if self._cache and is_private(self.address):
                    self._cache.keep(f"challenge {self.address}", header.encode(), {})
        return self._ask(address, headers, self._authorization)

    def _prepare(self) -> None:
        """Save the round trip that only fetches the challenge, where that is known."""
        key = f"challenge {self.address}"
        with self._signing:
            if self._authorization or self._prepared:
                return
            self._prepared = True
            cached = self._cache.entry(key) if self._cache and is_private(self.address) else None
            cached = cached if cached and 0 <= cached.age <= _CHALLENGE_AGE else None
            known = cached.body.decode("utf-8", "replace") if cached else KNOWN.get(self.address.netloc.decode(), "")
            if not known:
                return
            try:
                self._authorization = self._sign_in(known, retry=False)
            except Unreachable:
                if self._cache:
                    self._cache.forget(key)

    def _sign_in(self, text: str, *, retry: bool = True) -> dict[str, str]:
        """Do as the challenge says; credentials are sent over TLS only, for a challenge that came over TLS."""
        challenge = Challenge.parse(text)
        credential = self._find_credentials().credential if is_private(self.address) else None
        if challenge.password and credential:
            return {"Authorization": credential.header}
        if challenge.realm is None:
            wanted = "password" if challenge.password else "sign-in of a kind that we do not know"
            raise Unreachable(f"{self.name} asks for a {wanted}. {self._advice()}")
        secret = {"Authorization": credential.header} if credential and is_private(challenge.realm) else {}
        asked = challenge.request(self.repository)
        answer = self._ask(asked, _ASKS_TOKEN, secret, follow=False, retry=retry)
        if answer.status != 200:
            raise Unreachable(
                f"{asked.host} gives no token for {self.name} (HTTP {answer.status}). {self._advice(asked)}"
            )
        granted = token(answer.json())
        if granted is None:
            raise Unreachable(f"{asked.host} gave no usable token for {self.name}. Try again later.")
        return {"Authorization": f"Bearer {granted}"}

    def _find_credentials(self) -> CredentialLookup:
        if self._credentials is None:
            self._credentials = self._find()
        return self._credentials

    def _advice(self, asked: httpx.URL | None = None) -> str:
        """Return what may help after a refusal; ``asked``: the token service that refused."""
        host = self.address.netloc.decode()
        for url in (self.address, asked):
            if url and not is_private(url):
                return (
                    f"No credentials were sent, for {url.netloc.decode()} is asked over plain HTTP, where anybody may "
                    "read them or answer in its place: name an https:// address of the registry in RUNBOOK_REGISTRY."
                )
        lookup = self._find_credentials()
        problem = f"{lookup.problem} " if lookup.problem else ""
        if not lookup.credential:
            return (
                f"{problem}If the image is not public, set NGC_API_KEY to a key that may read it, or at a registry "
                f"other than NVIDIA's: docker login {host}."
            )
        if lookup.credential.source == "NGC_API_KEY":
            return "Renew NGC_API_KEY, or unset it: a public image needs none."
        return (
            f"The credentials come from {lookup.credential.source}: docker login {host} renews them, docker "
            f"logout {host} removes them; a public image needs none."
        )

    def _ask(
        self, url: httpx.URL, headers: Mapping[str, str], secret: Mapping[str, str], *, follow: bool = True,
        retry: bool = True,
    ) -> RegistryAnswer:  # fmt: skip
        """Return the answer to GET of any status that is not temporary.  ``secret`` goes to this origin alone."""
        try:
            reply = self._client.request("GET", url, headers, secret=secret, follow=follow, retry=retry)
        except NoReply as error:
            raise self._unreachable(url, str(error)) from error
        except TooLarge as error:
            raise CannotTell(f"{url.host} sends more than {_LARGEST} bytes for {self.name}: not read.") from error
        if is_temporary(reply.status):
            raise self._unreachable(url, f"it answers HTTP {reply.status}", retry_after(reply.headers))
        return RegistryAnswer(reply.status, reply.url, reply.headers, reply.body)

    def _unreachable(self, url: httpx.URL, problem: str, pause: float = 0.0) -> Unreachable:
        later = f" It asks to be left alone for {pause:.0f} s." if pause else ""
        return Unreachable(
            f"The registry {self.name} could not be read: asked at {url.host}, {problem}.{later} "
            "Try again later, check network and proxy, or name another address for it in RUNBOOK_REGISTRY."
        )


def parse_address(text: str) -> httpx.URL:
    """Return the address in RUNBOOK_REGISTRY.  Raises RunbookError without the text, which may hold a password."""
    address = web_address(text)
    if address is None or not urls.is_address(text) or address.path != "/":
        raise RunbookError(
            "RUNBOOK_REGISTRY is not the address of a registry: expected scheme, host and port alone, such as "
            "http://127.0.0.1:5001 or https://mirror.example.com, or nvcr.io=https://mirror.example.com for one alone."
        )
    return address


def _digest(path: str) -> str:
    """Return the digest that a path asks for; empty for a name, which may mean something else tomorrow."""
    match = re.fullmatch(r"(?:manifests|blobs)/(sha(?:256|512):[0-9a-f]+)", path)
    return match[1] if match else ""
