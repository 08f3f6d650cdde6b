"""The image registry of the practice environment: a few months of ``nvidia/pytorch``, with invented numbers."""

import hashlib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Self

from runbook_lib.images.reference import Image, ImageRef, PlatformImage

REPOSITORY = "nvidia/pytorch"
Month = Mapping[str, Any]
_PATH = "/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LABELS = {"org.opencontainers.image.ref.name": "ubuntu", "org.opencontainers.image.version": "24.04"}


@cache
def months() -> Mapping[str, Month]:
    """Return the variables with the versions in each month's image, and its ``platforms`` if it does not have both."""
    return tomllib.loads(files(__package__).joinpath("images.toml").read_text(encoding="utf-8"))


def image_of(month: str, versions: Month) -> Image:
    """Return the image of a month, described like a real one; its digests depend on nothing but its content."""
    platforms = {}
    for architecture in versions.get("platforms", ("amd64", "arm64")):
        variables = {name: str(value) for name, value in versions.items() if name != "platforms"}
        product = {"NVIDIA_PRODUCT_NAME": "PyTorch", "NVIDIA_PYTORCH_VERSION": month}
        env = {"PATH": _PATH, **variables, "PYTHON_VERSION": "3.12.3", **product}
        digest = _digest(month, architecture, *env.values())
        size = 9_000_000_000 + int(digest[-6:], 16) * 64  # about 10 GB
        platforms[architecture] = PlatformImage(digest, size, env, _LABELS)
    return Image(_digest(*(platform.digest for platform in platforms.values())), platforms)


class PracticeRegistry:
    """One repository of the registry, of which ``nvidia/pytorch`` has images."""

    def __init__(self, ref: ImageRef) -> None:
        self.name = ref.name
        offered = months() if ref.repository == REPOSITORY else {}
        self._images = {f"{month}-py3": image_of(month, versions) for month, versions in offered.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def image(self, reference: str) -> Image | None:
        """Return the image of a tag or a digest; None if there is none."""
        by_digest = {image.digest: image for image in self._images.values()}
        return self._images.get(reference) or by_digest.get(reference)

    def tags(self) -> list[str]:
        """Return every tag; empty if there is no such repository."""
        return sorted(self._images)


def _digest(*parts: str) -> str:
    return "sha256:" + hashlib.sha256("\n".join(parts).encode()).hexdigest()
