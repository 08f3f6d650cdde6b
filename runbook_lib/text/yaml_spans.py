"""YAML read with the places of its values in the text, so that a value can be spliced and nothing is dumped back.

PyYAML parses, with libyaml, which is what GitLab itself reads its files with: what GitLab accepts is accepted here.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runbook_lib.errors import CannotTell

MERGE = "tag:yaml.org,2002:merge"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")
#: What PyYAML raises beside its own errors where a value does not fit its tag: it looks for what is not there.
MISFITS = (AttributeError, ArithmeticError, LookupError)
# What may stand before a scalar and belongs to its node: an anchor, a tag.
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
# libyaml's composer recurses in C without a limit, so deep nesting ends the process.  Flow collections cannot nest
# deeper than there are brackets, block ones not deeper than a line is long.  Texts that could nest deeper than this
# take the slow parser, which raises RecursionError.
_DEEPEST = 20_000
#: Merge keys copy what anchors name, and so does whatever writes a value out: some lines can make billions of values.
_LARGEST = 1_000_000
#: Levels of merge keys; those of Megatron-LM's own files go two deep.
_DEEPEST_MERGE = 100
#: Digits of a number.  Python refuses to print, and to read, one of 4,300; hexadecimal ones would be read.
_LONGEST_NUMBER = 100


@dataclass(frozen=True)
class Cell:
    """A value: its content and the span of that content in the text, without quotes.

    ``problem`` says why the span cannot be replaced, and is empty where it can.
    """

    value: str
    start: int
    end: int
    line: int
    problem: str = ""


class Text:
    """A text with the documents in it.  Raises CannotTell for what is no YAML."""

    def __init__(self, text: str) -> None:
        body = text.removeprefix("\ufeff")  # libyaml does not count it
        self.text, self._shift = text, len(text) - len(body)
        self._resolved: dict[int, dict[str, Node]] = {}
        self._merged = 0
        self.documents = _composed(text, body)

    def line(self, node: Node) -> int:
        """Return the line of a node, counted from 1."""
        return self.text.count("\n", 0, node.start_mark.index + self._shift) + 1

    def span(self, node: Node) -> tuple[int, int]:
        """Return the span of a node in the text; of an alias, that of its definition."""
        return node.start_mark.index + self._shift, node.end_mark.index + self._shift

    def cells(self, node: Node) -> Iterator[Cell]:
        """A scalar as one cell, a plain sequence as one for each of its items."""
        if isinstance(node, SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            for item in node.value:
                yield self.cell(item)
        else:
            yield self.cell(node)

    def cell(self, node: Node) -> Cell:
        """A value with its place; of an alias, the place of its definition."""
        start, end = self.span(node)
        if not isinstance(node, ScalarNode):
            return Cell("", start, end, self.line(node), f"it is no text but {self.text[start:end][:60]!r}")
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

    def pairs(self, node: MappingNode, depth: int = 0) -> dict[str, Node]:
        """The mapping's keys and values, those of its merge keys included where it does not set them itself.

        Raises CannotTell for merge keys without measure.
        """
        if (known := self._resolved.get(id(node))) is not None:
            return known
        merged: dict[str, Node] = {}
        self._resolved[id(node)] = merged  # a mapping that merges itself ends here
        own: dict[str, Node] = {}
        if depth > _DEEPEST_MERGE:
            raise CannotTell(f"line {self.line(node)}: its merge keys (<<) go deeper than {_DEEPEST_MERGE} levels.")
        for key, value in node.value:
            if key.tag == MERGE:
                for source in value.value if isinstance(value, SequenceNode) else [value]:
                    if isinstance(source, MappingNode):
                        merged |= {k: v for k, v in self.pairs(source, depth + 1).items() if k not in merged}
                        self._count(len(merged))
            elif isinstance(key, ScalarNode):
                own[key.value] = value
        self._resolved[id(node)] = merged | own
        return self._resolved[id(node)]

    def _count(self, merged: int) -> None:
        self._merged += merged
        if self._merged > _LARGEST:
            raise CannotTell(f"its merge keys (<<) make more than {_LARGEST:,} values of it.")


def load(text: str) -> Any:
    """The values of the one document in a text.  Raises CannotTell for what is no YAML."""
    try:
        loader = _loader(text)(text)
        node = loader.get_single_node()
        if _values(node, {}) > _LARGEST:
            raise CannotTell(f"its anchors make more than {_LARGEST:,} values of it.")
        return None if node is None else loader.construct_document(node)
    except MISFITS as error:
        raise CannotTell("it holds a value that is not of the type that its tag or its form says.") from error
    except RecursionError as error:
        raise CannotTell("it does not parse as YAML: it is nested too deeply.") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none, a lone surrogate
        raise CannotTell(f"it does not parse as YAML: {' '.join(str(error).split())}.") from error


def doubled(node: MappingNode) -> tuple[str, ...]:
    """The keys that a mapping gives more than once."""
    names = Counter(key.value for key, _ in node.value if isinstance(key, ScalarNode) and key.tag != MERGE)
    return tuple(sorted(name for name, times in names.items() if times > 1))


def is_endless(node: ScalarNode) -> bool:
    """Return True if a number has more digits than any real one."""
    return node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER


def _composed(text: str, body: str) -> list[Node | None]:
    try:
        return list(yaml.compose_all(body, Loader=_loader(body)))
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


def _values(node: Node | None, known: dict[int, int]) -> int:
    """Return the number of values in a node; each alias counts as its target, except within itself."""
    if not isinstance(node, MappingNode | SequenceNode):
        if isinstance(node, ScalarNode) and is_endless(node):
            raise CannotTell(f"line {node.start_mark.line + 1} holds a number of {len(node.value)} characters.")
        return 1
    if id(node) not in known:
        known[id(node)] = 1
        parts = itertools.chain.from_iterable(node.value) if isinstance(node, MappingNode) else node.value
        known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]


def _loader(text: str) -> Any:
    deepest = text.count("[") + text.count("{") + max(map(len, text.split("\n")))
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader) if deepest < _DEEPEST else yaml.SafeLoader
