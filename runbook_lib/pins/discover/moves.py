"""The share of past bumps that moved a reference with the others, counted from the versions of its file.

A bump is a tag to which CI's references to an image were moved, in one commit or in several.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cache
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from runbook_lib.errors import RunbookError
from runbook_lib.images.families import edition, family_of, is_older
from runbook_lib.images.reference import ImageRef, Tag
from runbook_lib.pins.discover.projects import is_project, project_of, projects
from runbook_lib.pins.discover.references import Reference, references
from runbook_lib.pins.discover.roles import ClassifiedReference, Role, incomparable

_FOR_PEOPLE = frozenset({"documentation", "comment", "test", "record", "foreign"})
#: Fewer bumps prove nothing; a pin that moved so often before the last bump was forgotten there.
_MIN_BUMPS, _MIN_MOVES = 2, 3
# Share of the bumps in which a pin moves that was forgotten in the last one, and of documents that name the current tag
# where others will be kept up to date too.
_FORGOTTEN_SHARE, _CURRENT_SHARE = 0.8, 0.75
_MAX_COMPARED_LINES = 10  # appeared lines of a file that are compared with those that disappeared
_MAX_KEY_DISTANCE = 1000  # lines above a value that are searched for its keys


class ReferencePlace(NamedTuple):
    """A reference in any version of its file: the text before it on its line, and its number among equal ones.

    In YAML, the text begins with the lines of the keys above.
    """

    path: str
    before: str
    image: str
    number: int


class _Move(NamedTuple):
    """The commit that moved a reference to a tag, and its number in the history."""

    order: int
    commit: str
    tag: str


@dataclass
class MoveCounter:
    """The moves of references by release, counted version by version, the oldest first.

    A release is a tag without its edition: ``26.04`` of ``26.04-py3`` and of ``26.04-py3-igpu``.
    """

    order: int = 0
    tags: dict[str, Mapping[ReferencePlace, str]] = field(default_factory=dict)
    last: dict[ReferencePlace, str] = field(default_factory=dict)
    born: dict[ReferencePlace, int] = field(default_factory=dict)
    named: defaultdict[ReferencePlace, set[str]] = field(default_factory=lambda: defaultdict(set))
    moves: defaultdict[ReferencePlace, dict[str, _Move]] = field(default_factory=lambda: defaultdict(dict))

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
            release = _release(place.image, tag)
            self.named[place].add(release)
            past = self.last.get(place, tag)  # a line that was removed for a while is the same line
            if _release(place.image, past) != release and not _is_correction(place, past, tag):
                self.moves[place].setdefault(release, _Move(self.order, commit, tag))
        self.last |= after

    def settle(
        self,
        discovered: Sequence[ClassifiedReference],
        texts: Mapping[str, str],
        bare: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[ClassifiedReference, ...]:
        """Return the references with the roles that past bumps show, and the evidence as ``history``.

        ``bare`` as for ``roles.discover``.
        """
        by_start: dict[tuple[str, int], ReferencePlace] = {}
        for path, text in texts.items():
            by_start |= {
                (path, reference.start): place for place, reference in places(path, text, bare.get(path, "")).items()
            }
        known = [by_start.get((entry.path, entry.reference.start)) for entry in discovered]
        groups: defaultdict[tuple[str, ...], list[ReferencePlace]] = defaultdict(list)
        live: dict[ReferencePlace, ClassifiedReference] = {}
        for entry, place in zip(discovered, known, strict=True):
            if place and entry.nature.kind != "record":
                groups[group_of(entry)].append(place)
                if is_live(entry):
                    live[place] = replace(entry, moves=self._commits(place))
        cadences: dict[ReferencePlace, str] = {}
        folders_of_groups = projects([live[place] for place in of_group if place in live] for of_group in groups.values())
        for of_group, folders in zip(groups.values(), folders_of_groups, strict=True):
            if folders:
                cadences |= {place: project_of(place.path, folders) for place in of_group}
            else:
                cadences |= self._cadences(of_group, live.keys())
        firsts: defaultdict[tuple[str, ...], dict[str, _Move]] = defaultdict(dict)
        for group_key, of_group in groups.items():
            for place in live.keys() & of_group:
                of_cadence = firsts[*group_key, cadences.get(place, "")]
                for release, move in self.moves[place].items():
                    of_cadence[release] = min(move, of_cadence.get(release, move))
        bumps = {key: _advances(key[0], of_cadence) for key, of_cadence in firsts.items()}
        newest: dict[tuple[str, ...], Tag] = {}
        for entry, found in zip(discovered, known, strict=True):
            now, cadence = entry.reference.read_tag, cadences.get(found, "") if found else ""
            if found and now and (entry.role == "lockstep" or (is_project(cadence) and entry.is_read)):
                key = (*group_of(entry), cadence)
                newest[key] = now if key not in newest or is_older(newest[key], now) else newest[key]
        settled = []
        for entry, found in zip(discovered, known, strict=True):
            if found in self.born:
                entry = replace(entry, moves=self._commits(found), cadence=cadences.get(found, ""))
                key = (*group_of(entry), entry.cadence)
                bumps_of_key = bumps.get(key, {})
                # A bump to a tag that the place had from the start says nothing about it.
                had = self.named[found] - self.moves[found].keys()
                since = {release for release, order in bumps_of_key.items() if order > self.born[found]} - had
                entry = _leading(entry, bumps_of_key, newest.get(key))
                entry = _settle(entry, bumps_of_key, since, self.moves[found], newest.get(key))
            settled.append(entry)
        return tuple(_with_new_documents(settled, newest))

    def _commits(self, place: ReferencePlace) -> frozenset[tuple[str, str]]:
        """Return the commits that moved a place, with its new tags."""
        return frozenset((move.commit, move.tag) for move in self.moves[place].values())

    def _cadences(self, of_group: Sequence[ReferencePlace], live: Set[ReferencePlace]) -> dict[ReferencePlace, str]:
        """Return the name of the cadence of each place that separate bumps move, never those of the main ones.

        A cadence has moved at least once to a tag that nothing else had before; places that only catch up have none.
        """
        components: list[tuple[set[int], list[ReferencePlace]]] = []
        for place in of_group:
            orders, members = {move.order for move in self.moves[place].values()}, [place]
            for other in [other for other in components if other[0] & orders]:
                components.remove(other)
                orders, members = orders | other[0], [*other[1], *members]
            components.append((orders, members))
        first: dict[str, int] = {}
        for place in live & set(of_group):
            for release, move in self.moves[place].items():
                first[release] = min(move.order, first.get(release, move.order))
        # The main ones moved most; unmoved references belong to those with the same tag.
        components.sort(key=lambda component: -sum(len(self.moves[place]) for place in live & set(component[1])))
        cadences: dict[ReferencePlace, str] = {}
        newest: dict[str, str] = {}
        for orders, members in components:
            name = ""
            if newest and orders.intersection(first.values()):
                name = min(PurePosixPath(place.path).stem for place in members)
            if not orders:
                name = newest.get(self.tags.get(members[0].path, {}).get(members[0], ""), "")
            else:
                newest.setdefault(max(self._latest(place) for place in members)[1], name)
            cadences |= dict.fromkeys(members, name)
        return cadences

    def _latest(self, place: ReferencePlace) -> tuple[int, str]:
        """Return the order and the tag of the last move of a place; 0 if there is none."""
        return max(((move.order, move.tag) for move in self.moves[place].values()), default=(0, ""))


def moved_together(settled: Sequence[ClassifiedReference], bare: Mapping[str, str]) -> tuple[ClassifiedReference, ...]:
    """Return the references without those tags of ``bare`` files that no past bump moved together with a live one."""
    commits: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for entry in settled:
        if entry.path not in bare and is_live(entry):
            commits[group_of(entry)] |= entry.commits
    return tuple(entry for entry in settled if entry.path not in bare or entry.commits & commits[group_of(entry)])


def is_live(entry: ClassifiedReference) -> bool:
    """Return True for a value that a program may read: not a document, comment, test or record of the past."""
    return entry.nature.kind not in _FOR_PEOPLE and not entry.nature.for_people


def group_of(entry: ClassifiedReference) -> tuple[str, ...]:
    """Return the common properties of the references of one bump: the image, its type and its edition."""
    tag = entry.reference.read_tag
    return entry.reference.image, entry.type, edition(tag) if tag else ""


def places(path: str, text: str, bare: str = "") -> dict[ReferencePlace, Reference]:
    """Return the references of a version of a file by their places; ``bare`` as for ``references``."""
    counted: Counter[tuple[str, str]] = Counter()
    result = {}
    lines = text.split("\n") if path.endswith((".yml", ".yaml")) else []
    for reference in references(text, bare):
        before = text[reference.start - reference.column : reference.start].strip()
        if lines:
            before = "\n".join((*_lines_above(lines, reference.line), before))
        result[ReferencePlace(path, before, reference.image, counted[before, reference.image])] = reference
        counted[before, reference.image] += 1
    return result


def _lines_above(lines: Sequence[str], number: int) -> Iterator[str]:
    """Yield the lines that are less indented, up to the outermost: those of the keys above a value."""
    column = _column(lines[number - 1])
    for line in reversed(lines[max(number - 1 - _MAX_KEY_DISTANCE, 0) : number - 1]):
        if not column:
            break
        if line.strip() and _column(line) < column:
            column = _column(line)
            yield line.strip()


def _column(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def successors(
    before: Iterable[ReferencePlace], after: Iterable[ReferencePlace]
) -> dict[ReferencePlace, ReferencePlace]:
    """Return the former place of each new one, for lines that were reworded, or moved to another file.

    If as many references to an image appeared in a file as disappeared, they are the same ones in order; if more
    appeared, some of them are new, and the old ones are those that resemble them most.
    """
    before, after = dict.fromkeys(before), dict.fromkeys(after)
    former: defaultdict[tuple[str, str], list[ReferencePlace]] = defaultdict(list)
    new: defaultdict[tuple[str, str], list[ReferencePlace]] = defaultdict(list)
    for place in before:
        if place not in after:
            former[place.path, place.image].append(place)
    for place in after:
        if place not in before:
            new[place.path, place.image].append(place)
    known: dict[ReferencePlace, ReferencePlace] = {}
    by_line: dict[tuple[str, str, int], ReferencePlace] = {}
    for key, of_file in former.items():
        if len(of_file) == len(new[key]):
            known |= zip(new.pop(key), of_file, strict=True)
        elif len(of_file) < len(new[key]) <= _MAX_COMPARED_LINES:
            for old_one in of_file:
                alike = max(new[key], key=lambda place: SequenceMatcher(None, place.before, old_one.before).ratio())
                new[key].remove(alike)
                known[alike] = old_one
        else:
            by_line |= {(place.before, place.image, place.number): place for place in of_file}
    for place in (place for of_file in new.values() for place in of_file):
        if old := by_line.pop((place.before, place.image, place.number), None):
            known[place] = old
    return known


def _advances(image: str, moves: Mapping[str, _Move]) -> dict[str, int]:
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


def _release(image: str, text: str) -> str:
    """Return a tag without its edition; the text itself if it cannot be read."""
    tag = _read(image, text)
    return text.replace(f"-{edition(tag)}", "", 1) if tag else text


def _is_correction(place: ReferencePlace, old: str, new: str) -> bool:
    """Return True for a move back to an older tag, which is no bump."""
    past, tag = _read(place.image, old), _read(place.image, new)
    return past is not None and tag is not None and _is_before(tag, past)


def _is_before(tag: Tag, other: Tag) -> bool:
    """Return True if a tag is of an older release than another one, whatever their editions are."""
    if edition(tag) == edition(other):
        return is_older(tag, other)
    return isinstance(other, type(tag)) and bool(tag < other)


def _leading(entry: ClassifiedReference, bumps: Mapping[str, int], newest: Tag | None) -> ClassifiedReference:
    """Return a reference with a separate cadence as lockstep, if it has the cadence's newest tag."""
    if not entry.cadence or not entry.is_read or entry.role != "informational":
        return entry
    if is_project(entry.cadence):
        leads, reason = entry.reference.tag == str(newest), f"it is the newest in {entry.cadence}"
    else:
        leads, reason = _now(entry) == _last(bumps), "bumps of its own move it"
    return replace(entry, role="lockstep", reason=reason) if leads else entry


