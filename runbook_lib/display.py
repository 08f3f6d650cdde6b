"""What a notebook shows: static HTML with the same content as plain text, readable offline and without colours.

Every function returns a View; as the last line of a cell it is displayed.
"""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runbook_lib.checks import Check
from runbook_lib.text.sanitize import visible

if TYPE_CHECKING:
    import pandas as pd

# Translucent, so that text stays legible on a light and on a dark page.
_ADDED, _REMOVED, _HUNK = "rgba(46,160,67,.18)", "rgba(248,81,73,.18)", "rgba(128,128,128,.15)"
_CELL = "text-align:left;vertical-align:top;padding:.2em .8em;border-bottom:1px solid rgba(128,128,128,.3)"
_TABLE = "border-collapse:collapse;margin-left:0"
_CODE = "white-space:pre;font-family:monospace;padding:0 .6em;text-align:left"
_NUMBER = "text-align:right;opacity:.75;padding:0 .5em;user-select:none;font-family:monospace"
#: Words beside the marks: nothing is told by a colour or a sign alone.
MARKS = {
    "passed": "✓ passed", "failed": "✗ failed", "skipped": "– skipped", "done": "✓ done", "waiting": "… waiting",
    "previewed": "○ previewed", "not run": "– not run", "running": "▸ running", "killed": "✗ killed",
    "cancelled": "✗ cancelled", "incomplete": "✗ incomplete", "ready": "✓ ready", "in progress": "▸ in progress",
    "not begun": "○ not begun", "unreadable": "✗ unreadable",
}  # fmt: skip
_MAX_ROWS = 200
_SHORT = 24


@dataclass(frozen=True)
class View:
    """Something to look at, as HTML and as plain text."""

    html: str
    text: str

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/html": visible(self.html), "text/plain": visible(self.text)}

    def __add__(self, other: "View") -> "View":
        return View(f"{self.html}\n{other.html}", f"{self.text}\n{other.text}".strip("\n"))


@dataclass(frozen=True)
class Picture:
    """A drawing as SVG, and in words; its output is an image, which every viewer of notebooks shows."""

    svg: str
    text: str

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"image/svg+xml": self.svg, "text/plain": visible(self.text)}


