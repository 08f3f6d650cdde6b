"""Tables and Markdown as plain text, for a terminal."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool] = ()) -> Iterator[str]:
    """Yield the rows of a table as lines with aligned columns; the columns in ``right`` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = []
        for cell, width, to_the_right in zip_longest(row, widths, right):
            cells.append(cell.rjust(width) if to_the_right else cell.ljust(width))
        yield "  ".join(cells).rstrip()


def plain(markdown: str) -> str:
    """Return Markdown that we wrote as plain text: tables aligned, headings and code without their marks."""
    lines: list[str] = []
    for is_table, group in groupby(markdown.splitlines(), key=lambda line: line.startswith("|")):
        if not is_table:
            lines += (re.sub(r"^#+ |`|\*\*", "", line) for line in group)
            continue
        head, marks, *rows = map(_cells, group)
        lines += aligned([head, *rows], [mark.endswith(":") for mark in marks])
    return "\n".join(lines)


def _cells(line: str) -> list[str]:
    """Return the cells of a table row; a bar after a backslash belongs to its cell."""
    cells = re.split(r"(?<!\\)\|", line.removeprefix("|").removesuffix("|"))
    return [cell.strip(" `").replace("\\|", "|") for cell in cells]
