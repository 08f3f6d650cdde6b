"""A pins file of found places: for each, a finder that finds it and nothing of another role."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from runbook_lib.errors import CannotTell
from runbook_lib.pins.find import Place, Source, read_tag
from runbook_lib.pins.finders import Finder, UntrustedRegex, literal_text
from runbook_lib.pins.moves import Arrival

#: What another bump may change beside a tag, and a user's name in an address, which may be a password.
_VARYING = re.compile(r"(?P<version>[\w.-]{0,99}[0-9]\.[0-9][\w.-]{0,99})|sha256:\w{64}|(?<=//)[^/\s@]{1,500}(?=@)")
_LONGEST = _MOST = 1000  # characters of an expression, and values of a pin: limits of the format
_MOST_ENTRIES = 30  # of one role in a file; nobody reads more
_ABOVE = 4  # lines above a place that tell it from others


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
    pattern, end = "", 0
    for match in _VARYING.finditer(text):
        pattern += re.escape(text[end : match.start()]) + (r"[\w.-]+" if match["version"] else r"[^/\s@]+")
        end = match.end()
    pattern += re.escape(text[end:])
    return re.sub(r"\\([ #&~-])", r"\1", re.sub(r"^(?:\\?[ \t])+", r"[ \\t]*", pattern))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
