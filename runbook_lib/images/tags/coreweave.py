"""The tags of CoreWeave's ``ml-containers``: composed, read, and searched by constraint.

    [<branch>-]<commit>-<base|nccl>-cuda…[-<os>][-nccl…]-torch…[-vision…][-audio…][-abi…][-flash_attn…]

and for nightly builds ``[<commit>-]<edition>-<yymmddHH>-cuda…``.  Source: the workflows ``torch-base``, ``torch-nccl``,
``torch-nightly`` and ``build`` of coreweave/ml-containers and their history since 2023.
"""

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import Kind, require_tag_length

if TYPE_CHECKING:
    from packaging.version import Version

_PARTS = ("cuda", "nccl", "torch", "vision", "audio", "abi", "flash_attn")
# 12.9.1, 2.9.0a0, 2.0.0-rc1, 2.1.0.dev20230601, 2.16.2-1
_NUMBER = r"[0-9]{1,9}"
_VERSION = rf"{_NUMBER}(?:\.{_NUMBER})*(?:[-.]?(?:dev|a|b|rc|post){_NUMBER}|-{_NUMBER})?"
_TAG = re.compile(
    r"(?:(?:(?P<branch>[A-Za-z0-9_][A-Za-z0-9_.-]*)-)?(?P<commit>[0-9a-f]{7,40})-)?"
    r"(?P<edition>base|nccl)-(?:(?P<date>[0-9]{8})-)?"
    rf"cuda(?P<cuda>{_VERSION})(?:-(?P<os>(?!nccl|torch)[a-z]+[0-9]+(?:\.[0-9]+)*))?"
    rf"(?:-nccl(?P<nccl>{_VERSION}))?-torch(?P<torch>{_VERSION})(?:-vision(?P<vision>{_VERSION}))?"
    rf"(?:-audio(?P<audio>{_VERSION}))?(?:-abi(?P<abi>[01]))?(?:-flash_attn(?P<flash_attn>{_VERSION}))?"
)
_TERM = re.compile(r"(?P<part>[a-z_]+)(?P<sign>[<>]=?|[!=]=|=)(?P<value>\S+)")
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class CoreWeaveTag:
    """A tag with its versions, empty if not in the tag.  Raises RunbookError for an invalid part or an overlong tag.

    ``commit``: 7 digits, of ml-containers; only a nightly build may lack it.  ``date``: ``yymmddHH`` of a nightly
    build, UTC.
    """

    edition: Literal["base", "nccl"]
    cuda: str
    torch: str
    vision: str = ""
    audio: str = ""
    abi: str = ""
    nccl: str = ""
    os: str = ""
    commit: str = ""
    branch: str = ""
    date: str = ""
    flash_attn: str = ""

    def __post_init__(self) -> None:
        text = str(self)
        require_tag_length(text, " Shorten the name of the branch." if self.branch else "")
        match = _TAG.fullmatch(text)
        if match is None or any((match[part.name] or "") != getattr(self, part.name) for part in fields(self)):
            raise RunbookError(f"{text!r} is not a tag of CoreWeave's ml-containers: {_FORM}")
        if not self.commit and not self.date:
            raise RunbookError(f"{text!r} does not begin with a commit, which is required except for nightly builds.")
        if (self.edition == "nccl") != bool(self.nccl):
            raise RunbookError(f"{text!r} contradicts itself: only the nccl edition has an NCCL version.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a tag of any of the forms; anything else raises RunbookError."""
        match = _TAG.fullmatch(text)
        if match is None:
            raise RunbookError(f"{text!r} is not a tag of CoreWeave's ml-containers: {_FORM}")
        return cls(**cast("dict[str, Any]", {name: value or "" for name, value in match.groupdict().items()}))

    @property
    def kind(self) -> Kind:
        """Release for a build of ``main`` with released versions."""
        if self.branch:
            return "special"
        return "candidate" if self.date or _version(self.torch).is_prerelease else "release"

    @property
    def rank(self) -> tuple[Any, ...]:
        """The order: versions, PyTorch's first, then the date of nightly builds; the rest only makes it total.

        Commits have no order, so of two builds with the same versions neither is really newer.
        """
        return (*self._versions, self.os, self.abi, not self.branch, str(self))

    def is_older(self, than: "CoreWeaveTag") -> bool:
        """Return True if this tag is older than another of its edition, comparing the versions that both have."""
        for mine, theirs in zip(self._versions, than._versions, strict=True):
            if mine and theirs and mine != theirs:
                return bool(mine < theirs)
        return False

    @property
    def _versions(self) -> tuple[Any, ...]:
        """The versions and the date in order of weight, each empty if not in the tag."""
        torch, *rest = (_key(getattr(self, part)) for part in ("torch", "cuda", "nccl", "vision", "audio"))
        return (torch, self.date, *rest)

    def __lt__(self, other: "CoreWeaveTag") -> bool:
        return self.rank < other.rank

    def __str__(self) -> str:
        parts = [self.branch, self.commit, self.edition, self.date, f"cuda{self.cuda}", self.os]
        for part in _PARTS[1:]:
            if value := getattr(self, part):
                parts.append(f"{part}{value}")
        return "-".join(filter(None, parts))


_FORM = (
    "expected [branch-]commit-base-cuda…[-os]-torch…-vision…[-audio…][-abi…], or nccl for base and then -nccl… before "
    "-torch…."
)


def search(tags: Iterable[CoreWeaveTag], constraints: str) -> list[CoreWeaveTag]:
    """Return the tags that satisfy all terms, newest first: ``edition=nccl cuda>=12.9 torch=2.10 os=ubuntu22.04``.

    Only as many numbers as in the term are compared: ``cuda=12.9`` and ``cuda<=12.9`` both match 12.9.1.
    A tag that does not name the part satisfies only ``!=``.  Raises RunbookError for an invalid term.
    """
    tests = [_term(text) for text in constraints.split()]
    return sorted((tag for tag in tags if all(test(tag) for test in tests)), reverse=True)


def _term(text: str) -> Callable[[CoreWeaveTag], bool]:
    match = _TERM.fullmatch(text)
    names = [field.name for field in fields(CoreWeaveTag)]
    if match is None or match["part"] not in names:
        raise RunbookError(
            f"The constraint {text!r} is invalid: expected a part, a sign and a value, such as cuda>=12.9 or "
            f"edition=nccl. Parts: {', '.join(sorted(names))}."
        )
    part, sign, wanted = match["part"], match["sign"], match["value"]
    compare = _SIGNS[sign]
    if part not in _PARTS:
        if "=" not in sign or sign in ("<=", ">="):
            raise RunbookError(f"The constraint {text!r} is invalid: {part} has no order, so use = or !=.")
        return lambda tag: compare(getattr(tag, part), wanted)
    if re.fullmatch(_VERSION, wanted) is None:
        raise RunbookError(f"The constraint {text!r} has no version: expected a version such as 12.9 or 2.0.0-rc1.")
    expected = _version(wanted)

    def satisfies(tag: CoreWeaveTag) -> bool:
        if not getattr(tag, part):
            return sign == "!="
        version = _version(getattr(tag, part))
        if expected.is_prerelease or expected.is_postrelease:
            return compare(version, expected)
        return compare(version.release[: len(expected.release)], expected.release)

    return satisfies


@lru_cache(maxsize=1024)
def _version(text: str) -> "Version":
    """Return a version in the order of PyPA's specification; ``-1``, a build of NCCL, is a post-release there."""
    from packaging.version import Version  # takes 10 ms to import, which only these tags need

    return Version(text)


def _key(text: str) -> tuple["Version", ...]:
    return (_version(text),) if text else ()
