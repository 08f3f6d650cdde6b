"""Finders of images in files: each searches a text and returns locations, or raises CannotTell with the reason.

Finders are data of a pin site.  Their messages have what was expected and found; the caller adds the file.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from yaml.nodes import MappingNode, Node, SequenceNode

from runbook_lib.errors import CannotTell
from runbook_lib.text import untrusted_regex
from runbook_lib.text.dockerfile import Instruction, instructions
from runbook_lib.text.lists import shorten
from runbook_lib.text.yaml_spans import Cell, Text, duplicate_keys, items

_IN_BRACES = re.compile(r"\{(image|tag)\}")
#: The keys of a row of Megatron-LM's matrices: what it builds, from which image, and for which platform.
KEY, PIN, PLATFORM = "IMAGE", "BASE_IMAGE", "PLATFORM"
_PLATFORMS = ("amd64", "arm64")
_VALUE = r"[A-Za-z0-9](?:[\w.:/@+-]{0,500}\w)?"


@dataclass(frozen=True)
class PinLocation:
    """A value in a text: ``text[start:end] == value``; ``line`` counts from 1.

    ``selector`` describes it for people; ``platform`` is the platform that the file builds the image for, or empty.
    """

    start: int
    end: int
    value: str
    line: int
    selector: str
    platform: str = ""

    @property
    def span(self) -> tuple[int, int]:
        """Start and end."""
        return self.start, self.end


class Finder(Protocol):
    """A search for the locations of one kind of pin; ``image`` is the name, without tag, of the pins' image."""

    def find(self, text: str, image: str) -> tuple[PinLocation, ...]: ...


@dataclass(frozen=True)
class WholeFile:
    """A file that contains only an image reference, with optional white space around it."""

    def find(self, text: str, image: str) -> tuple[PinLocation, ...]:
        value = text.strip(" \t\r\n")
        if not value or re.search(r"\s", value):
            raise CannotTell(f"expected one image reference and nothing else, found {_short(text)}.")
        start = text.index(value)
        return _locations(text, [(start, start + len(value))], "whole file")


@dataclass(frozen=True)
class RegexMatches:
    """Every match of a regular expression; its group ``image`` is the value."""

    regex: re.Pattern[str]
    selector: str

    def find(self, text: str, image: str) -> tuple[PinLocation, ...]:
        spans = (match.span("image") for match in self.regex.finditer(text))
        return _locations(text, spans, self.selector)


@dataclass(frozen=True)
class DockerArg:
    """The default of a build argument that the first FROM of a Dockerfile can use, if any."""

    name: str

    def find(self, text: str, image: str) -> tuple[PinLocation, ...]:
        spans: list[tuple[int, int]] = []
        for instruction in instructions(text):
            if instruction.keyword == "FROM":
                is_tag = re.search(rf":[\w.${{}}-]{{0,99}}\$\{{?{self.name}\b", instruction.text)
                if image in instruction.text and not is_tag:
                    raise CannotTell(
                        f"expected FROM to take its image from ARG {self.name}, found {_short(instruction.text)} "
                        f"in line {instruction.line(text)}."
                    )
                break
            if instruction.keyword == "ARG":
                spans += self._defaults(text, instruction)
        locations = _locations(text, spans, f"ARG {self.name}")
        if len(locations) > 1:
            raise CannotTell(f"expected at most one default of ARG {self.name} before FROM, found {_lines(locations)}.")
        return locations

    def _defaults(self, text: str, instruction: Instruction) -> Iterator[tuple[int, int]]:
        for word in re.finditer(rf"(?<!\S){re.escape(self.name)}=(?P<quote>[\"']?)", instruction.text):
            rest = instruction.text[word.end() :]
            value = re.match(rf"(?P<value>[^\s\"'\\$]*){word['quote']}(?=\s|$)", rest)
            length = len(value["value"]) if value else 1
            if not length:
                continue  # an empty default does not count
            start, end = instruction.at(word.end()), instruction.at(word.end() + length - 1) + 1
            if value is None or end - start != length:
                raise CannotTell(
                    f"expected the default of ARG {self.name} to be an image reference in one piece, "
                    f"found {_short(word[0] + rest)} in line {instruction.line(text, word.start())}."
                )
            yield start, end


