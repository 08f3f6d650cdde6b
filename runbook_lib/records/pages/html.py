"""The frame and the small parts of every HTML page of an archive: it loads nothing, and works on paper too.

A page's own policy forbids whatever a log may have brought to load or to run anything; the only script that may run is
the one that the page was made with, which its hash names.
"""

import base64
import html
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from runbook_lib.display import linked
from runbook_lib.records.statement import when
from runbook_lib.text.sanitize import visible

#: The name under which a page says what it was made from.
MADE_OF = "made-of"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
#: Characters of a cell that is kept on one line, and of a word that may be broken.
_SHORT, _LONG = 20, 24
#: Characters of a value within a sentence, or before and after a change.
_LONGEST_VALUE = 160
_STYLE = """
:root { color-scheme: light dark; --text: light-dark(#1f2328, #e6edf3); --back: light-dark(#fff, #0d1117);
  --muted: light-dark(#59636e, #9198a1); --line: light-dark(#d0d7de, #30363d); --raised: light-dark(#f6f8fa, #161b22);
  --link: light-dark(#0550ae, #79c0ff); --bad: light-dark(#cf222e, #f85149); --good: light-dark(#1a7f37, #3fb950);
  --wait: light-dark(#9a6700, #d29922); }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 0 auto; padding: 1rem 1.5rem 4rem;
  color: var(--text); background: var(--back); overflow-wrap: break-word; }
a { color: var(--link); }
a.url { overflow-wrap: anywhere; }
:focus-visible { outline: .15rem solid var(--link); outline-offset: .1rem; }
h1, h2, h3, h4 { line-height: 1.25; }
pre, code { font: .875rem/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .6rem .8rem; margin: .4rem 0; border-radius: .3rem; background: var(--raised);
  white-space: pre-wrap; overflow-wrap: anywhere; }
pre.input { border-left: .25rem solid light-dark(#8c959f, #6e7681); }
pre.error { border-left: .25rem solid var(--bad); }
table { border-collapse: collapse; margin: .4rem 0; }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; }
/* A wide table scrolls within its box.  Words stay whole; a column of addresses or other long names, which may break
   anywhere, stays wide enough to be read. */
.wide, .output { overflow-x: auto; max-width: 100%; }
table.list { width: 100%; }
td.whole, .list th { white-space: nowrap; }
td.long { min-width: min(17rem, 60vw); overflow-wrap: anywhere; }
table.list th, table.list td { border-bottom: 1px solid var(--line); }
td:has(> a.url) { min-width: 11rem; overflow-wrap: anywhere; }
.output table { font-size: .875rem; }
.output td:not([style*=nowrap], [style*=monospace]) { min-width: 9rem; }
dl.facts { display: grid; grid-template-columns: minmax(6rem, 11rem) minmax(0, 1fr); gap: .25rem 1rem;
  margin: .4rem 0; }
dl.facts dt { font-weight: 600; }
dl.facts dd { margin: 0; overflow-wrap: anywhere; }
.muted { color: var(--muted); }
time { white-space: nowrap; }
img { max-width: 100%; background: #fff; }
@media (max-width: 40rem) {
  body { padding: .5rem .75rem 2rem; }
  dl.facts { grid-template-columns: minmax(0, 1fr); gap: 0; }
  dl.facts dd { margin-bottom: .4rem; }
}
@media print {
  :root { color-scheme: only light; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  pre { border: 1px solid #d0d7de; }
  h1, h2, h3, h4, h2 + p, p:has(+ ul, + .wide, + figure) { break-after: avoid; }
  tr, img, li, dt { break-inside: avoid; }
  .wide, .output { overflow: visible; }
  table { max-width: 100%; }
  td, th { white-space: normal !important; }
  td.whole { white-space: nowrap !important; }
  td.long { min-width: 9rem; overflow-wrap: anywhere; }
  td:has(> a) { min-width: 12rem; overflow-wrap: anywhere; }
  pre, .diff td { white-space: pre-wrap !important; overflow-wrap: anywhere; }
  .diff tr { print-color-adjust: exact; }
  a[href]:not(.url, [href^="#"])::after { content: " (" attr(href) ")"; overflow-wrap: anywhere; font-size: 85%; }
  .screen { display: none; }
}
"""


class Room:
    """What is left of a page's budget, in bytes."""

    def __init__(self, size: int) -> None:
        self._left = size

    def take(self, text: str) -> bool:
        """Whether there is room for the text; if so, less is left."""
        needed = len(to_bytes(text))
        fits = needed <= self._left
        self._left -= needed * fits
        return fits


def to_bytes(page: str) -> bytes:
    """A page as it is stored; what would be hidden on it is spelled out."""
    return visible(page).encode("utf-8", "xmlcharrefreplace")


