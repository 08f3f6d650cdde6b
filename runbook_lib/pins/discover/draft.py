"""A draft of ``.base-image-pins.yaml`` from discovered references.

An entry is drafted only if its finder, tried on the file, finds the reference, and nothing with a different role.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from runbook_lib.errors import CannotTell
from runbook_lib.images.families import edition, is_older
from runbook_lib.images.reference import Tag
from runbook_lib.images.tags.numbered import NumberedTag
from runbook_lib.pins.discover.classify import Nature
from runbook_lib.pins.discover.projects import is_project
from runbook_lib.pins.discover.references import Reference
from runbook_lib.pins.discover.roles import ClassifiedReference, shown, times
from runbook_lib.pins.finders import BuildArg, DockerArg, Finder, PinLocation, RegexMatches, WholeFile, YamlValue
from runbook_lib.pins.tag_parts import PARTS, default_form, part_of
from runbook_lib.text.yaml_spans import Text

# Plain YAML scalars that every reader interprets as text.
_PLAIN = re.compile(r"(?!(?:y|n|yes|no|true|false|on|off|null)$)[A-Za-z_][\w./-]*", re.IGNORECASE | re.ASCII)
_HEADS = {
    "lockstep dev": "A bump of the dev image moves these.",
    "lockstep lts": "A bump of the LTS image moves these, and a bump of the dev image leaves them.",
    "follow": "A bump moves these, and a check does not fail on them.",
    "informational": "These are compared and never moved. Remove those that need not follow.",
}
_MAX_REGEX, _MAX_LOCATIONS = 1000, 1000  # characters of a regular expression, locations of a pin: limits of the format
_ANY_TAG, _ANY_DIGEST, _ANY_USER = r"[\w.-]+", r"sha256:\w+", r"/{2}[^/\s@]+@"
_VARYING = re.compile(r"sha256:[0-9a-f]{64}|(?P<user>//[^/\s@]{1,200}@)")
_LONGEST_NAME = 40  # maximum length of a group's name in the file format
_LINES_ABOVE = 4  # in a pattern, if its own line is not unique
_MAX_ENTRIES = 50  # of one file; nobody reads more


@dataclass(frozen=True)
class PinsFileDraft:
    """``text`` of the file, empty if nothing can be drafted; ``chosen``: sentences on the choice of the image.

    ``left_out``: sentences on references to that image that a pins file cannot express.
    """

    text: str
    chosen: tuple[str, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class _DraftEntry:
    path: str
    find: str
    role: str
    reader: str
    locations: Sequence[PinLocation]
    dockerfile: str = ""
    history: str = ""
    form: str = ""

    def lines(self) -> Iterator[str]:
        kind, _, image_type = self.role.partition(" ")
        lines = ", ".join(str(location.line) for location in self.locations)
        history = f"; {self.history}" if self.history else ""
        yield f"  - path: {_scalar(self.path)}  # line {lines}{history}"
        yield f"    find: {self.find}"
        # A regular expression's group needs none if it has the usual form.
        usual = self.find.startswith("{regex:") and self.form == default_form(part_of(self.form))
        if self.form and not usual:
            yield f"    tag: {_quoted(self.form)}"
        yield f"    kind: {kind}"
        yield f"    type: {image_type or 'dev'}"
        yield f"    read-by: {self.reader}"
        yield f"    count: {len(self.locations)}"
        if self.dockerfile:
            yield f"    dockerfile: {_scalar(self.dockerfile)}"


GroupKey = tuple[str, str, str]


class _Moves(NamedTuple):
    """The moves of the references of a group, pairs of commit and tag, and the current tags of its pins."""

    past: frozenset[tuple[str, str]]
    tags: frozenset[str]


@dataclass(frozen=True)
class _DraftGroup:
    """The pins of one image and edition.

    ``alone``: past bumps did not move them together with a group that can have the same tags.  ``leader``: the name of
    such a group with which they did move.  ``numbered``: the tags of its pins, if all of them begin with a version or a
    month.
    """

    name: str
    image: str
    edition: str
    entries: Sequence[_DraftEntry]
    alone: bool = False
    leader: str = ""
    digests: bool = False
    numbered: Sequence[NumberedTag] = ()

    @property
    def versioned(self) -> bool:
        """True if all pins have a version, no month, so that the tag of a month is none of their image."""
        return bool(self.numbered) and not any(tag.is_month for tag in self.numbered)

    def lines(self) -> Iterator[str]:
        yield f"  - name: {self.name}"
        yield f"    image: {self.image}"
        if self.versioned:
            yield "    family: versioned"
        yield f"    edition: {_scalar(self.edition)}"
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
        yield from (f"    {line}" for line in _entry_lines(self.entries))


def draft(
    discovered: Sequence[ClassifiedReference],
    texts: Mapping[str, str],
    author: str = "runbook pins discover",
    *,
    pin_digests: bool = False,
) -> PinsFileDraft:
    """Draft a pins file for the images that CI or a build reads, each a group, with ``digests`` if ``pin_digests``.

    ``texts`` by path; ``author`` is the command that drafts.
    """
    pins = Counter(_key(reference) for reference in discovered if reference.role == "lockstep")
    if not pins:
        return PinsFileDraft("", ("Nothing is drafted: no reference names a tag and is read by CI or a build.",))
    counts = Counter(reference.reference.image for reference in discovered)
    read = Counter(_key(pin) for pin in discovered if pin.role == "lockstep" and pin.is_read)
    moves: defaultdict[GroupKey, Counter[tuple[str, str]]] = defaultdict(Counter)
    for reference in discovered:
        moves[_key(reference)].update(reference.moves)
    leading = _leading(discovered)
    keys = sorted(
        pins,
        key=lambda key: (key in leading, moves[key].total(), read[key], pins[key], counts[key[0]], key),
        reverse=True,
    )
    by_key: dict[GroupKey, list[ClassifiedReference]] = {key: [] for key in keys}
    first = {key[0]: key for key in reversed(keys)}
    for reference in discovered:
        # Those of an edition without a pin are compared with the first edition of their image.
        if reference.reference.image in first:
            key = _key(reference)
            by_key[key if key in by_key else first[key[0]]].append(reference)
    files: dict[str, _DraftedFile] = {}
    for reference in discovered:
        file = files.setdefault(reference.path, _DraftedFile(reference.path, texts[reference.path]))
        file.moving.update(_moving(reference.reference, file.text))
    cis = {reference.nature.ci for reference in discovered}
    drafted, left_out, names = dict[GroupKey, _DraftGroup](), list[str](), _names(keys)
    for key, references in by_key.items():
        entries, without = _entries(references, files, texts, cis)
        left_out += without
        if any(entry.role.startswith("lockstep") for entry in entries):
            tags = _numbered(references)
            drafted[key] = _DraftGroup(names[key], *key[:2], entries, digests=pin_digests, numbered=tags)
        else:
            for entry in entries:
                places = [f"{shown(entry.path)}:{location.line}" for location in entry.locations]
                left_out += [f"{place} ({entry.role}): no pin of its image can be moved." for place in places]
    groups = _with_leaders(drafted, {key: _moves(by_key[key]) for key in drafted})
    if not groups:
        reason = "Nothing is drafted: a pins file has no way to find the references that matter."
        return PinsFileDraft("", (reason,), tuple(left_out))
    chosen = []
    for key in keys:
        chosen.append(
            f"Drafted for {key[0]}: {times(pins[key], 'pin')} of {sum(pins.values())} that CI or a build reads."
        )
    if others := sorted(counts.keys() - {group.image for group in groups}):
        listed = ", ".join(shown(f"{name} ({times(counts[name], 'reference')})") for name in others)
        chosen.append(f"Left out, as no pin of theirs can be moved: {listed}.")
    return PinsFileDraft(_text(groups, chosen, left_out, discovered, author), tuple(chosen), tuple(left_out))


def _key(classified: ClassifiedReference) -> GroupKey:
    """Return the group of a reference: its image, the edition of its tag, and its cadence."""
    tag = classified.reference.read_tag
    return classified.reference.image, edition(tag) if tag else "", classified.cadence


def _numbered(references: Sequence[ClassifiedReference]) -> Sequence[NumberedTag]:
    """Return the tags of the pins if all of them begin with a version or a month; else none."""
    tags = [reference.reference.read_tag for reference in references if reference.role == "lockstep"]
    numbered = [tag for tag in tags if isinstance(tag, NumberedTag)]
    return numbered if len(numbered) == len(tags) else []


def _leading(discovered: Sequence[ClassifiedReference]) -> Set[GroupKey]:
    """Return the groups with the newest tag of their image and edition: of equal ones, the next bump moves these."""
    newest: dict[GroupKey, Tag] = {}
    for reference in discovered:
        tag = reference.reference.read_tag
        if reference.role == "lockstep" and tag is not None:
            key = _key(reference)
            newest[key] = tag if key not in newest or is_older(newest[key], tag) else newest[key]
    of_image: defaultdict[tuple[str, str], list[Tag]] = defaultdict(list)
    for key, tag in newest.items():
        of_image[key[:2]].append(tag)
    return {key for key, tag in newest.items() if not any(is_older(tag, other) for other in of_image[key[:2]])}


def _names(keys: Sequence[GroupKey]) -> Mapping[GroupKey, str]:
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


def _moves(references: Sequence[ClassifiedReference]) -> _Moves:
    past = frozenset[tuple[str, str]]().union(*(reference.moves for reference in references))
    return _Moves(past, frozenset(pin.reference.tag for pin in references if pin.role == "lockstep"))


def _with_leaders(drafted: Mapping[GroupKey, _DraftGroup], moves: Mapping[GroupKey, _Moves]) -> list[_DraftGroup]:
    """Return the groups; those that a bump moves only by name are alone, or move with one that is.

    Among groups that can have the same tags, only those that moved together are known to move in one bump: the first
    of them and those that moved with it.  A version, unlike a month, does not show the image that it belongs to: if
    several images are versioned, none of them is the first.  Projects never move together.
    """
    groups: list[_DraftGroup] = []
    is_collection = any(is_project(cadence) for _, _, cadence in drafted)
    for edition_of_groups in {group.edition: None for group in drafted.values()}:
        clusters: list[list[GroupKey]] = []
        for key in [key for key in drafted if key[1] == edition_of_groups]:
            for cluster in clusters:
                projects = {cadence for _, _, cadence in (key, *cluster) if is_project(cadence)}
                if len(projects) < 2 and any(_move_together(moves[key], moves[other]) for other in cluster):
                    cluster.append(key)
                    break
            else:
                clusters.append([key])
        ambiguous = [cluster for cluster in clusters if any(drafted[key].versioned for key in cluster)]
        has_images = len({cluster[0][0] for cluster in ambiguous}) > 1
        for number, cluster in enumerate(clusters):
            first, *others = cluster
            alone = number > 0 or is_collection or (has_images and cluster in ambiguous)
            groups.append(replace(drafted[first], alone=alone))
            leader = drafted[first].name if alone else ""
            groups += [replace(drafted[key], leader=leader) for key in others]
    order = [group.name for group in drafted.values()]
    return sorted(groups, key=lambda group: order.index(group.name))


def _move_together(group: _Moves, other: _Moves) -> bool:
    """Return True if at least half of the group's moves moved the other one to the same tag.

    Where nothing has moved yet, groups that name the same tag belong together.
    """
    if group.past:
        return 2 * len(group.past & other.past) >= len(group.past)
    return not other.past and bool(group.tags & other.tags)


def _entries(
    references: Sequence[ClassifiedReference],
    files: Mapping[str, "_DraftedFile"],
    texts: Mapping[str, str],
    cis: Set[str],
) -> tuple[list[_DraftEntry], list[str]]:
    """Return the entries, the most important first, and sentences on references that no entry finds."""
    for file in files.values():
        file.remaining.clear()
    for reference in references:
        files[reference.path].remaining[reference.reference.start] = reference
    entries: list[_DraftEntry] = []
    left_out: list[str] = []
    tried: Counter[str] = Counter()
    for role in _HEADS:
        for reference in references:
            file = files[reference.path]
            if reference.full_role != role or reference.reference.start not in file.remaining:
                continue
            tried[file.path] += 1
            if tried[file.path] > _MAX_ENTRIES:
                continue
            if entry := _entry(reference, file, texts, _reader(reference, cis)):
                entries.append(entry)
                for location in entry.locations:
                    del file.remaining[location.start]
            else:
                line = f"{shown(file.path)}:{reference.reference.line}"
                left_out.append(f"{line} ({role}): no way to find it fits; add it by hand.")
    for path, count in sorted(tried.items()):
        if count > _MAX_ENTRIES:
            more = count - _MAX_ENTRIES
            left_out.append(f"{shown(path)}: {more} more of its references; add one pattern for many by hand.")
    return entries, left_out


def _text(
    groups: Sequence[_DraftGroup], chosen: Sequence[str], left_out: Sequence[str],
    references: Sequence[ClassifiedReference], author: str,
) -> str:  # fmt: skip
    lines = [
        f"# Drafted by `{author}`. Read every entry: one that lags behind may be a forgotten pin.",
        *(f"# {sentence}" for sentence in chosen),
        "version: 1",
    ]
    if len(groups) == 1:
        digests = ["digests: true"] if groups[0].digests else []
        lines += [f"image: {groups[0].image}", *digests, "pins:", *_entry_lines(groups[0].entries)]
    else:
        lines.append("groups:")
        for group in groups:
            lines += group.lines()
    if records := sorted({reference.path for reference in references if reference.role == "frozen"}):
        lines.append("# Records, which must not move; nothing compares them, so they need no entry:")
        lines += [f"#   {shown(path)}" for path in records]
    lines += [f"# Left out: {sentence}" for sentence in left_out]
    return "\n".join(lines) + "\n"


def _entry_lines(entries: Sequence[_DraftEntry]) -> Iterator[str]:
    for role, head in _HEADS.items():
        of_role = [entry for entry in entries if entry.role == role]
        if of_role:
            yield f"  # {head}"
        for entry in of_role:
            yield from entry.lines()


def _entry(
    reference: ClassifiedReference, file: "_DraftedFile", texts: Mapping[str, str], reader: str
) -> _DraftEntry | None:
    """Return the first entry that finds the reference, and among the others only references with the same role."""
    path = file.path
    if not path.isprintable() or "\\" in path or set("*?[") & set(path):
        return None  # the format cannot express it
    for find, finder in _finders(reference, file):
        locations = file.locations(find, finder, reference.reference.image)
        matches = [file.remaining.get(location.start) for location in locations]
        if reference not in matches or len(matches) > _MAX_LOCATIONS:
            continue
        if all(_fits(match, location, reference) for match, location in zip(matches, locations, strict=True)):
            dockerfile = ""
            if find.startswith("{build-arg:") and reference.nature.dockerfile in texts:
                dockerfile = reference.nature.dockerfile
            form = reference.reference.form
            return _DraftEntry(path, find, reference.full_role, reader, locations, dockerfile, reference.history, form)
    return None


def _fits(match: ClassifiedReference | None, location: PinLocation, reference: ClassifiedReference) -> bool:
    role = reference.full_role
    if match is None or match.full_role != role or match.reference.form != reference.reference.form:
        return False
    return match.reference.end == location.end


@dataclass(frozen=True)
class _DraftedFile:
    """A file, and its references that no entry finds yet, by start.

    ``moving`` are the texts that a bump may replace, in this line or another one.
    """

    path: str
    text: str
    moving: set[str] = field(default_factory=set)
    remaining: dict[int, ClassifiedReference] = field(default_factory=dict)
    _tried: dict[tuple[str, str], tuple[PinLocation, ...]] = field(default_factory=dict)

    def locations(self, find: str, finder: Finder, image: str) -> tuple[PinLocation, ...]:
        """Return the locations found by a finder; empty if it fails.  No finder is tried twice."""
        key = find, image
        if key not in self._tried:
            self._tried[key] = ()
            with suppress(CannotTell):
                if not isinstance(finder, YamlValue):
                    self._tried[key] = finder.find(self.text, image)
                elif self._parsed:
                    self._tried[key] = finder.find_parsed(self._parsed)
        return self._tried[key]

    @cached_property
    def _parsed(self) -> Text | None:
        """The file as YAML, parsed once; None if it is not valid YAML."""
        with suppress(CannotTell):
            return Text(self.text)
        return None


def _moving(reference: Reference, text: str) -> set[str]:
    """Return the part of a reference that a bump may replace; empty if it has no version, as in ``latest``."""
    moving = text[reference.start : reference.end] if reference.form else reference.tag
    return {moving} if re.search("[0-9]", moving) and reference.form != "{digest}" else set()


def _finders(classified: ClassifiedReference, file: "_DraftedFile") -> Iterator[tuple[str, Finder]]:
    """Yield the finders that may suit the reference, each with its value of ``find``, the simplest first."""
    reference = classified.reference
    if not reference.form and file.text[reference.start : reference.end] != str(reference):
        return  # enroot's notation, which is not an OCI reference
    yield from _finders_by_kind(classified.nature)
    for pattern in _patterns(classified, file):
        if pattern.isprintable() and len(pattern) <= _MAX_REGEX:
            yield f"{{regex: {_quoted(pattern)}}}", RegexMatches(re.compile(pattern, re.MULTILINE), "regex")


def _patterns(classified: ClassifiedReference, file: "_DraftedFile") -> Iterator[str]:
    """Yield regular expressions for a reference, from the text before and after it."""
    reference, text = classified.reference, file.text
    moving = file.moving | {reference.tag}
    value = rf"(?P<image>{_literal(reference.image)}:[\w.-]*\w(?:@\w+:\w+)?)"
    if part := part_of(reference.form):
        value = f"(?P<{part}>{PARTS[part]})"
    elif classified.nature.kind in ("documentation", "code"):
        yield value
    begin = reference.start - reference.column
    end = text.find("\n", reference.end)
    if end < 0:
        end = len(text)
    if end - begin > _MAX_REGEX:
        return
    before, after = text[begin : reference.start], _around(text[reference.end : end], moving)
    anchored = f"^{_around(before, moving)}{value}"
    yield anchored
    yield f"{anchored}{after}$"
    indentation = before[: len(before) - len(before.lstrip(" \t"))]
    yield f"^{_exactly(indentation)}{_around(before.lstrip(), moving)}{value}{after}$"
    above = ""
    for line in reversed(text[:begin].split("\n")[-1 - _LINES_ABOVE : -1]):
        above = rf"{_around(line, moving)}\n{above}"
        yield f"^{above}{_around(before, moving)}{value}{after}$"


def _finders_by_kind(nature: Nature) -> Iterator[tuple[str, Finder]]:
    if nature.kind == "whole-file":
        yield "{file: whole}", WholeFile()
    if nature.kind == "dockerfile-arg" and nature.name:
        yield f"{{arg: {_scalar(nature.name)}}}", DockerArg(nature.name)
    if nature.kind in ("build-arg", "workflow-input") and nature.name:
        yield f"{{build-arg: {_scalar(nature.name)}}}", BuildArg(nature.name)
    if nature.yaml is None or nature.yaml.block:
        return
    keys = nature.yaml.keys
    if keys and all(key.isprintable() for key in keys):
        path = _scalar(".".join(keys))
        if any("." in key for key in keys):
            path = f"[{', '.join(map(_quoted, keys))}]"
        yield f"{{yaml: {path}}}", YamlValue(keys)


def _around(text: str, moving: Set[str]) -> str:
    """Return a regular expression for the text beside a reference, whose tags and digests may have moved.

    A user's name in a URL is left out: it may be a password, which is never printed.
    """
    tags = "|".join(re.escape(tag) for tag in sorted(moving, key=len, reverse=True) if tag and tag in text)
    varying = re.compile(f"{_VARYING.pattern}|(?P<tag>{tags})" if tags else _VARYING.pattern)
    pattern, end = "", 0
    for match in varying.finditer(text):
        any_text = {"user": _ANY_USER, "tag": _ANY_TAG}.get(match.lastgroup or "", _ANY_DIGEST)
        pattern += _literal(text[end : match.start()]) + any_text
        end = match.end()
    return pattern + _literal(text[end:])


def _literal(text: str) -> str:
    """Return a regular expression for a text with any indentation, without escaping ``/`` and similar characters."""
    body = text.lstrip(" \t")
    pattern = _exactly(body)
    return pattern if body == text else f"[ \\t]*{pattern}"


def _exactly(text: str) -> str:
    """Return a regular expression of printable characters for a text."""
    escaped = "".join(re.escape(char) if char.isprintable() else ascii(char)[1:-1] for char in text)
    return re.sub(r"\\([ #&~-])", r"\1", escaped)


def _reader(reference: ClassifiedReference, cis: Set[str]) -> str:
    """Return the reader of the reference; ``cis`` are the CIs whose files have references."""
    if reference.reader:
        return reference.reader
    return "gitlab" if "gitlab" in cis and "github" not in cis else "github"


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
