"""Reading of an OCI registry: tags, digests, platforms and configurations of images.

Content that is read by digest is checked against that digest.  Source of the forms: the OCI image specification.
"""

import hashlib
import re
import time
from collections.abc import Mapping
from typing import Any, TypeVar

import httpx

from runbook_lib.errors import CannotTell, Unreachable
from runbook_lib.images.reference import LONGEST_TAG, Image, PlatformImage
from runbook_lib.world.registry.connection import Connection, document_of
from runbook_lib.world.transport.http import join

_OCI, _DOCKER = "application/vnd.oci.image", "application/vnd.docker.distribution"
_INDEXES = (f"{_OCI}.index.v1+json", f"{_DOCKER}.manifest.list.v2+json")
_MANIFESTS = (f"{_OCI}.manifest.v1+json", f"{_DOCKER}.manifest.v2+json")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_MEMBERS, _TAGS, _PAGES = 50, 100_000, 100  # more platforms, tags and pages of tags than any real image has
_LISTING = 60.0  # seconds for all pages of tags

T = TypeVar("T")


class OciRegistry(Connection):
    """One repository of a registry.  ``world.ports.Registry`` says what the methods return."""

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
        path, tags, pages, end = "tags/list?n=1000", list[str](), 0, time.monotonic() + _LISTING
        while (answer := self.get(path, "application/json")) is not None:
            document = document_of(answer)
            # Distribution returns null after the last tag was removed.
            if document != {"name": self.repository, "tags": None}:
                listed = self._take(document, "tags", list)
                if not all(isinstance(tag, str) and len(tag) <= LONGEST_TAG for tag in listed):
                    raise CannotTell(f"{self.name} lists a tag that is not a text of at most {LONGEST_TAG} characters.")
                tags += listed
            pages += 1
            if len(tags) > _TAGS or pages > _PAGES:
                raise CannotTell(f"The list of tags of {self.name} has more than {_TAGS} entries or {_PAGES} pages.")
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
        answer = self.get(f"blobs/{config_digest}", "*/*")
        if answer is None:
            raise CannotTell(f"{self.name}@{digest} refers to a config that the registry does not have.")
        self._verify(answer, config_digest)
        config = document_of(answer)
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
        answer = self.get(f"manifests/{wanted}", ", ".join(_INDEXES + _MANIFESTS))
        if answer is None:
            return None
        document = document_of(answer)
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


def _is_index(document: Mapping[str, Any]) -> bool:
    return document.get("mediaType") in _INDEXES or "manifests" in document


def _is_image(descriptor: object) -> bool:
    # Attestations are listed beside the images, for a platform called unknown (BuildKit's convention).
    if not isinstance(descriptor, dict) or descriptor.get("mediaType") not in _MANIFESTS:
        return False
    platform = descriptor.get("platform")
    return not isinstance(platform, dict) or platform.get("os") != "unknown"
