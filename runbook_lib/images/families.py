"""The known families of images, as data: their registries and the formats of their tags.

Each ``parse`` function parses a tag of its format, and raises RunbookError for anything else.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef, Kind, Tag, require_tag_length

if TYPE_CHECKING:
    from packaging.version import Version

_MONTH = r"(?P<year>[0-9]{2})\.(?P<month>0[1-9]|1[0-2])"

# Monthly NGC images: 26.04-py3, 26.04-py3-igpu

_NGC = re.compile(rf"{_MONTH}-(?P<variant>py3(?:-[a-z0-9]+)*)")


def parse_ngc(text: str) -> Tag:
    """Parse ``YY.MM-py3[-variant]``; for anything else RunbookError describes the problem.

    A variant is special: for different hardware or a different purpose than the plain image.
    """
    match = _NGC.fullmatch(text)
    if match is None:
        raise RunbookError(f"{text!r} is not a tag of the monthly NGC images: {_describe_problem(text)}")
    kind: Kind = "release" if match["variant"] == "py3" else "special"
    return Tag(text, _month(match), kind=kind, edition=match["variant"])


def _month(match: re.Match[str]) -> tuple[int, int]:
    return int(match["year"]), int(match["month"])


def _describe_problem(text: str) -> str:
    if "/" in text or ":" in text:
        return "give only the tag, such as 26.04-py3, not an image reference."
    if _NGC.fullmatch(plain := text.strip().lower()):
        return f"it has spaces or capitals; did you mean {plain!r}?"
    if re.fullmatch(r"[0-9]{2}\.[1-9]", text):
        # A number loses its last zero: 26.1 may have been 26.10.
        october = ""
        if text.endswith("1"):
            october = f" or '{text}0-py3'"
        return f"a month has two digits. Did you mean '{text[:3]}0{text[3:]}-py3'{october}? Give the complete tag."
    if _NGC.fullmatch(f"{text}-py3"):
        return f"the variant is missing; did you mean '{text}-py3'?"
    return "expected YY.MM-py3, such as 26.04-py3."


# NeMo images: 26.06, 26.06.01, 26.08.rc5, 26.02.nemotron_3_super, and moving names, by Megatron-Bridge's documentation
# and history

_MOVING = ("dev", "latest", "nightly")
_GENERAL = "framework"  # in the names of the general image until 24.05
_NEMO = re.compile(
    rf"{_MONTH}(?:\.(?P<patch>[0-9]{{2}}))?(?:\.(?:rc(?P<candidate>0|[1-9][0-9]{{0,3}})"
    r"|(?P<name>(?!rc(?:[0-9._-]|$))[a-z][a-z0-9_-]*(?:\.[a-z0-9_-]+)*)))?"
)


def parse_nemo(text: str) -> Tag:
    """Parse a tag of a NeMo image.

    An image of one model, and one whose tag moves (``nightly``, in an internal namespace), is special.
    """
    if text in _MOVING:
        return Tag(text, (0, 0), ((0,),), "special", text, (f"The image of {text} changes: pin a month or a digest.",))
    match = _NEMO.fullmatch(text)
    if match is None:
        raise RunbookError(
            f"{text!r} is not a tag of the NeMo images: expected YY.MM, YY.MM.rcN or YY.MM.name, such as "
            "26.06, 26.08.rc5 or 26.02.nemotron_3_super."
        )
    kind: Kind = "release"
    edition, notes = match["name"] or "", tuple[str, ...]()
    if edition == _GENERAL:
        edition = ""
    if edition:
        kind, notes = "special", (f"Made for {edition}, not for general use.",)
    elif match["candidate"]:
        kind, notes = "candidate", ("A release candidate: it may disappear after the release.",)
    # The order: patch, then special images, candidates by number, and the release.
    last = int(match["patch"] or -1), ("special", "candidate", "release").index(kind), int(match["candidate"] or 0)
    return Tag(text, _month(match), (last,), kind, edition, notes)


# Alibaba's training-nv-pytorch: 25.05, 25.05-serverless, by its release notes of 25.05.  A release is built on NGC's
# image of the month before, since NGC publishes at the end of a month.

_ALIBABA = re.compile(rf"{_MONTH}(?:-(?P<edition>serverless))?")
#: Edition → the products that it is for.
_PRODUCTS = {
    "": "Lingjun single-tenant",
    "serverless": "ACS and Lingjun multi-tenant, not for Lingjun single-tenant",
}


def parse_alibaba(text: str) -> Tag:
    """Parse ``YY.MM[-serverless]``.  Both editions are releases."""
    match = _ALIBABA.fullmatch(text)
    if match is None:
        raise RunbookError(
            f"{text!r} is not a tag of training-nv-pytorch: expected YY.MM or YY.MM-serverless, such as 25.05."
        )
    tag = Tag(text, _month(match), edition=match["edition"] or "")
    return replace(
        tag, notes=(f"For {_PRODUCTS[tag.edition]}.", f"Built on NGC's {built_on(tag)}, of the month before.")
    )


def built_on(tag: Tag) -> Tag:
    """Return the tag of the NGC image that it is built on: the previous month's."""
    year, month = tag.release
    year, month = (year, month - 1) if month > 1 else ((year - 1) % 100, 12)
    return parse_ngc(f"{year:02}.{month:02}-py3")


