"""A pins file of found places: what git says of them, and for each a finder that finds it and nothing of another role.

git's log says which commits brought each place its tags, and so which places the last bumps moved together.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from runbook_lib.errors import CannotTell
from runbook_lib.images.families import OTHER
from runbook_lib.pins.find import Place, Source, read_tag
from runbook_lib.pins.finders import Finder, UntrustedRegex, literal_text

#: git's command for the text that ``trace`` reads, whatever its settings are.
LOG = (
    "-c", "core.quotePath=false", "-c", "log.showRoot=true", "log", "--first-parent", "-m", "-M", "-p", "-U0",
    "--inter-hunk-context=0", "--no-show-signature", "--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/",
    "--dst-prefix=b/", "--format=%x00%H %ct",
)  # fmt: skip

_OLD = re.compile(r"(?m)^(?:--- (?:a/)?|rename from )(.*?)\t?$")
_NEW = re.compile(r"(?m)^(?:\+\+\+ (?:b/)?|rename to )(.*?)\t?$")
WINDOW = 14 * 24 * 3600  # seconds between the first commit of a move and the last one
#: Files for people: documents and examples.
DOCUMENT = re.compile(r"(?i)\.(?:mdx?|rst|adoc|html|ipynb)$|(?:^|/)(?:README[^/]*$|(?:docs?|examples?|tutorials?)/)")
_TAG = r"([A-Za-z0-9_](?:[\w.-]{0,126}\w)?)"
_CONTEXT = 200  # characters around a tag by which its line is known again
_BOUNDED = "{1,200}+"  # so that no long line takes long
#: What another bump may change beside a tag, and a user's name in an address, which may be a password.
_VARYING = re.compile(
    r"(?P<version>[\w.-]{0,99}[0-9]\.[0-9][\w.-]{0,99})|(?P<digest>sha256:\w{64})|(?<=//)[^/\s@]{1,500}(?=@)"
)
_LONGEST = _MOST = 1000  # characters of an expression, and values of a pin: limits of the format
_MOST_ENTRIES = 30  # of one role in a file; nobody reads more
_ABOVE = 4  # lines above a place that tell it from others


class Hunk(NamedTuple):
    """The lines that a commit replaced in a file: from ``old`` before it, from ``new`` after it."""

    old: int
    removed: Sequence[str]
    new: int
    added: Sequence[str]


class FileChange(NamedTuple):
    """The path of a file before a commit and after it, and what changed in it."""

    old_path: str
    path: str
    hunks: Sequence[Hunk]


class Arrival(NamedTuple):
    """The commit that brought a place a tag, the ``order``-th of the log; ``replaced``: it had another tag before."""

    order: int
    commit: str
    time: int
    tag: str
    replaced: bool


@dataclass
class Track:
    """A place on its way back through the history: its line, and the ``index``-th match of ``pattern`` in it."""

    line: int
    text: str
    tag: str
    pattern: re.Pattern[str]
    index: int

    @classmethod
    def of(cls, place: Place, source: Source) -> Self:
        """Return the track of a place in a file."""
        text, start = source.lines[place.line - 1], place.start - source.starts[place.line - 1]
        pattern = re.compile(rf"{re.escape(place.image)}:{_TAG}")
        if place.alone:
            before = _varying(text[max(start - _CONTEXT, 0) : start].strip(" \t\"'"), _BOUNDED)
            after = _varying(text[start + len(place.tag) :][:_CONTEXT].strip(" \t\r\"',"), _BOUNDED)
            pattern = re.compile(rf"{before}[ \t\"']{{0,99}}+{_TAG}[ \t\"',]{{0,99}}+{after}")
        index = sum(match.start(1) < start for match in pattern.finditer(text))
        return cls(place.line, text, place.tag, pattern, index)

    def step_back(self, hunks: Sequence[Hunk]) -> bool:
        """Go back to before a change of the file; return False if the place began with it."""
        shift = 0
        for hunk in hunks:
            if self.line < hunk.new + (not hunk.added):  # a hunk that only removes lines is behind the line it names
                break
            if self.line < hunk.new + len(hunk.added):
                former = self._former(hunk, hunks)
                self.line, self.text, self.tag = former or (self.line, self.text, self.tag)
                return former is not None
            shift += len(hunk.removed) - len(hunk.added)
        self.line += shift
        return True

    def _former(self, hunk: Hunk, hunks: Sequence[Hunk]) -> tuple[int, str, str] | None:
        """Return number, text and tag of the line before: one that differs in tags alone, else one of the hunk."""
        masked = self._masked(self.text)
        own = sum(bool(self.pattern.search(text)) for text in hunk.added[: self.line - hunk.new])
        ranked: list[tuple[bool, bool, int, int, str, str]] = []
        for other in hunks:
            matching = [(number, text) for number, text in enumerate(other.removed) if self.pattern.search(text)]
            for position, (number, text) in enumerate(matching):
                differs, values = self._masked(text) != masked, self.pattern.findall(text)
                if other is hunk or not differs:
                    tag = values[min(self.index, len(values) - 1)]
                    ranked.append((differs, other is not hunk, abs(position - own), other.old + number, text, tag))
        return min(ranked)[3:] if ranked else None

    def _masked(self, text: str) -> str:
        return self.pattern.sub("", text).strip(" \t\r\"',")


def commits(log: str) -> Iterator[tuple[str, int, list[FileChange]]]:
    """Yield each commit of a log with its time and the changes of its files.

    Each line of a file has a sign before it, so nothing that it contains looks like a header.
    """
    for entry in f"\n{log}".split("\n\0")[1:]:
        head, *diffs = entry.split("\ndiff --git ")
        commit, time, *_ = head.split()  # a setting of git may add what a submodule's commits are
        yield commit, int(time), [change for diff in diffs if (change := _file_change(diff))]


def _file_change(diff: str) -> FileChange | None:
    """Return the change that the diff of a file shows; None without lines and names, as of a file's mode."""
    head, *hunks = diff.split("\n@@ -")
    old, new = _OLD.search(head), _NEW.search(head)
    if not old or not new:
        return None
    changed = []
    for hunk in hunks:
        position, *lines = hunk.split("\n")
        before, after = position.split(" @@")[0].split(" +")
        removed, added = ([line[1:] for line in lines if line.startswith(sign)] for sign in "-+")
        changed.append(Hunk(int(before.split(",")[0]), removed, int(after.split(",")[0]), added))
    return FileChange(old[1], new[1], changed)


