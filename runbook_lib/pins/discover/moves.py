"""The moves of references from release to release, counted from the versions of their files.

A release is a tag without its edition: ``26.04`` of ``26.04-py3`` and of ``26.04-py3-igpu``.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from runbook_lib.errors import RunbookError
from runbook_lib.images.families import edition, family_of, is_older
from runbook_lib.images.reference import ImageRef, Tag
from runbook_lib.pins.discover.places import ReferencePlace, successors


class Move(NamedTuple):
    """The commit that moved a reference to a tag, and the commit's number in the history."""

    order: int
    commit: str
    tag: str


@dataclass
class MoveCounter:
    """The moves of each reference by release, counted version by version, the oldest first.

    ``last``: its tag; ``born``: the number of the commit that added it; ``named``: all its releases.
    """

    order: int = 0
    tags: dict[str, Mapping[ReferencePlace, str]] = field(default_factory=dict)
    last: dict[ReferencePlace, str] = field(default_factory=dict)
    born: dict[ReferencePlace, int] = field(default_factory=dict)
    named: defaultdict[ReferencePlace, set[str]] = field(default_factory=lambda: defaultdict(set))
    moves: defaultdict[ReferencePlace, dict[str, Move]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, commit: str, files: Iterable[tuple[str, Mapping[ReferencePlace, str]]]) -> None:
        """Add a commit: the path of each file that it changes, and the tags of its references, none if removed."""
        self.order += 1
        before: dict[ReferencePlace, str] = {}
        after: dict[ReferencePlace, str] = {}
        for path, tags in files:
            before |= self.tags.get(path, {})
            after |= tags
            self.tags[path] = tags
        for new, old in successors(before, after).items():
            self.last[new] = before[old]
            if new not in self.born:
                self.born[new], self.moves[new] = self.born[old], dict(self.moves[old])
                self.named[new] = set(self.named[old])
        for place, tag in after.items():
            self.born.setdefault(place, self.order)
            release = release_of(place.image, tag)
            self.named[place].add(release)
            past = self.last.get(place, tag)  # a line that was removed for a while is the same line
            if release_of(place.image, past) != release and not _is_correction(place.image, past, tag):
                self.moves[place].setdefault(release, Move(self.order, commit, tag))
        self.last |= after

    def firsts(self, places: Iterable[ReferencePlace]) -> dict[str, Move]:
        """Return the first move of these places to each release."""
        firsts: dict[str, Move] = {}
        for place in places:
            for release, move in self.moves[place].items():
                firsts[release] = min(move, firsts.get(release, move))
        return firsts


def release_of(image: str, text: str) -> str:
    """Return a tag without its edition; the text itself if it cannot be read."""
    tag = _read(image, text)
    return text.replace(f"-{edition(tag)}", "", 1) if tag else text


def advances(image: str, moves: Mapping[str, Move]) -> dict[str, int]:
    """Return the releases (release → order) that were newer than all before them: the others only catch up."""
    newest: Tag | None = None
    bumps: dict[str, int] = {}
    for release, move in sorted(moves.items(), key=lambda item: (item[1].order, item[0])):
        if tag := _read(image, move.tag):
            if newest and not _is_before(newest, tag):
                continue
            newest = tag
        bumps[release] = move.order
    return bumps


@cache
def _read(image: str, text: str) -> Tag | None:
    """Return a tag as the image's family reads it; None if it cannot."""
    with suppress(RunbookError):
        if family := family_of(ImageRef.parse(image)):
            return family.read(text)
    return None


def _is_correction(image: str, old: str, new: str) -> bool:
    """Return True for a move back to an older tag, which is no bump."""
    past, tag = _read(image, old), _read(image, new)
    return past is not None and tag is not None and _is_before(tag, past)


def _is_before(tag: Tag, other: Tag) -> bool:
    """Return True if a tag is of an older release than another one, whatever their editions are."""
    if edition(tag) == edition(other):
        return is_older(tag, other)
    return isinstance(other, type(tag)) and bool(tag < other)
