"""The choices that a form offers: the registry's tags, and the pull request's CI runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from runbook_lib.bump import Bump
from runbook_lib.clients.github.ci_status import branch_of
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.registry.client import Registry
from runbook_lib.clients.registry.lookup import verify_tag
from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.images.families import AnyFamily, edition
from runbook_lib.images.reference import ImageRef, Tag
from runbook_lib.pins.check import check_pins
from runbook_lib.pins.repositories import Repository
from runbook_lib.workflow import bump_branch, pull_request

#: Number of tags and CI runs that are offered; older ones can still be typed.
_TAGS, _RUNS = 12, 10


@dataclass(frozen=True)
class Choice:
    """A value and its label."""

    value: str
    label: str


@dataclass(frozen=True)
class Choices:
    """Choices, the most likely first, and a note about the list."""

    choices: tuple[Choice, ...]
    note: str = ""


def pinned_tags(checkout: Checkout, bump: Bump) -> Mapping[str, tuple[str, ...]]:
    """Return the tags in this image type's pins on the base branch, by group.  Raises RunbookError."""
    branch = bump_branch.find(checkout, bump)
    sites = bump.repository.sites
    pinned: dict[str, tuple[str, ...]] = {}
    for pin in check_pins(checkout.read(sites.pin_paths, branch.base_commit), sites):
        if pin.role != f"lockstep {bump.image_type}" or not pin.image:
            continue
        tag, known = ImageRef.parse(pin.image).tag or "", pinned.get(pin.group, ())
        if tag not in known:
            pinned[pin.group] = (*known, tag)
    return pinned


def tags(repository: Repository, pinned: Mapping[str, Collection[str]]) -> Choices:
    """Return the releases of each group's image, with the image's name in the labels if there are several.

    ``pinned``: the tags of the pins by group.
    """
    families = {group.image: group.family for group in repository.sites.groups}
    of_image: dict[str, Choices] = {}
    for image, family in families.items():
        names = [group.name for group in repository.sites.groups if group.image == image]
        of_image[image] = _tags(ImageRef.parse(image), family, [tag for name in names for tag in pinned.get(name, ())])
    if len(of_image) == 1:
        return next(iter(of_image.values()))
    labels: dict[str, list[str]] = {}
    for image, offered in of_image.items():
        for choice in offered.choices:
            labels.setdefault(choice.value, []).append(f"{choice.label}, {image.rpartition('/')[2]}")
    merged = tuple(Choice(value, "; ".join(listed)) for value, listed in labels.items())
    return Choices(merged, " ".join(dict.fromkeys(offered.note for offered in of_image.values() if offered.note)))


def _tags(ref: ImageRef, family: AnyFamily, pinned: Collection[str]) -> Choices:
    """Return the image's releases without release candidates: pinned editions first, then the newest first.

    Other editions are for other machines.
    """
    try:
        with Registry.connect(ref) as registry:
            listed = registry.tags()
    except RunbookError as error:
        return Choices((), f"The registry could not be queried: {error} Type the tag instead.")
    editions = set()
    for name in pinned:
        try:
            editions.add(edition(family.read(name)))
        except RunbookError:
            continue  # a tag of the repository's own
    releases = family.listed(listed).releases
    if editions:
        names = [str(tag) for tag in sorted(releases, key=lambda tag: edition(tag) not in editions)]
    else:
        names = [str(tag) for tag in releases]
    if not names:
        return Choices((), f"{ref.name} has no known release. Type the tag.")
    marks = {names[0]: " (newest)"} | dict.fromkeys(pinned, " (pinned now)")
    offered = names[:_TAGS] + [name for name in names[_TAGS:] if name in pinned]
    return Choices(tuple(Choice(name, f"{name}{marks.get(name, '')}") for name in offered))


def tag_problem(repository: Repository, tag: Tag) -> str:
    """Return a message if the registry does not have the tag; empty if it does or cannot be queried.

    Raises RunbookError.
    """
    groups = repository.sites.groups
    group = next((group for group in groups if group.accepts(str(tag))), groups[0])
    with Registry.connect(ImageRef.parse(group.image)) as registry:
        check, _ = verify_tag(registry, tag, (), group.family)
    if check.status != "failed":
        return ""
    return check.detail


def runs(checkout: Checkout, bump: Bump, github: GitHub | None) -> Choices:
    """Return the latest CI runs of the bump's pull request, newest first; without any, the note gives the reason."""
    state = pull_request.read_state(bump_branch.find(checkout, bump), github)
    if github is None or state.pull is None:
        return Choices((), state.problem or "There is no pull request yet, so CI has not run.")
    choices = []
    for run in github.runs(branch_of(state.pull.number))[:_RUNS]:
        commit = run.head_sha[:10]
        if run.head_sha == state.pull.head_sha:
            commit += " (head)"
        status = run.conclusion or run.status
        choices.append(Choice(str(run.id), f"{run.id}: {status}, {run.created:%Y-%m-%d %H:%M} UTC, {commit}"))
    if not choices:
        return Choices((), f"CI has not run for #{state.pull.number} yet.")
    return Choices(tuple(choices))
