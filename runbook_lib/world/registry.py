"""Reading of an OCI registry: tags, digests, platforms and configurations of images.

Content that is read by digest is checked against that digest.  Sources: the OCI image and distribution specifications,
and the token challenge of the distribution project, used by nvcr.io and most others.
"""

import base64
import hashlib
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import httpx

from runbook_lib.errors import CannotTell, RunbookError, Unreachable
from runbook_lib.images.reference import LONGEST_TAG, Image, ImageRef, PlatformImage
from runbook_lib.world.api import Api
from runbook_lib.world.replies import items_of, text, whole_number
from runbook_lib.world.transport import urls
from runbook_lib.world.transport.http import NoReply, is_same_origin, join

_OCI, _DOCKER = "application/vnd.oci.image", "application/vnd.docker.distribution"
_INDEXES = (f"{_OCI}.index.v1+json", f"{_DOCKER}.manifest.list.v2+json")
_MANIFESTS = (f"{_OCI}.manifest.v1+json", f"{_DOCKER}.manifest.v2+json")
_ACCEPT = {"Accept": ", ".join((*_INDEXES, *_MANIFESTS, "application/json"))}
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_MEMBERS, _TAGS, _PAGES = 50, 100_000, 100  # more platforms, tags and pages of tags than any real image has
_LISTING = 60.0  # seconds for all pages of tags
_HUB = "registry-1.docker.io"  # the host of Docker's own registry, docker.io


class _Missing(CannotTell):
    """A tag, manifest or configuration that the registry does not have."""


@dataclass(frozen=True)
class _Manifest:
    """An image's ``size`` in bytes and the digest of its configuration, or the digests of an index's images."""

    config: str = ""
    size: int = 0
    images: tuple[str, ...] | None = None

    @classmethod
    def of(cls, document: Any) -> Self:
        if _is_index(document):
            return cls(images=tuple(_digest(it["digest"]) for it in items_of(document, "manifests") if _is_image(it)))
        parts = [document["config"], *items_of(document, "layers")]
        return cls(_digest(parts[0]["digest"]), sum(whole_number(part["size"]) for part in parts))


