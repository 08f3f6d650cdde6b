"""The tags that a form suggests: the newest in the registry."""

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef
from runbook_lib.pins.repositories import Repository
from runbook_lib.pins.sites import PinnedImage
from runbook_lib.world.ports import Services

#: Number of tags that are suggested; older ones can still be typed.
_TAGS = 12


def tags(services: Services, repository: Repository) -> tuple[list[str], str]:
    """Return the releases of each image, the newest first, of several images as ``name:tag``, and a note on them."""
    names, notes = list[str](), list[str]()
    for image in repository.sites.images:
        try:
            of_image = _tags(services, image)
        except RunbookError as error:
            notes.append(f"The registry could not be queried: {error} Type the tag.")
            continue
        names += of_image
        notes.append(f"Newest: {of_image[0]}." if of_image else f"{image.name} has no known release. Type the tag.")
    return names, " ".join(dict.fromkeys(notes))


def _tags(services: Services, image: PinnedImage) -> list[str]:
    with services.registry(ImageRef.parse(image.name)) as registry:
        releases = [tag for tag in image.family.listed(registry.tags()) if tag.kind == "release"]
    prefix = f"{image.short}:" if image.short else ""
    return [f"{prefix}{tag}" for tag in releases[:_TAGS]]
