"""What a form offers: the tags of the registry, the CI runs of the pull request, and what is left to decide."""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runbook_lib import notebooks
from runbook_lib.bump import Bump
from runbook_lib.clients.github.ci_status import branch_of
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.registry.cache import ago
from runbook_lib.clients.registry.client import Registry
from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.images.families import AnyFamily, edition
from runbook_lib.images.reference import ImageRef, Tag
from runbook_lib.pins.check import check_pins
from runbook_lib.pins.repositories import Repository
from runbook_lib.records import archive, run_view
from runbook_lib.workflow import bump_branch, pull_request

#: So many are offered; an older one can still be typed.
_TAGS, _RUNS = 12, 10


@dataclass(frozen=True)
class Choice:
    """A value and what is said of it."""

    value: str
    label: str


@dataclass(frozen=True)
class Choices:
    """What may be chosen, the likeliest first, and what a person should know about the list."""

    choices: tuple[Choice, ...]
    note: str = ""


def current(checkout: Checkout, bump: Bump) -> tuple[str, ...]:
    """The tags that the pins of this image type name on the base branch.  Raises RunbookError."""
    branch = bump_branch.find(checkout, bump)
    sites = bump.repository.sites
    found = check_pins(checkout.read(sites.pin_paths, branch.base_commit), sites)
    role = f"lockstep {bump.image_type}"
    images = dict.fromkeys(it.image for it in found if it.role == role and it.image)
    return tuple(ImageRef.parse(image).tag or "" for image in images)


def tags(repository: Repository, pinned: Collection[str]) -> Choices:
    """The releases of the image, newest first, those that are ``pinned`` marked, and candidates not at all.

    Those of the edition that is pinned come first: another one is for other machines.
    """
    ref, family = ImageRef.parse(repository.sites.image), repository.sites.family
    try:
        with Registry.connect(ref) as registry:
            known = registry.known_tags()
    except RunbookError as error:
        return Choices((), f"The registry could not be asked: {error} Type the tag.")
    listing = family.listed(known.names)
    editions = {edition(it) for tag in pinned for it in _read(family, tag)}
    names = [
        str(tag) for tag in sorted(listing.releases, key=lambda tag: bool(editions) and edition(tag) not in editions)
    ]
    age = f"This list was read {ago(known.age)}: {known.problem}" if known.problem else ""
    if not names:
        return Choices((), f"{ref.name} has no release that we know. Type the tag. {age}".strip())
    marks = {names[0]: "newest"} | dict.fromkeys(pinned, "the pins name it now")
    shown = names[:_TAGS] + [name for name in names[_TAGS:] if name in pinned]
    return Choices(tuple(Choice(name, _marked(name, marks.get(name))) for name in shown), age)


def _read(family: AnyFamily, text: str) -> Iterator[Tag]:
    """The tag, if it is one of the family."""
    with contextlib.suppress(RunbookError):
        yield family.read(text)


def _marked(name: str, mark: str | None) -> str:
    return f"{name} ({mark})" if mark else name


def runs(checkout: Checkout, bump: Bump, github: GitHub | None) -> Choices:
    """The latest CI runs of the bump's pull request, newest first.  Empty, with the reason, where there is none."""
    state = pull_request.read_state(bump_branch.find(checkout, bump), github)
    if github is None or state.pull is None:
        return Choices((), state.problem or "There is no pull request yet, and so no CI run.")
    pull = state.pull
    found: Sequence[Choice] = [
        Choice(str(run.id), f"{run.id}: {run.conclusion or run.status}, {run.created:%Y-%m-%d %H:%M} UTC, "
               f"{run.head_sha[:10]}{' (head)' if run.head_sha == pull.head_sha else ''}")
        for run in github.runs(branch_of(pull.number))[:_RUNS]
    ]  # fmt: skip
    return Choices(tuple(found), "" if found else f"CI has not run for #{pull.number} yet.")


def in_flight(root: Path, repository: str, values: Mapping[str, object]) -> str:
    """The tag of the bump that was worked on last and is not ready, so that nobody types it twice; or empty.

    ``values`` are those of a form, ``root`` the archive.
    """
    for it in archive.status(root):
        same = (it.repository, it.base, it.image_type) == (repository, values.get("base"), values.get("image_type"))
        if same and it.practice == (not values.get("repo")) and it.tag and it.state != "ready":
            return it.tag
    return ""


def undecided(bump: Path) -> tuple[list[Mapping[str, str]], str]:
    """What the newest run of each step left to a person, and how the values moved that are held back.

    ``bump`` is the bump's folder in the archive.
    """
    newest = run_view.newest(bump)
    left = [it for name, run in newest.items() if name != notebooks.BUMP for it in run.decisions]
    golden = newest.get(notebooks.GOLDEN_VALUES)
    return left, golden.plan_html(run_view.HELD_BACK) if golden and golden.decisions else ""
