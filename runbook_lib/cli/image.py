"""The tags of an image, newest first, and those alone that satisfy constraints: ``runbook image list``."""

import argparse
import sys
from collections.abc import Sequence

from runbook_lib.clients.registry.cache import ago
from runbook_lib.clients.registry.client import Registry, Tags
from runbook_lib.errors import RunbookError
from runbook_lib.images.families import COREWEAVE, OTHER, family_of
from runbook_lib.images.reference import ImageRef, Tag
from runbook_lib.images.tags.coreweave import CoreWeaveTag, search


def listed(ref: ImageRef, known: Tags, constraints: Sequence[str]) -> tuple[Sequence[Tag], int]:
    """The tags that the family of the image reads, newest first, and how many it does not read.

    ``constraints``, such as ``cuda>=12.9``, are for CoreWeave's images, whose tags name what is in them; RunbookError
    for others, and for one that is none.
    """
    family = family_of(ref) or OTHER
    if constraints and family is not COREWEAVE:
        raise RunbookError(
            f"The tags of {ref.name} do not name what is in the image, so {' '.join(constraints)!r} cannot be looked "
            "for. Leave the constraints out; they are for CoreWeave's ml-containers."
        )
    listing = family.listed(known.names)
    tags: list[Tag] = sorted([*listing.releases, *listing.candidates, *listing.specials], reverse=True)
    if constraints:
        tags = list(search([tag for tag in tags if isinstance(tag, CoreWeaveTag)], " ".join(constraints)))
    return tags, len(listing.others)


def command(options: argparse.Namespace) -> int:
    """``runbook image list``: a tag a line; 0 when there is one, 1 when there is none."""
    ref = ImageRef.parse(options.image)
    with Registry.connect(ref) as registry:
        known = registry.known_tags()
    tags, others = listed(ref, known, options.constraint)
    for tag in tags:
        print(tag if tag.kind == "release" else f"{tag}  {tag.kind}")
    if known.problem:
        print(f"This list was read {ago(known.age)}: {known.problem}", file=sys.stderr)
    if others:
        print(f"Left out: {others} of another form.", file=sys.stderr)
    if not tags:
        print(f"{ref.name} has no such tag.", file=sys.stderr)
    return 0 if tags else 1