def _lags(entry: ClassifiedReference, newest: Tag | None) -> bool:
    """Return True for a live reference that is behind the newest pin."""
    tag = entry.reference.read_tag
    return tag is not None and newest is not None and is_live(entry) and is_older(tag, newest)


def _last(bumps: Mapping[str, int]) -> str:
    """Return the release of the last bump; empty if there is none."""
    return max(bumps, key=lambda release: bumps[release], default="")


def _now(entry: ClassifiedReference) -> str:
    """Return the release that a reference names."""
    return _release(entry.reference.image, entry.reference.tag)


def _with_new_documents(
    settled: Sequence[ClassifiedReference], newest: Mapping[tuple[str, ...], Tag]
) -> Iterator[ClassifiedReference]:
    """Yield the references; those for people follow if they name the current tag and no bump has passed since.

    In a repository that leaves other documents behind, they do not.
    """

    def names_current(entry: ClassifiedReference) -> bool:
        tag = newest.get((*group_of(entry), entry.cadence))
        return not entry.history and entry.reference.tag == str(tag)

    counts: defaultdict[tuple[str, ...], Counter[bool]] = defaultdict(Counter)
    documents = [entry for entry in settled if not is_live(entry) and entry.role in ("follow", "informational")]
    for entry in documents:
        counts[group_of(entry)][entry.role == "follow" or names_current(entry)] += 1
    for entry in settled:
        counted = counts[group_of(entry)]
        is_new = not is_live(entry) and entry.role == "informational" and names_current(entry)
        if is_new and counted[True] >= _CURRENT_SHARE * counted.total():
            entry = replace(entry, role="follow", reason="it names the current tag")
        yield entry


