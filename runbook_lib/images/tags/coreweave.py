"""The tags of CoreWeave's ``ml-containers``.

    [<branch>-]<commit>-<base|nccl>-cuda…[-<os>][-nccl…]-torch…[-vision…][-audio…][-abi…][-flash_attn…]

and for nightly builds ``[<commit>-]<edition>-<yymmddHH>-cuda…``.  Source: the workflows ``torch-base``, ``torch-nccl``,
``torch-nightly`` and ``build`` of coreweave/ml-containers and their history since 2023.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import Kind

if TYPE_CHECKING:
    from packaging.version import Version

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
_FORM = (
    "expected [branch-]commit-base-cuda…[-os]-torch…-vision…[-audio…][-abi…], or nccl for base and then -nccl… before "
    "-torch…."
)


@dataclass(frozen=True)
class CoreWeaveTag:
    """A tag and its ``parts``, empty if not in the tag.

    ``commit``: 7 digits, of ml-containers; only a nightly build may lack it.  ``date``: ``yymmddHH`` of a nightly
    build, UTC.
    """

    text: str
    parts: Mapping[str, str] = field(compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a tag of any of the forms; anything else raises RunbookError."""
        match = _TAG.fullmatch(text)
        if match is None:
            raise RunbookError(f"{text!r} is not a tag of CoreWeave's ml-containers: {_FORM}")
        parts = match.groupdict("")
        if not parts["commit"] and not parts["date"]:
            raise RunbookError(f"{text!r} does not begin with a commit, which is required except for nightly builds.")
        if (parts["edition"] == "nccl") != bool(parts["nccl"]):
            raise RunbookError(f"{text!r} contradicts itself: only the nccl edition has an NCCL version.")
        return cls(text, parts)

    @property
    def edition(self) -> str:
        """``base``, or ``nccl`` for an image with NCCL's tests."""
        return self.parts["edition"]

    @property
    def kind(self) -> Kind:
        """Release for a build of ``main`` with released versions."""
        if self.parts["branch"]:
            return "special"
        return "candidate" if self.parts["date"] or _version(self.parts["torch"]).is_prerelease else "release"

    @property
    def rank(self) -> tuple[Any, ...]:
        """The order: versions, PyTorch's first, then the date of nightly builds; the rest only makes it total.

        Commits have no order, so of two builds with the same versions neither is really newer.
        """
        return (*self._versions, self.parts["os"], self.parts["abi"], not self.parts["branch"], self.text)

    def is_older(self, than: "CoreWeaveTag") -> bool:
        """Return True if this tag is older than another of its edition, comparing the versions that both have."""
        for mine, theirs in zip(self._versions, than._versions, strict=True):
            if mine and theirs and mine != theirs:
                return bool(mine < theirs)
        return False

    @property
    def _versions(self) -> tuple[Any, ...]:
        """The versions and the date in order of weight, each empty if not in the tag."""
        torch, *rest = (_key(self.parts[part]) for part in ("torch", "cuda", "nccl", "vision", "audio"))
        return (torch, self.parts["date"], *rest)

    def __lt__(self, other: "CoreWeaveTag") -> bool:
        return self.rank < other.rank

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=1024)
def _version(text: str) -> "Version":
    """Return a version in the order of PyPA's specification; ``-1``, a build of NCCL, is a post-release there."""
    from packaging.version import Version  # takes 10 ms to import, which only these tags need

    return Version(text)


def _key(text: str) -> tuple["Version", ...]:
    return (_version(text),) if text else ()
