"""The output of notebook cells: static HTML and equivalent plain text, readable offline and without colours.

Every function returns a View; as the last line of a cell it is displayed.
"""

import html
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from runbook_lib.text.lists import aligned
from runbook_lib.text.sanitize import visible

# Translucent, so that text stays legible on a light and on a dark page.
_COLOURS = {"+": "rgba(46,160,67,.18)", "-": "rgba(248,81,73,.18)", "@": "rgba(128,128,128,.15)"}
_CELL = "text-align:left;vertical-align:top;padding:.2em .8em;border-bottom:1px solid rgba(128,128,128,.3)"
_TABLE = "border-collapse:collapse;margin-left:0"
_CODE = "white-space:pre;font-family:monospace;padding:0 .6em;text-align:left"
#: The states of steps and checks: a word beside each mark, because neither colour nor mark alone may carry meaning.
MARKS = {
    "passed": "✓ passed", "failed": "✗ failed", "skipped": "– skipped", "done": "✓ done", "waiting": "… waiting",
    "previewed": "○ previewed", "not run": "– not run", "running": "▸ running", "interrupted": "✗ interrupted",
    "ready": "✓ ready", "in progress": "▸ in progress", "not begun": "○ not begun",
}  # fmt: skip
_MAX_ROWS = 200
_NOWRAP_LENGTH = 24


def mark(state: str, warnings: Collection[str] = ()) -> str:
    """Return the mark and the word of a state; with warnings, a state that is no failure is marked as doubtful."""
    if warnings and state in ("done", "waiting", "previewed"):
        return f"⚠ {state}"
    return MARKS.get(state, state)


@dataclass(frozen=True)
class View:
    """A cell's output as HTML and as plain text."""

    html: str
    text: str

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/html": visible(self.html), "text/plain": visible(self.text)}

    def __add__(self, other: "View") -> "View":
        return View(f"{self.html}\n{other.html}", f"{self.text}\n{other.text}".strip("\n"))


@dataclass(frozen=True)
class Picture:
    """An SVG drawing with its description; the output is an image, which every notebook viewer can show."""

    svg: str
    text: str

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"image/svg+xml": self.svg, "text/plain": visible(self.text)}


@dataclass(frozen=True)
class Drawing:
    """A plot or view that is made when it is shown."""

    draw: Callable[[], Picture | View]

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return self.draw()._repr_mimebundle_()


def table(rows: Iterable[Mapping[str, object]], *, empty: str = "Nothing to show.") -> View:
    """Return rows with equal keys as a table with URLs as links: the first 200 rows; the record has all as CSV."""
    all_rows = list(rows)
    if not all_rows:
        return note(empty)
    columns = list(all_rows[0])
    cells = [columns]
    for row in all_rows[:_MAX_ROWS]:
        cells.append([_plain(row[column]) for column in columns])
    lines = list(aligned(cells))
    head = "".join(f'<th scope="col" style="{_CELL}">{html.escape(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, texts))}</tr>" for texts in cells[1:])
    markup = f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    if len(all_rows) > _MAX_ROWS:
        omitted = f"… and {len(all_rows) - _MAX_ROWS} more rows; the record has all of them."
        markup += f"<p>{omitted}</p>"
        lines.append(omitted)
    return View(markup, "\n".join(lines))


def _cell(text: str) -> str:
    # Keep a short word or name on one line, however wide its neighbours are.
    style = f"{_CELL};white-space:nowrap" if len(text) <= _NOWRAP_LENGTH else _CELL
    return f"<td style={style!r}>{linked(text)}</td>"


def rows(items: Iterable[object], **columns: str) -> list[dict[str, object]]:
    """Return a row for each item: ``columns`` are both attribute names and, with ``_`` as a space, headings."""
    shown = attrgetter(*columns.values(), "__class__")
    names = [name.replace("_", " ") for name in columns]
    return [dict(zip(names, shown(item), strict=False)) for item in items]


def mapping(values: Mapping[str, object]) -> View:
    """Return a two-column table of names and values."""
    return table({"what": name, "value": value} for name, value in values.items())


def note(text: str) -> View:
    """Return a paragraph."""
    return View(f"<p>{linked(text)}</p>", text)


def notes(texts: Iterable[str], *, title: str = "") -> View:
    """Return sentences as a list; an empty view if there are none."""
    items = list(texts)
    if not items:
        return View("", "")
    markup = "".join(f"<li>{linked(item)}</li>" for item in items)
    lines = "\n".join(f"- {item}" for item in items)
    return _titled(title, f"<ul>{markup}</ul>", lines)


def code(text: str, *, title: str = "") -> View:
    """Return text verbatim, such as a pull request's body."""
    style = "white-space:pre-wrap;border:1px solid rgba(128,128,128,.3);padding:.6em"
    return _titled(title, f'<pre style="{style}">{html.escape(text)}</pre>', text.strip("\n"))


def _titled(title: str, markup: str, text: str) -> View:
    if not title:
        return View(markup, text)
    return View(f"<p><strong>{html.escape(title)}</strong></p>{markup}", f"{title}\n{text}")


def diff(text: str, *, empty: str = "Nothing to change.") -> View:
    """Return a unified diff, added lines in green and removed ones in red, beside their signs."""
    if not text:
        return note(empty)
    shown, rows = text.removesuffix("\n"), ""
    for line in html.escape(shown).replace("\r", "␍").split("\n"):
        colour = _COLOURS.get(line[:1], "transparent")
        rows += f'<tr style="background:{colour}"><td style="{_CODE}">{line}</td></tr>'
    return View(f'<table style="{_TABLE}">{rows}</table>', shown)


def count(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``2 files`` and ``1 file``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def be(number: int) -> str:
    """Return ``is`` for 1, else ``are``."""
    return "is" if number == 1 else "are"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, frozenset | set | tuple | list):
        return ", ".join(sorted(map(str, value))) or "–"
    return str(value) if value not in (None, "") else "–"


def linked(text: str) -> str:
    """Return the text escaped, with web addresses as links and ``*words*`` emphasized."""
    markup = ""
    for number, part in enumerate(re.split(r"(https?://[^\s<>\"']*[^\s<>\"'.,;:)])", text)):
        escaped = html.escape(part)
        if number % 2:
            markup += f'<a class="url" href="{escaped}">{escaped}</a>'
        else:  # a star in a pattern, as in core_r*, does not open or close emphasis
            markup += re.sub(r"(?<![\w*])\*(\w[^*\n]*\w)\*(?![\w*])", r"<em>\1</em>", escaped)
    return markup
