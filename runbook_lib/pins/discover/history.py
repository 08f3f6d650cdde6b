"""The role of each reference that past bumps show: how often they moved it together with the others.

A bump is a release to which CI's references to an image were moved, in one commit or in several.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import PurePosixPath
from types import MappingProxyType

from runbook_lib.images.families import edition, is_older
from runbook_lib.images.reference import Tag
from runbook_lib.pins.discover.moves import Move, MoveCounter, advances, release_of
from runbook_lib.pins.discover.places import ReferencePlace, places
from runbook_lib.pins.discover.projects import is_project, project_of, projects
from runbook_lib.pins.discover.roles import ClassifiedReference, Role, incomparable

_FOR_PEOPLE = frozenset({"documentation", "comment", "test", "record", "foreign"})
# Fewer bumps prove nothing; a pin that moved so often before the last bump was forgotten there.
_MIN_BUMPS, _MIN_MOVES = 2, 3
# Share of the bumps in which a pin moves that was forgotten in the last one, and of documents that name the current tag
# where others will be kept up to date too.
_FORGOTTEN_SHARE, _CURRENT_SHARE = 0.8, 0.75

GroupKey = tuple[str, ...]
Placed = list[tuple[ClassifiedReference, ReferencePlace]]


def settle(
    counter: MoveCounter,
    discovered: Sequence[ClassifiedReference],
    texts: Mapping[str, str],
    bare: Mapping[str, str] = MappingProxyType({}),
) -> tuple[ClassifiedReference, ...]:
    """Return the references with the roles that past bumps show, and the evidence as ``history``.

    ``bare`` as for ``roles.discover``.  References that no commit has yet keep their roles.
    """
    by_start: dict[tuple[str, int], ReferencePlace] = {}
    for path, text in texts.items():
        for known, reference in places(path, text, bare.get(path, "")).items():
            by_start[path, reference.start] = known
    placed: Placed = []
    for entry in discovered:
        place = by_start.get((entry.path, entry.reference.start))
        if place in counter.born:
            moves = frozenset((move.commit, move.tag) for move in counter.moves[place].values())
            placed.append((replace(entry, moves=moves), place))
    cadences = _cadences_of_groups(counter, placed)
    placed = [(replace(entry, cadence=cadences.get(place, "")), place) for entry, place in placed]
    live: defaultdict[GroupKey, list[ReferencePlace]] = defaultdict(list)
    for entry, place in placed:
        if is_live(entry):
            live[_key(entry)].append(place)
    bumps = {key: advances(key[0], counter.firsts(of_key)) for key, of_key in live.items()}
    newest = _newest(placed)
    settled: dict[tuple[str, int], ClassifiedReference] = {}
    for entry, place in placed:
        key = _key(entry)
        bumps_of_key, moves_of_place = bumps.get(key, {}), counter.moves[place]
        # A bump to a tag that the place had from the start says nothing about it.
        had = counter.named[place] - moves_of_place.keys()
        since = {release for release, order in bumps_of_key.items() if order > counter.born[place]} - had
        entry = _leading(entry, bumps_of_key, newest.get(key))
        entry = _with_history(entry, bumps_of_key, since, moves_of_place, newest.get(key))
        settled[entry.path, entry.reference.start] = entry
    all_entries = [settled.get((entry.path, entry.reference.start), entry) for entry in discovered]
    return tuple(_with_new_documents(all_entries, newest))


def moved_together(settled: Sequence[ClassifiedReference], bare: Mapping[str, str]) -> tuple[ClassifiedReference, ...]:
    """Return the references without those tags of ``bare`` files that no past bump moved together with a live one."""
    commits: defaultdict[GroupKey, set[str]] = defaultdict(set)
    for entry in settled:
        if entry.path not in bare and is_live(entry):
            commits[_group_of(entry)] |= entry.commits
    return tuple(entry for entry in settled if entry.path not in bare or entry.commits & commits[_group_of(entry)])


def is_live(entry: ClassifiedReference) -> bool:
    """Return True for a value that a program may read: not a document, comment, test or record of the past."""
    return entry.nature.kind not in _FOR_PEOPLE and not entry.nature.for_people


def _group_of(entry: ClassifiedReference) -> GroupKey:
    """Return the common properties of the references of one bump: the image, its type and its edition."""
    tag = entry.reference.read_tag
    return entry.reference.image, entry.type, edition(tag) if tag else ""


def _key(entry: ClassifiedReference) -> GroupKey:
    """Return the group of a reference and its cadence."""
    return (*_group_of(entry), entry.cadence)


def _cadences_of_groups(counter: MoveCounter, placed: Placed) -> dict[ReferencePlace, str]:
    """Return the cadence of each place: its project in a collection, else the name of the bumps that move it."""
    groups: defaultdict[GroupKey, Placed] = defaultdict(list)
    for entry, place in placed:
        if entry.nature.kind != "record":
            groups[_group_of(entry)].append((entry, place))
    folders_of_groups = projects([entry for entry, _ in group if is_live(entry)] for group in groups.values())
    cadences: dict[ReferencePlace, str] = {}
    for group, folders in zip(groups.values(), folders_of_groups, strict=True):
        if folders:
            cadences |= {place: project_of(place.path, folders) for _, place in group}
        else:
            live = {place for entry, place in group if is_live(entry)}
            cadences |= _cadences(counter, [place for _, place in group], live)
    return cadences


def _cadences(
    counter: MoveCounter, group: Sequence[ReferencePlace], live: Set[ReferencePlace]
) -> dict[ReferencePlace, str]:
    """Return the name of the cadence of each place that separate bumps move, never those of the main ones.

    A cadence has moved at least once to a tag that nothing else had before; places that only catch up have none.
    """
    components: list[tuple[set[int], list[ReferencePlace]]] = []
    for place in group:
        orders, members = {move.order for move in counter.moves[place].values()}, [place]
        for other in [other for other in components if other[0] & orders]:
            components.remove(other)
            orders, members = orders | other[0], [*other[1], *members]
        components.append((orders, members))
    firsts = {move.order for move in counter.firsts(live).values()}
    # The main ones moved most; unmoved references belong to those with the same tag.
    components.sort(key=lambda component: -sum(len(counter.moves[place]) for place in live & set(component[1])))
    cadences: dict[ReferencePlace, str] = {}
    newest: dict[str, str] = {}
    for orders, members in components:
        name = ""
        if newest and orders & firsts:
            name = min(PurePosixPath(place.path).stem for place in members)
        if orders:
            last = max(move for place in members for move in counter.moves[place].values())
            newest.setdefault(last.tag, name)
        else:
            name = newest.get(counter.last[members[0]], "")
        cadences |= dict.fromkeys(members, name)
    return cadences


def _newest(placed: Placed) -> dict[GroupKey, Tag]:
    """Return the newest tag of the pins of each group and cadence; in a project, of all that a program reads."""
    newest: dict[GroupKey, Tag] = {}
    for entry, _ in placed:
        tag = entry.reference.read_tag
        if tag and (entry.role == "lockstep" or (is_project(entry.cadence) and entry.is_read)):
            key = _key(entry)
            newest[key] = tag if key not in newest or is_older(newest[key], tag) else newest[key]
    return newest


def _leading(entry: ClassifiedReference, bumps: Mapping[str, int], newest: Tag | None) -> ClassifiedReference:
    """Return a reference with a separate cadence as lockstep, if it has the cadence's newest tag."""
    if not entry.cadence or not entry.is_read or entry.role != "informational":
        return entry
    if is_project(entry.cadence):
        leads, reason = entry.reference.tag == str(newest), f"it is the newest in {entry.cadence}"
    else:
        leads, reason = _release(entry) == _last(bumps), "bumps of its own move it"
    return replace(entry, role="lockstep", reason=reason) if leads else entry


