"""Rows of GitLab's ``parallel: matrix:``, with the places of their values in the text.

PyYAML parses, with libyaml, which is what GitLab itself reads its files with: what GitLab accepts is accepted here.
Nothing is ever dumped back: a Cell is a span of the text, to be spliced.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runbook_lib.errors import CannotTell

_MERGE = "tag:yaml.org,2002:merge"
# What may stand before a scalar and belongs to its node: an anchor, a tag.
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
# libyaml's composer recurses in C without a limit, so deep nesting ends the process; a text this short cannot nest
# that deeply.  Longer ones take the slow parser, which raises RecursionError.
_SHORT = 20_000


@dataclass(frozen=True)
class Cell:
    """A value of a row: its content and the span of that content in the text, without quotes.

    ``problem`` says why the span cannot be replaced, and is empty where it can.
    """

    value: str
    start: int
    end: int
    line: int
    problem: str = ""


@dataclass(frozen=True)
class Row:
    """An entry of a matrix.  ``cells`` holds the values of each key, several where the row lists several.

    ``line`` counts from 1.  ``doubled`` names the keys that the row gives more than once.
    """

    job: str
    line: int
    cells: Mapping[str, tuple[Cell, ...]]
    doubled: tuple[str, ...]

    def texts(self, key: str) -> tuple[str, ...]:
        """The values of a key; none where the row has no such key."""
        return tuple(cell.value for cell in self.cells.get(key, ()))


@lru_cache(maxsize=64)
def rows(text: str) -> tuple[Row, ...]:
    """Every row of every job's matrix, each once, with aliases and merge keys resolved.

    A row's merged and aliased values have the place of their definition.  Raises CannotTell for text that is no YAML.
    """
    body = text.removeprefix("\ufeff")  # libyaml does not count it
    reader = _Reader(text, len(text) - len(body))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if len(body) < _SHORT else yaml.SafeLoader
    try:
        documents = list(yaml.compose_all(body, Loader=loader))
        return tuple(row for document in documents for row in reader.rows(document))
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise CannotTell(f"it does not parse as YAML: {error.problem or error.context}{line}.") from error
    except yaml.reader.ReaderError as error:
        raise CannotTell(f"it does not parse as YAML: {error.reason}.") from error
    except UnicodeEncodeError as error:
        line_number = text.count("\n", 0, error.start) + 1
        raise CannotTell(f"it does not parse as YAML: line {line_number} is not UTF-8.") from error
    except RecursionError as error:
        raise CannotTell("it does not parse as YAML: it is nested too deeply.") from error


class _Reader:
    """Reads the nodes of one text."""

    def __init__(self, text: str, shift: int) -> None:
        self.text, self.shift = text, shift
        self.resolved: dict[int, dict[str, Node]] = {}
        self.seen: set[int] = set()

    def rows(self, document: Node | None) -> Iterator[Row]:
        if not isinstance(document, MappingNode):
            return
        for key, job in document.value:
            if not isinstance(job, MappingNode):
                continue
            parallel = self._pairs(job).get("parallel")
            matrix = self._pairs(parallel).get("matrix") if isinstance(parallel, MappingNode) else None
            for node in matrix.value if isinstance(matrix, SequenceNode) else ():
                # A matrix that is aliased or merged into another job is still the same rows.
                if isinstance(node, MappingNode) and id(node) not in self.seen:
                    self.seen.add(id(node))
                    yield self._row(str(key.value), node)

    def _row(self, job: str, node: MappingNode) -> Row:
        names = [key.value for key, _ in node.value if isinstance(key, ScalarNode) and key.tag != _MERGE]
        doubled = tuple(sorted({name for name in names if names.count(name) > 1}))
        cells = {name: tuple(self._cells(value)) for name, value in self._pairs(node).items()}
        return Row(job, self._line(node), cells, doubled)

    def _cells(self, node: Node) -> Iterator[Cell]:
        if isinstance(node, SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            for item in node.value:
                yield self._cell(item)
        else:
            yield self._cell(node)

    def _cell(self, node: Node) -> Cell:
        start, end = node.start_mark.index + self.shift, node.end_mark.index + self.shift
        if not isinstance(node, ScalarNode):
            return Cell("", start, end, self._line(node), f"it is no text but {self.text[start:end][:60]!r}")
        value = str(node.value)
        quote = node.style if node.style in ("'", '"') else ""
        written, raw = self.text[start:end], f"{quote}{value}{quote}"
        head = written.removesuffix(raw)
        problem = ""
        if node.style in ("|", ">"):
            problem = "it is a block of text, which cannot be replaced in place: write it on one line"
        elif not written.endswith(raw) or not _PROPERTIES.fullmatch(head):
            problem = f"it is written as {written[:60]!r}, which cannot be replaced in place: write it without escapes"
        start += len(head) + len(quote)
        return Cell(value, start, end - len(quote), self.text.count("\n", 0, start) + 1, problem)

    def _pairs(self, node: MappingNode) -> dict[str, Node]:
        """The mapping's keys and values, those of its merge keys included where it does not set them itself."""
        if (known := self.resolved.get(id(node))) is not None:
            return known
        merged: dict[str, Node] = {}
        self.resolved[id(node)] = merged  # a mapping that merges itself ends here
        own: dict[str, Node] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                for source in value.value if isinstance(value, SequenceNode) else [value]:
                    if isinstance(source, MappingNode):
                        merged |= {k: v for k, v in self._pairs(source).items() if k not in merged}
            elif isinstance(key, ScalarNode):
                own[key.value] = value
        self.resolved[id(node)] = merged | own
        return self.resolved[id(node)]

    def _line(self, node: Node) -> int:
        return self.text.count("\n", 0, node.start_mark.index + self.shift) + 1
