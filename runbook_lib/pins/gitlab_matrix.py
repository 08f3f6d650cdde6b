"""Rows of GitLab's ``parallel: matrix:``, with the places of their values in the text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from yaml.nodes import MappingNode, Node, SequenceNode

from runbook_lib.text.yaml_spans import Cell, Text, duplicate_keys


@dataclass(frozen=True)
class MatrixRow:
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
def rows(text: str) -> tuple[MatrixRow, ...]:
    """Every row of every job's matrix, each once, with aliases and merge keys resolved.

    A row's merged and aliased values have the place of their definition.  Raises CannotTell for text that is no YAML.
    """
    parsed = Text(text)
    seen: set[int] = set()
    return tuple(row for document in parsed.documents for row in _rows(parsed, document, seen))


def _rows(parsed: Text, document: Node | None, seen: set[int]) -> Iterator[MatrixRow]:
    if not isinstance(document, MappingNode):
        return
    for key, job in document.value:
        if not isinstance(job, MappingNode):
            continue
        parallel = parsed.pairs(job).get("parallel")
        matrix = parsed.pairs(parallel).get("matrix") if isinstance(parallel, MappingNode) else None
        for node in matrix.value if isinstance(matrix, SequenceNode) else ():
            # A matrix that is aliased or merged into another job is still the same rows.
            if isinstance(node, MappingNode) and id(node) not in seen:
                seen.add(id(node))
                cells = {name: tuple(parsed.cells(value)) for name, value in parsed.pairs(node).items()}
                yield MatrixRow(str(key.value), parsed.line(node), cells, duplicate_keys(node))
