"""The choices of a form: the registry's tags, and the pull request's CI runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from runbook_lib.bump import Bump
from runbook_lib.clients.github.ci_status import branch_of
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.registry.cache import ago
from runbook_lib.clients.registry.client import Registry
from runbook_lib.clients.registry.tag_check import verify_tag
from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.images.families import edition
from runbook_lib.images.reference import ImageRef, Tag
from runbook_lib.pins.check import check_pins
from runbook_lib.pins.repositories import Repository
from runbook_lib.records import archive
from runbook_lib.workflow import bump_branch, pull_request

#: Tags and CI runs that are offered; an older one can still be typed.
_TAGS, _RUNS = 12, 10


@dataclass(frozen=True)
class Choice:
    """A value and its label."""

    value: str
    label: str


@dataclass(frozen=True)
class Choices:
    """Choices, the likeliest first, and a note on the list."""

    choices: tuple[Choice, ...]
    note: str = ""


def pinned_tags(checkout: Checkout, bump: Bump) -> tuple[str, ...]:
    """Return the tags that the pins of this image type name on the base branch.  Raises RunbookError."""
    branch = bump_branch.find(checkout, bump)
    sites = bump.repository.sites
    pins = check_pins(checkout.read(sites.pin_paths, branch.base_commit), sites)
    role = f"lockstep {bump.image_type}"
    group = sites.groups[0].name
    images = dict.fromkeys(pin.image for pin in pins if (pin.role, pin.group) == (role, group) and pin.image)
    return tuple(ImageRef.parse(image).tag or "" for image in images)


def tags(repository: Repository, pinned: Collection[str]) -> Choices:
    """Return the releases of the image without candidates, those of a pinned edition first, then the newest first.

    Other editions are for other machines.
    """
    ref, family = ImageRef.parse(repository.sites.image), repository.sites.family
    try:
        with Registry.connect(ref) as registry:
            known = registry.known_tags()
    except RunbookError as error:
        return Choices((), f"The registry could not be queried: {error} Type the tag.")
    editions = set()
    for name in pinned:
        try:
            editions.add(edition(family.read(name)))
        except RunbookError:
            continue  # a tag of the repository's own
    releases = family.listed(known.names).releases
    if editions:
        names = [str(tag) for tag in sorted(releases, key=lambda tag: edition(tag) not in editions)]
    else:
        names = [str(tag) for tag in releases]
    note = f"This list was read {ago(known.age)}: {known.problem}" if known.problem else ""
    if not names:
        return Choices((), f"{ref.name} has no known release. Type the tag. {note}".strip())
    marks = {names[0]: " (newest)"} | dict.fromkeys(pinned, " (pinned now)")
    offered = names[:_TAGS] + [name for name in names[_TAGS:] if name in pinned]
    return Choices(tuple(Choice(name, f"{name}{marks.get(name, '')}") for name in offered), note)


def tag_problem(repository: Repository, tag: Tag) -> str:
    """Return that the registry has no such tag; empty if it has it, or cannot be queried.  Raises RunbookError."""
    with Registry.connect(ImageRef.parse(repository.sites.image)) as registry:
        check, _ = verify_tag(registry, tag, (), repository.sites.family)
    return check.detail if check.status == "failed" else ""


def runs(checkout: Checkout, bump: Bump, github: GitHub | None) -> Choices:
    """Return the latest CI runs of the bump's pull request, newest first; if there is none, the reason as the note."""
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


def in_flight(root: Path, repository: str, values: Mapping[str, object]) -> str:
    """Return the tag of the newest bump in flight in the archive ``root``; empty if there is none.

    ``values`` are those of the form.
    """
    key = (repository, values.get("base"), values.get("image_type"), not values.get("repo"))
    for bump in archive.status(root):
        if (bump.repository, bump.base, bump.image_type, bump.practice) != key:
            continue
        if bump.is_in_flight:
            return bump.tag
    return ""
