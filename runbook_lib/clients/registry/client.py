"""An OCI registry, read: tags, digests, platforms, and what an image's config says.  Never a layer.

Whatever is read by digest is checked against that digest.  Source of the forms: the OCI image specification.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import httpx

from runbook_lib.checks import Check
from runbook_lib.clients.registry.cache import Cache, ago
from runbook_lib.clients.registry.connection import Connection, RegistryAnswer, parse_address
from runbook_lib.clients.registry.credentials import CredentialLookup, docker, ngc
from runbook_lib.errors import CannotTell, Unreachable
from runbook_lib.images.families import NGC, AnyFamily, edition
from runbook_lib.images.reference import Image, ImageRef, PlatformImage, Tag
from runbook_lib.images.tags.ngc import NgcTag

__all__ = ["Image", "PlatformImage", "Registry", "Tags", "verify_tag"]

_OCI, _DOCKER = "application/vnd.oci.image", "application/vnd.docker.distribution"
_INDEXES = (f"{_OCI}.index.v1+json", f"{_DOCKER}.manifest.list.v2+json")
_MANIFESTS = (f"{_OCI}.manifest.v1+json", f"{_DOCKER}.manifest.v2+json")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_PAGES, _MEMBERS = 100, 50  # more pages of tags, or more platforms, than any real image has
_TAGS, _LONGEST_TAG = 100_000, 128
_LISTING = 60.0  # seconds for all pages of tags
_AT_ONCE = 4  # requests side by side
FRESH = 300.0  # seconds for which the answer about a tag is believed without asking again
_HUB = "registry-1.docker.io"  # where Docker's own registry, docker.io, really is

T = TypeVar("T")


@dataclass(frozen=True)
class Tags:
    """Every tag, in the registry's order.  ``age``: seconds since the registry said so; ``problem``: why not now."""

    names: tuple[str, ...]
    age: float = 0.0
    problem: str = ""


