"""Images of a registry as a person names them."""

import re

from runbook_lib.clients.registry.client import Registry, newest
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images.families import FAMILIES, NGC, AnyFamily, family_of
from runbook_lib.images.reference import Image, ImageRef


def reference(text: str) -> ImageRef:
    """Return an image as a person names it.  A tag alone must be one of a single image: 26.04-py3 is NGC's PyTorch.

    Raises RunbookError for a tag that several images may have, or none that we know.
    """
    if not re.fullmatch(r"\w[\w.-]*", text, re.ASCII):
        return ImageRef.parse(text)
    images = [image for family in FAMILIES if _reads(family, text) for image in family.images]
    if len(images) == 1:
        return ImageRef.parse(f"{images[0]}:{text}")
    if re.match(r"[0-9]{2}\.", text) and not images:
        _read_as_ngc(text)
    told = f"may be a tag of {', '.join(images)}" if images else "is a tag of no image that we know"
    raise RunbookError(f"{text!r} {told}: give the whole reference, such as {(images or NGC.images)[0]}:{text}.")


def _read_as_ngc(text: str) -> None:
    """Raise RunbookError for what was meant as one of the tags that people give alone, with what is wrong with it."""
    try:
        NGC.read(text)
    except RunbookError as error:
        raise RunbookError(f"{error} Of another image give the whole reference.") from error


def _reads(family: AnyFamily, text: str) -> bool:
    try:
        family.read(text)
    except RunbookError:
        return False
    return True


def read(text: str) -> Image:
    """Return the image in its registry.  Raises CannotTell if that has none of the name."""
    ref = reference(text)
    with Registry.connect(ref) as registry:
        found = registry.image(ref.digest or ref.tag or "latest")
        if found is None:
            raise CannotTell(f"{registry.name} has no image {ref}. {_instead(registry, ref)}")
    return found


def _instead(registry: Registry, ref: ImageRef) -> str:
    """Return which images there are in place of one that is not there."""
    family = family_of(ref)
    if family is None or not ref.tag or not _reads(family, ref.tag):
        return "Look for the right tag, or correct the name."
    return newest(registry, family.read(ref.tag), family)
