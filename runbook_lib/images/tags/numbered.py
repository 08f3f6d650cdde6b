"""The tags of NGC's images beside PyTorch's and NeMo's: a version or a month, and words with versions of their own.

Such as ``26.03-cuda13.2-devel-ubuntu24.04``, ``13.0.2-cudnn-devel-ubuntu24.04``, ``24.05-vllm-python-py3``,
``25.08-tf2-py3`` and ``1.2.0rc5``.
"""

import re
from dataclasses import dataclass
from typing import Any, Self

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import Kind

_TAG = re.compile(
    r"v?(?P<version>[0-9]{1,9}(?:\.[0-9]{1,9}){1,5})(?P<candidate>[.-]?(?:rc|alpha|beta|a|b|dev|post)[0-9]{1,9})?"
    r"(?P<rest>(?:[._-][A-Za-z0-9]+)*)"
)
_NUMBERS = re.compile(r"(?<![0-9])[0-9]++(?:\.[0-9]++)+")


@dataclass(frozen=True)
class NumberedTag:
    """A tag that begins with a version, ordered by that, then by the versions after it."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a tag; one that begins with no version of two numbers at least raises RunbookError."""
        if not _TAG.fullmatch(text):
            raise RunbookError(f"{text!r} is not a tag with a version, such as 26.04-py3 or 13.0.2-devel-ubuntu24.04.")
        return cls(text)

    @property
    def edition(self) -> str:
        """The words after the version: ``cuda-devel-ubuntu``, ``tf2-py3``; versions within them count for nothing."""
        return _NUMBERS.sub("", self._part("rest")).strip("-._")

    @property
    def kind(self) -> Kind:
        """A candidate is named so after its version."""
        candidate = self._part("candidate")
        return "release" if not candidate or "post" in candidate else "candidate"

    @property
    def rank(self) -> tuple[Any, ...]:
        """The order: the version, its candidates before it and its corrections after it, then the versions after."""
        candidate = self._part("candidate")
        stage = 0 if not candidate else (1 if "post" in candidate else -1)
        number = int(re.sub(r"\D", "", candidate) or 0)
        rest = [_version(part) for part in _NUMBERS.findall(self._part("rest"))]
        return _version(self._part("version")), stage, number, rest, self.text

    def _part(self, name: str) -> str:
        match = _TAG.fullmatch(self.text)
        return (match[name] or "") if match else ""

    def __lt__(self, other: "NumberedTag") -> bool:
        return self.rank < other.rank

    def __str__(self) -> str:
        return self.text


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))
