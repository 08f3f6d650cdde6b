"""The tags of Alibaba's ``training-nv-pytorch`` images, their products and registries.

Source: Alibaba's release notes of 25.05.  A release is built on NGC's image of the month before, since NGC publishes at
the end of a month.
"""

import re
from dataclasses import dataclass
from typing import Literal, Self

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef, Kind
from runbook_lib.images.tags.ngc import NgcTag

Edition = Literal["", "serverless"]

#: Edition → the products that it is for.
_PRODUCTS: dict[Edition, str] = {
    "": "Lingjun single-tenant",
    "serverless": "ACS and Lingjun multi-tenant, not for Lingjun single-tenant",
}
_TAG = re.compile(r"(?P<year>[0-9]{2})\.(?P<month>0[1-9]|1[0-2])(?:-(?P<edition>serverless))?")


@dataclass(frozen=True, order=True)
class AlibabaTag:
    """``25.05`` or ``25.05-serverless``: ordered by month, then edition."""

    year: int
    month: int
    edition: Edition = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``YY.MM[-serverless]``; anything else raises RunbookError."""
        match = _TAG.fullmatch(text)
        if match is None:
            raise RunbookError(
                f"{text!r} is not a tag of training-nv-pytorch: expected YY.MM or YY.MM-serverless, such as 25.05."
            )
        return cls(int(match["year"]), int(match["month"]), "serverless" if match["edition"] else "")

    @property
    def kind(self) -> Kind:
        """Always a release: both editions are, for different products."""
        return "release"

    @property
    def ngc(self) -> NgcTag:
        """The NGC image that it is built on: the previous month's."""
        if self.month > 1:
            return NgcTag(self.year, self.month - 1)
        return NgcTag((self.year - 1) % 100, 12)

    @property
    def notes(self) -> tuple[str, ...]:
        """The products that the image is for, and the image that it is built on."""
        return (f"For {_PRODUCTS[self.edition]}.", f"Built on NGC's {self.ngc}, of the previous month.")

    def __str__(self) -> str:
        return f"{self.year:02}.{self.month:02}{self.edition and '-' + self.edition}"


def vpc_address(tag: AlibabaTag, region: str) -> ImageRef:
    """Return the reference to pull inside a VPC in a region such as ``cn-beijing``.  Raises RunbookError."""
    if not re.fullmatch(r"[a-z]{2}-[a-z]+(?:-[a-z0-9]+)*", region):
        raise RunbookError(f"{region[:60]!r} is not the ID of an Alibaba region, such as cn-beijing.")
    return ImageRef(f"acs-registry-vpc.{region}.cr.aliyuncs.com", "egslingjun/training-nv-pytorch", str(tag))
