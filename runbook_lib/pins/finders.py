"""Finders of images in files: each takes a text and returns places in it, or raises CannotTell with the reason.

Finders are data of a pin site.  Their CannotTell messages name expected and found; the caller adds the file.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from yaml.nodes import MappingNode, Node, SequenceNode

from runbook_lib.errors import CannotTell
from runbook_lib.pins import gitlab_matrix
from runbook_lib.text import untrusted_regex
from runbook_lib.text.dockerfile_syntax import Instruction, instructions
from runbook_lib.text.yaml_spans import Text


@dataclass(frozen=True)
class Place:
    """A value in a text: ``text[start:end] == value``; ``line`` counts from 1.

    ``selector`` tells a person which one it is; ``platform`` is what the file says the image is built for, or empty.
    """

    start: int
    end: int
    value: str
    line: int
    selector: str
    platform: str = ""


class Finder(Protocol):
    """Finds the places of one kind of pin; ``image`` is the name, without tag, that the pins have."""

    def find(self, text: str, image: str) -> tuple[Place, ...]: ...


@dataclass(frozen=True)
class WholeFile:
    """A file that holds an image reference and nothing else but white space around it."""

    def find(self, text: str, image: str) -> tuple[Place, ...]:
        value = text.strip(" \t\r\n")
        if not value or re.search(r"\s", value):
            raise CannotTell(f"expected one image reference and nothing else, found {_short(text)}.")
        start = text.index(value)
        return (_place(text, start, start + len(value), "whole file"),)


@dataclass(frozen=True)
class Pattern:
    """Every match of a regular expression; its group ``image`` is the value."""

    regex: re.Pattern[str]
    selector: str

    def find(self, text: str, image: str) -> tuple[Place, ...]:
        return _places(text, (match.span("image") for match in self.regex.finditer(text)), self.selector)


@dataclass(frozen=True)
class DockerArg:
    """The default of a build argument that the first FROM of a Dockerfile can use: none or one."""

    name: str

    def find(self, text: str, image: str) -> tuple[Place, ...]:
        found: list[Place] = []
        for instruction in instructions(text):
            if instruction.keyword == "FROM":
                if image in instruction.text:
                    raise CannotTell(
                        f"expected FROM to take its image from ARG {self.name}, found {_short(instruction.text)} "
                        f"in line {instruction.line(text)}."
                    )
                break
            if instruction.keyword == "ARG":
                found += self._defaults(text, instruction)
        if len(found) > 1:
            lines = ", ".join(str(place.line) for place in found)
            raise CannotTell(f"expected at most one default of ARG {self.name} before FROM, found lines {lines}.")
        return tuple(found)

    def _defaults(self, text: str, instruction: Instruction) -> Iterator[Place]:
        for word in re.finditer(rf"(?<!\S){re.escape(self.name)}=(?P<quote>[\"']?)", instruction.text):
            rest = instruction.text[word.end() :]
            value = re.match(rf"(?P<value>[^\s\"'\\$]*){word['quote']}(?=\s|$)", rest)
            if value is not None and not value["value"]:
                continue  # an empty default is none
            length = len(value["value"]) if value else 1
            start, end = instruction.at(word.end()), instruction.at(word.end() + length - 1) + 1
            if value is None or end - start != length:
                raise CannotTell(
                    f"expected the default of ARG {self.name} to be an image reference in one piece, "
                    f"found {_short(word[0] + rest)} in line {instruction.line(text, word.start())}."
                )
            yield _place(text, start, end, f"ARG {self.name}")


@dataclass(frozen=True)
class MatrixRows:
    """The rows of GitLab matrices that ``key: value`` chooses, never their image; the image is their ``pin`` key.

    ``known`` are the values of ``key`` that choose pins of any type.  A chosen row has one of the ``shapes``: the value
    of each key in it, None for a key that must be absent.  There is one row for each of ``platforms``, or, as long as
    no row has a ``platform_key``, a single row.
    """

    key: str
    value: str
    known: frozenset[str]
    shapes: tuple[Mapping[str, str | None], ...]
    pin: str = "BASE_IMAGE"
    platform_key: str = "PLATFORM"
    platforms: tuple[str, ...] = ("amd64", "arm64")

    def find(self, text: str, image: str) -> tuple[Place, ...]:
        chosen = [row for row in gitlab_matrix.rows(text) if row.cells.get(self.pin) and self._chooses(row, image)]
        places = [place for row in chosen for place in self._places(text, row)]
        found = sorted(place.platform for place in places)
        if found not in ([""], sorted(self.platforms)):
            listed = ", ".join(f"{p.platform or 'no ' + self.platform_key} (line {p.line})" for p in places) or "none"
            raise CannotTell(
                f"expected {self.pin} in rows with {self.key}: {self.value} once for each of "
                f"{' and '.join(self.platforms)}, or once without any {self.platform_key}; found {listed}."
            )
        return tuple(places)

    def _chooses(self, row: gitlab_matrix.MatrixRow, image: str) -> bool:
        keys = row.texts(self.key)
        if len(keys) == 1 and keys[0] in self.known:
            return keys[0] == self.value
        repository = image.partition("/")[2]
        if not self.known.isdisjoint(keys) or any(repository in value for value in row.texts(self.pin)):
            raise CannotTell(
                f"the row in line {row.line} ({row.job}) sets {self.pin} to {_listed(row.texts(self.pin))}, but its "
                f"{self.key} is {_listed(keys)}; expected one of {', '.join(sorted(self.known))}."
            )
        return False

    def _places(self, text: str, row: gitlab_matrix.MatrixRow) -> Iterator[Place]:
        where = f"the row {self.key}: {self.value} in line {row.line} ({row.job})"
        if row.doubled:
            raise CannotTell(f"{where} gives {', '.join(row.doubled)} more than once.")
        names = sorted({name for shape in self.shapes for name in shape})
        if not any(all(row.texts(n) == (() if v is None else (v,)) for n, v in shape.items()) for shape in self.shapes):
            shapes = " or ".join(", ".join(f"{n}: {v or '(absent)'}" for n, v in s.items()) for s in self.shapes)
            found = ", ".join(f"{name}: {_listed(row.texts(name))}" for name in names)
            raise CannotTell(f"{where} is of an unknown shape: expected {shapes}; found {found}.")
        cells = row.cells[self.pin]
        if len(cells) != 1:
            raise CannotTell(f"{where} lists {len(cells)} values of {self.pin}; expected one.")
        if cells[0].problem:
            raise CannotTell(f"{self.pin} of {where} cannot be used: {cells[0].problem}.")
        for platform in row.texts(self.platform_key) or ("",):
            chosen = f"{self.key}: {self.value}" + (f", {self.platform_key}: {platform}" if platform else "")
            yield Place(
                cells[0].start, cells[0].end, cells[0].value, cells[0].line, f"{self.pin} where {chosen}", platform
            )


@dataclass(frozen=True)
class BuildArg:
    """The image that a build gets as the argument ``name``: ``--build-arg NAME=image``, or a line of ``build-args``.

    The default of an expression (``NAME=${{ inputs.image || 'image' }}``) is found too.  A value that is only known
    when the build runs is none, nor is what stands in a comment.
    """

    name: str

    def find(self, text: str, image: str) -> tuple[Place, ...]:
        before = rf"(?m)^[^#\n]*?(?<![\w-]){re.escape(self.name)}="
        # Without braces within, so that each expression is read once, however many a line begins.
        value = r"(?:\$\{\{[^{}\n]*\|\|[ \t]*(?='))?[\"']?(?P<image>[A-Za-z0-9][\w.:/@+-]*)"
        spans = (match.span("image") for match in re.finditer(before + value, text))
        return _places(text, spans, f"build-arg {self.name}")


@dataclass(frozen=True)
class YamlValue:
    """The value at a path of keys and indexes of a YAML file; of a list, each of its items."""

    keys: tuple[str, ...]

    def find(self, text: str, image: str) -> tuple[Place, ...]:
        return self.find_parsed(Text(text))

    def find_parsed(self, parsed: Text) -> tuple[Place, ...]:
        """The same in a text that is parsed already."""
        name = ".".join(self.keys)
        found: list[Place] = []
        for document in parsed.documents:
            node = _under(parsed, document, self.keys)
            for cell in parsed.cells(node) if node is not None else ():
                if cell.problem:
                    raise CannotTell(f"line {cell.line}, {name}: {cell.problem}.")
                found.append(Place(cell.start, cell.end, cell.value, cell.line, name))
        return tuple(found)


@dataclass(frozen=True)
class GivenPattern:
    """Every match of a regular expression that a person wrote; its group ``image`` is the value."""

    pattern: str

    def find(self, text: str, image: str) -> tuple[Place, ...]:
        return _places(text, untrusted_regex.spans(self.pattern, text), f"regex {_short(self.pattern)}")


@dataclass(frozen=True)
class Counted:
    """The places of another finder, which must be ``count``.  ``origin`` names the declaration of that."""

    finder: Finder
    count: int
    what: str
    origin: str

    def find(self, text: str, image: str) -> tuple[Place, ...]:
        places = self.finder.find(text, image)
        if len(places) != self.count:
            lines = f"lines {', '.join(str(place.line) for place in places)}" if places else "none"
            times = "once" if self.count == 1 else f"{self.count} times"
            raise CannotTell(f"expected {self.what} {times} ({self.origin}), found {lines}.")
        return places


#: Digits of an index.
_LONGEST_INDEX = 9


def _under(parsed: Text, node: Node | None, keys: tuple[str, ...]) -> Node | None:
    for key in keys:
        if isinstance(node, MappingNode):
            node = parsed.pairs(node).get(key)
        elif isinstance(node, SequenceNode) and key.isdecimal():
            # Of thousands of digits Python makes no number.
            index = int(key) if len(key) <= _LONGEST_INDEX else len(node.value)
            node = node.value[index] if index < len(node.value) else None
        else:
            return None
    return node


def _place(text: str, start: int, end: int, selector: str) -> Place:
    return Place(start, end, text[start:end], text.count("\n", 0, start) + 1, selector)


def _places(text: str, spans: Iterable[tuple[int, int]], selector: str) -> tuple[Place, ...]:
    """Places in the order of the text, for which its lines are counted once."""
    found: list[Place] = []
    line, counted = 1, 0
    for start, end in spans:
        line += text.count("\n", counted, start) - text.count("\n", start, counted)  # a group may stand further left
        counted = start
        found.append(Place(start, end, text[start:end], line, selector))
    return tuple(found)


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}…")


def _listed(values: tuple[str, ...]) -> str:
    return ", ".join(map(repr, values)) or "(absent)"