def trace(log: str, sources: Mapping[str, Source], places: Iterable[Place]) -> dict[Place, list[Arrival]]:
    """Return the arrivals of each place, the newest first, from the output of ``LOG`` for their files."""
    arrivals: dict[Place, list[Arrival]] = {}
    live: defaultdict[str, list[tuple[Place, Track]]] = defaultdict(list)
    for place in places:
        arrivals[place] = []
        live[place.path].append((place, Track.of(place, sources[place.path])))
    for order, (commit, time, files) in enumerate(commits(log)):
        former = [(file.old_path, file.hunks, live.pop(file.path, [])) for file in files]
        for old_path, hunks, tracks in former:
            for place, track in tracks:
                tag, existed = track.tag, track.step_back(hunks)
                if not existed or tag != track.tag:
                    arrivals[place].append(Arrival(order, commit, time, tag, existed))
                live[old_path] += [(place, track)] if existed else []
    return arrivals


def lockstep(arrivals: Mapping[Place, Sequence[Arrival]]) -> frozenset[Place]:
    """Return the places that one of the last two moves of their image changed.

    A move is all commits within 14 days that bring an image a tag that is new to it.  Commits of documents alone are no
    part of it.  If nothing has moved an image, the places that began with its newest tag are returned.
    """
    by_image: defaultdict[tuple[str, str], list[tuple[Arrival, Place]]] = defaultdict(list)
    for place, of_place in arrivals.items():
        by_image[place.image, place.image_type] += [(arrival, place) for arrival in of_place]
    found = set[Place]()
    for events in by_image.values():
        decisive = [event for event in events if not DOCUMENT.search(event[1].path)] or events
        moved = [event for event in decisive if event[0].replaced]
        newest_first = sorted(moved or decisive, key=lambda event: event[0].order)
        first = {arrival.tag: arrival for arrival, _ in newest_first}  # the oldest arrival of a tag comes last
        ordered = sorted(first.values(), key=lambda arrival: (-arrival.order, OTHER.parse(arrival.tag)))
        times = {arrival.tag: arrival.time for arrival in ordered[-2 if moved else -1 :]}
        own = {arrival.commit for arrival, _ in decisive}
        for arrival, place in events:
            is_moved = arrival.commit in own and (arrival.replaced or not moved)
            if is_moved and arrival.tag in times and abs(arrival.time - times[arrival.tag]) <= WINDOW:
                found.add(place)
    return frozenset(found)


@dataclass(frozen=True)
class FoundPin:
    """A place, its role, and the commits that brought it a tag, the newest first."""

    place: Place
    lockstep: bool
    arrivals: Sequence[Arrival]

    @property
    def role(self) -> str:
        """``lockstep dev``, ``lockstep lts`` or ``informational``."""
        return f"lockstep {self.place.image_type}" if self.lockstep else "informational"

    @property
    def edition(self) -> str:
        """The edition of its tag."""
        return read_tag(self.place.image, self.place.tag).edition

    @property
    def history(self) -> str:
        """The commits that moved it, in a few words."""
        commits = [arrival.commit[:10] for arrival in self.arrivals if arrival.replaced]
        return f"moved by {', '.join(commits[:2])}" if commits else "never moved"


