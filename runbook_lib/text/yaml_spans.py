"""YAML parsed with the positions of its values in the text, so that values can be spliced without dumping.

PyYAML parses with libyaml, as GitLab does: files that GitLab accepts are accepted here.
"""

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runbook_lib.errors import CannotTell

_MERGE = "tag:yaml.org,2002:merge"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")
_TOO_DEEP = "it cannot be parsed as YAML: it is nested too deeply."
# Text before a scalar that belongs to its node: an anchor, a tag.
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
# libyaml's composer recurses in C without a limit, so deep nesting ends the process.  Flow collections cannot nest
# deeper than there are brackets, block ones not deeper than a line is long.  Texts that could nest deeper than this
# are refused.
_DEEPEST = 20_000
#: Maximum number of values in a document. Merge keys copy anchors, so a few lines can produce billions of values.
_LARGEST = 1_000_000
#: Maximum levels of merge keys; Megatron-LM's own files have two.
_DEEPEST_MERGE = 100
#: Words and numbers that a reader of YAML 1.1 or 1.2 takes for no text, unless they are quoted.
_NOT_TEXT = re.compile(
    r"~|null|true|false|yes|no|on|off|y|n|[-+]?0b[01_]+|[-+]?0o?[0-7_]+|[-+]?0x[0-9a-f_]+"
    r"|(?:[-+]_*)?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9_]+)(?:e[-+]?[0-9]+)?|[-+]?\.inf|\.nan"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}",
    re.IGNORECASE,
)
# What is before a plain scalar on its line, with an anchor or not, and what is behind it.
_BEFORE_PLAIN = re.compile(r"(?:^|[:,\[{-][ \t]|[\[{]|[\"']:)[ \t]*(?:&\S+[ \t]+)?$")
_BEHIND_PLAIN = re.compile(r"[ \t]*(?:\r?$|[,\]}]|[ \t]#)")
_COMMENT = re.compile(r"(?:^|[ \t])#")
#: Digits of a number.  Python refuses to print, and to read, one of 4,300; hexadecimal ones would be read.
_LONGEST_NUMBER = 100


@dataclass(frozen=True)
class Cell:
    """A value: its content and the span of that content in the text, without quotes.

    ``problem`` is the reason why the span cannot be replaced; empty if it can.
    """

    value: str
    start: int
    end: int
    line: int
    problem: str = ""


