"""The tags that a form suggests: those in the registry, and the pinned ones."""

from collections.abc import Collection, Mapping

from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.images.families import edition
from runbook_lib.images.reference import ImageRef
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.check import check_pins, lockstep_tags
from runbook_lib.pins.repositories import Repository
from runbook_lib.pins.sites import PinnedImage
from runbook_lib.world import bump_branch
from runbook_lib.world.ports import Services

#: Number of tags that are suggested; older ones can still be typed.
_TAGS = 12


def pinned_tags(checkout: Checkout, bump: Bump) -> Mapping[str, tuple[str, ...]]:
    """Return the tags in this image type's pins on the base branch, by image.  Raises RunbookError."""
    branch = bump_branch.find(checkout, bump)
    sites = bump.repository.sites
    return lockstep_tags(check_pins(checkout.read(sites.pin_paths, branch.base_commit), sites), bump.image_type)


def tags(services: Services, repository: Repository, pinned: Mapping[str, Collection[str]]) -> tuple[list[str], str]:
    """Return the releases of each image, of several images as ``name:tag``, and which is the newest and the pinned."""
    names, notes = list[str](), dict[str, None]()
    for image in repository.sites.images:
        of_image, note = _tags(services, image, pinned.get(image.name, ()))
        names += of_image
        notes[note] = None
    return names, " ".join(notes)


def _tags(services: Services, image: PinnedImage, pinned: Collection[str]) -> tuple[list[str], str]:
    """Return the image's releases without release candidates: pinned editions first, then the newest first.

    Other editions are for other machines.
    """
    try:
        with services.registry(ImageRef.parse(image.name)) as registry:
            listed = registry.tags()
    except RunbookError as error:
        return [], f"The registry could not be queried: {error} Type the tag."
    editions = set()
    for name in pinned:
        try:
            editions.add(edition(image.family.read(name)))
        except RunbookError:
            continue  # a tag of the repository's own
    releases = list(image.family.listed(listed).releases)
    if not releases:
        return [], f"{image.name} has no known release. Type the tag."
    if editions:
        releases.sort(key=lambda tag: edition(tag) not in editions)
    prefix = f"{image.short}:" if image.short else ""
    names = [f"{prefix}{tag}" for tag in releases]
    known = [name for name in names if name.removeprefix(prefix) in pinned]
    now = f" Pinned now: {', '.join(known)}." if known else ""
    return [*names[:_TAGS], *(name for name in names[_TAGS:] if name in known)], f"Newest: {names[0]}.{now}"
