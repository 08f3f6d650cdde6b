"""The packages of images in a registry: from the SBOM that is attached to an image, else from its layers."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runbook_lib.clients.registry.client import Registry
from runbook_lib.clients.registry.layers import databases
from runbook_lib.errors import CannotTell, RunbookError, Unreachable
from runbook_lib.images.packages import Inventory, LayerDatabase, PackageComparison, PackageSource, merge, of_document
from runbook_lib.images.reference import ImageRef

SHARE = 0.05  # of the images' size that is read by default
_LARGEST_SBOM = 2**26  # bytes
_MOST_LAYERS = 1000
_SBOM_TYPES = ("spdx", "cyclonedx", "syft", "in-toto")  # in the media types of SBOMs and attestations
_PREDICATES = ("https://spdx.dev/", "https://cyclonedx.org/")


@dataclass(frozen=True)
class _BlobDescriptor:
    digest: str
    size: int
    media_type: str = ""


@dataclass(frozen=True)
class _ImageSide:
    """One platform of an image.  ``beside``: descriptors of the index, which may be its attestations."""

    name: str
    registry: Registry
    digest: str
    layers: tuple[_BlobDescriptor, ...]
    beside: Sequence[Any] = ()


class _ContentReader:
    """Layers and SBOMs of at most ``budget`` bytes together; each layer is read once, whichever image has it."""

    def __init__(self, budget: int) -> None:
        self._left = budget
        self._layers: dict[str, LayerDatabase | str] = {}

    def read_layers(self, *sides: _ImageSide) -> None:
        """Read the layers of the images, the smallest first, so that as many as possible are read."""
        owners: dict[_BlobDescriptor, Registry] = {}
        for side in sides:
            owners |= dict.fromkeys(side.layers, side.registry)
        for layer in sorted(owners, key=lambda layer: layer.size):
            self._layers[layer.digest] = self._layer(owners[layer], layer)

    def _layer(self, registry: Registry, layer: _BlobDescriptor) -> LayerDatabase | str:
        """Return the databases of a layer, or why it was not read."""
        if "zstd" in layer.media_type:
            return "it is compressed with zstd"
        if not self._take(layer):
            return "it exceeds the limit of bytes; --all reads it"
        try:
            with tempfile.TemporaryFile() as file:
                registry.download(layer.digest, layer.size, file)
                return databases(file, layer.size)
        except (CannotTell, Unreachable) as error:
            return str(error)

    def sbom(self, side: _ImageSide) -> Inventory | None:
        """Return the packages of the first readable SBOM; None if there is none."""
        for blob in _sboms(side):
            if blob.size > _LARGEST_SBOM or not self._take(blob):
                continue
            try:
                with tempfile.TemporaryFile() as file:
                    side.registry.download(blob.digest, blob.size, file)
                    packages = of_document(json.load(file))
            except (CannotTell, ValueError, RecursionError):
                continue
            if packages:
                return packages
        return None

    def of_layers(self, side: _ImageSide) -> PackageSource:
        """Return the packages of the layers that were read."""
        known = [(layer, self._layers[layer.digest]) for layer in side.layers]
        unread = [f"{blob.digest[:19]}, {blob.size:,} bytes: {why}" for blob, why in known if isinstance(why, str)]
        packages = merge([database for _, database in known if isinstance(database, LayerDatabase)])
        return PackageSource(side.name, "the package databases in its layers", packages, len(known), tuple(unread))

    def _take(self, blob: _BlobDescriptor) -> bool:
        if blob.size > self._left:
            return False
        self._left -= blob.size
        return True


def compare_packages(
    old: tuple[ImageRef, str], new: tuple[ImageRef, str], platform: str, *, everything: bool = False
) -> PackageComparison:
    """Compare the packages of one platform of two images, each given with a name for display.

    At most 5 % of the images' bytes are read, or all of them.  Raises CannotTell if an image is missing.
    """
    with Registry.connect(old[0]) as old_registry, Registry.connect(new[0]) as new_registry:
        sides = _side(old_registry, *old, platform), _side(new_registry, *new, platform)
        size = sum(layer.size for layer in (*sides[0].layers, *sides[1].layers))
        reader = _ContentReader(size + 2 * _LARGEST_SBOM if everything else int(SHARE * size))
        sboms = [reader.sbom(side) for side in sides]
        if None in sboms:
            # The layers of both, because an SBOM may describe more or less than the databases do.
            reader.read_layers(*sides)
            sources = [reader.of_layers(side) for side in sides]
        else:
            pairs = zip(sides, sboms, strict=True)
            sources = [PackageSource(side.name, "its SBOM", packages or {}) for side, packages in pairs]
        received = old_registry.received + new_registry.received
    return PackageComparison(sources[0], sources[1], received, size)


def _side(registry: Registry, ref: ImageRef, name: str, platform: str) -> _ImageSide:
    image = registry.image(ref.digest or ref.tag or "latest")
    if image is None or platform not in image.platforms:
        raise CannotTell(f"{registry.name} has no image {ref} for {platform}. Choose another --platform.")
    digest = image.platforms[platform].digest
    manifest, index = registry.manifest(digest), registry.manifest(image.digest)
    if manifest is None or index is None:
        raise CannotTell(f"{registry.name} does not have the manifest of {ref}. Try again.")
    layers = tuple(_blobs(manifest[0].get("layers")))
    if len(layers) > _MOST_LAYERS:
        raise CannotTell(f"{ref} has more than {_MOST_LAYERS} layers.")
    beside = index[0].get("manifests")
    return _ImageSide(name, registry, digest, layers, beside if isinstance(beside, list) else ())


def _sboms(side: _ImageSide) -> Iterator[_BlobDescriptor]:
    """Yield the possible SBOMs of the image: BuildKit's attestations in the index, then OCI's referrers."""
    manifests: list[str] = []
    for descriptor in side.beside:
        if _annotations(descriptor).get("vnd.docker.reference.digest") == side.digest:
            manifests.append(str(descriptor.get("digest")))
    for descriptor in side.registry.referrers(side.digest):
        if _may_be_sbom(descriptor.get("artifactType")):
            manifests.append(str(descriptor.get("digest")))
    for digest in manifests:
        try:
            manifest = side.registry.manifest(digest)
        except RunbookError:  # an unreadable attachment counts as none
            continue
        layers = manifest and manifest[0].get("layers")
        if not isinstance(layers, list):
            continue
        for layer in layers:
            if isinstance(layer, dict) and _may_be_sbom(layer.get("mediaType")) and _has_packages(layer):
                yield from _blobs([layer])


def _may_be_sbom(media_type: object) -> bool:
    return isinstance(media_type, str) and any(part in media_type for part in _SBOM_TYPES)


def _has_packages(layer: Mapping[str, Any]) -> bool:
    """Return True if an attestation's predicate is an SBOM; other files have no predicate."""
    predicate = _annotations(layer).get("in-toto.io/predicate-type")
    return predicate is None or str(predicate).startswith(_PREDICATES)


def _annotations(descriptor: Any) -> dict[str, Any]:
    annotations = descriptor.get("annotations") if isinstance(descriptor, dict) else None
    return annotations if isinstance(annotations, dict) else {}


def _blobs(descriptors: object) -> Iterator[_BlobDescriptor]:
    if not isinstance(descriptors, list):
        raise CannotTell("The manifest has no list of layers, which OCI requires.")
    for descriptor in descriptors:
        fields = descriptor if isinstance(descriptor, dict) else {}
        digest, size = fields.get("digest"), fields.get("size")
        if not isinstance(digest, str) or not isinstance(size, int) or not 0 <= size < 2**50:
            raise CannotTell("The manifest has a layer without a valid digest and size, which OCI requires.")
        yield _BlobDescriptor(digest, size, str(fields.get("mediaType", "")))
