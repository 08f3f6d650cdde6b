"""Images by the names that people use for them, and the check that a tag exists."""

import re
from collections.abc import Iterable
from itertools import chain

from runbook_lib.errors import CannotTell, RunbookError, Unreachable
from runbook_lib.images.families import FAMILIES, NGC, Family, family_of, named_image
from runbook_lib.images.reference import Image, ImageRef, Tag, require_tag_length
from runbook_lib.model import Check
from runbook_lib.world.ports import Registry, Services


def reference(text: str) -> ImageRef:
    """Parse a reference, or ``alibaba:25.05``.  A plain tag must belong to a single image: 26.04-py3 is NGC's PyTorch.

    Raises RunbookError for a tag that several images, or no known image, may have.
    """
    if not re.fullmatch(r"\w[\w.-]*", text, re.ASCII):
        return named_image(text) or ImageRef.parse(text)
    require_tag_length(text)
    images = list(chain.from_iterable(family.images for family in FAMILIES if family.reads(text)))
    if len(images) == 1:
        return ImageRef.parse(f"{images[0]}:{text}")
    if re.match(r"[0-9]{2}\.", text) and not images:
        try:
            NGC.read(text)
        except RunbookError as error:
            raise RunbookError(str(error), "For another image, give the full reference.") from error
    owners = ", ".join(images) or "no known image"
    example = (images or NGC.images)[0]
    raise RunbookError(f"{text!r} may be a tag of {owners}.", f"Give the full reference, such as {example}:{text}.")


def read(services: Services, text: str) -> Image:
    """Return the image in its registry.  Raises CannotTell if it is missing."""
    ref = reference(text)
    registry = services.registry(ref)
    image = registry.image(ref.digest or ref.tag or "latest")
    if image is None:
        family, advice = family_of(ref), "Correct the tag or the name."
        if family and ref.tag and family.reads(ref.tag):
            advice = newest(registry, family.read(ref.tag), family)
        raise CannotTell(f"{registry.name} has no image {ref}.", advice)
    return image


def verify_tag(
    registry: Registry, tag: Tag, platforms: Iterable[str], family: Family = NGC
) -> tuple[Check, Image | None]:
    """Check that the tag exists for all platforms; return the check and the image.

    The check fails for a missing tag or platform and for a damaged image; it is skipped if the registry could not be
    read.  The image comes with a passed check, and with a failed one if some platforms exist.
    """
    name = f"{tag} in the registry, for every platform"
    try:
        image = registry.image(str(tag))
    except Unreachable as error:
        return Check(name, "skipped", str(error)), None
    except CannotTell as error:
        return Check(name, "failed", str(error)), None
    if image is None:
        return Check(name, "failed", f"{registry.name} has no tag {tag}. {newest(registry, tag, family)}"), None
    existing = " and ".join(sorted(image.platforms))
    if missing := sorted(set(platforms) - image.platforms.keys()):
        sentence = f"{registry.name}:{tag} exists for {existing}, and not for {' and '.join(missing)}."
        return Check(name, "failed", f"{sentence} {newest(registry, tag, family)}"), image
    return Check(name, "passed", f"{registry.name}:{tag} is {image.digest}, for {existing}."), image


def newest(registry: Registry, tag: Tag, family: Family) -> str:
    """Return a sentence on the newest tags of the same kind as a missing tag.  Never raises."""
    try:
        tags = registry.tags()
    except (Unreachable, CannotTell) as error:
        return f"Its tags could not be read: {error}"
    alternatives = [each for each in family.listed(tags) if each.edition == tag.edition]
    alternatives = [each for each in alternatives if each.kind == "release"] or alternatives
    if not alternatives:
        return "It has no tag of this kind."
    return f"Its newest tags are {', '.join(map(str, alternatives[:5]))}: choose one of them, or wait."
