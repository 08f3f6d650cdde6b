"""The tags of NGC's images other than PyTorch and NeMo: a version or a month, followed by words with versions.

Such as ``26.03-cuda13.2-devel-ubuntu24.04``, ``13.0.2-cudnn-devel-ubuntu24.04``, ``24.05-vllm-python-py3``,
``25.08-tf2-py3`` and ``1.2.0rc5``.
"""

import re
from dataclasses import dataclass
from typing import Any, Self

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import Kind

_TAG = re.compile(
    r"[vr]?(?P<version>[0-9]{1,9}(?:\.[0-9]{1,9}){1,5})(?P<candidate>[.-]?(?:rc|alpha|beta|a|b|dev)[0-9]{1,9})?"
    r"(?P<post>[.-]?post[0-9]{1,9})?(?P<rest>(?:[._-][A-Za-z0-9]+)*)"
)
_MONTH = re.compile(r"(?:1[6-9]|[2-9][0-9])\.(?:0[1-9]|1[0-2])")
_NUMBERS = re.compile(r"(?<![0-9])[0-9]++(?:\.[0-9]++)+")
_NUMBERS_BUT_UBUNTU = re.compile(rf"(?<!ubuntu){_NUMBERS.pattern}")


@dataclass(frozen=True)
class NumberedTag:
    """A tag that begins with a version, ordered by that version, then by the later ones."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a tag.  Raises RunbookError if it does not begin with a version of at least two numbers."""
        if not _TAG.fullmatch(text):
            raise RunbookError(f"{text!r} is not a tag with a version, such as 26.04-py3 or 13.0.2-devel-ubuntu24.04.")
        return cls(text)

    @classmethod
    def parse_version(cls, text: str) -> Self:
        """Parse a tag that begins with a version that is no month; anything else raises RunbookError."""
        tag = cls.parse(text)
        if tag.is_month:
            raise RunbookError(
                f"{text!r} is a tag of a month, and the image's tags are versions, such as 13.0.2-devel."
            )
        return tag

    @property
    def is_month(self) -> bool:
        """True for a tag that begins with a year and a month, such as ``26.03-cuda13.2-devel-ubuntu24.04``."""
        return bool(_MONTH.fullmatch(self._part("version")))

    @property
    def edition(self) -> str:
        """The words after the version: ``cuda-devel-ubuntu``, ``tf2-py3``; versions within them are ignored.

        After a month, so is that of Ubuntu, which each month's image has one of.  The version of cuDNN is a part of its
        word until CUDA 12.3: ``12.3.2-cudnn9-devel-ubuntu22.04``.
        """
        numbers = _NUMBERS if self.is_month else _NUMBERS_BUT_UBUNTU
        return re.sub("cudnn[0-9]+", "cudnn", numbers.sub("", self._part("rest"))).strip("-._")

    @property
    def kind(self) -> Kind:
        """A candidate is named so after its version."""
        return "candidate" if self._part("candidate") else "release"

    @property
    def release(self) -> tuple[Any, ...]:
        """The order of the version alone, with candidates before and corrections after it."""
        candidate, post = self._part("candidate"), self._part("post")
        return _version(self._part("version")), -1 if candidate else 0, _number(candidate), _number(post)

    @property
    def rank(self) -> tuple[Any, ...]:
        """The order: the version, then the later versions; the text itself makes it total."""
        return *self.release, [_version(part) for part in _NUMBERS.findall(self._part("rest"))], self.text

    def _part(self, name: str) -> str:
        match = _TAG.fullmatch(self.text)
        return (match[name] or "") if match else ""

    def __lt__(self, other: "NumberedTag") -> bool:
        return self.rank < other.rank

    def __str__(self) -> str:
        return self.text


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _number(text: str) -> int:
    return int(re.sub(r"\D", "", text) or 0)
