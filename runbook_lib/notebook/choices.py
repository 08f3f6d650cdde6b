"""The choices that a form offers: the registry's tags, and the pull request's CI runs."""

from collections.abc import Collection, Mapping

from runbook_lib.clients.github.ci_status import branch_of
from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.images.families import edition
from runbook_lib.images.reference import ImageRef
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.check import check_pins
from runbook_lib.pins.repositories import Repository
from runbook_lib.pins.sites import PinnedImage
from runbook_lib.world import bump_branch, pull_request
from runbook_lib.world.image_lookup import verify_tag
from runbook_lib.world.ports import Forge, Services

#: Number of tags and CI runs that are offered; older ones can still be typed.
_TAGS, _RUNS = 12, 10


#: Labels and values, the most likely first, and a note about the list.
Choices = tuple[list[tuple[str, str]], str]


def pinned_tags(checkout: Checkout, bump: Bump) -> Mapping[str, tuple[str, ...]]:
    """Return the tags in this image type's pins on the base branch, by image.  Raises RunbookError."""
    branch = bump_branch.find(checkout, bump)
    sites = bump.repository.sites
    pinned: dict[str, tuple[str, ...]] = {}
    for pin in check_pins(checkout.read(sites.pin_paths, branch.base_commit), sites):
        if pin.role != f"lockstep {bump.image_type}" or not pin.image:
            continue
        image = ImageRef.parse(pin.image)
        known = pinned.get(image.name, ())
        if image.tag and image.tag not in known:
            pinned[image.name] = (*known, image.tag)
    return pinned


def tags(services: Services, repository: Repository, pinned: Mapping[str, Collection[str]]) -> Choices:
    """Return the releases of each image, of several images as ``name:tag``; ``pinned`` are the tags of each image."""
    offered = [_tags(services, image, pinned.get(image.name, ())) for image in repository.sites.images]
    notes = dict.fromkeys(note for _, note in offered if note)
    return [choice for choices, _ in offered for choice in choices], " ".join(notes)


def _tags(services: Services, image: PinnedImage, pinned: Collection[str]) -> Choices:
    """Return the image's releases without release candidates: pinned editions first, then the newest first.

    Other editions are for other machines.
    """
    try:
        with services.registry(ImageRef.parse(image.name)) as registry:
            listed = registry.tags()
    except RunbookError as error:
        return [], f"The registry could not be queried: {error} Type the tag instead."
    editions = set()
    for name in pinned:
        try:
            editions.add(edition(image.family.read(name)))
        except RunbookError:
            continue  # a tag of the repository's own
    releases = image.family.listed(listed).releases
    if editions:
        names = [str(tag) for tag in sorted(releases, key=lambda tag: edition(tag) not in editions)]
    else:
        names = [str(tag) for tag in releases]
    if not names:
        return [], f"{image.name} has no known release. Type the tag."
    marks = {names[0]: " (newest)"} | dict.fromkeys(pinned, " (pinned now)")
    offered = []
    for name in names[:_TAGS] + [name for name in names[_TAGS:] if name in pinned]:
        value = f"{image.short}:{name}" if image.short else name
        offered.append((f"{value}{marks.get(name, '')}", value))
    return offered, ""


def tag_problem(services: Services, bump: Bump) -> str:
    """Return a message if the registry does not have the bump's tag; empty if it does or cannot be queried.

    Raises RunbookError.
    """
    sites = bump.repository.sites
    if bump.tag is None:
        return ""
    with services.registry(ImageRef.parse(sites.image)) as registry:
        check, _ = verify_tag(registry, bump.tag, (), sites.family)
    return check.detail if check.status == "failed" else ""


def runs(checkout: Checkout, bump: Bump, forge: Forge | None) -> Choices:
    """Return the latest CI runs of the bump's pull request, newest first; without any, the note gives the reason."""
    state = pull_request.read_state(bump_branch.find(checkout, bump), forge)
    if forge is None or state.pull is None:
        return [], state.problem or "There is no pull request yet, so CI has not run."
    choices = []
    for run in forge.runs(branch_of(state.pull.number))[:_RUNS]:
        commit = run.head_sha[:10]
        if run.head_sha == state.pull.head_sha:
            commit += " (head)"
        label = f"{run.id}: {run.conclusion or run.status}, {run.created:%Y-%m-%d %H:%M} UTC, {commit}"
        choices.append((label, str(run.id)))
    return choices, "" if choices else f"CI has not run for #{state.pull.number} yet."
