"""The known families of images, as data: their registries and the format of their tags."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef, Kind, Tag, require_tag_length
from runbook_lib.images.tags.alibaba import AlibabaTag
from runbook_lib.images.tags.coreweave import CoreWeaveTag
from runbook_lib.images.tags.nemo import NemoTag
from runbook_lib.images.tags.ngc import NgcTag
from runbook_lib.images.tags.numbered import NumberedTag

T_co = TypeVar("T_co", bound=Tag, covariant=True)

_OTHER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class OtherTag:
    """A tag of an unknown family, ordered part by part, numbers by value: ``1.9`` comes before ``1.10``."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse any tag that the OCI specifications allow; anything else raises RunbookError."""
        if not _OTHER.fullmatch(text):
            raise RunbookError(f"{text!r} is not a tag: expected letters, digits and the signs . _ -.")
        return cls(text)

    @property
    def kind(self) -> Kind:
        """Always a release: other kinds are not known."""
        return "release"

    @property
    def rank(self) -> tuple[Any, ...]:
        """Words sort before numbers; the text itself makes the order total."""
        parts: list[tuple[int, int, str]] = []
        for part in filter(None, re.split(r"([0-9]+)", self.text)):
            parts.append((1, int(part), "") if part[0] in "0123456789" else (0, 0, part))
        return tuple(parts), self.text

    def __lt__(self, other: "OtherTag") -> bool:
        return self.rank < other.rank

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class TagListing(Generic[T_co]):
    """The tags of a registry by kind, newest first; ``unreadable``: tags in other formats, in the registry's order."""

    releases: tuple[T_co, ...]
    candidates: tuple[T_co, ...]
    specials: tuple[T_co, ...]
    unreadable: tuple[str, ...]


@dataclass(frozen=True)
class Family(Generic[T_co]):
    """Images whose tags follow one rule.

    ``images``: registry and repository of each; ``parse`` parses a tag of allowed length.
    """

    name: str
    images: tuple[str, ...]
    parse: Callable[[str], T_co]

    def read(self, text: str) -> T_co:
        """Parse a tag.  Raises RunbookError if it has a different format or is too long."""
        require_tag_length(text)
        return self.parse(text)

    def listed(self, texts: Iterable[str]) -> TagListing[T_co]:
        """Return the tags of a registry sorted by kind and age."""
        tags: list[T_co] = []
        unreadable: list[str] = []
        for text in texts:
            try:
                tags.append(self.read(text))
            except RunbookError:
                unreadable.append(text)
        by_kind: dict[Kind, list[T_co]] = {"release": [], "candidate": [], "special": []}
        for tag in sorted(tags, reverse=True):
            by_kind[tag.kind].append(tag)
        releases, candidates, specials = map(tuple, by_kind.values())
        return TagListing(releases, candidates, specials, tuple(unreadable))


NGC = Family("NGC PyTorch", ("nvcr.io/nvidia/pytorch",), NgcTag.parse)
NEMO = Family("NeMo", ("nvcr.io/nvidia/nemo", "nvcr.io/nvidian/nemo"), NemoTag.parse)
_COREWEAVE_NAMES = ("torch", "torch-extras", "nightly-torch", "nightly-torch-extras")
COREWEAVE = Family(
    "CoreWeave ml-containers",
    tuple(f"ghcr.io/coreweave/ml-containers/{name}" for name in _COREWEAVE_NAMES),
    CoreWeaveTag.parse,
)
ALIBABA = Family(
    "Alibaba training-nv-pytorch",
    ("egslingjun-registry.cn-wulanchabu.cr.aliyuncs.com/egslingjun/training-nv-pytorch",),
    AlibabaTag.parse,
)
#: Versions of CUDA, never months, at NGC and at Docker Hub.
CUDA = Family("CUDA", ("nvcr.io/nvidia/cuda", "docker.io/nvidia/cuda"), NumberedTag.parse_version)
#: NGC's other images, regardless of their names.
NUMBERED = Family("NGC", (), NumberedTag.parse)

NGC_HOST = "nvcr.io"
#: Images of an unknown family.
OTHER = Family("other", (), OtherTag.parse)
AnyFamily = Family[Tag]
FAMILIES: tuple[AnyFamily, ...] = (NGC, NEMO, COREWEAVE, ALIBABA)


def family_of(ref: ImageRef) -> AnyFamily | None:
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
    families: dict[str, AnyFamily] = {"nemo": NEMO, "alibaba": ALIBABA}
    if name not in families or not tag:
        return None
    family = families[name]
    return ImageRef.parse(family.images[0]).with_tag(family.read(tag))


def edition(tag: Tag) -> str:
    """Return the edition of a tag; images of different editions are for different machines or purposes."""
    if isinstance(tag, NgcTag):
        return tag.variant
    if isinstance(tag, NemoTag | CoreWeaveTag | AlibabaTag | NumberedTag):
        return tag.edition
    return ""


def newer_releases(family: AnyFamily, tag: Tag, names: Iterable[str]) -> list[Tag]:
    """Return the newer releases of a tag's edition, the newest first; ``names`` are all tags of the image."""
    releases = family.listed(names).releases
    return [release for release in releases if edition(release) == edition(tag) and tag < release]


def is_older(tag: Tag, than: Tag) -> bool:
    """Return True if a tag is older than another of its family and edition.

    Of two builds with the same versions, neither is older.
    """
    if edition(tag) != edition(than):
        return False
    if isinstance(tag, CoreWeaveTag) and isinstance(than, CoreWeaveTag):
        return tag.is_older(than)
    return tag < than


def is_of_older_release(tag: Tag, than: Tag) -> bool:
    """Return True if a tag is of an older release than another of its family, whatever their editions are."""
    if isinstance(tag, NumberedTag) and isinstance(than, NumberedTag):
        return tag.release < than.release
    if isinstance(tag, NgcTag | NemoTag | AlibabaTag) and isinstance(than, type(tag)):
        return (tag.year, tag.month) < (than.year, than.month)
    return is_older(tag, than)