class Registry:
    """One repository of a registry.

    Every question may raise Unreachable (no answer, refused, limited) and CannotTell (an answer without sense).
    """

    def __init__(self, connection: Connection, *, offline: bool = False) -> None:
        self._connection = connection
        self._offline = offline
        self._ages: list[float] = [0.0]

    @classmethod
    def connect(
        cls,
        ref: ImageRef,
        env: Mapping[str, str] = os.environ,
        *,
        max_age: float = FRESH,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Self:
        """Return the repository of ``ref``, at RUNBOOK_REGISTRY or else at its own registry.  Sends nothing yet.

        RUNBOOK_REGISTRY is the address for every registry, or ``nvcr.io=https://…`` for one, several divided by commas.
        NGC_API_KEY is for images of nvcr.io, which issued it; at another address for them, what ``docker login`` kept
        for that address comes first.  For any other image the files and helpers of ``docker login`` are asked.  What
        is said of a tag is believed for ``max_age`` seconds; content by digest for ever.
        """
        other = _other_address(ref.registry, env)
        hub = ref.registry == "docker.io"
        address = other or httpx.URL(f"https://{_HUB if hub else ref.registry}/")
        repository = f"library/{ref.repository}" if hub and "/" not in ref.repository else ref.repository
        key = env.get("NGC_API_KEY", "").strip() if ref.registry == "nvcr.io" else ""

        def find() -> CredentialLookup:
            if key and address.host == ref.registry:
                return ngc(key)
            found = docker(address.netloc.decode(), repository, env)
            return ngc(key) if key and not found.credential else found

        cache = Cache.of(env)
        return cls(
            Connection(address, repository, find, cache=cache, max_age=max_age, transport=transport, sleep=sleep)
        )

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

    @property
    def age(self) -> float:
        """Seconds since the registry gave the oldest answer that was used; 0 when all are of now."""
        return max(self._ages, key=abs)

    def offline(self) -> "Registry":
        """Return the same repository as it was last seen: it answers from the cache alone."""
        return Registry(self._connection, offline=True)

    def again(self) -> "Registry":
        """Return the same repository, on the same connections, with an ``age`` of its own."""
        return Registry(self._connection, offline=self._offline)

    def image(self, reference: str) -> Image | None:
        """Return the image of a tag or a digest, or None if the registry has none of that name."""
        found = self._manifest(reference)
        if found is None:
            return None
        document, digest = found
        if not _is_index(document):
            return Image(digest, dict([self._platform(document, digest)]))
        members = [member for member in self._take(document, "manifests", list) if _is_image(member)]
        if not 0 < len(members) <= _MEMBERS:
            raise CannotTell(
                f"{self.name}:{reference} names {len(members)} platforms, which no usable image does. "
                "Choose another tag, or tell who publishes the image."
            )
        platforms: dict[str, PlatformImage] = {}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for name, platform in pool.map(self._member, members):
                platforms.setdefault(name, platform)  # of two for one platform a container engine takes the first
        return Image(digest, platforms)

    def tags(self) -> list[str]:
        """Return every tag, in the registry's order; empty if there is no such repository."""
        path = "tags/list?n=1000"
        tags: list[str] = []
        end = time.monotonic() + _LISTING
        for _ in range(_PAGES):
            answer = self._get(path, "application/json")
            if answer is None:
                return []
            document = answer.json()
            # Distribution says null where the last tag was removed.
            if document != {"name": self._connection.repository, "tags": None}:
                tags += self._listed(document)
            if len(tags) > _TAGS:
                raise CannotTell(f"The list of tags of {self.name} has more than {_TAGS} entries; we stopped reading.")
            query = self._next_page(answer)
            self._connection.keep(path, answer)
            if query is None:
                return tags
            if time.monotonic() > end:
                raise Unreachable(
                    f"The list of tags of {self.name} did not end within {_LISTING:g} s; {len(tags)} came. "
                    "Try again later."
                )
            path = f"tags/list?{query}"
        raise CannotTell(f"The list of tags of {self.name} goes on after {_PAGES} pages; we stopped reading.")

    def known_tags(self) -> Tags:
        """Return every tag; those of the last time, with age and reason, if the registry cannot be reached.

        Raises Unreachable where there was no last time, CannotTell as ``tags`` does.
        """
        try:
            names = self.tags()
        except Unreachable as error:
            before = self.offline()
            if not (names := before.tags()):
                raise
            return Tags(tuple(names), before.age, str(error))
        return Tags(tuple(names), self.age)

    def look(self, reference: str) -> tuple[Image | None, Tags]:
        """Return ``image`` and ``known_tags``, requested side by side."""
        with ThreadPoolExecutor(1) as pool:
            tags = pool.submit(self.known_tags)
            return self.image(reference), tags.result()

    def _get(self, path: str, accept: str) -> RegistryAnswer | None:
        answer = self._connection.remembered(path) if self._offline else self._connection.get(path, accept)
        if answer is not None and answer.age:
            self._ages.append(answer.age)
        return answer

    def _next_page(self, answer: RegistryAnswer) -> str | None:
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
        described = self._take(manifest, "config", dict)
        parts = [described, *self._take(manifest, "layers", list)]
        config_digest = self._digest(self._take(described, "digest", str))
        answer = self._get(f"blobs/{config_digest}", "*/*")
        if answer is None:
            raise CannotTell(f"{self.name}@{digest} names a config that the registry does not have.")
        self._verify(answer, config_digest)
        self._connection.keep(f"blobs/{config_digest}", answer)
        config = answer.json()
        system, architecture = (self._take(config, field, str) for field in ("os", "architecture"))
        inner = self._take(config, "config", dict, default={})
        env, labels = self._take(inner, "Env", list, default=[]), self._take(inner, "Labels", dict, default={})
        return (
            architecture if system == "linux" else f"{system}/{architecture}",
            PlatformImage(
                digest,
                sum(map(self._size, parts)),
                {name: value for name, _, value in (str(entry).partition("=") for entry in env)},
                {str(name): str(value) for name, value in labels.items()},
            ),
        )

    def _listed(self, document: Any) -> list[str]:
        listed = self._take(document, "tags", list)
        if not all(isinstance(tag, str) and len(tag) <= _LONGEST_TAG for tag in listed):
            raise CannotTell(f"{self.name} lists something that is no tag, as the OCI standard defines them.")
        return listed

    def _size(self, part: object) -> int:
        size = self._take(part, "size", int)
        if not 0 <= size < 2**63:
            raise CannotTell(f"{self.name} names a part of an image whose size is no number of bytes.")
        return size

    def _manifest(self, reference: str) -> tuple[Mapping[str, Any], str] | None:
        by_digest = ":" in reference
        wanted = self._digest(reference) if by_digest else reference
        answer = self._get(f"manifests/{wanted}", ", ".join(_INDEXES + _MANIFESTS))
        if answer is None:
            return None
        document = answer.json()
        if not isinstance(document, dict):
            raise CannotTell(f"What {self.name} sent for {reference} is not a manifest.")
        if document.get("schemaVersion") != 2 and not _is_index(document):
            # Before its digest, which is that of a part of it.
            raise CannotTell(
                f"What {self.name} has as {reference} is a manifest of an old schema, which names no config. Pull the "
                "image and push it with a present Docker or Skopeo, which write the new schema, or name another image."
            )
        computed = "sha256:" + hashlib.sha256(answer.body).hexdigest()
        digest = wanted if by_digest else self._digest(answer.headers.get("Docker-Content-Digest", computed))
        self._verify(answer, digest)
        self._connection.keep(f"manifests/{wanted}", answer)
        self._connection.keep(f"manifests/{digest}", answer)
        return document, digest

    def _digest(self, text: str) -> str:
        if not _DIGEST.fullmatch(text):
            raise CannotTell(f"{self.name} names a digest that is none: {text[:100]!r}.")
        return text

    def _verify(self, answer: RegistryAnswer, digest: str) -> None:
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


def verify_tag(
    registry: Registry, tag: Tag, platforms: Iterable[str], family: AnyFamily = NGC
) -> tuple[Check, Image | None]:
    """Return whether the tag exists for all platforms, as a check, and its image.

    Failed: it does not, or what stands there is damaged.  Skipped: the registry would not tell; its ``detail`` is
    the warning.  The image comes with a passed check, and with a failed one that found some platforms.
    """
    name = f"{tag} in the registry, for every platform"
    try:
        image = registry.image(str(tag))
    except Unreachable as error:
        return Check(name, "skipped", f"{error}{_last_known(registry, tag)}"), None
    except CannotTell as error:
        return Check(name, "failed", str(error)), None
    if image is None:
        return Check(name, "failed", f"{registry.name} has no tag {tag}. {newest(registry, tag, family)}"), None
    there = _and(image.platforms)
    if missing := sorted(set(platforms) - image.platforms.keys()):
        sentence = f"{registry.name}:{tag} exists for {there}, and not for {_and(missing)}."
        return Check(name, "failed", f"{sentence} {newest(registry, tag, family)}"), image
    read = f" It was read {ago(registry.age)}." if registry.age else ""
    return Check(name, "passed", f"{registry.name}:{tag} is {image.digest}, for {there}.{read}"), image


def newest(registry: Registry, tag: Tag, family: AnyFamily) -> str:
    """Return a sentence on the newest tags of the same kind as one that is not there; never raise."""
    try:
        tags = registry.tags()
    except (Unreachable, CannotTell) as error:
        return f"Which tags it has could not be read: {error}"
    listing = family.listed(tags)
    like: Sequence[Tag] = listing.releases or listing.candidates or listing.specials
    if isinstance(tag, NgcTag):
        months = NGC.listed(tags)
        like = [other for other in months.releases + months.specials if other.variant == tag.variant]
    else:
        like = [other for other in like if edition(other) == edition(tag)] or like
    if not like:
        return "It has no tag of this kind at all."
    return f"Its newest tags are {', '.join(map(str, like[:5]))}: choose one that exists, or wait."


def _last_known(registry: Registry, tag: Tag) -> str:
    before = registry.offline()
    try:
        image, tags = before.image(str(tag)), before.tags()
    except CannotTell:
        return ""
    if image is not None:
        return f" When it was last read, {ago(before.age)}, {tag} was {image.digest}, for {_and(image.platforms)}."
    names = "names" if str(tag) in tags else "does not name"
    return f" The list of tags, read {ago(before.age)}, {names} {tag}." if tags else ""


def _and(names: Iterable[str]) -> str:
    return " and ".join(sorted(names))


def _other_address(registry: str, env: Mapping[str, str]) -> httpx.URL | None:
    """Return the address that RUNBOOK_REGISTRY gives for a registry."""
    entries = [entry.strip() for entry in env.get("RUNBOOK_REGISTRY", "").split(",") if entry.strip()]
    for entry in entries:
        host, equals, address = entry.partition("=")
        if not equals or "/" in host:
            return parse_address(entry)
        if host == registry:
            return parse_address(address)
    return None


def _is_index(document: Mapping[str, Any]) -> bool:
    return document.get("mediaType") in _INDEXES or "manifests" in document


def _is_image(descriptor: object) -> bool:
    # Attestations stand beside the images, for a platform called unknown (BuildKit's convention).
    if not isinstance(descriptor, dict) or descriptor.get("mediaType") not in _MANIFESTS:
        return False
    platform = descriptor.get("platform")
    return not isinstance(platform, dict) or platform.get("os") != "unknown"
