"""Image references, tags, and the description of an image by its registry.

How each family reads its tags is in ``families``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from runbook_lib.errors import RunbookError

# The grammar of the OCI distribution specification and of the reference package of distribution/distribution.
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_DOMAIN = rf"(?:(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?)"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:(?P<registry>{_DOMAIN})/)?(?P<repository>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}))?"
)
_LONGEST_NAME = 255  # characters of registry and repository: the limit of the reference package
LONGEST_TAG = 128  # characters

#: A candidate is not final: a release candidate or nightly build.  A special image has one purpose: a variant for other
#: hardware, an image for one model, a build of a branch, a tag that moves.
Kind = Literal["release", "candidate", "special"]

#: Megatron-LM's ``IMAGE_TYPE``.  A repository with one image has only dev.
ImageType = Literal["dev", "lts"]


@dataclass(frozen=True)
class Tag:
    """A tag as its family reads it: equal to one of the same text, and ordered within its family.

    ``release`` is the order of releases, whatever their editions are, empty if the family knows none; ``versions`` are
    further parts in order of weight, each empty if it is not in the tag.  ``edition``: images of different editions
    are for different machines or purposes.  ``notes`` are remarks on the image.
    """

    text: str
    release: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    versions: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    kind: Kind = field(default="release", compare=False)
    edition: str = field(default="", compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def is_older(self, than: "Tag") -> bool:
        """Return True if this tag is older than another of its family and edition, by the parts that both have.

        Of two builds with the same versions, neither is older.
        """
        if self.edition != than.edition:
            return False
        for mine, theirs in zip((self.release, *self.versions), (than.release, *than.versions), strict=True):
            if mine and theirs and mine != theirs:
                return bool(mine < theirs)
        return False

    def __lt__(self, other: "Tag") -> bool:
        """Return True if this tag comes before another; the text makes the order total."""
        return (self.release, self.versions, self.text) < (other.release, other.versions, other.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ImageRef:
    """A reference to an image; its parts are named as in the OCI specifications."""

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``registry/repository[:tag][@digest]``; anything else raises RunbookError."""
        require_tag_length(text.partition("@")[0].rpartition("/")[2].partition(":")[2])
        match = _REFERENCE.fullmatch(text)
        # Docker's rule: the first part is a registry when it has a dot or a port, or is localhost.
        if match is None or not re.search(r"[.:]|^localhost$", match["registry"] or ""):
            raise RunbookError(f"{text!r} is not a full image reference: {_describe_problem(text)}")
        if len(match["registry"]) + 1 + len(match["repository"]) > _LONGEST_NAME:
            raise RunbookError(
                f"{text[:60]!r}… is not a full image reference: registry and repository have more than "
                f"{_LONGEST_NAME} characters together."
            )
        return cls(match["registry"], match["repository"], match["tag"], match["digest"])

    @property
    def name(self) -> str:
        """Registry and repository, without tag and digest."""
        return f"{self.registry}/{self.repository}"

    def with_tag(self, tag: Tag, digest: str | None = None) -> "ImageRef":
        """Return the same image with a different tag and its digest; the old digest belongs to the old tag."""
        return ImageRef(self.registry, self.repository, str(tag), digest)

    def __str__(self) -> str:
        text = self.name
        if self.tag:
            text += f":{self.tag}"
        if self.digest:
            text += f"@{self.digest}"
        return text


def require_tag_length(tag: str) -> None:
    """Raise RunbookError for a tag that is longer than the OCI specifications allow."""
    if len(tag) > LONGEST_TAG:
        problem = f"it has {len(tag)} characters, but a tag may have at most {LONGEST_TAG}"
        raise RunbookError(f"The tag {tag[:60]!r}… is too long: {problem}.")


def _describe_problem(text: str) -> str:
    if digest := re.search("@(sha256|sha512):([0-9a-fA-F]*)$", text):
        expected = int(digest[1][3:]) // 4
        return f"its digest has {len(digest[2])} digits, and {digest[1]} has {expected} lowercase ones."
    return "expected registry/repository:tag, such as nvcr.io/nvidia/pytorch:26.04-py3."


@dataclass(frozen=True)
class PlatformImage:
    """The image for one platform: the digest of its manifest, and its environment variables and labels.

    ``size``: bytes to download, config and layers.
    """

    digest: str
    size: int
    env: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Image:
    """The image of a tag.  ``digest`` is the digest of the index, or of the manifest if there is no index.

    ``platforms`` has the names of build rows as keys: ``amd64``, ``arm64``; other systems in full: ``windows/amd64``.
    """

    digest: str
    platforms: Mapping[str, PlatformImage]
