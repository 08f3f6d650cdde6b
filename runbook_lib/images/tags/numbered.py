"""The tags of NGC's images other than PyTorch and NeMo: a version or a month, followed by words with versions.

Such as ``26.03-cuda13.2-devel-ubuntu24.04``, ``13.0.2-cudnn-devel-ubuntu24.04``, ``24.05-vllm-python-py3``,
``25.08-tf2-py3`` and ``1.2.0rc5``.
"""

import re

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import Tag

_TAG = re.compile(
    r"[vr]?(?P<version>[0-9]{1,9}(?:\.[0-9]{1,9}){1,5})(?P<candidate>[.-]?(?:rc|alpha|beta|a|b|dev)[0-9]{1,9})?"
    r"(?P<post>[.-]?post[0-9]{1,9})?(?P<rest>(?:[._-][A-Za-z0-9]+)*)"
)
_MONTH = re.compile(r"(?:1[6-9]|[2-9][0-9])\.(?:0[1-9]|1[0-2])")
_NUMBERS = re.compile(r"(?<![0-9])[0-9]++(?:\.[0-9]++)+")
_NUMBERS_BUT_UBUNTU = re.compile(rf"(?<!ubuntu){_NUMBERS.pattern}")


def parse(text: str) -> Tag:
    """Parse a tag.  Raises RunbookError if it does not begin with a version of at least two numbers.

    It is ordered by that version, with candidates before and corrections after it, then by the later versions.  The
    edition is the words after the version: ``cuda-devel-ubuntu``, ``tf2-py3``; versions within them are ignored.
    After a month, so is that of Ubuntu, which each month's image has one of.  The version of cuDNN is a part of its
    word until CUDA 12.3: ``12.3.2-cudnn9-devel-ubuntu22.04``.
    """
    match = _TAG.fullmatch(text)
    if match is None:
        raise RunbookError(f"{text!r} is not a tag with a version, such as 26.04-py3 or 13.0.2-devel-ubuntu24.04.")
    candidate, rest = match["candidate"], match["rest"]
    release = _version(match["version"]), -1 if candidate else 0, _number(candidate), _number(match["post"])
    numbers = _NUMBERS if _MONTH.fullmatch(match["version"]) else _NUMBERS_BUT_UBUNTU
    edition = re.sub("cudnn[0-9]+", "cudnn", numbers.sub("", rest)).strip("-._")
    later = [_version(part) for part in _NUMBERS.findall(rest)]
    return Tag(text, release, (later,), "candidate" if candidate else "release", edition)


def parse_version(text: str) -> Tag:
    """Parse a tag that begins with a version that is no month; anything else raises RunbookError."""
    tag, match = parse(text), _TAG.fullmatch(text)
    if match and _MONTH.fullmatch(match["version"]):
        raise RunbookError(f"{text!r} is a tag of a month, and the image's tags are versions, such as 13.0.2-devel.")
    return tag


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _number(text: str | None) -> int:
    return int(re.sub(r"\D", "", text or "") or 0)