class Text:
    """A text and its YAML documents. Raises CannotTell if the text is not valid YAML."""

    def __init__(self, text: str) -> None:
        body = text.removeprefix("\ufeff")  # libyaml does not count it
        self.text, self._shift = text, len(text) - len(body)
        self._resolved: dict[int, dict[str, Node]] = {}
        self._merged = 0
        with _parsing(text):
            self.documents: list[Node | None] = list(yaml.compose_all(body, Loader=_Loader))

    def line(self, node: Node) -> int:
        """Return the line of a node, counted from 1."""
        return self.text.count("\n", 0, node.start_mark.index + self._shift) + 1

    def span(self, node: Node) -> tuple[int, int]:
        """Return the span of a node in the text; for an alias, the span of its definition."""
        return node.start_mark.index + self._shift, node.end_mark.index + self._shift

    def cells(self, node: Node | None) -> Iterator[Cell]:
        """Yield a scalar as one cell, a plain sequence as one cell for each item."""
        if isinstance(node, SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            for item in node.value:
                yield self.cell(item)
        elif node is not None:
            yield self.cell(node)

    def cell(self, node: Node) -> Cell:
        """Return a value with its position; of an alias, the position of its definition."""
        start, end = self.span(node)
        if not isinstance(node, ScalarNode):
            return Cell("", start, end, self.line(node), f"it is {self.text[start:end][:60]!r}, not a text")
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

    def pairs(self, node: Node | None, depth: int = 0) -> dict[str, Node]:
        """Return a mapping's values by key, including those of its merge keys; empty for other nodes.

        Raises CannotTell for merge keys that are nested too deeply or make too many values.
        """
        if not isinstance(node, MappingNode):
            return {}
        if (known := self._resolved.get(id(node))) is not None:
            return known
        merged: dict[str, Node] = {}
        self._resolved[id(node)] = merged  # a mapping that merges itself ends here
        own: dict[str, Node] = {}
        if depth > _DEEPEST_MERGE:
            raise CannotTell(f"line {self.line(node)}: its merge keys (<<) go deeper than {_DEEPEST_MERGE} levels.")
        for key, value in node.value:
            if key.tag == _MERGE:
                for source in items(value) or [value]:
                    for name, node_of_name in self.pairs(source, depth + 1).items():
                        merged.setdefault(name, node_of_name)
                    self._merged += len(merged)
                    if self._merged > _LARGEST:
                        raise CannotTell(f"its merge keys (<<) expand to more than {_LARGEST:,} values.")
            elif isinstance(key, ScalarNode):
                own[key.value] = value
        self._resolved[id(node)] = merged | own
        return self._resolved[id(node)]


def is_text(value: str) -> bool:
    """Return True if every reader of YAML takes this value without quotes for text, and not for a number."""
    return not _NOT_TEXT.fullmatch(value)


def is_plain(text: str, start: int, end: int) -> bool:
    """Return True if ``text[start:end]`` is a scalar without quotes, in a YAML file or in YAML within a block of text.

    It is judged by its line, since templates of YAML do not parse.
    """
    begin, stop = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    before, behind = text[begin:start], text[end : stop if stop >= 0 else len(text)]
    if _COMMENT.search(before) or before.count('"') % 2 or before.count("'") % 2:
        return False
    return bool(_BEFORE_PLAIN.search(before) and _BEHIND_PLAIN.match(behind))


def items(node: Node | None) -> list[Node]:
    """Return the items of a sequence; empty for other nodes."""
    result: list[Node] = node.value if isinstance(node, SequenceNode) else []
    return result


def load(text: str) -> Any:
    """Return the values of the single document in a text.  Raises CannotTell if the text is not valid YAML."""
    with _parsing(text):
        loader = _Loader(text)
        node = loader.get_single_node()
        if _values(node, {}) > _LARGEST:
            raise CannotTell(f"its anchors expand to more than {_LARGEST:,} values.")
        if node is None:
            return None
        return loader.construct_document(node)


def duplicate_keys(node: Node | None) -> tuple[str, ...]:
    """Return the keys that occur more than once in a mapping."""
    pairs = node.value if isinstance(node, MappingNode) else ()
    names = Counter(key.value for key, _ in pairs if isinstance(key, ScalarNode) and key.tag != _MERGE)
    return tuple(sorted(name for name, count in names.items() if count > 1))


@contextlib.contextmanager
def _parsing(text: str) -> Iterator[None]:
    """Raise CannotTell for the errors of PyYAML, and for a text that may nest deeper than libyaml can."""
    if text.count("[") + text.count("{") + max(map(len, text.split("\n"))) >= _DEEPEST:
        raise CannotTell(_TOO_DEEP)
    try:
        yield
    except (AttributeError, ArithmeticError, LookupError) as error:  # of PyYAML, for values that do not fit their tags
        raise CannotTell("it has a value that does not match its YAML tag or format.") from error
    except RecursionError as error:
        raise CannotTell(_TOO_DEEP) from error
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = error.problem or error.context or ""
        if problem.startswith("but "):
            problem = f"{error.context} {problem}"
        raise CannotTell(f"it does not parse as YAML: {problem}{line}.") from error
    except UnicodeEncodeError as error:
        line_number = text.count("\n", 0, error.start) + 1
        raise CannotTell(f"it does not parse as YAML: line {line_number} is not UTF-8.") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number such as 0x_
        reason = getattr(error, "reason", None) or " ".join(str(error).split())
        raise CannotTell(f"it does not parse as YAML: {reason}.") from error


def _values(node: Node | None, known: dict[int, int]) -> int:
    """Return the number of values in a node; each alias counts as its target, except within itself."""
    if not isinstance(node, MappingNode | SequenceNode):
        if isinstance(node, ScalarNode) and node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise CannotTell(f"line {node.start_mark.line + 1} has a number of {len(node.value)} characters.")
        return 1
    if id(node) not in known:
        known[id(node)] = 1
        parts = node.value
        if isinstance(node, MappingNode):
            parts = itertools.chain.from_iterable(node.value)
        known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """libyaml, if PyYAML was built with it."""


# GitHub has no dates in YAML, and 0000-00-00 is a text that workflows use.
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_str)
