"""The tags of Alibaba's ``training-nv-pytorch`` images, their products and registries.

Source: Alibaba's release notes of 25.05.  A release is built on NGC's image of the month before, since NGC publishes at
the end of a month.
"""

import re

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef, Tag
from runbook_lib.images.tags import ngc

#: Edition → the products that it is for.
_PRODUCTS = {
    "": "Lingjun single-tenant",
    "serverless": "ACS and Lingjun multi-tenant, not for Lingjun single-tenant",
}
_TAG = re.compile(r"(?P<year>[0-9]{2})\.(?P<month>0[1-9]|1[0-2])(?:-(?P<edition>serverless))?")


def parse(text: str) -> Tag:
    """Parse ``YY.MM[-serverless]``; anything else raises RunbookError.  Both editions are releases."""
    match = _TAG.fullmatch(text)
    if match is None:
        raise RunbookError(
            f"{text!r} is not a tag of training-nv-pytorch: expected YY.MM or YY.MM-serverless, such as 25.05."
        )
    release, edition = (int(match["year"]), int(match["month"])), match["edition"] or ""
    notes = f"For {_PRODUCTS[edition]}.", f"Built on NGC's {_built_on(*release)}, of the previous month."
    return Tag(text, release, edition=edition, notes=notes)


def built_on(tag: Tag) -> Tag:
    """Return the tag of the NGC image that it is built on: the previous month's."""
    return ngc.parse(_built_on(*tag.release))


def _built_on(year: int, month: int) -> str:
    if month > 1:
        return f"{year:02}.{month - 1:02}-py3"
    return f"{(year - 1) % 100:02}.12-py3"


def vpc_address(tag: Tag, region: str) -> ImageRef:
    """Return the reference to pull inside a VPC in a region such as ``cn-beijing``.  Raises RunbookError."""
    if not re.fullmatch(r"[a-z]{2}-[a-z]+(?:-[a-z0-9]+)*", region):
        raise RunbookError(f"{region[:60]!r} is not the ID of an Alibaba region, such as cn-beijing.")
    return ImageRef(f"acs-registry-vpc.{region}.cr.aliyuncs.com", "egslingjun/training-nv-pytorch", str(tag))
