"""Where a line of a YAML file stands, told from its indentation alone.

Nothing is parsed: a file with a mistake elsewhere, or a template, still tells.  A file is read once from top to bottom,
however many lines are asked for.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

_DASHES = re.compile(r"[ ]*(?:-[ ]+)*")
_KEY = re.compile(
    r"(?:\"(?P<double>[^\"\\]+)\"|'(?P<single>[^']+)'|(?P<plain>[^\s#'\"\[\]{},&*!|>%@`](?:[^# ]|[ ]++)*?))"
    r"[ ]*:(?=\s|$)"
)
_BLOCK = re.compile(r":[ ]*(?:[&!]\S{1,200}[ ]+){0,3}[|>][0-9+-]*[ ]*(?:#.*)?$")
_HEADER = 2000  # characters of a line that may begin a block of text
_DEEPEST = 100  # keys and indexes above a value; nobody writes more


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


@dataclass(frozen=True)
class _Open:
    """A key or the dash of a list that the lines below may belong to, and the one above it; ``count``: the index."""

    column: int
    key: str | None
    above: "_Open | None"
    count: int = 0
    block: bool = False

    @property
    def name(self) -> str:
        return str(self.count) if self.key is None else self.key


class Outline:
    """The lines of a file, for questions on where one of them stands; lines are counted from 0."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def path(self, index: int, column: int) -> Path:
        """The path of what stands in a line at a column, counted from 0."""
        line = self._lines[index]
        own = [token for token in _tokens(line) if token.column < column]
        above = self._above[index]
        indent = own[0].column if own else len(line) - len(line.lstrip(" "))
        if not own or _is_text(above, indent):
            while above is not None and above.column >= indent:
                above = above.above
        else:
            for token in own:
                above = _opened(above, token)
        block = above is not None and above.block
        keys: list[str] = []
        while above is not None and len(keys) <= _DEEPEST:
            keys.append(above.name)
            above = above.above
        if above is not None:
            return Path((), block, False)
        value = line[_value(line, own) :]
        whole = (
            bool(own) and not block and not value.lstrip().startswith(("{", "[", "&", "*", "!")) and "<<" not in keys
        )
        return Path(tuple(reversed(keys)), block, whole)

    def beside(self, index: int) -> tuple[int, int]:
        """The first of the lines beside one, itself included, and the one behind the last.

        They are of the same item of a list, or of the same mapping, as indentation tells.
        """
        firsts, ends = self._beside
        return firsts[index], ends[index]

    @cached_property
    def _above(self) -> Sequence[_Open | None]:
        """For each line what is open when it begins."""
        result: list[_Open | None] = []
        last: _Open | None = None
        for line in self._lines:
            result.append(last)
            if line.startswith(("---", "...")):
                last = None
                continue
            for token in _tokens(line):
                if _is_text(last, token.column):
                    break
                last = _opened(last, token, token.key is not None and bool(_BLOCK.search(line[:_HEADER])))
        return result

    @cached_property
    def _beside(self) -> tuple[Sequence[int], Sequence[int]]:
        depths = [len(line) - len(line.lstrip(" -")) if line.strip() else -1 for line in self._lines]  # -1: empty
        begins = [line.lstrip(" ").startswith("- ") for line in self._lines]
        item, firsts = 0, []
        for index, less in enumerate(_less_deep(depths, range(len(depths)), -1)):
            item = index if begins[index] else item
            firsts.append(max(item, less + 1))
        backwards, ends = range(len(depths) - 1, -1, -1), []
        item = len(depths)
        for index, less in zip(backwards, _less_deep(depths, backwards, len(depths)), strict=True):
            ends.append(min(item, less))
            item = index if begins[index] else item
        return firsts, ends[::-1]


def _less_deep(depths: Sequence[int], order: Iterable[int], none: int) -> Iterator[int]:
    """For each line the one last met, in the given order, that is less deep and not empty."""
    open_lines: list[int] = []
    for index in order:
        if depths[index] < 0:
            yield none
            continue
        while open_lines and depths[open_lines[-1]] >= depths[index]:
            open_lines.pop()
        yield open_lines[-1] if open_lines else none
        open_lines.append(index)


def _is_text(above: _Open | None, column: int) -> bool:
    """Whether what begins at a column is a line of a block of text."""
    return above is not None and above.block and above.column < column


def _opened(above: _Open | None, token: _Token, block: bool = False) -> _Open:
    """What is open behind a key or a dash."""
    while above is not None and above.column >= token.column:
        if token.key is None and above.column == token.column:
            if above.key is None:
                return _Open(token.column, None, above.above, above.count + 1)
            break  # a list may stand as far left as its key
        above = above.above
    return _Open(token.column, token.key, above, block=block)


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