def _settle(
    entry: ClassifiedReference,
    bumps: Mapping[str, int],
    since: Set[str],
    moves: Mapping[str, _Move],
    newest: Tag | None,
) -> ClassifiedReference:
    """Return the reference with the role that its part in the ``bumps`` (release → order) shows.

    ``since`` are the releases of the bumps that could move it.  People who moved a place in the last bump move it in
    the next one, and leave it if they left it; one that is behind the ``newest`` pin must have moved in most of them.
    """
    releases = sorted(since, key=lambda release: bumps[release])
    taken = [moves[release] for release in releases if release in moves]
    if len(releases) < (1 if taken else _MIN_BUMPS) or incomparable(entry.reference):
        return entry
    history = f"moved in {len(taken)} of {len(releases)} bumps"
    if taken:
        history += f", last {max(taken).commit[:10]}"
    is_pin = is_live(entry)
    forgotten = is_pin and len(taken) >= max(_FORGOTTEN_SHARE * len(releases), _MIN_MOVES)
    continues = releases[-1] in moves or forgotten
    role: Role = entry.role
    if role == "lockstep" and not continues and _now(entry) != _last(bumps):
        role = "informational"
    elif role == "follow" and not continues:
        role = "ignore"
    elif role in ("informational", "ignore") and (forgotten or (continues and not _lags(entry, newest))):
        role = "lockstep" if is_pin else "follow"
    return replace(entry, role=role, history=history)