def draft(
    found: Sequence[FoundPin], sources: Mapping[str, Source], origin: str
) -> tuple[str, list[FoundPin], list[Place]]:
    """Return the text of a pins file, empty if no pin would move, its pins, and what it leaves out, with reasons."""
    groups: dict[tuple[object, ...], list[FoundPin]] = {}
    for pin in sorted(found, key=lambda pin: (not pin.lockstep, pin.place.path, pin.place.start)):
        key = pin.place.path, pin.place.image, pin.role, pin.place.image_type, pin.lockstep and pin.edition
        groups.setdefault(key, []).append(pin)
    entries = [entry for group in groups.values() for entry in _entries(group, sources[group[0].place.path])]
    moving = [pin for find, pins in entries for pin in pins if find and pin.lockstep]
    main = Counter(pin.place.image for pin in moving).most_common(1)[0][0] if moving else ""
    editions = Counter(image for image, _ in {(pin.place.image, pin.edition) for pin in moving})
    lines = [f"# `runbook pins find`, {origin}: read every entry.", "version: 1", f"image: {main}", "pins:"]
    kept, left_out = list[FoundPin](), list[Place]()
    for find, pins in entries:
        if find and pins[0].place.image in editions:
            kept += pins
            lines += _lines(find, pins, main, has_editions=editions[pins[0].place.image] > 1)
        else:
            reason = "no bump moved a pin of its image" if find else "no finder of a pins file tells it from others"
            reason += ": add it by hand, as bumps moved it" if pins and pins[0].lockstep else ""
            left_out += [replace(pin.place, skip_reason=reason) for pin in pins]
    return "\n".join([*lines, ""]) if kept else "", kept, left_out


def _lines(find: str, pins: Sequence[FoundPin], main: str, *, has_editions: bool) -> Iterator[str]:
    """Yield the lines of an entry."""
    place = pins[0].place
    yield f"  - path: {_quoted(place.path)}  # line {place.line}, {pins[0].history}"
    yield f"    find: {find}"
    if place.image != main:
        yield f"    image: {place.image}"
    if not pins[0].lockstep:
        yield "    kind: informational"
    elif has_editions:
        yield f"    edition: {_quoted(pins[0].edition)}"
    if place.image_type == "lts":
        yield "    type: lts"
    if len(pins) > 1:
        yield f"    count: {len(pins)}"


def _entries(group: Sequence[FoundPin], source: Source) -> Iterator[tuple[str, list[FoundPin]]]:
    """Yield finders, tried on the file, with the pins of one role that each finds; an empty one for any other pin."""
    remaining = {pin.place.end: pin for pin in group}
    for pin in group[:_MOST_ENTRIES]:
        if pin.place.end not in remaining:
            continue
        entry = "", [pin]
        for find, finder in _finders(pin.place, source):
            with suppress(CannotTell):
                ends = [location.end for location in finder.find(source.text, pin.place.image)]
                if pin.place.end in ends and remaining.keys() >= set(ends) and len(ends) <= _MOST:
                    entry = find, [remaining[end] for end in ends]
                    break
        yield entry
        for found in entry[1]:
            del remaining[found.place.end]
    yield "", list(remaining.values())


def _finders(place: Place, source: Source) -> Iterator[tuple[str, Finder]]:
    """Yield the finders that may suit a place, the simplest first, as the file writes them."""
    if not source.path.isprintable() or set("\\*?[") & set(source.path):
        return  # the format has no such path
    if not place.alone:
        template = f"{place.image}:{{tag}}"
        yield f"{{text: {_quoted(template)}}}", literal_text(template)
    begin, line = source.starts[place.line - 1], source.lines[place.line - 1]
    before, after = line[: place.start - begin], line[place.end - begin :].rstrip("\r")
    if len(before) + len(after) > _LONGEST:
        return
    # A bump may have to quote a number.
    quote = "[\"']?" if place.alone and before[-1:] in ("", " ", "\t", "[", "{", ",") else ""
    pattern = rf"{_loose(before)}{quote}(?P<tag>[\w.-]+(?:@sha256:\w+)?){quote}{_loose(after)}\r?$"
    for number in range(place.line - 1, max(place.line - 2 - _ABOVE, -1), -1):
        if pattern.isprintable() and len(pattern) < _LONGEST:
            yield f"{{regex: {_quoted(f'^{pattern}')}}}", UntrustedRegex(f"^{pattern}")
        above = source.lines[number - 1][:_LONGEST].rstrip("\r")
        pattern = rf"{_loose(above)}\r?\n{pattern}"


def _loose(text: str) -> str:
    """Return an expression for a text with any indentation, and with any versions and digests in it."""
    return re.sub(r"\\([ #&~-])", r"\1", re.sub(r"^(?:\\?[ \t])+", r"[ \\t]*", _varying(text, "+")))


def _varying(text: str, times: str) -> str:
    """Return an expression for a text with any versions and digests in it, whose signs are repeated ``times``."""
    pattern, end = "", 0
    for match in _VARYING.finditer(text):
        sign = r"[\w.-]" if match["version"] else r"[\w:]" if match["digest"] else r"[^/\s@]"
        pattern += re.escape(text[end : match.start()]) + sign + times
        end = match.end()
    return pattern + re.escape(text[end:])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
