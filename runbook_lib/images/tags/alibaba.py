"""The tags of Alibaba's ``training-nv-pytorch`` images, which product each is for, and where they are pulled.

Source: Alibaba's release notes of 25.05.  A release stands on NGC's image of the month before, since NGC
publishes at a month's end.
"""

import re
from dataclasses import dataclass
from typing import Literal, Self

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef, Kind
from runbook_lib.images.tags.ngc import NgcTag

Edition = Literal["", "serverless"]

#: Edition → the products it is for, and those it is not for.
PRODUCTS: dict[Edition, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "": (("Lingjun single-tenant",), ()),
    "serverless": (("ACS", "Lingjun multi-tenant"), ("Lingjun single-tenant",)),
}
_REPOSITORY = "egslingjun/training-nv-pytorch"
_PUBLIC = "egslingjun-registry.cn-wulanchabu.cr.aliyuncs.com"
_TAG = re.compile(r"(?P<year>[0-9]{2})\.(?P<month>0[1-9]|1[0-2])(?:-(?P<edition>serverless))?")
_REGION = re.compile(r"[a-z]{2,}(?:-[a-z0-9]+)+")


@dataclass(frozen=True, order=True)
class AlibabaTag:
    """``25.05`` or ``25.05-serverless``: ordered by month, then edition."""

    year: int
    month: int
    edition: Edition = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``YY.MM[-serverless]``; anything else raises RunbookError."""
        match = _TAG.fullmatch(text)
        if match is None:
            raise RunbookError(
                f"{text!r} is not a tag of training-nv-pytorch: expected YY.MM or YY.MM-serverless, such as 25.05."
            )
        return cls(int(match["year"]), int(match["month"]), "serverless" if match["edition"] else "")

    @property
    def kind(self) -> Kind:
        """Both editions are releases, for different products."""
        return "release"

    @property
    def ngc(self) -> NgcTag:
        """The NGC image that it stands on: that of the month before."""
        return NgcTag(self.year, self.month - 1) if self.month > 1 else NgcTag((self.year - 1) % 100, 12)

    @property
    def notes(self) -> tuple[str, ...]:
        """The products that the image is for, and the image that it is built on."""
        fit, unfit = PRODUCTS[self.edition]
        without = f", not for {' and '.join(unfit)}" if unfit else ""
        return (f"For {' and '.join(fit)}{without}.", f"It stands on NGC's {self.ngc}, the month before.")

    def __str__(self) -> str:
        return f"{self.year:02}.{self.month:02}{self.edition and '-' + self.edition}"


def address(tag: AlibabaTag, region: str = "") -> ImageRef:
    """Return the address to pull from: the public registry, or within a VPC from that of its region (``cn-beijing``).

    Raises RunbookError for what cannot be the name of a region.
    """
    if region and not _REGION.fullmatch(region):
        raise RunbookError(f"{region!r} is not the name of a region: expected one such as cn-beijing.")
    registry = f"acs-registry-vpc.{region}.cr.aliyuncs.com" if region else _PUBLIC
    return ImageRef(registry, _REPOSITORY, str(tag))
