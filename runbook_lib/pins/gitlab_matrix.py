"""Rows of GitLab's ``parallel: matrix:``, with the positions of their values in the text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from yaml.nodes import MappingNode, Node

from runbook_lib.text.yaml_spans import Cell, Text, duplicate_keys, items


@dataclass(frozen=True)
class MatrixRow:
    """An entry of a matrix.  ``cells`` has the values of each key, several if the row lists several.

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
def rows(text: str) -> tuple[MatrixRow, ...]:
    """Return every row of every job's matrix once, with aliases and merge keys resolved.

    Merged and aliased values have the position of their definition.  Raises CannotTell if the text is not valid YAML.
    """
    parsed = Text(text)
    visited: set[int] = set()
    result: list[MatrixRow] = []
    for document in parsed.documents:
        result += _rows(parsed, document, visited)
    return tuple(result)


def _rows(parsed: Text, document: Node | None, visited: set[int]) -> Iterator[MatrixRow]:
    if not isinstance(document, MappingNode):
        return
    for key, job in document.value:
        matrix = parsed.pairs(parsed.pairs(job).get("parallel")).get("matrix")
        for node in items(matrix):
            # A matrix that is aliased or merged into another job has the same rows.
            if isinstance(node, MappingNode) and id(node) not in visited:
                visited.add(id(node))
                cells = {name: tuple(parsed.cells(value)) for name, value in parsed.pairs(node).items()}
                yield MatrixRow(str(key.value), parsed.line(node), cells, duplicate_keys(node))
