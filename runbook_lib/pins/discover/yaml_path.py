"""The position of a value in a YAML file: the keys and indexes above it, and the extent of its siblings."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runbook_lib.errors import CannotTell
from runbook_lib.text.yaml_spans import Text

_DEEPEST = 100  # keys and indexes above a value; nobody writes more


@dataclass(frozen=True)
class YamlPath:
    """The keys and indexes above a value, outermost first; none where the text has no value at that place.

    ``block``: the value is a block of text (``run: |``).  ``mapping``: the mapping that holds the value, or the list
    with it.  ``siblings``: the span of that mapping; of an item of a list, its own.
    """

    keys: tuple[str, ...] = ()
    block: bool = False
    mapping: MappingNode | None = None
    siblings: tuple[int, int] = (0, 0)

    def has(self, key: str) -> bool:
        """Return True if the key is in the path."""
        return key in self.keys


@dataclass(frozen=True)
class _Position:
    """A node, its key or index, and the position of the node that holds it."""

    node: Node
    key: str
    above: "_Position | None"


class YamlPaths:
    """The paths of all values of a text; of one that is no YAML, none."""

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

    def at(self, place: int) -> YamlPath:
        """Return the path of the value that covers a place in the text."""
        index = bisect_right(self._values, place, key=lambda value: value[0]) - 1
        if index < 0 or self._values[index][1] <= place:
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
        """Return the text beside a value under the first of the keys that its mapping has; empty where it has none."""
        if path.mapping is None:
            return ""
        try:
            pairs = self._text.pairs(path.mapping)
        except CannotTell:
            return ""
        for key in keys:
            node = pairs.get(key)
            if isinstance(node, ScalarNode):
                return str(node.value)
        return ""

    def _extent(self, node: Node) -> tuple[int, int]:
        """Return the span of a node without the comments behind it, which PyYAML counts to a block."""
        if id(node) in self._extents:
            return self._extents[id(node)]
        mapping = node
        start, end = self._text.span(node)
        while isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
            last = node.value[-1]
            node = last[1] if isinstance(last, tuple) else last
            last_start, last_end = self._text.span(node)
            if last_start < start:
                break  # an alias, which stands for an earlier value
            end = last_end
        self._extents[id(mapping)] = (start, end)
        return start, end


def _scalars(documents: list[Node | None]) -> Iterator[_Position]:
    """Yield every scalar value once, at its definition."""
    seen: set[int] = set()
    open_positions = [_Position(document, "", None) for document in documents if document is not None]
    open_positions.reverse()
    while open_positions:
        position = open_positions.pop()
        node = position.node
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, ScalarNode):
            yield position
        elif isinstance(node, SequenceNode):
            children = [_Position(item, str(index), position) for index, item in enumerate(node.value)]
            open_positions += reversed(children)
        elif isinstance(node, MappingNode):
            children = [_Position(item, str(key.value), position) for key, item in node.value]
            open_positions += reversed(children)
