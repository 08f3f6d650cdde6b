"""Images by the names that people use for them."""

import re

from runbook_lib.clients.registry.client import Registry
from runbook_lib.clients.registry.tag_check import newest
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images.families import FAMILIES, NGC, AnyFamily, family_of, named_image
from runbook_lib.images.reference import Image, ImageRef, require_tag_length


def reference(text: str) -> ImageRef:
    """Parse a reference, or ``alibaba:25.05``.  A plain tag must belong to a single image: 26.04-py3 is NGC's PyTorch.

    Raises RunbookError for a tag that several images, or no known image, may have.
    """
    if not re.fullmatch(r"\w[\w.-]*", text, re.ASCII):
        return named_image(text) or ImageRef.parse(text)
    require_tag_length(text)
    images = [image for family in FAMILIES if _reads(family, text) for image in family.images]
    if len(images) == 1:
        return ImageRef.parse(f"{images[0]}:{text}")
    if re.match(r"[0-9]{2}\.", text) and not images:
        try:
            NGC.read(text)
        except RunbookError as error:
            raise RunbookError(f"{error} For another image, give the full reference.") from error
    owners = ", ".join(images) or "no known image"
    example = (images or NGC.images)[0]
    raise RunbookError(f"{text!r} may be a tag of {owners}. Give the full reference, such as {example}:{text}.")


def _reads(family: AnyFamily, text: str) -> bool:
    try:
        family.read(text)
    except RunbookError:
        return False
    return True


def read(text: str) -> Image:
    """Return the image in its registry.  Raises CannotTell if it is missing."""
    ref = reference(text)
    with Registry.connect(ref) as registry:
        image = registry.image(ref.digest or ref.tag or "latest")
        if image is None:
            family, advice = family_of(ref), "Correct the tag or the name."
            if family and ref.tag and _reads(family, ref.tag):
                advice = newest(registry, family.read(ref.tag), family)
            raise CannotTell(f"{registry.name} has no image {ref}. {advice}")
    return image
