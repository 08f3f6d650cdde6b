"""The position of a value in a YAML file: the keys and indexes above it, and the span of its siblings."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from yaml.nodes import MappingNode, Node, ScalarNode

from runbook_lib.errors import CannotTell
from runbook_lib.text.yaml_spans import Text

_DEEPEST = 100  # keys and indexes above a value


@dataclass(frozen=True)
class YamlPath:
    """The keys and indexes above a value, outermost first; empty if the text has no value there.

    ``block``: the value is a block of text (``run: |``).  ``mapping``: the closest mapping around the value.
    ``siblings``: the span of that mapping; for an item of a list, its own.
    """

    keys: tuple[str, ...] = ()
    block: bool = False
    mapping: MappingNode | None = None
    siblings: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class _Position:
    """A node, its key or index, and the position of its parent node."""

    node: Node
    key: str
    above: "_Position | None"


class YamlPaths:
    """The paths of all values in a text; empty if it is not valid YAML."""

    def __init__(self, text: str) -> None:
        self._values: list[tuple[int, int, _Position]] = []
        self._extents: dict[int, tuple[int, int]] = {}
        try:
            self._text = Text(text)
        except CannotTell:
            return
        for position in _scalars(self._text.documents):
            self._values.append((*self._text.span(position.node), position))
        self._values.sort(key=lambda value: value[0])

    def at(self, offset: int) -> YamlPath:
        """Return the path of the value at an offset of the text."""
        index = bisect_right(self._values, offset, key=lambda value: value[0]) - 1
        if index < 0 or self._values[index][1] <= offset:
            return YamlPath()
        start, end, value = self._values[index]
        keys: list[str] = []
        mapping: MappingNode | None = None
        position: _Position | None = value
        while position is not None and position.above is not None and len(keys) <= _DEEPEST:
            keys.append(position.key)
            position = position.above
            if mapping is None and isinstance(position.node, MappingNode):
                mapping = position.node
        block = isinstance(value.node, ScalarNode) and value.node.style in ("|", ">")
        if len(keys) > _DEEPEST:
            return YamlPath(block=block)
        if value.above is not None and isinstance(value.above.node, MappingNode):
            start, end = self._extent(value.above.node)
        return YamlPath(tuple(reversed(keys)), block, mapping, (start, end))

    def sibling(self, path: YamlPath, keys: Sequence[str]) -> str:
        """Return the text of the first of these keys in the mapping around a value; empty if it has none of them."""
        with suppress(CannotTell):
            pairs = self._text.pairs(path.mapping)
            for node in map(pairs.get, keys):
                if isinstance(node, ScalarNode):
                    return str(node.value)
        return ""

    def _extent(self, node: Node) -> tuple[int, int]:
        """Return the span of a node without the comments after it."""
        if id(node) not in self._extents:
            self._extents[id(node)] = (self._text.span(node)[0], self._text.end(node))
        return self._extents[id(node)]


def _scalars(documents: list[Node | None]) -> Iterator[_Position]:
    """Yield every scalar value once, at its definition."""
    visited: set[int] = set()
    open_positions = [_Position(document, "", None) for document in documents if document is not None]
    open_positions.reverse()
    while open_positions:
        position = open_positions.pop()
        node = position.node
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, ScalarNode):
            yield position
            continue
        inner: list[_Position] = []
        for index, entry in enumerate(node.value):
            # The value of a non-scalar key is a list of nodes, whose text may have no end.
            name, value = str(index), entry
            if isinstance(node, MappingNode):
                name, value = entry[0].value if isinstance(entry[0], ScalarNode) else "", entry[1]
            inner.append(_Position(value, name, position))
        open_positions += reversed(inner)
