"""The families of images we know, as data: where each is published, how its tags read, and examples."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from runbook_lib.alibaba import AlibabaTag
from runbook_lib.coreweave import CoreWeaveTag
from runbook_lib.errors import RunbookError
from runbook_lib.image import ImageRef, NgcTag, Tag
from runbook_lib.nemo import NemoTag

T = TypeVar("T", bound=Tag)


@dataclass(frozen=True)
class Listing(Generic[T]):
    """Tags sorted out: each kind newest first.  ``others`` are of another form, in the order in which they came."""

    releases: tuple[T, ...]
    candidates: tuple[T, ...]
    specials: tuple[T, ...]
    others: tuple[str, ...]


@dataclass(frozen=True)
class Family(Generic[T]):
    """Images whose tags follow one rule.

    ``images``: registry and repository of each; ``read``: a tag's text to the tag, RunbookError for another form;
    ``examples``: tags as the publishers write them.
    """

    name: str
    images: tuple[str, ...]
    read: Callable[[str], T]
    examples: tuple[str, ...]

    def listed(self, texts: Iterable[str]) -> Listing[T]:
        """Sort out the tags of a registry."""
        tags: list[T] = []
        others: list[str] = []
        for text in texts:
            try:
                tags.append(self.read(text))
            except RunbookError:
                others.append(text)
        tags.sort(reverse=True)
        releases, candidates, specials = (
            tuple(tag for tag in tags if tag.kind == kind) for kind in ("release", "candidate", "special")
        )
        return Listing(releases, candidates, specials, tuple(others))


NGC = Family("NGC PyTorch", ("nvcr.io/nvidia/pytorch",), NgcTag.parse, ("26.04-py3", "25.09-py3", "26.04-py3-igpu"))
NEMO = Family(
    "NeMo",
    ("nvcr.io/nvidia/nemo", "nvcr.io/nvidian/nemo"),
    NemoTag.parse,
    ("26.06", "26.06.01", "26.08.rc5", "26.02.nemotron_3_super", "nightly"),
)
COREWEAVE = Family(
    "CoreWeave ml-containers",
    (
        "ghcr.io/coreweave/ml-containers/torch",
        "ghcr.io/coreweave/ml-containers/torch-extras",
        "ghcr.io/coreweave/ml-containers/nightly-torch",
        "ghcr.io/coreweave/ml-containers/nightly-torch-extras",
    ),
    CoreWeaveTag.parse,
    (
        "17ad6db-nccl-cuda12.9.1-ubuntu22.04-nccl2.29.2-1-torch2.10.0-vision0.25.0-audio2.10.0-abi1",
        "es-actions-7095c59-base-cuda12.4.1-ubuntu22.04-torch2.5.1-vision0.20.0-audio2.5.0",
        "afecfe9-nccl-cuda11.8.0-nccl2.16.2-1-torch2.0.0-vision0.15.1",
        "afecfe9-base-cuda12.0.1-torch2.0.0-vision0.15.1",
        "base-25080505-cuda12.9.1-ubuntu22.04-torch2.9.0a0-vision0.24.0a0-audio2.8.0a0",
    ),
)
ALIBABA = Family(
    "Alibaba training-nv-pytorch",
    ("egslingjun-registry.cn-wulanchabu.cr.aliyuncs.com/egslingjun/training-nv-pytorch",),
    AlibabaTag.parse,
    ("25.05", "25.05-serverless"),
)
AnyFamily = Family[NgcTag] | Family[NemoTag] | Family[CoreWeaveTag] | Family[AlibabaTag]
FAMILIES: tuple[AnyFamily, ...] = (NGC, NEMO, COREWEAVE, ALIBABA)


def family_of(ref: ImageRef) -> AnyFamily | None:
    """The family of an image, at its own registry or at one that mirrors it under the same path; None if unknown."""
    for family in FAMILIES:
        for image in family.images:
            path = image.partition("/")[2]
            if ref.name == image or ref.repository == path or ref.repository.endswith(f"/{path}"):
                return family
    return None
