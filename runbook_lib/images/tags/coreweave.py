"""The tags of CoreWeave's ``ml-containers``.

    [<branch>-]<commit>-<base|nccl>-cuda…[-<os>][-nccl…]-torch…[-vision…][-audio…][-abi…][-flash_attn…]

and for nightly builds ``[<commit>-]<edition>-<yymmddHH>-cuda…``.  Source: the workflows ``torch-base``, ``torch-nccl``,
``torch-nightly`` and ``build`` of coreweave/ml-containers and their history since 2023.
"""

import re
from typing import TYPE_CHECKING

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import Kind, Tag

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


def parse(text: str) -> Tag:
    """Parse a tag of any of the forms; anything else raises RunbookError.

    The edition is ``base``, or ``nccl`` for an image with NCCL's tests.  A build of ``main`` with released versions is
    a release; only a nightly build (``yymmddHH``, UTC) may lack the commit, of ml-containers.  Commits have no order.
    """
    match = _TAG.fullmatch(text)
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
