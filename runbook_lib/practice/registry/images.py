"""The images of the practice registry: a few months of ``nvidia/pytorch``, complete and tiny.

Their configurations have the fields of the real ones, with invented numbers.  The content is computed, so that every
digest is the same on every machine.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, NamedTuple

REPOSITORY = "nvidia/pytorch"
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


Month = Mapping[str, Any]
#: Month → the variables with the versions in its image, and its ``platforms`` if it does not have both.
MONTHS: Mapping[str, Month] = tomllib.loads(files(__package__).joinpath("images.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Blob:
    """Bytes with their media type, stored under their digest."""

    media_type: str
    data: bytes

    @property
    def digest(self) -> str:
        """``sha256:`` and 64 hexadecimal digits."""
        return "sha256:" + hashlib.sha256(self.data).hexdigest()

    def descriptor(self, **more: object) -> dict[str, object]:
        """Return the descriptor by which a manifest refers to it."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.data), **more}


class RegistryContent(NamedTuple):
    """The content of a registry: digest → content, and tag → digest of the index."""

    manifests: Mapping[str, Blob]
    blobs: Mapping[str, Blob]
    tags: Mapping[str, str]


def content(months: Mapping[str, Month] = MONTHS) -> RegistryContent:
    """Return the images of the given months, tagged ``<month>-py3``."""
    manifests, blobs, tags = dict[str, Blob](), dict[str, Blob](), dict[str, str]()
    for month, versions in months.items():
        members = []
        for architecture in versions.get("platforms", ("amd64", "arm64")):
            # Nothing unpacks it: what an image holds is read from its configuration.
            layer = Blob(LAYER, f"practice image {month} for {architecture}\n".encode())
            config = _config(month, versions, architecture, layer)
            manifest = _json(MANIFEST, {
                "schemaVersion": 2, "mediaType": MANIFEST, "config": config.descriptor(),
                "layers": [layer.descriptor()],
            })  # fmt: skip
            blobs |= {layer.digest: layer, config.digest: config}
            manifests[manifest.digest] = manifest
            members.append(manifest.descriptor(platform={"architecture": architecture, "os": "linux"}))
        index = _json(INDEX, {"schemaVersion": 2, "mediaType": INDEX, "manifests": members})
        manifests[index.digest] = index
        tags[f"{month}-py3"] = index.digest
    return RegistryContent(manifests, blobs, tags)


def _config(month: str, versions: Month, architecture: str, layer: Blob) -> Blob:
    variables = {name: value for name, value in versions.items() if name != "platforms"}
    path = "/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    product = {"NVIDIA_PRODUCT_NAME": "PyTorch", "NVIDIA_PYTORCH_VERSION": month}
    env = {"PATH": path, **variables, "PYTHON_VERSION": "3.12.3", **product}
    labels = {"org.opencontainers.image.ref.name": "ubuntu", "org.opencontainers.image.version": "24.04"}
    return _json(CONFIG, {
        "created": f"20{month.replace('.', '-')}-24T08:00:00Z", "architecture": architecture, "os": "linux",
        "config": {"Env": [f"{name}={value}" for name, value in env.items()], "Labels": labels},
        # The layer is not compressed, so its digest equals its content's digest.
        "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
    })  # fmt: skip


def _json(media_type: str, document: Mapping[str, object]) -> Blob:
    return Blob(media_type, json.dumps(document, separators=(",", ":")).encode())
