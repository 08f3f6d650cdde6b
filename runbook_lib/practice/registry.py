"""The image registry of the practice environment: a few months of ``nvidia/pytorch``, with invented numbers."""

import hashlib
from collections.abc import Mapping
from typing import Any

from runbook_lib.images.reference import Image, ImageRef, PlatformImage
from runbook_lib.practice.store import scripted

REPOSITORY = "nvidia/pytorch"
Month = Mapping[str, Any]
_PATH = "/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LABELS = {"org.opencontainers.image.ref.name": "ubuntu", "org.opencontainers.image.version": "24.04"}


def image_of(month: str, versions: Month) -> Image:
    """Return the image of a month, described like a real one; its digests depend on nothing but its content."""
    platforms, env = {}, {name: value for name, value in versions.items() if name != "platforms"}
    env |= {
        "PATH": _PATH,
        "PYTHON_VERSION": "3.12.3",
        "NVIDIA_PRODUCT_NAME": "PyTorch",
        "NVIDIA_PYTORCH_VERSION": month,
    }
    for architecture in versions.get("platforms", ("amd64", "arm64")):
        digest = _digest(month, architecture, *env.values())
        size = 9_000_000_000 + int(digest[-6:], 16) * 64  # about 10 GB
        platforms[architecture] = PlatformImage(digest, size, env, _LABELS)
    return Image(_digest(*(platform.digest for platform in platforms.values())), platforms)


class PracticeRegistry:
    """One repository of the registry, of which ``nvidia/pytorch`` has images."""

    def __init__(self, ref: ImageRef) -> None:
        self.name = ref.name
        offered = scripted("images") if ref.repository == REPOSITORY else {}
        self._images = {f"{month}-py3": image_of(month, versions) for month, versions in offered.items()}

    def image(self, reference: str) -> Image | None:
        by_digest = {image.digest: image for image in self._images.values()}
        return self._images.get(reference) or by_digest.get(reference)

    def tags(self) -> list[str]:
        return sorted(self._images)


def _digest(*parts: str) -> str:
    return "sha256:" + hashlib.sha256("\n".join(parts).encode()).hexdigest()
