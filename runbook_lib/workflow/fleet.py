"""The base images of several repositories and branches, from clones, records and registries: one row per branch.

Clones are read as last fetched; nothing is changed in them.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from runbook_lib.clients.registry.client import Registry
from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.file_versions import file_versions
from runbook_lib.images.families import newer_releases
from runbook_lib.images.reference import ImageRef, ImageType
from runbook_lib.pins.check import PinVerdict, check_pins
from runbook_lib.pins.sites import PinnedImage, Sites
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.quarantine import quarantined_rows
from runbook_lib.records import archive
from runbook_lib.records.status import BumpStatus
from runbook_lib.text import user_file
from runbook_lib.text.lists import join_first
from runbook_lib.workflow import repository as recognized
from runbook_lib.workflow.sync_survey import survey, texts_at

#: Number of commits to a pin file that are searched for the one that moved the pins.
_SEARCHED = 200
_ReadTags = Callable[[str], tuple[tuple[str, ...], str]]


@dataclass(frozen=True)
class FleetRow:
    """The base image of one branch, for one image type and one image.

    ``since`` is the date of the commit that moved the pins there, preceded by ``…`` if the known history begins later.
    ``behind``: the number of newer releases of the same edition; None if the registry cannot be read.
    ``problem``: the reason why something is unknown.
    """

    repository: str
    ref: str
    image_type: str = ""
    tags: tuple[str, ...] = ()
    since: str = ""
    commit: str = ""
    newest: str = ""
    behind: int | None = None
    quarantined: int = 0
    bumps: tuple[BumpStatus, ...] = ()
    problem: str = ""
    image: str = ""

    @property
    def state(self) -> str:
        """The state in two words."""
        if len(self.tags) > 1:
            return "out of sync"
        if not self.tags or self.behind is None:
            return "cannot tell"
        return f"{self.behind} behind" if self.behind else "newest"


def read(text: str, origin: Path) -> list[FleetRow]:
    """Return the rows of the repositories listed in a fleet file, whose paths are relative to the file.

    Raises RunbookError, with the line, for a file that does not match its schema.
    """
    schema = user_file.load_schema("runbook_lib.workflow", "fleet.schema.json")
    values = user_file.read(text, schema, "fleet file", str(origin))
    folder = origin.absolute().parent
    audit = values.values.get("audit")
    bumps = archive.status(folder / Path(audit).expanduser() if audit else archive.default())
    rows = []
    read_tags = cache(_tags)  # so that an unresponsive registry is queried only once
    for entry in values.values["repositories"]:
        clone = folder / Path(entry["clone"]).expanduser()
        try:
            rows += list(_rows(clone, entry.get("refs", ["HEAD"]), entry.get("pins", ""), bumps, read_tags))
        except RunbookError as error:
            rows.append(FleetRow(str(entry["clone"]), ", ".join(entry.get("refs", [])), problem=str(error)))
    return rows


def problems(rows: Sequence[FleetRow]) -> list[str]:
    """Return each reason why something is unknown once, with the branches concerned."""
    branches: dict[str, list[str]] = {}
    for row in rows:
        if row.problem:
            branches.setdefault(row.problem, []).append(f"{row.repository} {row.ref}".strip())
    return [f"{join_first(list(dict.fromkeys(names)), 3)}: {problem}" for problem, names in branches.items()]


def _rows(
    clone: Path, refs: Sequence[str], pins: str, bumps: Sequence[BumpStatus], read_tags: _ReadTags
) -> Iterator[FleetRow]:
    checkout = Checkout.open(clone)
    repository = recognized.choose(checkout, pins, refs)
    name = recognized.name_of(checkout)
    for snapshot in survey(clone, refs, repository=repository).snapshots:
        assert snapshot.commit
        if not lockstep_images(snapshot.verdicts):
            yield FleetRow(name, snapshot.name, problem="It has no known pin site, or none that can be read.")
        quarantined = _count_quarantined(checkout, snapshot.commit, name)
        for image in repository.sites.images:
            sites = repository.sites.only(image)
            verdicts = [verdict for verdict in snapshot.verdicts if verdict.image.startswith(f"{image.name}:")]
            for image_type, images in lockstep_images(verdicts).items():
                tags = tuple(sorted({image.tag or "" for image in images}))
                since, commit = moved_since(checkout, snapshot.commit, sites, image_type, images)
                row = FleetRow(
                    name, snapshot.name, image_type, tags, since, commit, quarantined=quarantined, image=image.short
                )
                row = replace(row, bumps=_open_bumps(row, image, bumps))
                yield _with_newest(row, image, read_tags) if len(tags) == 1 else row


def _open_bumps(row: FleetRow, image: PinnedImage, bumps: Sequence[BumpStatus]) -> tuple[BumpStatus, ...]:
    """Return the started bumps of a row's branch that move its image."""
    branch = row.repository, row.ref.removeprefix("origin/"), row.image_type
    started = []
    for bump in bumps:
        moves_image = bump.tag.rpartition(":")[0] == image.short
        if (bump.repository, bump.base, bump.image_type) == branch and moves_image and bump.is_started:
            started.append(bump)
    return tuple(started)


def lockstep_images(verdicts: Sequence[PinVerdict]) -> dict[ImageType, set[ImageRef]]:
    """Return the images that the lockstep pins of each type name."""
    by_type: dict[ImageType, set[ImageRef]] = {}
    for verdict in verdicts:
        kind, _, image_type = verdict.role.partition(" ")
        if kind == "lockstep" and verdict.image:
            ref = ImageRef.parse(verdict.image)
            by_type.setdefault(image_type, set()).add(replace(ref, digest=None))  # type: ignore[arg-type]
    return by_type


def moved_since(
    checkout: Checkout, commit: str, sites: Sites, image_type: ImageType, images: set[ImageRef]
) -> tuple[str, str]:
    """Return the date and the commit since which the branch has had these images."""
    versions = file_versions(checkout, commit, sites.pin_paths, _SEARCHED)
    names = [name for name, _ in reversed(versions)]
    texts = texts_at(checkout, names, sites.pin_paths)
    first = ""
    begins_later = len(names) == _SEARCHED or checkout.git("rev-parse", "--is-shallow-repository") == "true"
    for name in names:
        if lockstep_images(check_pins(texts[name], sites)).get(image_type) != images:
            begins_later = False
            break
        first = name
    if not first:
        return "", ""
    date = checkout.git("show", "-s", "--format=%cs", first).strip()
    return f"…{date}" if begins_later else date, first


def _count_quarantined(checkout: Checkout, commit: str, name: str) -> int:
    listed = checkout.git("ls-tree", "-r", "--name-only", "-z", commit, "--", recipes.FOLDER)
    paths = [path for path in listed.split("\0") if path.endswith((".yaml", ".yml"))]
    return len(quarantined_rows(checkout.read(paths, commit), name)[0])


def _with_newest(row: FleetRow, image: PinnedImage, read_tags: _ReadTags) -> FleetRow:
    """Add the newest release of the image's edition, and the number of newer ones."""
    names, problem = read_tags(image.name)
    if problem:
        return replace(row, problem=problem)
    (tag,) = row.tags
    newer = newer_releases(image.family, image.family.read(tag), names)
    return replace(row, newest=str(newer[0]) if newer else tag, behind=len(newer))


def _tags(repository: str) -> tuple[tuple[str, ...], str]:
    """Return an image's tags, or the reason why they cannot be read."""
    try:
        with Registry.connect(ImageRef.parse(repository), os.environ) as registry:
            return tuple(registry.tags()), ""
    except RunbookError as error:
        return (), str(error)
