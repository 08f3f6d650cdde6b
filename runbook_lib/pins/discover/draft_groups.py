"""The groups of a drafted pins file: their names, their lines, and which of them move together."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from runbook_lib.images.families import edition, is_older
from runbook_lib.images.reference import Tag
from runbook_lib.images.tags.numbered import NumberedTag
from runbook_lib.pins.discover.draft_finders import quoted, scalar
from runbook_lib.pins.discover.projects import is_project
from runbook_lib.pins.discover.roles import ClassifiedReference
from runbook_lib.pins.finders import PinLocation
from runbook_lib.pins.tag_parts import default_form, part_of

#: The roles of entries, and the comment above those of each.
ROLE_HEADS = {
    "lockstep dev": "A bump of the dev image moves these.",
    "lockstep lts": "A bump of the LTS image moves these, and a bump of the dev image leaves them.",
    "follow": "A bump moves these, and a check does not fail on them.",
    "informational": "These are compared and never moved. Remove those that need not follow.",
}
_LONGEST_NAME = 40  # maximum length of a group's name in the file format


@dataclass(frozen=True)
class DraftEntry:
    """A pin of the file: the value of ``find``, the role, the reader, and the locations that the finder finds.

    ``dockerfile``: the file that gets the build argument; ``history``: a comment on past bumps; ``form``: that of the
    tag, if the file has only a part of it.
    """

    path: str
    find: str
    role: str
    reader: str
    locations: Sequence[PinLocation]
    dockerfile: str = ""
    history: str = ""
    form: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the lines of the file."""
        kind, _, image_type = self.role.partition(" ")
        lines = ", ".join(str(location.line) for location in self.locations)
        history = f"; {self.history}" if self.history else ""
        yield f"  - path: {scalar(self.path)}  # line {lines}{history}"
        yield f"    find: {self.find}"
        # A regular expression's group needs none if it has the usual form.
        usual = self.find.startswith("{regex:") and self.form == default_form(part_of(self.form))
        if self.form and not usual:
            yield f"    tag: {quoted(self.form)}"
        yield f"    kind: {kind}"
        yield f"    type: {image_type or 'dev'}"
        yield f"    read-by: {self.reader}"
        yield f"    count: {len(self.locations)}"
        if self.dockerfile:
            yield f"    dockerfile: {scalar(self.dockerfile)}"


GroupKey = tuple[str, str, str]


class Moves(NamedTuple):
    """The moves of the references of a group, pairs of commit and tag, and the current tags of its pins.

    ``in_ci``: a file of CI has one of its pins.
    """

    past: frozenset[tuple[str, str]]
    tags: frozenset[str]
    in_ci: bool