def vpc_address(tag: Tag, region: str) -> ImageRef:
    """Return the reference to pull inside a VPC in a region such as ``cn-beijing``.  Raises RunbookError."""
    if not re.fullmatch(r"[a-z]{2}-[a-z]+(?:-[a-z0-9]+)*", region):
        raise RunbookError(f"{region[:60]!r} is not the ID of an Alibaba region, such as cn-beijing.")
    return ImageRef(f"acs-registry-vpc.{region}.cr.aliyuncs.com", "egslingjun/training-nv-pytorch", str(tag))


# CoreWeave's ml-containers:
#     [<branch>-]<commit>-<base|nccl>-cuda…[-<os>][-nccl…]-torch…[-vision…][-audio…][-abi…][-flash_attn…]
# and for nightly builds [<commit>-]<edition>-<yymmddHH>-cuda….  Source: the workflows torch-base, torch-nccl,
# torch-nightly and build of coreweave/ml-containers and their history since 2023.

# 12.9.1, 2.9.0a0, 2.0.0-rc1, 2.1.0.dev20230601, 2.16.2-1
_NUMBER = r"[0-9]{1,9}"
_VERSION = rf"{_NUMBER}(?:\.{_NUMBER})*(?:[-.]?(?:dev|a|b|rc|post){_NUMBER}|-{_NUMBER})?"
_COREWEAVE = re.compile(
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


def parse_coreweave(text: str) -> Tag:
    """Parse a tag of any of the forms.

    The edition is ``base``, or ``nccl`` for an image with NCCL's tests.  A build of ``main`` with released versions is
    a release; only a nightly build (``yymmddHH``, UTC) may lack the commit, of ml-containers.  Commits have no order.
    """
    match = _COREWEAVE.fullmatch(text)
    if match is None:
        raise RunbookError(f"{text!r} is not a tag of CoreWeave's ml-containers: {_FORM}")
    parts = match.groupdict("")
    if not parts["commit"] and not parts["date"]:
        raise RunbookError(f"{text!r} does not begin with a commit, which is required except for nightly builds.")
    if (parts["edition"] == "nccl") != bool(parts["nccl"]):
        raise RunbookError(f"{text!r} contradicts itself: only the nccl edition has an NCCL version.")
    torch, *rest = (_version(parts[part]) for part in ("torch", "cuda", "nccl", "vision", "audio"))
    kind: Kind = "candidate" if parts["date"] or torch[0].is_prerelease else "release"
    return Tag(
        text, versions=(torch, parts["date"], *rest), kind="special" if parts["branch"] else kind,
        edition=parts["edition"],
    )  # fmt: skip


def _version(text: str) -> tuple["Version", ...]:
    """Return a version in the order of PyPA's specification, or nothing; ``-1``, a build of NCCL, is a post-release."""
    from packaging.version import Version  # takes 10 ms to import, which only these tags need

    return (Version(text),) if text else ()


# NGC's other images, and CUDA's: a version or a month, followed by words with versions, such as
# 26.03-cuda13.2-devel-ubuntu24.04, 13.0.2-cudnn-devel-ubuntu24.04, 24.05-vllm-python-py3 and 1.2.0rc5

_NUMBERED = re.compile(
    r"[vr]?(?P<version>[0-9]{1,9}(?:\.[0-9]{1,9}){1,5})(?P<candidate>[.-]?(?:rc|alpha|beta|a|b|dev)[0-9]{1,9})?"
    r"(?P<post>[.-]?post[0-9]{1,9})?(?P<rest>(?:[._-][A-Za-z0-9]+)*)"
)
_NUMBERED_MONTH = re.compile(r"(?:1[6-9]|[2-9][0-9])\.(?:0[1-9]|1[0-2])")
_NUMBERS = re.compile(r"(?<![0-9])[0-9]++(?:\.[0-9]++)+")
_NUMBERS_BUT_UBUNTU = re.compile(rf"(?<!ubuntu){_NUMBERS.pattern}")


def parse_numbered(text: str) -> Tag:
    """Parse a tag that begins with a version of at least two numbers.

    It is ordered by that version, with candidates before and corrections after it, then by the later versions.  The
    edition is the words after the version: ``cuda-devel-ubuntu``, ``tf2-py3``; versions within them are ignored.
    After a month, so is that of Ubuntu, which each month's image has one of.  The version of cuDNN is a part of its
    word until CUDA 12.3: ``12.3.2-cudnn9-devel-ubuntu22.04``.
    """
    match = _NUMBERED.fullmatch(text)
    if match is None:
        raise RunbookError(f"{text!r} is not a tag with a version, such as 26.04-py3 or 13.0.2-devel-ubuntu24.04.")
    candidate, rest = match["candidate"], match["rest"]
    release = _numbers(match["version"]), -1 if candidate else 0, _number(candidate), _number(match["post"])
    numbers = _NUMBERS if _NUMBERED_MONTH.fullmatch(match["version"]) else _NUMBERS_BUT_UBUNTU
    edition = re.sub("cudnn[0-9]+", "cudnn", numbers.sub("", rest)).strip("-._")
    later = [_numbers(part) for part in _NUMBERS.findall(rest)]
    return Tag(text, release, (later,), "candidate" if candidate else "release", edition)


def parse_version(text: str) -> Tag:
    """Parse a tag that begins with a version that is no month."""
    tag, match = parse_numbered(text), _NUMBERED.fullmatch(text)
    if match and _NUMBERED_MONTH.fullmatch(match["version"]):
        raise RunbookError(f"{text!r} is a tag of a month, and the image's tags are versions, such as 13.0.2-devel.")
    return tag


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _number(text: str | None) -> int:
    return int(re.sub(r"\D", "", text or "") or 0)


# Any tag that the OCI specifications allow

_OTHER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def parse_other(text: str) -> Tag:
    """Parse any tag that the OCI specifications allow.

    It is ordered part by part, numbers by value and after words: ``1.9`` comes before ``1.10``.
    """
    if not _OTHER.fullmatch(text):
        raise RunbookError(f"{text!r} is not a tag: expected letters, digits and the signs . _ -.")
    parts: list[tuple[int, int, str]] = []
    for part in filter(None, re.split(r"([0-9]+)", text)):
        parts.append((1, int(part), "") if part[0] in "0123456789" else (0, 0, part))
    return Tag(text, versions=(parts,))


# The families


@dataclass(frozen=True)
class Family:
    """Images whose tags follow one rule.

    ``images``: registry and repository of each; ``parse`` parses a tag of allowed length.
    """

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
        return sorted(map(self.read, filter(self.reads, texts)), reverse=True)

    def newer_releases(self, tag: Tag, texts: Iterable[str]) -> list[Tag]:
        """Return the newer releases of a tag's edition, the newest first; ``texts`` are all tags of the image."""
        same = [each for each in self.listed(texts) if each.kind == "release" and each.edition == tag.edition]
        return [each for each in same if tag < each]


NGC = Family(("nvcr.io/nvidia/pytorch",), parse_ngc)
NEMO = Family(("nvcr.io/nvidia/nemo", "nvcr.io/nvidian/nemo"), parse_nemo)
_COREWEAVE_NAMES = ("torch", "torch-extras", "nightly-torch", "nightly-torch-extras")
COREWEAVE = Family(
    tuple(f"ghcr.io/coreweave/ml-containers/{name}" for name in _COREWEAVE_NAMES),
    parse_coreweave,
)
ALIBABA = Family(
    ("egslingjun-registry.cn-wulanchabu.cr.aliyuncs.com/egslingjun/training-nv-pytorch",),
    parse_alibaba,
)
#: Versions of CUDA, never months, at NGC and at Docker Hub.
CUDA = Family(("nvcr.io/nvidia/cuda", "docker.io/nvidia/cuda"), parse_version)
#: NGC's other images, regardless of their names.
NUMBERED = Family((), parse_numbered)

NGC_HOST = "nvcr.io"
#: Images of an unknown family.
OTHER = Family((), parse_other)
FAMILIES: tuple[Family, ...] = (NGC, NEMO, COREWEAVE, ALIBABA)


def family_of(ref: ImageRef) -> Family | None:
    """Return the family of an image, at its own registry or at a mirror with the same path; None if unknown."""
    for family in (*FAMILIES, CUDA):
        for image in family.images:
            path = image.partition("/")[2]
            if f"/{ref.repository}".endswith(f"/{path}"):
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
