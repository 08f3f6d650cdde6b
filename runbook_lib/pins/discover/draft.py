"""A draft of ``.base-image-pins.yaml`` from the references that were found.

A way to find a pin is drafted only when, tried on the file, it finds that pin, and nothing that has another role.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from runbook_lib.errors import CannotTell
from runbook_lib.pins.discover.classify import Nature
from runbook_lib.pins.discover.roles import ClassifiedReference, shown, times
from runbook_lib.pins.finders import BuildArg, DockerArg, Finder, Pattern, Place, WholeFile, YamlValue
from runbook_lib.text.yaml_spans import Text

# Plain scalars of YAML that no reader takes for something else than text.
_PLAIN = re.compile(r"(?!(?:y|n|yes|no|true|false|on|off|null)$)[A-Za-z_][\w./-]*", re.IGNORECASE | re.ASCII)
_SCHEMA = Path(__file__).resolve().parents[1] / "base-image-pins.schema.json"  # for editors
_ORDER = ("lockstep dev", "lockstep lts", "informational")
_LONGEST, _MOST = 1000, 1000  # characters of a regular expression, and places of a pin, by the form of the file
_TRIED = 50  # references of one file for each of which a way of its own is looked for; nobody reads more entries


@dataclass(frozen=True)
class Draft:
    """``text`` of the file, empty where nothing can be drafted; ``chosen`` says in sentences for which image, and why.

    ``left_out``: sentences on references to that image that a pins file cannot hold.
    """

    text: str
    chosen: tuple[str, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Entry:
    path: str
    find: str
    called: str
    reader: str
    starts: tuple[int, ...]
    lines: tuple[int, ...]
    dockerfile: str = ""


def draft(found: Sequence[ClassifiedReference], texts: Mapping[str, str]) -> Draft:
    """Draft a pins file for the image that most pins name, which CI or a build reads.  ``texts`` by path."""
    pins = Counter(one.reference.image for one in found if one.role == "lockstep")
    if not pins:
        return Draft(
            "", ("Nothing is drafted: no reference was found that CI or a build reads, and that names a tag.",)
        )
    named = Counter(one.reference.image for one in found)
    image = max(pins, key=lambda name: (pins[name], named[name], name))
    ours = [one for one in found if one.reference.image == image]
    entries, left_out = _entries(ours, texts, {one.nature.ci for one in found})
    if not any(entry.called.startswith("lockstep") for entry in entries):
        return Draft(
            "", ("Nothing is drafted: a pins file has no way to find the references that matter.",), tuple(left_out)
        )
    chosen = [f"Drafted for {image}: {times(pins[image], 'pin')} of {sum(pins.values())} that CI or a build reads."]
    if others := [
        f"{name} ({times(named[name], 'reference')}, {times(pins[name], 'pin')})" for name in named if name != image
    ]:
        chosen.append(f"A pins file holds one image, so this one leaves out {', '.join(map(shown, sorted(others)))}.")
    return Draft(_text(image, chosen, entries, left_out, ours), tuple(chosen), tuple(left_out))


def _entries(
    ours: Sequence[ClassifiedReference], texts: Mapping[str, str], known: Set[str]
) -> tuple[list[_Entry], list[str]]:
    """The entries, those that matter most first, and sentences on what none of them finds."""
    files = {path: _File(path, texts[path]) for path in {one.path for one in ours}}
    for one in ours:
        files[one.path].left[one.reference.start] = one
    entries: list[_Entry] = []
    left_out: list[str] = []
    tried, over = Counter[str](), Counter[str]()
    for one in sorted((one for one in ours if one.called in _ORDER), key=lambda one: _ORDER.index(one.called)):
        file = files[one.path]
        if one.reference.start not in file.left:
            continue
        if tried[one.path] >= _TRIED:
            over[one.path] += 1
            continue
        tried[one.path] += 1
        if entry := _entry(one, file, texts, _reader(one, known)):
            entries.append(entry)
            for start in entry.starts:
                del file.left[start]
        else:
            place = f"{shown(one.path)}:{one.reference.line}"
            left_out.append(f"{place} ({one.called}): no way to find it fits; add it by hand.")
    left_out += [
        f"{shown(path)}: {count} more of its references; find them by hand, with one pattern for many."
        for path, count in sorted(over.items())
    ]
    return entries, left_out


def _text(
    image: str,
    chosen: Sequence[str],
    entries: Sequence[_Entry],
    left_out: Sequence[str],
    ours: Sequence[ClassifiedReference],
) -> str:
    lines = [
        f"# yaml-language-server: $schema={_SCHEMA.as_uri()}",
        "# Drafted by `runbook pins discover`. Read every entry: what lags on its own may be a pin that was forgotten.",
        *(f"# {sentence}" for sentence in chosen),
        "version: 1",
        f"image: {image}",
        "pins:",
    ]
    heads = {
        "lockstep dev": "A bump of the dev image moves these.",
        "lockstep lts": "A bump of the LTS image moves these, and one of the dev image leaves them.",
        "informational": "These are compared and never moved. Take out what need not follow.",
    }
    for called in _ORDER:
        those = [entry for entry in entries if entry.called == called]
        lines += [f"  # {heads[called]}"] if those else []
        for entry in those:
            kind, _, image_type = called.partition(" ")
            lines += [
                f"  - path: {_scalar(entry.path)}  # line {', '.join(map(str, entry.lines))}",
                f"    find: {entry.find}",
                f"    kind: {kind}",
                f"    type: {image_type or 'dev'}",
                f"    read-by: {entry.reader}",
                f"    count: {len(entry.starts)}",
            ]
            lines += [f"    dockerfile: {_scalar(entry.dockerfile)}"] if entry.dockerfile else []
    if records := sorted({one.path for one in ours if one.role == "frozen"}):
        lines.append("# Records, which must not move; nothing compares them, so they need no entry:")
        lines += [f"#   {shown(path)}" for path in records]
    lines += [f"# Left out: {sentence}" for sentence in left_out]
    return "\n".join(lines) + "\n"


def _entry(one: ClassifiedReference, file: "_File", texts: Mapping[str, str], reader: str) -> _Entry | None:
    """The first way that finds the reference, and of those that are left only such as are called the same."""
    path = file.path
    if not path.isprintable() or "\\" in path or set("*?[") & set(path):
        return None  # the form of the file has no way to name it
    for find, finder in _ways(one, file.text):
        places = file.places(find, finder, one.reference.image)
        hits = [file.left.get(place.start) for place in places]
        fits = (
            hit and hit.called == one.called and hit.reference.end == at.end
            for hit, at in zip(hits, places, strict=True)
        )
        if one in hits and len(hits) <= _MOST and all(fits):
            passed = one.nature.dockerfile if find.startswith("{build-arg:") else ""
            starts, lines = tuple(at.start for at in places), tuple(at.line for at in places)
            return _Entry(path, find, one.called, reader, starts, lines, passed if passed in texts else "")
    return None


@dataclass(frozen=True)
class _File:
    """A file, and the references in it that no entry finds yet, by where they start."""

    path: str
    text: str
    left: dict[int, ClassifiedReference] = field(default_factory=dict)
    _tried: dict[str, tuple[Place, ...]] = field(default_factory=dict)

    def places(self, find: str, finder: Finder, image: str) -> tuple[Place, ...]:
        """Return the places that a finder finds; none where it fails.  No finder is tried twice."""
        if find not in self._tried:
            try:
                self._tried[find] = self._found(finder, image)
            except CannotTell:
                self._tried[find] = ()
        return self._tried[find]

    def _found(self, finder: Finder, image: str) -> tuple[Place, ...]:
        if isinstance(finder, YamlValue):
            return finder.find_parsed(self._parsed) if self._parsed else ()
        return finder.find(self.text, image)

    @cached_property
    def _parsed(self) -> Text | None:
        """The file as YAML, parsed once; None where it is none."""
        try:
            return Text(self.text)
        except CannotTell:
            return None


def _ways(one: ClassifiedReference, text: str) -> Iterator[tuple[str, Finder]]:
    reference = one.reference
    if text[reference.start : reference.end] != str(reference):
        return  # enroot's spelling, which is no reference by the OCI specifications
    yield from _by_kind(one.nature)
    for pattern in _patterns(one, text):
        if pattern.isprintable() and len(pattern) <= _LONGEST:
            yield f"{{regex: {_quoted(pattern)}}}", Pattern(re.compile(pattern, re.MULTILINE), "regex")


def _patterns(one: ClassifiedReference, text: str) -> Iterator[str]:
    """Regular expressions for a reference, by what stands before it, behind it, and in the lines above and below."""
    reference = one.reference
    value = rf"(?P<image>{_literal(reference.image)}:[\w.-]*\w(?:@\w+:\w+)?)"
    if one.nature.kind in ("documentation", "code"):
        yield value
    begin = reference.start - reference.column
    end = _line_end(text, reference.end)
    if end - begin > _LONGEST:
        return
    anchored = f"^{_literal(text[begin : reference.start])}{value}"
    yield anchored
    yield f"{anchored}{_literal(text[reference.end : end])}$"
    if begin:
        above = text[text.rfind("\n", 0, begin - 1) + 1 : begin - 1]
        yield rf"^{_literal(above[:_LONGEST])}\n{anchored[1:]}"
    if end < len(text):
        below = text[end + 1 : _line_end(text, end + 1)]
        yield rf"{anchored}{_literal(text[reference.end : end])}\n{_literal(below[:_LONGEST])}$"


def _line_end(text: str, start: int) -> int:
    found = text.find("\n", start)
    return found if found >= 0 else len(text)


def _by_kind(nature: Nature) -> Iterator[tuple[str, Finder]]:
    if nature.kind == "whole-file":
        yield "{file: whole}", WholeFile()
    if nature.kind == "dockerfile-arg" and nature.name:
        yield f"{{arg: {_scalar(nature.name)}}}", DockerArg(nature.name)
    if nature.kind in ("build-arg", "workflow-input") and nature.name:
        yield f"{{build-arg: {_scalar(nature.name)}}}", BuildArg(nature.name)
    keys = nature.yaml.keys if nature.yaml is not None and not nature.yaml.block else ()
    if keys and all(key.isprintable() for key in keys):
        dotted = ".".join(keys) if not any("." in key for key in keys) else ""
        listed = f"[{', '.join(map(_quoted, keys))}]"
        yield f"{{yaml: {_scalar(dotted) if dotted else listed}}}", YamlValue(keys)


def _literal(text: str) -> str:
    """A regular expression for a text, however deep it is indented; ``/`` and such stay as they are."""
    body = text.lstrip(" \t")
    return ("[ \\t]*" if body != text else "") + re.sub(r"\\([ #&~-])", r"\1", re.escape(body))


def _reader(one: ClassifiedReference, known: Set[str]) -> str:
    """Return who reads the reference; ``known`` are the CIs whose files have references."""
    if one.reader:
        return one.reader
    return "gitlab" if "gitlab" in known and "github" not in known else "github"


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
