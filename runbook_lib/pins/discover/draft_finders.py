"""The ways to find a reference in its file: the finders that a drafted entry may have, the simplest first."""

import re
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from runbook_lib.errors import CannotTell
from runbook_lib.pins.discover.classify import Nature
from runbook_lib.pins.discover.references import Reference
from runbook_lib.pins.discover.roles import ClassifiedReference
from runbook_lib.pins.finders import BuildArg, DockerArg, Finder, PinLocation, RegexMatches, WholeFile, YamlValue
from runbook_lib.pins.tag_parts import PARTS, part_of
from runbook_lib.text.yaml_spans import Text

# Plain YAML scalars that every reader interprets as text.
_PLAIN = re.compile(r"(?!(?:y|n|yes|no|true|false|on|off|null)$)[A-Za-z_][\w./-]*", re.IGNORECASE | re.ASCII)
_MAX_REGEX = 1000  # characters of a regular expression: a limit of the format
_ANY_TAG, _ANY_DIGEST, _ANY_USER = r"[\w.-]+", r"sha256:\w+", r"/{2}[^/\s@]+@"
_VARYING = re.compile(r"sha256:[0-9a-f]{64}|(?P<user>//[^/\s@]{1,200}@)")
_LINES_ABOVE = 4  # in a pattern, if its own line is not unique


@dataclass(frozen=True)
class DraftedFile:
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


def moving_texts(reference: Reference, text: str) -> set[str]:
    """Return the part of a reference that a bump may replace; empty if it has no version, as in ``latest``."""
    moving = text[reference.start : reference.end] if reference.form else reference.tag
    return {moving} if re.search("[0-9]", moving) and reference.form != "{digest}" else set()


def finders(classified: ClassifiedReference, file: "DraftedFile") -> Iterator[tuple[str, Finder]]:
    """Yield the finders that may suit the reference, each with its value of ``find``, the simplest first."""
    reference = classified.reference
    if not reference.form and file.text[reference.start : reference.end] != str(reference):
        return  # enroot's notation, which is not an OCI reference
    yield from _finders_by_kind(classified.nature)
    for pattern in patterns(classified, file):
        if pattern.isprintable() and len(pattern) <= _MAX_REGEX:
            yield f"{{regex: {quoted(pattern)}}}", RegexMatches(re.compile(pattern, re.MULTILINE), "regex")


def patterns(classified: ClassifiedReference, file: "DraftedFile") -> Iterator[str]:
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
        yield f"{{arg: {scalar(nature.name)}}}", DockerArg(nature.name)
    if nature.kind in ("build-arg", "workflow-input") and nature.name:
        yield f"{{build-arg: {scalar(nature.name)}}}", BuildArg(nature.name)
    if nature.yaml is None or nature.yaml.block:
        return
    keys = nature.yaml.keys
    if keys and all(key.isprintable() for key in keys):
        path = scalar(".".join(keys))
        if any("." in key for key in keys):
            path = f"[{', '.join(map(quoted, keys))}]"
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


def scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else quoted(text)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
