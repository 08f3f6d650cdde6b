"""The tags of CoreWeave's ``ml-containers``: composed, read, and searched by constraint.

    [<branch>-]<commit>-<base|nccl>-cuda…[-<os>][-nccl…]-torch…[-vision…][-audio…][-abi…][-flash_attn…]

and for nightly builds ``[<commit>-]<edition>-<yymmddHH>-cuda…``.  Source: the workflows ``torch-base``, ``torch-nccl``,
``torch-nightly`` and ``build`` of coreweave/ml-containers and their history since 2023.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, cast

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import Kind

_LONGEST = 128  # characters of a tag, by the OCI distribution specification
_PARTS = ("cuda", "nccl", "torch", "vision", "audio", "abi", "flash_attn")
# 12.9.1, 2.9.0a0, 2.0.0-rc1, 2.1.0.dev20230601, 2.16.2-1
_NUMBER = r"[0-9]{1,9}"
_VERSION = rf"{_NUMBER}(?:\.{_NUMBER})*(?:[-.]?(?:dev|a|b|rc|post){_NUMBER})?(?:-{_NUMBER})?"
_READ_VERSION = re.compile(
    rf"(?P<release>{_NUMBER}(?:\.{_NUMBER})*)(?:[-.]?(?P<stage>dev|a|b|rc|post)(?P<step>{_NUMBER}))?(?:-(?P<build>{_NUMBER}))?"
)
_STAGES = ("dev", "a", "b", "rc", "", "post")
_TAG = re.compile(
    r"(?:(?:(?P<branch>[A-Za-z0-9_][A-Za-z0-9_.-]*)-)?(?P<commit>[0-9a-f]{7,40})-)?"
    r"(?P<edition>base|nccl)-(?:(?P<date>[0-9]{8})-)?"
    rf"cuda(?P<cuda>{_VERSION})(?:-(?P<os>(?!nccl|torch)[a-z]+[0-9]+(?:\.[0-9]+)*))?"
    rf"(?:-nccl(?P<nccl>{_VERSION}))?-torch(?P<torch>{_VERSION})(?:-vision(?P<vision>{_VERSION}))?"
    rf"(?:-audio(?P<audio>{_VERSION}))?(?:-abi(?P<abi>[01]))?(?:-flash_attn(?P<flash_attn>{_VERSION}))?"
)
_TERM = re.compile(r"(?P<part>[a-z_]+)(?P<sign>[<>]=?|[!=]=|=)(?P<value>\S+)")
_SIGNS: dict[str, Callable[[int], bool]] = {
    "=": lambda sign: sign == 0,
    "==": lambda sign: sign == 0,
    "!=": lambda sign: sign != 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}


@dataclass(frozen=True)
class CoreWeaveTag:
    """Versions as the tag has them, empty where it names none.  To make one is to check it: RunbookError for a part
    that does not fit, or for more than 128 characters.

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
        if len(text := str(self)) > _LONGEST:
            shorter = " A shorter name of the branch helps." if self.branch else ""
            raise RunbookError(f"The tag {text} has {len(text)} characters, and a tag may have {_LONGEST}.{shorter}")
        match = _TAG.fullmatch(text)
        if match is None or any((match[one.name] or "") != getattr(self, one.name) for one in fields(self)):
            raise RunbookError(f"{text!r} is not a tag of CoreWeave's ml-containers: {_FORM}")
        if not self.commit and not self.date:
            raise RunbookError(f"{text!r} lacks the commit, which every tag but a nightly one begins with.")
        if (self.edition == "nccl") != bool(self.nccl):
            raise RunbookError(f"{text!r} contradicts itself: the nccl edition names its NCCL, the base edition none.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a tag of any of the forms; anything else raises RunbookError."""
        match = _TAG.fullmatch(text) if len(text) <= _LONGEST else None
        if match is None:
            raise RunbookError(f"{text[:200]!r} is not a tag of CoreWeave's ml-containers: {_FORM}")
        return cls(**cast("dict[str, Any]", {name: value or "" for name, value in match.groupdict().items()}))

    @property
    def kind(self) -> Kind:
        """What stands on ``main`` and on released versions is a release."""
        if self.branch:
            return "special"
        final = not self.date and _version(self.torch)[1] >= _STAGES.index("")
        return "release" if final else "candidate"

    @property
    def notes(self) -> tuple[str, ...]:
        """What the edition is for, and where it is no release."""
        if self.edition == "nccl":
            told = ["The nccl edition stands on nccl-tests images: for fast multi-node runs."]
        else:
            told = ["The base edition stands on plain CUDA images: smaller, without CoreWeave's NCCL."]
        if self.branch:
            told.append(f"A build of the branch {self.branch}.")
        if self.date:
            told.append("A nightly build of unreleased PyTorch.")
        return tuple(told)

    @property
    def suffix(self) -> str:
        """The tag without branch and commit: what the workflows take as their tag."""
        told = [self.edition, self.date, f"cuda{self.cuda}", self.os]
        told += [f"{part}{value}" for part in _PARTS[1:] if (value := getattr(self, part))]
        return "-".join(filter(None, told))

    @property
    def rank(self) -> tuple[Any, ...]:
        """By versions, PyTorch's first, and among nightly builds of it by date; the rest only makes the order total.

        A commit says nothing of time, so of two builds with the same versions neither is really newer.
        """
        return (*self._ages, self.os, self.abi, not self.branch, str(self))

    def is_older(self, other: "CoreWeaveTag") -> bool:
        """Whether it is older than another of its edition, by all that both name."""
        both = [(one, two) for one, two in zip(self._ages, other._ages, strict=True) if one and two]
        return [one for one, _ in both] < [two for _, two in both]

    @property
    def _ages(self) -> tuple[Any, ...]:
        """What tells older from newer, empty where the tag does not name it."""
        torch, *rest = (
            _version(value) if (value := getattr(self, part)) else ()
            for part in ("torch", "cuda", "nccl", "vision", "audio")
        )
        return (torch, self.date, *rest)

    def __lt__(self, other: "CoreWeaveTag") -> bool:
        return self.rank < other.rank

    def __str__(self) -> str:
        return "-".join(filter(None, (self.branch, self.commit, self.suffix)))


_FORM = (
    "expected [branch-]commit-base-cuda…[-os]-torch…-vision…[-audio…][-abi…], or nccl for base and then -nccl… before "
    "-torch…."
)


def search(tags: Iterable[CoreWeaveTag], constraints: str) -> list[CoreWeaveTag]:
    """The tags that satisfy all terms, newest first: ``edition=nccl cuda>=12.9 cuda<13 torch=2.10 os=ubuntu22.04``.

    A version is compared in as many numbers as the term gives: ``cuda=12.9`` and ``cuda<=12.9`` both find 12.9.1.
    A tag that does not name the part satisfies ``!=`` alone.  Raises RunbookError for a term that is none.
    """
    tests = [_term(text) for text in constraints.split()]
    return sorted((tag for tag in tags if all(test(tag) for test in tests)), reverse=True)


def _term(text: str) -> Callable[[CoreWeaveTag], bool]:
    match = _TERM.fullmatch(text)
    names = [one.name for one in fields(CoreWeaveTag)]
    if match is None or match["part"] not in names:
        raise RunbookError(
            f"The constraint {text!r} is none: expected a part, a sign and a value, such as cuda>=12.9 or "
            f"edition=nccl. Parts: {', '.join(sorted(names))}."
        )
    part, sign, wanted = match["part"], match["sign"], match["value"]
    if part not in _PARTS:
        if sign not in ("=", "==", "!="):
            raise RunbookError(f"The constraint {text!r} orders what has no order: {part} can be = or !=.")
        return lambda tag: (getattr(tag, part) == wanted) == (sign != "!=")
    if _READ_VERSION.fullmatch(wanted) is None:
        raise RunbookError(f"The constraint {text!r} names no version: expected one such as 12.9 or 2.0.0-rc1.")

    def holds(tag: CoreWeaveTag) -> bool:
        found = getattr(tag, part)
        return _SIGNS[sign](_compared(found, wanted)) if found else sign == "!="

    return holds


def _compared(found: str, wanted: str) -> int:
    """Negative, 0 or positive, in as many numbers as ``wanted`` gives."""
    one, other = _version(found), _version(wanted)
    if "-" not in wanted and other[1] == _STAGES.index(""):
        one, other = one[0][: len(other[0])], other[0]
    return (one > other) - (one < other)


def _version(text: str) -> tuple[Any, ...]:
    """A key by which versions are ordered: dev, a, b, rc come before the release, post and builds after it."""
    match = _READ_VERSION.fullmatch(text)
    if match is None:
        return ((), 0, 0, 0)
    numbers = tuple(map(int, match["release"].split(".")))
    return numbers, _STAGES.index(match["stage"] or ""), int(match["step"] or 0), int(match["build"] or 0)