@dataclass(frozen=True)
class MatrixRow:
    """An entry of GitLab's ``parallel: matrix:``.  ``cells`` has the values of each key, several if it lists several.

    ``line`` counts from 1.  ``duplicates`` are the keys that occur more than once.
    """

    job: str
    line: int
    cells: Mapping[str, tuple[Cell, ...]]
    duplicates: tuple[str, ...]

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the values of a key; empty if the row has no such key."""
        return tuple(cell.value for cell in self.cells.get(key, ()))


@lru_cache(maxsize=64)
def matrix_rows(text: str) -> tuple[MatrixRow, ...]:
    """Return every row of every job's matrix once, with aliases and merge keys resolved.

    Merged and aliased values have the position of their definition.  Raises CannotTell if the text is not valid YAML.
    """
    parsed = Text(text)
    rows: dict[int, MatrixRow] = {}
    for document in parsed.documents:
        for key, job in document.value if isinstance(document, MappingNode) else ():
            matrix = parsed.pairs(parsed.pairs(job).get("parallel")).get("matrix")
            for node in items(matrix):
                # A matrix that is aliased or merged into another job has the same rows.
                if isinstance(node, MappingNode) and id(node) not in rows:
                    cells = {name: tuple(parsed.cells(value)) for name, value in parsed.pairs(node).items()}
                    rows[id(node)] = MatrixRow(str(key.value), parsed.line(node), cells, duplicate_keys(node))
    return tuple(rows.values())


@dataclass(frozen=True)
class MatrixRows:
    """The rows of Megatron-LM's GitLab matrices whose ``IMAGE`` is ``value``, with any ``BASE_IMAGE``.

    ``known`` are the values that select pins of any type.  A selected row has one of the ``shapes``: the values of each
    key in it, none for a key that must be absent.  There is one row for each platform, or, if no row has one, a single
    row.
    """

    value: str
    known: frozenset[str]
    shapes: tuple[Mapping[str, tuple[str, ...]], ...]

    def find(self, text: str, image: str) -> tuple[PinLocation, ...]:
        locations: list[PinLocation] = []
        for row in matrix_rows(text):
            if row.cells.get(PIN) and self._selects(row, image):
                locations += self._locations_in(row)
        platforms = sorted(location.platform for location in locations)
        if platforms not in ([""], list(_PLATFORMS)):
            listed = [f"{place.platform or f'no {PLATFORM}'} (line {place.line})" for place in locations]
            raise CannotTell(
                f"expected {PIN} in rows with {KEY}: {self.value} once for each of {' and '.join(_PLATFORMS)}, or once "
                f"without any {PLATFORM}; found {', '.join(listed) or 'none'}."
            )
        return tuple(locations)

    def _selects(self, row: MatrixRow, image: str) -> bool:
        keys = row.texts(KEY)
        if len(keys) == 1 and keys[0] in self.known:
            return keys[0] == self.value
        repository = image.partition("/")[2]
        if not self.known.isdisjoint(keys) or any(repository in value for value in row.texts(PIN)):
            raise CannotTell(
                f"the row in line {row.line} ({row.job}) sets {PIN} to {_listed(row.texts(PIN))}, but its "
                f"{KEY} is {_listed(keys)}; expected one of {', '.join(sorted(self.known))}."
            )
        return False

    def _locations_in(self, row: MatrixRow) -> Iterator[PinLocation]:
        name = f"the row {KEY}: {self.value} in line {row.line} ({row.job})"
        if row.duplicates:
            raise CannotTell(f"{name} has {', '.join(row.duplicates)} more than once.")
        shape = {key: row.texts(key) for key in self.shapes[0]}
        if shape not in self.shapes:
            shapes = " or ".join(map(_described, self.shapes))
            raise CannotTell(f"{name} is of an unknown shape: expected {shapes}; found {_described(shape)}.")
        cells = row.cells[PIN]
        if len(cells) != 1:
            raise CannotTell(f"{name} lists {len(cells)} values of {PIN}; expected one.")
        cell = cells[0]
        if cell.problem:
            raise CannotTell(f"{PIN} of {name} cannot be used: {cell.problem}.")
        for platform in row.texts(PLATFORM) or ("",):
            selector = f"{PIN} where {KEY}: {self.value}"
            if platform:
                selector += f", {PLATFORM}: {platform}"
            yield PinLocation(cell.start, cell.end, cell.value, cell.line, selector, platform)


@dataclass(frozen=True)
class BuildArg:
    """The image that a build gets as the argument ``name``: ``--build-arg NAME=image``, or a line of ``build-args``.

    The default of an expression (``NAME=${{ inputs.image || 'image' }}``) counts too; a value that is only known when
    the build runs does not, nor does one in a comment.
    """

    name: str

    def find(self, text: str, image: str) -> tuple[PinLocation, ...]:
        before = rf"(?m)^[^#\n]*?(?<![\w-]){re.escape(self.name)}="
        # Without braces inside, so that each expression is read only once, even if a line has many beginnings.
        value = r"(?:\$\{\{[^{}\n]*\|\|[ \t]*(?='))?[\"']?(?P<image>[A-Za-z0-9][\w.:/@+-]*)"
        spans = (match.span("image") for match in re.finditer(before + value, text))
        return _locations(text, spans, f"build-arg {self.name}")


@dataclass(frozen=True)
class YamlValue:
    """The value at a path of keys and indexes of a YAML file; of a list, each of its items."""

    keys: tuple[str, ...]

    def find(self, text: str, image: str) -> tuple[PinLocation, ...]:
        parsed, name = Text(text), ".".join(self.keys)
        locations: list[PinLocation] = []
        for document in parsed.documents:
            node = _descend(parsed, document, self.keys)
            for cell in parsed.cells(node) if node is not None else ():
                if cell.problem:
                    raise CannotTell(f"line {cell.line}, {name}: {cell.problem}.")
                locations.append(PinLocation(cell.start, cell.end, cell.value, cell.line, name))
        return tuple(locations)


def literal_text(template: str) -> RegexMatches:
    """Return a finder of a text with ``{image}`` or ``{tag}`` in it, in place of the value: ``newTag: {tag}``."""
    before, _, after = _IN_BRACES.split(template, maxsplit=1)
    # Quotes, which a number needs in YAML, are no part of the text.
    pattern = re.compile(rf"{re.escape(before)}(?P<quote>[\"']?)(?P<image>{_VALUE})(?P=quote){re.escape(after)}")
    return RegexMatches(pattern, f"text {_short(template)}")


@dataclass(frozen=True)
class UntrustedRegex:
    """Every match of a regular expression that a user wrote; its group ``image`` or ``tag`` is the value."""

    pattern: str

    def find(self, text: str, image: str) -> tuple[PinLocation, ...]:
        return _locations(text, untrusted_regex.spans(self.pattern, text), f"regex {_short(self.pattern)}")


@dataclass(frozen=True)
class Counted:
    """The locations of another finder, exactly ``count`` of them.  ``origin`` is the declaration of that number."""

    finder: Finder
    count: int
    what: str
    origin: str

    def find(self, text: str, image: str) -> tuple[PinLocation, ...]:
        locations = self.finder.find(text, image)
        if len(locations) != self.count:
            times = "once" if self.count == 1 else f"{self.count} times"
            raise CannotTell(f"expected {self.what} {times} ({self.origin}), found {_lines(locations)}.")
        return locations


def _descend(parsed: Text, node: Node | None, keys: tuple[str, ...]) -> Node | None:
    for key in keys:
        if isinstance(node, MappingNode):
            node = parsed.pairs(node).get(key)
        elif isinstance(node, SequenceNode) and key.isdecimal() and len(key) <= 9:  # Python refuses thousands of digits
            items = node.value[int(key) :]
            node = items[0] if items else None
        else:
            return None
    return node


def _described(shape: Mapping[str, tuple[str, ...]]) -> str:
    return ", ".join(f"{key}: {_listed(values)}" for key, values in shape.items())


def _locations(text: str, spans: Iterable[tuple[int, int]], selector: str) -> tuple[PinLocation, ...]:
    """Return the locations of these spans; the lines of the text are counted only once."""
    locations: list[PinLocation] = []
    line, counted = 1, 0
    for start, end in spans:
        line += text.count("\n", counted, start) - text.count("\n", start, counted)  # a group may be further left
        counted = start
        locations.append(PinLocation(start, end, text[start:end], line, selector))
    return tuple(locations)


def _lines(locations: Sequence[PinLocation]) -> str:
    return f"lines {', '.join(str(location.line) for location in locations)}" if locations else "none"


def _short(text: str) -> str:
    return repr(shorten(text, 80))


def _listed(values: tuple[str, ...]) -> str:
    return ", ".join(map(repr, values)) or "(absent)"
