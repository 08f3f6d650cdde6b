"""The families of images we know, as data: where each is published, how its tags read, and examples."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef, Kind, Tag
from runbook_lib.images.tags.alibaba import AlibabaTag
from runbook_lib.images.tags.coreweave import CoreWeaveTag
from runbook_lib.images.tags.nemo import NemoTag
from runbook_lib.images.tags.ngc import NgcTag

T = TypeVar("T", bound=Tag)

_OTHER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class OtherTag:
    """A tag of which no rule is known.  Ordered part by part, numbers by their value: ``1.9`` comes before ``1.10``."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read any tag that the OCI specifications allow; anything else raises RunbookError."""
        if not _OTHER.fullmatch(text):
            raise RunbookError(
                f"{text[:200]!r} is not a tag: expected at most 128 letters, digits and the signs . _ -."
            )
        return cls(text)

    @property
    def kind(self) -> Kind:
        """Nothing is known of it."""
        return "release"

    @property
    def notes(self) -> tuple[str, ...]:
        """Nothing is known of it."""
        return ()

    @property
    def rank(self) -> tuple[Any, ...]:
        """Words sort before numbers; the text itself makes the order total."""
        parts = (part for part in re.split(r"([0-9]+)", self.text) if part)
        return tuple((1, int(part), "") if part[0] in "0123456789" else (0, 0, part) for part in parts), self.text

    def __lt__(self, other: "OtherTag") -> bool:
        return self.rank < other.rank

    def __str__(self) -> str:
        return self.text


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
#: Images of one's own, by tags of which no rule is known.
OTHER = Family("other", (), OtherTag.parse, ("1.10", "v2-rc1"))
AnyFamily = Family[NgcTag] | Family[NemoTag] | Family[CoreWeaveTag] | Family[AlibabaTag] | Family[OtherTag]
FAMILIES: tuple[AnyFamily, ...] = (NGC, NEMO, COREWEAVE, ALIBABA)


def family_of(ref: ImageRef) -> AnyFamily | None:
    """The family of an image, at its own registry or at one that mirrors it under the same path; None if unknown."""
    for family in FAMILIES:
        for image in family.images:
            path = image.partition("/")[2]
            if ref.name == image or ref.repository == path or ref.repository.endswith(f"/{path}"):
                return family
    return None


def edition(tag: Tag) -> str:
    """Return the edition of a tag; images of different editions are for different machines or purposes."""
    if isinstance(tag, NgcTag):
        return tag.variant
    if isinstance(tag, NemoTag):
        return tag.name
    return tag.edition if isinstance(tag, CoreWeaveTag | AlibabaTag) else ""


def is_older(tag: Tag, other: Tag) -> bool:
    """Return True if a tag is older than another of its family.

    Of two builds of the same versions, or of two editions, neither is.
    """
    if edition(tag) != edition(other):
        return False
    if isinstance(tag, CoreWeaveTag) and isinstance(other, CoreWeaveTag):
        return tag.is_older(other)
    return tag < other