@dataclass(frozen=True)
class DraftGroup:
    """The pins of one image and edition.

    ``alone``: past bumps did not move them together with a group that can have the same tags.  ``leader``: the name of
    such a group with which they did move.  ``numbered``: the tags of its pins, if all of them begin with a version or a
    month.
    """

    name: str
    image: str
    edition: str
    entries: Sequence[DraftEntry]
    alone: bool = False
    leader: str = ""
    digests: bool = False
    numbered: Sequence[NumberedTag] = ()

    @property
    def versioned(self) -> bool:
        """True if the tags of all pins are versions and not months, so a month's tag belongs to another image."""
        return bool(self.numbered) and not any(tag.is_month for tag in self.numbered)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the file."""
        yield f"  - name: {self.name}"
        yield f"    image: {self.image}"
        if self.versioned:
            yield "    family: versioned"
        yield f"    edition: {scalar(self.edition)}"
        if self.digests:
            yield "    digests: true"
        if self.alone:
            yield "    alone: true  # moves only when the parameter group names it"
        if self.alone and self.numbered:
            major = max(tag.major for tag in self.numbered)
            yield f"    major: {major}  # or a tag has this major version, or a later one below the next group's"
        if self.leader:
            yield f"    with: {self.leader}  # moves when that group moves"
        yield "    pins:"
        yield from (f"    {line}" for line in entry_lines(self.entries))


def key_of(classified: ClassifiedReference) -> GroupKey:
    """Return the group of a reference: its image, the edition of its tag, and its cadence."""
    tag = classified.reference.read_tag
    return classified.reference.image, edition(tag) if tag else "", classified.cadence


def numbered_tags(references: Sequence[ClassifiedReference]) -> Sequence[NumberedTag]:
    """Return the tags of the pins if all of them begin with a version or a month; else none."""
    tags = [reference.reference.read_tag for reference in references if reference.role == "lockstep"]
    numbered = [tag for tag in tags if isinstance(tag, NumberedTag)]
    return numbered if len(numbered) == len(tags) else []


def newest_groups(discovered: Sequence[ClassifiedReference]) -> Set[GroupKey]:
    """Return the groups with the newest tag of their image and edition: of equal ones, the next bump moves these."""
    newest: dict[GroupKey, Tag] = {}
    for reference in discovered:
        tag = reference.reference.read_tag
        if reference.role == "lockstep" and tag is not None:
            key = key_of(reference)
            newest[key] = tag if key not in newest or is_older(newest[key], tag) else newest[key]
    of_image: defaultdict[tuple[str, str], list[Tag]] = defaultdict(list)
    for key, tag in newest.items():
        of_image[key[:2]].append(tag)
    return {key for key, tag in newest.items() if not any(is_older(tag, other) for other in of_image[key[:2]])}


def group_names(keys: Sequence[GroupKey]) -> Mapping[GroupKey, str]:
    """Return a unique name for each group: the last part of its image, extended if another group has the same."""
    images = Counter(_last_part(image) for image in {key[0] for key in keys})
    editions = Counter(image for image, _ in {key[:2] for key in keys})
    names: dict[GroupKey, str] = {}
    taken = set[str]()
    for key in keys:
        image, own_edition, cadence = key
        name = _last_part(image)
        if images[name] > 1:
            name = image
        if editions[image] > 1:
            name = f"{name}-{own_edition}"
        if cadence:
            name = f"{name}-{_last_part(cadence.rstrip('/'))}"
        names[key] = _unique(_plain_name(name), taken)
        taken.add(names[key])
    return names


def _last_part(image: str) -> str:
    return image.rpartition("/")[2]


def _plain_name(name: str) -> str:
    """Return the name in the format and length allowed for a group."""
    short = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if len(short) > _LONGEST_NAME:
        short = short[-_LONGEST_NAME:]
        short = short.partition("-")[2] or short  # without a partial word
    return short or "image"


def _unique(name: str, taken: Set[str]) -> str:
    """Return a name that no earlier group has, because cadences of files with the same stem get the same name."""
    unique, number = name, 1
    while unique in taken:
        number += 1
        end = f"-{number}"
        unique = name[: _LONGEST_NAME - len(end)] + end
    return unique


def moves_of(references: Sequence[ClassifiedReference]) -> Moves:
    """Return the moves of the references of a group."""
    past = frozenset[tuple[str, str]]().union(*(reference.moves for reference in references))
    pins = [reference for reference in references if reference.role == "lockstep"]
    return Moves(past, frozenset(pin.reference.tag for pin in pins), any(pin.nature.ci for pin in pins))


def with_leaders(drafted: Mapping[GroupKey, DraftGroup], moves: Mapping[GroupKey, Moves]) -> list[DraftGroup]:
    """Return the groups; those that a bump moves only by name are alone, or move with one that is.

    Among groups that can have the same tags, only those that moved together are known to move in one bump: the first
    of them and those that moved with it.  A version, unlike a month, does not show the image that it belongs to: if
    several images are versioned, none of them is the first.  In a collection, only a group that CI uses can be the
    first, and the groups of a project move only with each other.
    """
    groups: list[DraftGroup] = []
    is_collection = any(map(_project, drafted))
    for edition_of_groups in {group.edition: None for group in drafted.values()}:
        clusters: list[list[GroupKey]] = []
        for key in [key for key in drafted if key[1] == edition_of_groups]:
            for cluster in clusters:
                is_same_project = _project(key) == _project(cluster[0])
                if is_same_project and any(_move_together(moves[key], moves[other]) for other in cluster):
                    cluster.append(key)
                    break
            else:
                clusters.append([key])
        ambiguous = [cluster for cluster in clusters if any(drafted[key].versioned for key in cluster)]
        has_images = len({cluster[0][0] for cluster in ambiguous}) > 1
        main = [cluster for cluster in clusters if not is_collection or any(moves[key].in_ci for key in cluster)]
        for cluster in clusters:
            first, *others = cluster
            alone = cluster not in main[:1] or (has_images and cluster in ambiguous)
            groups.append(replace(drafted[first], alone=alone))
            leader = drafted[first].name if alone else ""
            groups += [replace(drafted[key], leader=leader) for key in others]
    order = [group.name for group in drafted.values()]
    return sorted(groups, key=lambda group: order.index(group.name))


def _project(key: GroupKey) -> str:
    """Return the folder of the project that a group belongs to; empty outside of a collection."""
    return key[2] if is_project(key[2]) else ""


def _move_together(group: Moves, other: Moves) -> bool:
    """Return True if at least half of the group's moves moved the other one to the same tag.

    Where nothing has moved yet, groups that name the same tag belong together.
    """
    if group.past:
        return 2 * len(group.past & other.past) >= len(group.past)
    return not other.past and bool(group.tags & other.tags)


def entry_lines(entries: Sequence[DraftEntry]) -> Iterator[str]:
    """Yield the lines of the entries, those of each role below its comment."""
    for role, head in ROLE_HEADS.items():
        of_role = [entry for entry in entries if entry.role == role]
        if of_role:
            yield f"  # {head}"
        for entry in of_role:
            yield from entry.lines()
