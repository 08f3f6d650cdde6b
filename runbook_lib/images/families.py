"""The known families of images, as data: their registries and the format of their tags."""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from runbook_lib.errors import RunbookError
from runbook_lib.images import tags
from runbook_lib.images.reference import ImageRef, Tag, require_tag_length


@dataclass(frozen=True)
class Family:
    """Images whose tags follow one rule.

    ``images``: registry and repository of each; ``parse`` parses a tag of allowed length.
    """

    name: str
    images: tuple[str, ...]
    parse: Callable[[str], Tag]

    def read(self, text: str) -> Tag:
        """Parse a tag.  Raises RunbookError if it has a different format or is too long."""
        require_tag_length(text)
        return self.parse(text)

    def reads(self, text: str) -> bool:
        """Return True for a tag of this family's format."""
        try:
            self.read(text)
        except RunbookError:
            return False
        return True

    def listed(self, texts: Iterable[str]) -> list[Tag]:
        """Return the tags of a registry, the newest first, without those in other formats."""
        tags = []
        for text in texts:
            with contextlib.suppress(RunbookError):
                tags.append(self.read(text))
        return sorted(tags, reverse=True)

    def newer_releases(self, tag: Tag, texts: Iterable[str]) -> list[Tag]:
        """Return the newer releases of a tag's edition, the newest first; ``texts`` are all tags of the image."""
        same = [each for each in self.listed(texts) if each.kind == "release" and each.edition == tag.edition]
        return [each for each in same if tag < each]


NGC = Family("NGC PyTorch", ("nvcr.io/nvidia/pytorch",), tags.parse_ngc)
NEMO = Family("NeMo", ("nvcr.io/nvidia/nemo", "nvcr.io/nvidian/nemo"), tags.parse_nemo)
_COREWEAVE_NAMES = ("torch", "torch-extras", "nightly-torch", "nightly-torch-extras")
COREWEAVE = Family(
    "CoreWeave ml-containers",
    tuple(f"ghcr.io/coreweave/ml-containers/{name}" for name in _COREWEAVE_NAMES),
    tags.parse_coreweave,
)
ALIBABA = Family(
    "Alibaba training-nv-pytorch",
    ("egslingjun-registry.cn-wulanchabu.cr.aliyuncs.com/egslingjun/training-nv-pytorch",),
    tags.parse_alibaba,
)
#: Versions of CUDA, never months, at NGC and at Docker Hub.
CUDA = Family("CUDA", ("nvcr.io/nvidia/cuda", "docker.io/nvidia/cuda"), tags.parse_version)
#: NGC's other images, regardless of their names.
NUMBERED = Family("NGC", (), tags.parse_numbered)

NGC_HOST = "nvcr.io"
#: Images of an unknown family.
OTHER = Family("other", (), tags.parse_other)
FAMILIES: tuple[Family, ...] = (NGC, NEMO, COREWEAVE, ALIBABA)


def family_of(ref: ImageRef) -> Family | None:
    """Return the family of an image, at its own registry or at a mirror with the same path; None if unknown."""
    for family in (*FAMILIES, CUDA):
        for image in family.images:
            path = image.partition("/")[2]
            if ref.name == image or ref.repository == path or ref.repository.endswith(f"/{path}"):
                return family
    if ref.registry == NGC_HOST:
        return NUMBERED
    return None


def named_image(text: str) -> ImageRef | None:
    """Return the image for a short name such as ``nemo:26.06`` or ``alibaba:25.05``; None for other names."""
    name, _, tag = text.partition(":")
    families: dict[str, Family] = {"nemo": NEMO, "alibaba": ALIBABA}
    if name not in families or not tag:
        return None
    family = families[name]
    return ImageRef.parse(family.images[0]).with_tag(family.read(tag))
