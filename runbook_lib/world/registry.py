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
from typing import Any, TypeVar

import httpx

from runbook_lib.errors import CannotTell, RunbookError, Unreachable
from runbook_lib.images.reference import LONGEST_TAG, Image, ImageRef, PlatformImage
from runbook_lib.world.replies import parse_json
from runbook_lib.world.transport import urls
from runbook_lib.world.transport.http import Client, NoReply, is_same_origin, join

_OCI, _DOCKER = "application/vnd.oci.image", "application/vnd.docker.distribution"
_INDEXES = (f"{_OCI}.index.v1+json", f"{_DOCKER}.manifest.list.v2+json")
_MANIFESTS = (f"{_OCI}.manifest.v1+json", f"{_DOCKER}.manifest.v2+json")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_MEMBERS, _TAGS = 50, 100_000  # more platforms and tags than any real image has
_LISTING = 60.0  # seconds for all pages of tags
_HUB = "registry-1.docker.io"  # the host of Docker's own registry, docker.io
_LARGEST = 4 * 2**20  # bytes; the specification lets a registry refuse larger manifests

T = TypeVar("T")


class OciRegistry:
    """One repository, at RUNBOOK_REGISTRY or else at its own registry.  ``world.ports.Registry`` says what is returned.

    RUNBOOK_REGISTRY is the URL of a mirror, for every registry.  NGC_API_KEY is for images of nvcr.io, which issued it;
    at the mirror, RUNBOOK_REGISTRY_PASSWORD (``user:password``) comes first.  The login goes to the registry and to its
    token service, when they ask for it, over TLS, and nowhere else.  A registry at plain HTTP gets nothing, nor does
    its token service: somebody else may have replied in its place.
    """

    def __init__(
        self, ref: ImageRef, env: Mapping[str, str] = os.environ, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        """Prepare for the repository of ``ref``.  Sends nothing yet.  Raises RunbookError for a mirror without URL."""
        mirror = env.get("RUNBOOK_REGISTRY", "").strip()
        hub = ref.registry == "docker.io"
        self.address = _parse_address(mirror) if mirror else httpx.URL(f"https://{_HUB if hub else ref.registry}/")
        self.repository = f"library/{ref.repository}" if hub and "/" not in ref.repository else ref.repository
        self._login, self._source = "", ""
        if ref.registry == "nvcr.io" and (key := env.get("NGC_API_KEY", "").strip()):
            self._login, self._source = f"$oauthtoken:{key}", "NGC_API_KEY"
        if mirror and (password := env.get("RUNBOOK_REGISTRY_PASSWORD", "").strip()):
            self._login, self._source = password, "RUNBOOK_REGISTRY_PASSWORD"
        self._authorization: dict[str, str] = {}
        self._client = Client(self.address, _LARGEST, transport)

    @property
    def name(self) -> str:
        """Host and repository, for messages."""
        return f"{self.address.netloc.decode()}/{self.repository}"

    def image(self, reference: str) -> Image | None:
        manifest = self._manifest(reference)
        if manifest is None:
            return None
        document, digest = manifest
        if not _is_index(document):
            return Image(digest, dict([self._platform(document, digest)]))
        members = [member for member in self._take(document, "manifests", list) if _is_image(member)]
        if not 0 < len(members) <= _MEMBERS:
            raise CannotTell(
                f"{self.name}:{reference} has {len(members)} platforms, unlike any usable image. "
                "Choose another tag, or report it to the publisher of the image."
            )
        # If there are two for a platform, container engines use the first.
        return Image(digest, dict(map(self._member, reversed(members))))

    def tags(self) -> list[str]:
        path, tags, end = "tags/list?n=1000", list[str](), time.monotonic() + _LISTING
        while (answer := self._get(path, "application/json")) is not None:
            document = _document_of(answer)
            # Distribution returns null after the last tag was removed.
            if document != {"name": self.repository, "tags": None}:
                listed = self._take(document, "tags", list)
                if not all(isinstance(tag, str) and len(tag) <= LONGEST_TAG for tag in listed):
                    raise CannotTell(f"{self.name} lists a tag that is not a text of at most {LONGEST_TAG} characters.")
                tags += listed
            if len(tags) > _TAGS:
                raise CannotTell(f"The list of tags of {self.name} has more than {_TAGS} entries.")
            if not (following := answer.links.get("next", {}).get("url", "")):
                return tags
            target = join(answer.url, following)
            if target.host != answer.url.host:
                raise CannotTell(f"The list of tags of {self.name} continues on another host, {target.host}: not read.")
            if time.monotonic() > end:
                raise Unreachable(
                    f"The list of tags of {self.name} did not end within {_LISTING:g} s, after {len(tags)} tags. "
                    "Try again later."
                )
            path = f"tags/list?{target.query.decode()}"
        return []

    def _member(self, descriptor: Mapping[str, Any]) -> tuple[str, PlatformImage]:
        digest = self._take(descriptor, "digest", str)
        manifest = self._manifest(digest)
        if manifest is None:
            raise CannotTell(f"{self.name} lists {digest} in an index and does not have it.")
        return self._platform(manifest[0], digest)

    def _platform(self, manifest: Mapping[str, Any], digest: str) -> tuple[str, PlatformImage]:
        described = self._take(manifest, "config", dict)
        parts = [described, *self._take(manifest, "layers", list)]
        config_digest = self._digest(self._take(described, "digest", str))
        answer = self._get(f"blobs/{config_digest}", "*/*")
        if answer is None:
            raise CannotTell(f"{self.name}@{digest} refers to a config that the registry does not have.")
        self._verify(answer, config_digest)
        config = _document_of(answer)
        system, architecture = (self._take(config, field, str) for field in ("os", "architecture"))
        inner = self._take(config, "config", dict, default={})
        env, labels = self._take(inner, "Env", list, default=[]), self._take(inner, "Labels", dict, default={})
        sizes = [self._take(part, "size", int) for part in parts]
        if not all(0 <= size < 2**63 for size in sizes):
            raise CannotTell(f"{self.name} has a part of an image with an invalid size.")
        image = PlatformImage(
            digest, sum(sizes), dict(str(entry).partition("=")[::2] for entry in env),
            {str(name): str(value) for name, value in labels.items()},
        )  # fmt: skip
        return architecture if system == "linux" else f"{system}/{architecture}", image

    def _manifest(self, reference: str) -> tuple[Mapping[str, Any], str] | None:
        """Return the manifest or index of a tag or a digest, with its digest, or None if there is none."""
        by_digest = ":" in reference
        wanted = self._digest(reference) if by_digest else reference
        answer = self._get(f"manifests/{wanted}", ", ".join(_INDEXES + _MANIFESTS))
        if answer is None:
            return None
        document = _document_of(answer)
        if not isinstance(document, dict):
            raise CannotTell(f"The reply of {self.name} for {reference} is not a manifest.")
        if document.get("schemaVersion") != 2 and not _is_index(document):
            # Before the digest check, because the digest of an incomplete reply differs.
            raise CannotTell(
                f"The manifest of {self.name}:{reference} has an old schema.",
                "Pull the image and push it with a current Docker or Skopeo, which write the new schema, or choose "
                "another image.",
            )
        computed = "sha256:" + hashlib.sha256(answer.content).hexdigest()
        digest = wanted if by_digest else self._digest(answer.headers.get("Docker-Content-Digest", computed))
        self._verify(answer, digest)
        return document, digest

    def _digest(self, text: str) -> str:
        if not _DIGEST.fullmatch(text):
            raise CannotTell(f"{self.name} uses an invalid digest: {text[:100]!r}.")
        return text

    def _verify(self, answer: httpx.Response, digest: str) -> None:
        algorithm, _, expected = digest.partition(":")
        if hashlib.new(algorithm, answer.content).hexdigest() != expected:
            raise CannotTell(
                f"The reply of {answer.url.host} for {self.name}@{digest} has a different digest: it is damaged or was "
                "changed in transit.",
                "Try again; if it happens again, do not use this image, and report it.",
            )

    def _take(self, document: Any, key: str, kind: type[T], default: T | None = None) -> T:
        value = None
        if isinstance(document, dict):
            value = document.get(key)
            if value is None:
                value = default  # images from scratch have "Env": null
        if not isinstance(value, kind):
            raise CannotTell(f"{self.name} sent a document without a valid {key!r}, which OCI requires.")
        return value

    def _get(self, path: str, accept: str) -> httpx.Response | None:
        """Return the reply to GET ``/v2/<repository>/<path>``; None if the registry does not have it."""
        url, headers = self.address.join(f"/v2/{self.repository}/{path}"), {"Accept": accept}
        answer = self._request(url, headers, self._authorization)
        # A challenge from a redirect's target is not the registry's, so it gets nothing.
        if answer.status_code == 401 and is_same_origin(answer.url, self.address):
            self._authorization = self._sign_in(answer.headers.get("WWW-Authenticate", ""))
            answer = self._request(url, headers, self._authorization)
        if answer.status_code in (401, 403):
            raise Unreachable(f"{self.name} refuses read access (HTTP {answer.status_code}).", self._advice())
        if "html" in answer.headers.get("Content-Type", ""):
            raise Unreachable(
                f"{answer.url.host} replied with a web page (HTTP {answer.status_code}) instead of a registry's reply. "
                "There may be a proxy or a login page in between, or RUNBOOK_REGISTRY may be wrong."
            )
        if answer.status_code == 404:
            return None
        if answer.status_code != 200:
            raise Unreachable(f"{self.name} answered with an unexpected HTTP {answer.status_code}.", "Try again later.")
        return answer

    def _sign_in(self, text: str) -> dict[str, str]:
        """Return the header that a challenge asks for.

        Credentials are sent over TLS only, for a challenge that came over TLS.
        """
        header = {}
        if self._login and _is_private(self.address):
            header["Authorization"] = "Basic " + base64.b64encode(self._login.encode()).decode()
        bearer = re.search(r"\bBearer\s+(.*)", text, re.IGNORECASE)
        fields = dict(re.findall(r'(?<!\w)(\w+)="([^"]*)"', bearer[1])) if bearer else {}
        realm = _web_address(fields.get("realm", ""))
        wants_password = bearer is None and re.search(r"\bBasic\b", text, re.IGNORECASE) is not None
        if wants_password and header:
            return header
        if realm is None:
            kind = "a password" if wants_password else "an unknown kind of login"
            raise Unreachable(f"{self.name} requires {kind}.", self._advice())
        # Our own scope, because the challenge's may include pushing.
        scope = f"repository:{self.repository}:pull"
        url = realm.copy_merge_params({"service": fields.get("service", ""), "scope": scope})
        secret = header if _is_private(realm) else {}
        answer = self._request(url, {"Accept": "application/json"}, secret, follow=False)
        if answer.status_code != 200:
            raise Unreachable(f"{url.host} issued no token (HTTP {answer.status_code}).", self._advice(url))
        document = _document_of(answer)
        if isinstance(document, dict):
            token = document.get("token") or document.get("access_token")
            if isinstance(token, str) and re.fullmatch(r"[\x21-\x7e]+", token):
                return {"Authorization": f"Bearer {token}"}
        raise Unreachable(f"{url.host} gave no usable token for {self.name}.", "Try again later.")

    def _advice(self, token_service: httpx.URL | None = None) -> str:
        """Return advice after a refusal, by the token service if one is given."""
        host = self.address.netloc.decode()
        for url in (self.address, token_service):
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

    def _request(
        self, url: httpx.URL, headers: Mapping[str, str], secret: Mapping[str, str], *, follow: bool = True
    ) -> httpx.Response:
        """Return the reply to GET, with any status that is not temporary.  ``secret`` goes only to this origin."""
        try:
            return self._client.request("GET", url, headers, secret=secret, follow=follow)
        except NoReply as error:
            raise Unreachable(
                f"The registry {self.name} could not be read at {url.host}: {error}.",
                "Try again later, check network and proxy, or set RUNBOOK_REGISTRY to another URL of the registry.",
            ) from error


def _is_index(document: Mapping[str, Any]) -> bool:
    return document.get("mediaType") in _INDEXES or "manifests" in document


def _is_image(descriptor: object) -> bool:
    # Attestations are listed beside the images, for a platform called unknown (BuildKit's convention).
    if not isinstance(descriptor, dict) or descriptor.get("mediaType") not in _MANIFESTS:
        return False
    platform = descriptor.get("platform")
    return not isinstance(platform, dict) or platform.get("os") != "unknown"


def _document_of(answer: httpx.Response) -> Any:
    """Return a reply's JSON.  Raises Unreachable if it is not JSON, or has too many values."""
    try:
        return parse_json(answer.content)
    except ValueError:
        host = answer.url.host
        raise Unreachable(f"{host} sent something that is not JSON, or too much of it.", "Try again later.") from None


def _web_address(text: str) -> httpx.URL | None:
    """Return a web URL; None for anything else."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return None
    return url if url.scheme in ("http", "https") and url.host else None


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
