"""Where a line of a YAML file stands, told from its indentation alone.

Nothing is parsed: a file with a mistake elsewhere, or a template, still tells, and a large one costs nothing.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_DASHES = re.compile(r"[ ]*(?:-[ ]+)*")
_KEY = re.compile(
    r"(?:\"(?P<double>[^\"\\]+)\"|'(?P<single>[^']+)'|(?P<plain>[^\s#'\"\[\]{},&*!|>%@`][^#]*?))[ ]*:(?=\s|$)"
)
_BLOCK = re.compile(r":[ ]*(?:[&!]\S+[ ]+)*[|>][0-9+-]*[ ]*(?:#.*)?$")


@dataclass(frozen=True)
class Path:
    """The keys and indexes above a value, outermost first.

    ``block``: the value is a line of a block of text (``run: |``).  ``whole``: the value that stands on the line is all
    that the path names, so that the path alone finds it.
    """

    keys: tuple[str, ...]
    block: bool
    whole: bool

    def has(self, *keys: str) -> bool:
        """Whether these keys stand in the path one below the other."""
        return any(self.keys[at : at + len(keys)] == keys for at in range(len(self.keys)))


@dataclass(frozen=True)
class _Token:
    """A dash (``key`` is None) or a key, and its column."""

    column: int
    key: str | None


def path(lines: Sequence[str], index: int, column: int) -> Path:
    """The path of what stands in ``lines[index]`` at a column, both counted from 0."""
    own = [token for token in _tokens(lines[index]) if token.column < column]
    keys: list[str] = []
    indent = column if own else len(lines[index]) - len(lines[index].lstrip(" "))
    dash, count, block = -1, 0, False
    for at in range(index, -1, -1):
        line = lines[at]
        if at < index and line.startswith(("---", "...")):
            break
        for token in reversed(own if at == index else list(_tokens(line))):
            if dash >= 0 and token.key is None and token.column == dash:
                count += 1
            elif dash >= 0 and token.column <= dash:
                keys.append(str(count))
                dash = -1
                indent = token.column + 1
            if dash < 0 and token.column < indent:
                if token.key is None:
                    dash, count = token.column, 0
                elif at < index and _BLOCK.search(line):
                    keys, block, indent = [token.key], True, token.column
                else:
                    keys.append(token.key)
                    indent = token.column
        if not indent and dash < 0:
            break
    if dash >= 0:
        keys.append(str(count))
    value = lines[index][_value(lines[index], own) :]
    whole = bool(own) and not block and not value.lstrip().startswith(("{", "[", "&", "*", "!")) and "<<" not in keys
    return Path(tuple(reversed(keys)), block, whole)


def _value(line: str, own: Sequence[_Token]) -> int:
    """Where the value on the line begins."""
    if not own or own[-1].key is None:
        return own[-1].column + 1 if own else 0
    key = _KEY.match(line, own[-1].column)
    return key.end() if key else 0


def _tokens(line: str) -> Iterator[_Token]:
    dashes = _DASHES.match(line)
    end = dashes.end() if dashes else 0
    if line.startswith("#", end):
        return
    yield from (_Token(at, None) for at in range(end) if line[at] == "-")
    if key := _KEY.match(line, end):
        yield _Token(end, key["double"] or key["single"] or key["plain"])
