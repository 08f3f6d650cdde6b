"""An OCI registry, read: tags, digests, platforms, and what an image's config says.  Never a layer.

Whatever is read by digest is checked against that digest.  Source of the forms: the OCI image specification.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import httpx

from runbook_lib.checks import Check
from runbook_lib.errors import CannotTell, RunbookError, Unreachable
from runbook_lib.image import ImageRef, NgcTag
from runbook_lib.registry_http import Answer, Connection, parse_address

_OCI, _DOCKER = "application/vnd.oci.image", "application/vnd.docker.distribution"
_INDEXES = (f"{_OCI}.index.v1+json", f"{_DOCKER}.manifest.list.v2+json")
_MANIFESTS = (f"{_OCI}.manifest.v1+json", f"{_DOCKER}.manifest.v2+json")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_PAGES, _MEMBERS = 100, 50  # more pages of tags, or more platforms, than any real image has

T = TypeVar("T")


@dataclass(frozen=True)
class PlatformImage:
    """The image for one platform: digest of its manifest, bytes to download (config and layers), environment."""

    digest: str
    size: int
    env: Mapping[str, str]


@dataclass(frozen=True)
class Image:
    """What a tag stands for.  ``digest`` is that of the index (of the manifest, where there is no index).

    ``platforms`` is keyed as build rows name them: ``amd64``, ``arm64``; another system in full: ``windows/amd64``.
    """

    digest: str
    platforms: Mapping[str, PlatformImage]


class Registry:
    """One repository of a registry.

    Every question may raise Unreachable (no answer, refused, limited) and CannotTell (an answer without sense).
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    def connect(
        cls,
        ref: ImageRef,
        env: Mapping[str, str] = os.environ,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Self:
        """The repository of ``ref``, at RUNBOOK_REGISTRY or else at its own registry.  No request is made yet.

        NGC_API_KEY is used at nvcr.io, which issued it, and where RUNBOOK_REGISTRY points.
        """
        other = env.get("RUNBOOK_REGISTRY", "").strip()
        address = parse_address(other) if other else httpx.URL(f"https://{ref.registry}/")
        key = env.get("NGC_API_KEY", "").strip() if other or ref.registry == "nvcr.io" else ""
        return cls(Connection(address, ref.repository, key, transport=transport, sleep=sleep))

    @property
    def name(self) -> str:
        """Host and repository, for sentences."""
        return self._connection.name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def image(self, reference: str) -> Image | None:
        """The image of a tag or a digest, or None if the registry has none of that name."""
        found = self._manifest(reference)
        if found is None:
            return None
        document, digest = found
        if document.get("mediaType") not in _INDEXES and "manifests" not in document:
            return Image(digest, dict([self._platform(document, digest)]))
        members = [member for member in self._take(document, "manifests", list) if _is_image(member)]
        if not 0 < len(members) <= _MEMBERS:
            raise CannotTell(f"{self.name}:{reference} names {len(members)} platforms, which no usable image does.")
        return Image(digest, dict(map(self._member, members)))

    def tags(self) -> list[str]:
        """Every tag, in the registry's order; empty if there is no such repository."""
        path = "tags/list?n=1000"
        tags: list[str] = []
        for _ in range(_PAGES):
            answer = self._connection.get(path, "application/json")
            if answer is None:
                return []
            document = answer.json()
            # Distribution says null where the last tag was removed.
            if document != {"name": self._connection.repository, "tags": None}:
                tags += map(str, self._take(document, "tags", list))
            query = self._next_page(answer)
            if query is None:
                return tags
            path = f"tags/list?{query}"
        raise CannotTell(f"The list of tags of {self.name} goes on after {_PAGES} pages; we stopped reading.")

    def _next_page(self, answer: Answer) -> str | None:
        match = re.search(r'<([^<>]*)>\s*;[^,<]*\brel="?next\b', answer.headers.get("Link", ""))
        if match is None:
            return None
        try:
            target = answer.url.join(match[1])
        except httpx.InvalidURL:
            raise CannotTell(f"The list of tags of {self.name} goes on at an address that is none.") from None
        if target.host != answer.url.host:
            raise CannotTell(f"The list of tags of {self.name} goes on at another host, {target.host}: not followed.")
        return target.query.decode()

    def _member(self, descriptor: Mapping[str, Any]) -> tuple[str, PlatformImage]:
        digest = self._take(descriptor, "digest", str)
        found = self._manifest(digest)
        if found is None:
            raise CannotTell(f"{self.name} names {digest} in an index and does not have it.")
        return self._platform(found[0], digest)

    def _platform(self, manifest: Mapping[str, Any], digest: str) -> tuple[str, PlatformImage]:
        if manifest.get("schemaVersion") != 2:
            raise CannotTell(f"{self.name}@{digest} is a manifest of an old schema, which names no config.")
        described = self._take(manifest, "config", dict)
        parts = [described, *self._take(manifest, "layers", list)]
        config_digest = self._digest(self._take(described, "digest", str))
        answer = self._connection.get(f"blobs/{config_digest}", "*/*")
        if answer is None:
            raise CannotTell(f"{self.name}@{digest} names a config that the registry does not have.")
        self._verify(answer, config_digest)
        config = answer.json()
        system, architecture = (self._take(config, field, str) for field in ("os", "architecture"))
        env = self._take(self._take(config, "config", dict, default={}), "Env", list, default=[])
        return (
            architecture if system == "linux" else f"{system}/{architecture}",
            PlatformImage(
                digest,
                sum(self._take(part, "size", int) for part in parts),
                {name: value for name, _, value in (str(entry).partition("=") for entry in env)},
            ),
        )

    def _manifest(self, reference: str) -> tuple[Mapping[str, Any], str] | None:
        by_digest = ":" in reference
        wanted = self._digest(reference) if by_digest else reference
        answer = self._connection.get(f"manifests/{wanted}", ", ".join(_INDEXES + _MANIFESTS))
        if answer is None:
            return None
        computed = "sha256:" + hashlib.sha256(answer.body).hexdigest()
        digest = wanted if by_digest else self._digest(answer.headers.get("Docker-Content-Digest", computed))
        self._verify(answer, digest)
        document = answer.json()
        if not isinstance(document, dict):
            raise CannotTell(f"What {self.name} sent for {reference} is not a manifest.")
        return document, digest

    def _digest(self, text: str) -> str:
        if not _DIGEST.fullmatch(text):
            raise CannotTell(f"{self.name} names a digest that is none: {text[:100]!r}.")
        return text

    def _verify(self, answer: Answer, digest: str) -> None:
        algorithm, _, expected = digest.partition(":")
        if hashlib.new(algorithm, answer.body).hexdigest() != expected:
            raise CannotTell(
                f"What {answer.url.host} sent for {self.name}@{digest} has another digest: it is damaged or was "
                "changed on the way. Try again; if it stays so, do not use this image, and tell who runs the registry."
            )

    def _take(self, document: Any, key: str, kind: type[T], default: T | None = None) -> T:
        value = document.get(key) if isinstance(document, dict) else None
        if value is None and isinstance(document, dict):
            value = default  # images from scratch have "Env": null
        if not isinstance(value, kind):
            raise CannotTell(f"{self.name} sent something without a usable {key!r}, which the OCI standard requires.")
        return value


def verify_tag(registry: Registry, tag: NgcTag, platforms: Iterable[str]) -> tuple[Check, Image | None]:
    """Does the tag exist for all platforms?

    Failed: it does not, or what stands there is damaged.  Skipped: the registry would not tell; its ``detail`` is
    the warning.  The image comes with a passed check, and with a failed one that found some platforms.
    """
    name = f"{tag} is in the registry"
    try:
        image = registry.image(str(tag))
    except Unreachable as error:
        return Check(name, "skipped", str(error)), None
    except CannotTell as error:
        return Check(name, "failed", str(error)), None
    if image is None:
        return Check(name, "failed", f"{registry.name} has no tag {tag}. {_newest(registry, tag)}"), None
    there = " and ".join(sorted(image.platforms))
    if missing := sorted(set(platforms) - image.platforms.keys()):
        sentence = f"{registry.name}:{tag} exists for {there}, and not for {' and '.join(missing)}."
        return Check(name, "failed", f"{sentence} {_newest(registry, tag)}"), image
    return Check(name, "passed", f"{registry.name}:{tag} is {image.digest}, for {there}."), image


def _newest(registry: Registry, tag: NgcTag) -> str:
    try:
        tags = registry.tags()
    except (Unreachable, CannotTell) as error:
        return f"Which tags it has could not be read: {error}"
    known = []
    for text in tags:
        try:
            known.append(NgcTag.parse(text))
        except RunbookError:
            continue  # a tag of another family
    months = sorted((other for other in known if other.variant == tag.variant), reverse=True)
    if not months:
        return "It has no tag of this kind at all."
    return f"Its newest tags are {', '.join(map(str, months[:5]))}: choose one that exists, or wait."


def _is_image(descriptor: object) -> bool:
    # Attestations stand beside the images, for a platform called unknown (BuildKit's convention).
    if not isinstance(descriptor, dict) or descriptor.get("mediaType") not in _MANIFESTS:
        return False
    platform = descriptor.get("platform")
    return not isinstance(platform, dict) or platform.get("os") != "unknown"