def table(rows: Iterable[Mapping[str, object]], *, empty: str = "Nothing to show.") -> View:
    """Rows of equal keys as a table; a URL becomes a link.  At most 200 rows: the record keeps all as CSV."""
    shown = list(rows)
    if not shown:
        return note(empty)
    heads = list(shown[0])
    more = len(shown) - _MAX_ROWS
    cells = [[_plain(row[head]) for head in heads] for row in shown[:_MAX_ROWS]]
    widths = [max(len(head), *(len(row[i]) for row in cells)) for i, head in enumerate(heads)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    ruled = ["  ".join(head.ljust(width) for head, width in zip(heads, widths, strict=True)).rstrip(), *lines]
    head = "".join(f'<th scope="col" style="{_CELL}">{html.escape(name)}</th>' for name in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in cells)
    tail = f"… and {more} more rows; the record holds all." if more > 0 else ""
    markup = f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return View(markup + (f"<p>{tail}</p>" if tail else ""), "\n".join([*ruled, *([tail] if tail else [])]))


def _cell(text: str) -> str:
    # A short word or name stays on one line, however wide its neighbours are.
    style = f"{_CELL};white-space:nowrap" if len(text) <= _SHORT else _CELL
    return f"<td style={style!r}>{linked(text)}</td>"


def facts(**values: object) -> View:
    """Names and values, such as validated inputs."""
    return table({"input": name.replace("_", " "), "value": value} for name, value in values.items())


def frame(data: "pd.DataFrame", *, rows: int = 20) -> View:
    """The first rows of a frame, numbers with three digits."""
    import pandas as pd

    shown = data.head(rows)
    with pd.option_context("display.max_colwidth", None):
        markup = shown.to_html(index=False, border=0, na_rep="–", float_format=lambda x: f"{x:.3g}")
    more = len(data) - len(shown)
    told = f"<p>… and {more} more rows; the record holds all.</p>" if more > 0 else ""
    return View(f"{markup}{told}", shown.to_string(index=False, na_rep="–", float_format=lambda x: f"{x:.3g}"))


def note(text: str) -> View:
    """A sentence."""
    return View(f"<p>{linked(text)}</p>", text)


def notes(texts: Iterable[str], *, title: str = "") -> View:
    """Sentences, as a list.  Empty without any."""
    items = list(texts)
    if not items:
        return View("", "")
    head = f"<p><strong>{html.escape(title)}</strong></p>" if title else ""
    markup = head + "<ul>" + "".join(f"<li>{linked(item)}</li>" for item in items) + "</ul>"
    return View(markup, "\n".join([*([title] if title else []), *(f"- {item}" for item in items)]))


def code(text: str, *, title: str = "") -> View:
    """Text as it is, such as the body of a pull request."""
    head = f"<p><strong>{html.escape(title)}</strong></p>" if title else ""
    style = "white-space:pre-wrap;border:1px solid rgba(128,128,128,.3);padding:.6em"
    return View(f'{head}<pre style="{style}">{html.escape(text)}</pre>', f"{title}\n{text}".strip("\n"))


def checks(made: Sequence[Check]) -> View:
    """What was verified, with the outcome in words."""
    rows = [{"check": check.name, "outcome": MARKS[check.status], "found": check.detail} for check in made]
    return table(rows, empty="No check was made.")


def diff(text: str, *, empty: str = "Nothing to change.") -> View:
    """A unified diff as people know it: numbered lines, added green and removed red, with the signs kept."""
    if not text:
        return note(empty)
    rows: list[str] = []
    old = new = left = right = 0
    for line in text.removesuffix("\n").split("\n"):
        if left > 0 or right > 0 or not line.startswith(("@@ ", "--- ", "+++ ", "diff ", "index ", "\\")):
            colour = {"+": _ADDED, "-": _REMOVED}.get(line[:1], "transparent")
            added, removed = line[:1] == "+", line[:1] == "-"
            rows.append(_diff_row("" if added else old, "" if removed else new, line, colour))
            old, new, left, right = old + (not added), new + (not removed), left - (not added), right - (not removed)
        elif match := re.match(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))?", line):
            old, left, new, right = (int(1 if it is None else it) for it in match.groups())
            rows.append(_diff_row("", "", line, _HUNK))
        elif line.startswith("+++ "):
            rows.append(_diff_file(line[4:].partition("\t")[0]))
        elif line.startswith("\\"):
            rows.append(_diff_row("", "", line, _HUNK))
    return View(f'<table style="{_TABLE}">{"".join(rows)}</table>', text.removesuffix("\n"))


def _diff_file(name: str) -> str:
    shown = html.escape(name.removeprefix("b/"))
    return f'<tr style="background:{_HUNK}"><td colspan="3" style="{_CODE}"><strong>{shown}</strong></td></tr>'


def _diff_row(old: object, new: object, line: str, colour: str) -> str:
    numbers = f'<td style="{_NUMBER}">{old}</td><td style="{_NUMBER}">{new}</td>'
    shown = html.escape(line.replace("\r", "␍"))
    return f'<tr style="background:{colour}">{numbers}<td style="{_CODE}">{shown}</td></tr>'


def count(number: int, noun: str) -> str:
    """``2 files``, ``1 file``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, frozenset | set | tuple | list):
        return ", ".join(sorted(map(str, value))) or "–"
    return str(value) if value not in (None, "") else "–"


def linked(text: str) -> str:
    """Escaped, with web addresses as links, which are followed only by a click, and ``*words*`` emphasized."""
    parts = re.split(r"(https?://[^\s<>\"']*[^\s<>\"'.,;:)])", text)
    return "".join(
        f'<a class="url" href="{html.escape(part)}">{html.escape(part)}</a>' if i % 2 else _emphasized(part)
        for i, part in enumerate(parts)
    )


def _emphasized(text: str) -> str:
    # A star of a pattern, as in core_r*, stands within or beside no such pair.
    return re.sub(r"(?<![\w*])\*(\w[^*\n]*\w)\*(?![\w*])", r"<em>\1</em>", html.escape(text))