def sealed(page: bytes, place: str) -> bytes:
    """The page with a last line that tells whether it was changed since, or lies in another place than this."""
    seal = sha256(place.encode("utf-8", "surrogateescape") + b"\n" + page).hexdigest()
    return page + f"<!-- sha256 {seal} -->\n".encode()


def is_sealed(content: bytes, place: str) -> bool:
    """Whether it is a page as ``sealed`` made it for this place."""
    page, mark, _ = content.rpartition(b"<!-- sha256 ")
    return bool(mark) and content == sealed(page, place)


def page(title: str, body: str, *, style: str = "", script: str = "", made_of: str = "") -> str:
    """A whole HTML page that loads nothing; ``made_of`` marks what it was made from."""
    policy, scripts = _POLICY, ""
    mark = f'<meta name="{MADE_OF}" content="{html.escape(made_of)}">\n' if made_of else ""
    if script:
        policy += f"; script-src 'sha256-{base64.b64encode(sha256(script.encode()).digest()).decode()}'"
        scripts = f"<script>{script}</script>\n"
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width">\n{mark}<title>{html.escape(title)}</title>\n'
        f"<style>{_STYLE}{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n{scripts}</body>\n</html>\n"
    )


def facts(values: Mapping[str, object]) -> str:
    """Names and values as a list of descriptions, a line for each item of a list; empty values are left out."""
    rows = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{'<br>'.join(linked(shown(it)) for it in _items(value))}</dd>"
        for name, value in values.items()
        if value not in (None, "", {}, [])
    )
    return f'<dl class="facts">{rows}</dl>'


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else [value]


def listing(rows: Sequence[Mapping[str, object]], columns: Sequence[str], *, named: str) -> str:
    """Mappings as a table with these columns, in a box that scrolls; ``named`` tells what is in the box.

    The first column is a link where a row has a ``url``.
    """
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in columns)
    body = "".join(
        f"<tr>{''.join(_cell(row, column, first=i == 0) for i, column in enumerate(columns))}</tr>" for row in rows
    )
    return boxed(f'<table class="list"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>', named)


def _cell(row: Mapping[str, object], column: str, *, first: bool) -> str:
    text, url = shown(row.get(column)), shown(row.get("url"))
    if first and is_address(url):
        return f"<td>{link(text, url)}</td>"
    kind = "whole" if len(text) <= _SHORT else "long" if max(map(len, text.split()), default=0) > _LONG else ""
    return f"<td{f' class={kind}' * bool(kind)}>{linked(text)}</td>"


def is_address(url: str) -> bool:
    """Whether a page may link to it: an address on the web, which runs nothing."""
    return url.startswith(("https://", "http://"))


def link(text: str, url: str) -> str:
    """A text that leads to an address; the text alone where that is none."""
    return f'<a href="{html.escape(url)}">{html.escape(text)}</a>' if is_address(url) else html.escape(text)


def boxed(markup: str, named: str, kind: str = "wide") -> str:
    """Something wide in a box that scrolls, also by keys."""
    return f'<div class="{kind}" role="group" aria-label="{html.escape(named)}" tabindex="0">{markup}</div>'


def shown(value: object) -> str:
    """A value as a person reads it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items() if item not in (None, ""))
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value))
    return "" if value is None else str(value)


def brief(value: object, more: str = "…") -> str:
    """A value as a person reads it within a sentence: commits and digests cut as git does, and ``more`` after a cut."""
    text = re.sub(r"\b([0-9a-f]{10})(?:[0-9a-f]{30}|[0-9a-f]{54})\b", r"\1", shown(value))
    return cut(text, _LONGEST_VALUE, more)


def cut(text: str, most: int, more: str = "…") -> str:
    """So many characters of a text, and ``more`` after a cut."""
    return text if len(text) <= most else f"{text[:most]} {more}"


def duration(predicate: Mapping[str, Any]) -> str:
    """How long the run took, in words; empty while it runs."""
    return span(predicate["started"], predicate["ended"]) if predicate.get("ended") else ""


def span(begin: str, end: str) -> str:
    """The time between two stamps, in words."""
    seconds = (when(end) - when(begin)).total_seconds()
    if seconds < 120:
        return f"{max(seconds, 0):.1f} s"
    for size, unit in ((86400, "days"), (3600, "hours")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 60:.0f} min"


def moment(stamp: str) -> str:
    """A record's time as people read it, to the second; what is no time is shown as it is."""
    try:
        return f"{when(stamp):%Y-%m-%d %H:%M:%S} UTC" if stamp else ""
    except (ValueError, TypeError):
        return str(stamp)
