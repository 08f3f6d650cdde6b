"""The images of the practice registry: a few months of ``nvidia/pytorch``, complete and tiny.

Their configurations have the fields of the real ones, with invented numbers.  The content is computed, so that every
digest is the same on every machine.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

REPOSITORY = "nvidia/pytorch"
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


class Month(NamedTuple):
    """The versions in the image of one month."""

    cuda: str
    driver: str
    cudnn: str
    cublas: str
    nccl: str
    pytorch: str
    transformer_engine: str
    platforms: tuple[str, ...] = ("amd64", "arm64")


#: 26.03 was never published for arm64, so that a missing platform can be practised.
MONTHS = {
    "25.09": Month("13.0.1.012", "580.82.07", "9.13.0.50", "13.0.2.14", "2.27.7", "2.9.0a0+5f1c0d2", "2.7"),
    "26.01": Month("13.1.0.036", "590.44.01", "9.17.1.4", "13.2.0.9", "2.28.9", "2.10.0a0+a36e1d3", "2.11"),
    "26.02": Month("13.1.1.006", "590.48.01", "9.18.0.77", "13.2.1.1", "2.29.2", "2.11.0a0+eb65b36", "2.12"),
    "26.03": Month(
        "13.1.1.006", "590.48.01", "9.19.0.56", "13.2.1.1", "2.29.3", "2.11.0a0+a6c236b", "2.13", ("amd64",)
    ),
    "26.04": Month("13.2.0.046", "595.45.04", "9.20.0.48", "13.3.0.5", "2.29.7", "2.12.0a0+0291f96", "2.14"),
    "26.05": Month("13.2.1.010", "595.58.03", "9.21.0.82", "13.3.1.2", "2.30.3", "2.12.0a0+5aff393", "2.15"),
    "26.06": Month("13.3.0.022", "600.41.02", "9.22.0.31", "13.4.0.1", "2.30.7", "2.13.0a0+8145d63", "2.18"),
}


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


@dataclass(frozen=True)
class RegistryContent:
    """The content of a registry: digest → content, and tag → digest of the index."""

    manifests: Mapping[str, Blob]
    blobs: Mapping[str, Blob]
    tags: Mapping[str, str]


def content(months: Mapping[str, Month] = MONTHS) -> RegistryContent:
    """Return the images of the given months, tagged ``<month>-py3``."""
    manifests: dict[str, Blob] = {}
    blobs: dict[str, Blob] = {}
    tags: dict[str, str] = {}
    for month, versions in months.items():
        members = []
        for architecture in versions.platforms:
            layer = _layer(f"practice image {month} for {architecture}\n")
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
    env = {
        "PATH": "/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "CUDA_VERSION": versions.cuda,
        "CUDA_DRIVER_VERSION": versions.driver,
        "CUDNN_VERSION": versions.cudnn,
        "CUBLAS_VERSION": versions.cublas,
        "NCCL_VERSION": versions.nccl,
        "PYTORCH_VERSION": versions.pytorch,
        "PYTORCH_BUILD_VERSION": versions.pytorch,
        "TRANSFORMER_ENGINE_VERSION": versions.transformer_engine,
        "PYTHON_VERSION": "3.12.3",
        "NVIDIA_PRODUCT_NAME": "PyTorch",
        "NVIDIA_PYTORCH_VERSION": month,
    }
    labels = {"org.opencontainers.image.ref.name": "ubuntu", "org.opencontainers.image.version": "24.04"}
    return _json(CONFIG, {
        "created": f"20{month.replace('.', '-')}-24T08:00:00Z", "architecture": architecture, "os": "linux",
        "config": {"Env": [f"{name}={value}" for name, value in env.items()], "Labels": labels},
        # The layer is not compressed, so its digest is that of its content.
        "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
    })  # fmt: skip


def _layer(text: str) -> Blob:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        entry = tarfile.TarInfo("etc/practice-image")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text.encode()))
    return Blob(LAYER, buffer.getvalue())


def _json(media_type: str, document: Mapping[str, object]) -> Blob:
    return Blob(media_type, json.dumps(document, separators=(",", ":")).encode())