class OciRegistry(Api):
    """One repository, at RUNBOOK_REGISTRY or else at its own registry.  ``world.ports.Registry`` says what is returned.

    RUNBOOK_REGISTRY is the URL of a mirror, for every registry.  NGC_API_KEY is for images of nvcr.io, which issued it;
    at the mirror, RUNBOOK_REGISTRY_PASSWORD (``user:password``) comes first.  The login goes to the registry and to its
    token service, when they ask for it, over TLS, and nowhere else.  A registry at plain HTTP gets nothing, nor does
    its token service: somebody else may have replied in its place.
    """

    variable = "RUNBOOK_REGISTRY"
    retry = "Try again later, check network and proxy, or set RUNBOOK_REGISTRY to another URL of the registry."

    def __init__(
        self, ref: ImageRef, env: Mapping[str, str] = os.environ, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        """Prepare for the repository of ``ref``.  Sends nothing yet.  Raises RunbookError for a mirror without URL."""
        mirror = env.get("RUNBOOK_REGISTRY", "").strip()
        hub = ref.registry == "docker.io"
        address = _parse_address(mirror) if mirror else httpx.URL(f"https://{_HUB if hub else ref.registry}/")
        self._repository = f"library/{ref.repository}" if hub and "/" not in ref.repository else ref.repository
        self._login, self._source = "", ""
        if ref.registry == "nvcr.io" and (key := env.get("NGC_API_KEY", "").strip()):
            self._login, self._source = f"$oauthtoken:{key}", "NGC_API_KEY"
        if mirror and (password := env.get("RUNBOOK_REGISTRY_PASSWORD", "").strip()):
            self._login, self._source = password, "RUNBOOK_REGISTRY_PASSWORD"
        self.name = f"{address.netloc.decode()}/{self._repository}"
        super().__init__(self.name, str(address.join(f"/v2/{self._repository}")), "", {}, transport)

    def image(self, reference: str) -> Image | None:
        try:
            manifest, digest = self._manifest(reference)
        except _Missing:
            return None
        if manifest.images is None:
            return Image(digest, dict([self._platform(manifest, digest)]))
        if not 0 < len(manifest.images) <= _MEMBERS:
            raise CannotTell(
                f"{self.name}:{reference} has {len(manifest.images)} platforms, unlike any usable image.",
                "Choose another tag, or report it to the publisher of the image.",
            )
        # If there are two for a platform, container engines use the first.
        return Image(digest, dict(self._platform(*self._manifest(it)) for it in reversed(manifest.images)))

    def tags(self) -> list[str]:
        action, path, tags, end = "list the tags", "/tags/list?n=1000", list[str](), time.monotonic() + _LISTING
        for _ in range(_PAGES):
            try:
                reply = self._request(action, "GET", path)
            except _Missing:
                return []
            tags += self._build(action, reply, _tags_of)
            if len(tags) > _TAGS:
                break
            if not (following := reply.links.get("next", {}).get("url", "")):
                return tags
            if time.monotonic() > end:
                raise Unreachable(
                    f"The list of tags of {self.name} did not end within {_LISTING:g} s, after {len(tags)} tags.",
                    "Try again later.",
                )
            path = f"/tags/list?{join(reply.url, following).query.decode()}"  # at home, wherever the link leads
        raise CannotTell(f"The list of tags of {self.name} has more than {_TAGS} entries or {_PAGES} pages.")

    def _manifest(self, reference: str) -> tuple[_Manifest, str]:
        """Return the manifest or index of a tag or a digest, with its digest.  Raises _Missing."""
        wanted = _digest(reference) if ":" in reference else reference
        action = f"read {wanted}"
        reply = self._request(action, "GET", f"/manifests/{wanted}")
        self._build(action, reply, _require_current)
        computed = "sha256:" + hashlib.sha256(reply.content).hexdigest()
        digest = wanted if ":" in wanted else _digest(reply.headers.get("Docker-Content-Digest", computed))
        self._verify(reply, digest)
        return self._build(action, reply, _Manifest.of), digest

    def _platform(self, manifest: _Manifest, digest: str) -> tuple[str, PlatformImage]:
        action = f"read the configuration {manifest.config}"
        reply = self._request(action, "GET", f"/blobs/{manifest.config}")
        self._verify(reply, manifest.config)
        return self._build(action, reply, partial(_platform_of, digest=digest, size=manifest.size))

    def _verify(self, reply: httpx.Response, digest: str) -> None:
        algorithm, _, expected = digest.partition(":")
        if hashlib.new(algorithm, reply.content).hexdigest() != expected:
            raise CannotTell(
                f"The reply of {reply.url.host} for {self.name}@{digest} has a different digest: it is damaged or was "
                "changed in transit.",
                "Try again; if it happens again, do not use this image, and report it.",
            )

    def _reply(self, method: str, url: httpx.URL, content: Any) -> httpx.Response:
        reply = self._client.request(method, url, _ACCEPT, secret=self._secret)
        # A challenge from a redirect's target is not the registry's, so it gets nothing.
        if reply.status_code == 401 and is_same_origin(reply.url, self._url):
            self._secret = self._sign_in(reply.headers.get("WWW-Authenticate", ""))
            reply = self._client.request(method, url, _ACCEPT, secret=self._secret)
        return reply

    def _message(self, reply: httpx.Response | None) -> str:
        """Return nothing: a registry's own words might repeat the login."""
        return ""

    def _refusal(self, problem: str, reply: httpx.Response, message: str) -> RunbookError:
        status, is_page = reply.status_code, "html" in reply.headers.get("Content-Type", "")
        if status == 404 and not is_page:
            return _Missing(f"{problem} does not have it.")
        if status in (401, 403):
            return Unreachable(f"{problem} refuses read access (HTTP {status}).", self._advice())
        found = "a web page" if is_page else "no reply of a registry"
        return Unreachable(
            f"{problem} sent {found} (HTTP {status}). There may be a proxy or a login page in between, or "
            "RUNBOOK_REGISTRY may be wrong."
        )

    def _sign_in(self, challenge: str) -> dict[str, str]:
        """Return the header that a challenge asks for.

        Credentials are sent over TLS only, for a challenge that came over TLS.
        """
        header = {}
        if self._login and _is_private(self._url):
            header["Authorization"] = "Basic " + base64.b64encode(self._login.encode()).decode()
        bearer = re.search(r"\bBearer\s+(.*)", challenge, re.IGNORECASE)
        # Another challenge may follow, so the first field of a name is this one's.
        fields = dict(reversed(re.findall(r'(?<!\w)(\w+)="([^"]*)"', bearer[1]))) if bearer else {}
        if "realm" not in fields:
            wants_password = re.search(r"\bBasic\b", challenge, re.IGNORECASE)
            if wants_password and header:
                return header
            kind = "a password" if wants_password else "an unknown kind of login"
            raise Unreachable(f"{self.name} requires {kind}.", self._advice())
        # Our own scope, because the challenge's may include pushing.
        scope = f"repository:{self._repository}:pull"
        url = join(self._url, fields["realm"]).copy_merge_params({"service": fields.get("service", ""), "scope": scope})
        secret = header if _is_private(url) else {}
        try:
            reply = self._client.request("GET", url, {"Accept": "application/json"}, secret=secret, follow=False)
        except NoReply as error:
            raise Unreachable(f"{self.name} requires a token of {url.host}: {error}.", self.retry) from error
        if reply.status_code != 200:
            raise Unreachable(f"{url.host} issued no token (HTTP {reply.status_code}).", self._advice(url))
        return {"Authorization": f"Bearer {self._build('sign in', reply, _token_of)}"}

    def _advice(self, token_service: httpx.URL | None = None) -> str:
        """Return advice after a refusal, by the token service if one is given."""
        host = self._url.netloc.decode()
        for url in (self._url, token_service):
            if url and not _is_private(url):
                return (
                    f"No credentials were sent, because {url.netloc.decode()} uses plain HTTP, where anybody "
                    "may read them or answer in its place: set RUNBOOK_REGISTRY to an https:// address of the registry."
                )
        if self._login:
            return f"Renew {self._source}, or unset it: a public image needs none."
        return (
            "If the image is not public, set NGC_API_KEY to a key with access; for another registry or a mirror, "
            f"RUNBOOK_REGISTRY to https://{host} and RUNBOOK_REGISTRY_PASSWORD to user:password."
        )


def _digest(digest: str) -> str:
    """Return a digest.  Raises CannotTell for other text."""
    if not _DIGEST.fullmatch(digest):
        raise CannotTell(f"The registry uses an invalid digest: {digest[:100]!r}.")
    return digest


def _is_index(document: Any) -> bool:
    return document.get("mediaType") in _INDEXES or "manifests" in document


def _require_current(document: Any) -> None:
    """Raise CannotTell for a manifest of the old schema, whose digest is not that of the reply."""
    if document.get("schemaVersion") != 2 and not _is_index(document):
        raise CannotTell(
            "The manifest has an old schema.",
            "Pull the image and push it with a current Docker or Skopeo, which write the new schema, or choose another "
            "image.",
        )


def _is_image(descriptor: Any) -> bool:
    # Attestations are listed beside the images, for a platform called unknown (BuildKit's convention).
    return descriptor.get("mediaType") in _MANIFESTS and (descriptor.get("platform") or {}).get("os") != "unknown"


def _platform_of(config: Any, digest: str, size: int) -> tuple[str, PlatformImage]:
    """Return an image's platform, from its configuration."""
    inner = config.get("config") or {}  # images from scratch have null
    env = dict(str(entry).partition("=")[::2] for entry in items_of(inner.get("Env") or []))
    labels = {str(name): str(value) for name, value in (inner.get("Labels") or {}).items()}
    system, architecture = text(config["os"]), text(config["architecture"])
    return architecture if system == "linux" else f"{system}/{architecture}", PlatformImage(digest, size, env, labels)


def _tags_of(document: Any) -> list[str]:
    """Return the tags of a page."""
    # Distribution returns null after the last tag was removed.
    tags = [] if document["tags"] is None else items_of(document, "tags")
    if not all(isinstance(tag, str) and len(tag) <= LONGEST_TAG for tag in tags):
        raise ValueError(f"a tag that is not a text of at most {LONGEST_TAG} characters")
    return tags


def _token_of(document: Any) -> str:
    """Return the token that a token service has issued."""
    issued = document if isinstance(document, dict) else {}
    token = issued.get("token") or issued.get("access_token")
    if not isinstance(token, str) or not re.fullmatch(r"[!-~]+", token):
        raise Unreachable("The registry's token service gave no usable token.", "Try again later.")
    return token


def _is_private(url: httpx.URL) -> bool:
    return urls.is_private(url.scheme, url.host)


def _parse_address(text: str) -> httpx.URL:
    """Return the URL in RUNBOOK_REGISTRY.  Raises RunbookError without the text, which may contain a password."""
    if not urls.is_address(text) or (address := httpx.URL(text)).path != "/":
        raise RunbookError(
            "RUNBOOK_REGISTRY is not the URL of a registry: expected only scheme, host and port, such as "
            "https://mirror.example.com or http://127.0.0.1:5001."
        )
    return address