def _with_history(
    entry: ClassifiedReference, bumps: Mapping[str, int], since: Set[str], moves: Mapping[str, Move], newest: Tag | None
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
    if role == "lockstep" and not continues and _release(entry) != _last(bumps):
        role = "informational"
    elif role == "follow" and not continues:
        role = "ignore"
    elif role in ("informational", "ignore") and (forgotten or (continues and not _lags(entry, newest))):
        role = "lockstep" if is_pin else "follow"
    return replace(entry, role=role, history=history)


def _lags(entry: ClassifiedReference, newest: Tag | None) -> bool:
    """Return True for a live reference that is behind the newest pin."""
    tag = entry.reference.read_tag
    return tag is not None and newest is not None and is_live(entry) and is_older(tag, newest)


def _last(bumps: Mapping[str, int]) -> str:
    """Return the release of the last bump; empty if there is none."""
    return max(bumps, key=lambda release: bumps[release], default="")


def _release(entry: ClassifiedReference) -> str:
    """Return the release that a reference names."""
    return release_of(entry.reference.image, entry.reference.tag)


def _with_new_documents(
    settled: Sequence[ClassifiedReference], newest: Mapping[GroupKey, Tag]
) -> Iterator[ClassifiedReference]:
    """Yield the references; those for people follow if they name the current tag and no bump has passed since.

    In a repository that leaves other documents behind, they do not.
    """

    def names_current(entry: ClassifiedReference) -> bool:
        return not entry.history and entry.reference.tag == str(newest.get(_key(entry)))

    counts: defaultdict[GroupKey, Counter[bool]] = defaultdict(Counter)
    documents = [entry for entry in settled if not is_live(entry) and entry.role in ("follow", "informational")]
    for entry in documents:
        counts[_group_of(entry)][entry.role == "follow" or names_current(entry)] += 1
    for entry in settled:
        counted = counts[_group_of(entry)]
        is_new = not is_live(entry) and entry.role == "informational" and names_current(entry)
        if is_new and counted[True] >= _CURRENT_SHARE * counted.total():
            entry = replace(entry, role="follow", reason="it names the current tag")
        yield entry
