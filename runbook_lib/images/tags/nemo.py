"""The tags of the NeMo images: ``26.06``, ``26.06.01``, ``26.08.rc5``, ``26.02.nemotron_3_super``, and moving names.

The formats are those in Megatron-Bridge's documentation and history.
"""

import re
from dataclasses import dataclass
from typing import Any, Self

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import Kind

_MOVING = ("dev", "latest", "nightly")
_GENERAL = "framework"  # in the names of the general image until 24.05
_TAG = re.compile(
    r"(?P<year>[0-9]{2})\.(?P<month>0[1-9]|1[0-2])(?:\.(?P<patch>[0-9]{2}))?"
    r"(?:\.(?:rc(?P<candidate>0|[1-9][0-9]{0,3})|(?P<name>(?!rc(?:[0-9._-]|$))[a-z][a-z0-9_-]*(?:\.[a-z0-9_-]+)*)))?"
)


@dataclass(frozen=True)
class NemoTag:
    """``patch`` and ``candidate`` are numbers if the tag has them; ``name`` is the name of a special image.

    A name that moves (``nightly``, in an internal namespace) has neither year nor month: both are 0.
    """

    year: int
    month: int
    patch: int | None = None
    candidate: int | None = None
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a tag; anything else raises RunbookError."""
        if text in _MOVING:
            return cls(0, 0, name=text)
        match = _TAG.fullmatch(text)
        if match is None:
            raise RunbookError(
                f"{text!r} is not a tag of the NeMo images: expected YY.MM, YY.MM.rcN or YY.MM.name, such as "
                "26.06, 26.08.rc5 or 26.02.nemotron_3_super."
            )
        numbers = {part: int(digits) for part, digits in match.groupdict().items() if digits and part != "name"}
        return cls(**numbers, name=match["name"] or "")

    @property
    def edition(self) -> str:
        """The model that the image is for, or the name that moves; empty for the general image."""
        return "" if self.name == _GENERAL else self.name

    @property
    def kind(self) -> Kind:
        """Special for an image of one model, or one whose tag moves."""
        if self.edition:
            return "special"
        return "release" if self.candidate is None else "candidate"

    @property
    def notes(self) -> tuple[str, ...]:
        """A remark on a tag that is not a release."""
        if self.name in _MOVING:
            return (f"The image of {self.name} changes: pin a month or a digest.",)
        if self.edition:
            return (f"Made for {self.name}, not for general use.",)
        if self.candidate is not None:
            return ("A release candidate: it may disappear after the release.",)
        return ()

    @property
    def rank(self) -> tuple[Any, ...]:
        """The order: month, patch, then special images, candidates by number, and the release."""
        number = -1 if self.patch is None else self.patch
        order = ("special", "candidate", "release").index(self.kind)
        return (self.year, self.month, number, order, self.candidate or 0, self.name)

    def __lt__(self, other: "NemoTag") -> bool:
        return self.rank < other.rank

    def __str__(self) -> str:
        if not self.year and self.name in _MOVING:
            return self.name
        parts = [f"{self.year:02}", f"{self.month:02}"]
        if self.patch is not None:
            parts.append(f"{self.patch:02}")
        if self.candidate is not None:
            parts.append(f"rc{self.candidate}")
        return ".".join(filter(None, (*parts, self.name)))
