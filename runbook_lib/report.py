"""A record's ``report.html``: the run and its executed notebook on one page that opens anywhere.

It loads nothing, holds no script and needs none, and its own policy forbids both to whatever a log may have brought.
"""

import base64
import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runbook_lib.files import write
from runbook_lib.harmless import harmless
from runbook_lib.statement import EXECUTED, REPORT, when

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 0 auto; padding: 1rem 1.5rem 4rem;
  color: light-dark(#1f2328, #e6edf3); background: light-dark(#fff, #0d1117); }
a { color: light-dark(#0550ae, #79c0ff); }
h1, h2, h3 { line-height: 1.25; }
pre, code { font: .875rem/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .6rem .8rem; margin: .4rem 0; border-radius: .3rem;
  background: light-dark(#f6f8fa, #161b22); white-space: pre-wrap; overflow-wrap: anywhere; }
pre.input { border-left: .25rem solid light-dark(#8c959f, #6e7681); }
pre.error { border-left: .25rem solid light-dark(#cf222e, #f85149); }
table { border-collapse: collapse; margin: .4rem 0; }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; }
table.facts, table.list { width: 100%; }
/* Long names may break anywhere, but a column stays wide enough for a short word. */
table.facts td, table.list td { overflow-wrap: anywhere; min-width: 5.5rem; }
table.facts th { width: 11rem; font-weight: 600; }
table.list th, table.list td { border-bottom: 1px solid light-dark(#d0d7de, #30363d); }
.output { overflow-x: auto; }
.muted { color: light-dark(#59636e, #9198a1); }
time { white-space: nowrap; }
img { max-width: 100%; background: #fff; }
@media print { body { max-width: none; padding: 0; } pre { border: 1px solid #d0d7de; } }
"""
#: Characters of one output, and of all images together, that a report shows; the executed notebook beside it has all.
_LONGEST_OUTPUT, _IMAGES = 60_000, 400_000
_LONGEST_REPORT = 900_000
#: Characters of a value before and after a change.
_LONGEST_VALUE = 160


def page(title: str, body: str) -> str:
    """A whole HTML page that loads nothing."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{html.escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def write_report(folder: Path, predicate: Mapping[str, Any]) -> None:
    """Write the report of a record from its predicate and the executed notebook in its folder, if there is one."""
    try:
        notebook = json.loads((folder / EXECUTED).read_bytes())
    except (OSError, ValueError):
        notebook = {"cells": []}
    write(folder / REPORT, render(predicate, notebook).encode("utf-8", "xmlcharrefreplace"))


def render(predicate: Mapping[str, Any], notebook: Mapping[str, Any]) -> str:
    """The page.  Both arguments are redacted already."""
    name = str(predicate["notebook"]["name"])
    parts = [f"<h1>{html.escape(name)}: {html.escape(predicate['state'])}</h1>", _summary(predicate)]
    room = _Room(_IMAGES)
    length = 0
    for cell in notebook["cells"]:
        part = _cell(cell, room)
        length += len(part)
        if length > _LONGEST_REPORT:
            parts.append(f'<p class="muted">The rest is in <a href="{EXECUTED}">{EXECUTED}</a>.</p>')
            break
        parts.append(part)
    return page(f"{name}: {predicate['state']}", "\n".join(parts))


def facts(values: Mapping[str, object]) -> str:
    """Names and values as a table; empty values are left out."""
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{linked(shown(value))}</td></tr>'
        for name, value in values.items()
        if value not in (None, "", {}, [])
    )
    return f'<table class="facts">{rows}</table>'


def listing(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Mappings as a table with these columns."""
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{linked(shown(row.get(column)))}</td>' for column in columns)}</tr>" for row in rows
    )
    return f'<table class="list"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def shown(value: object) -> str:
    """A value as a person reads it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items() if item not in (None, ""))
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value))
    return "" if value is None else str(value)


def linked(text: str) -> str:
    """Escaped text with web addresses as links, which are followed only by a click."""
    parts = re.split(r"(https?://[^\s<>\"']*[^\s<>\"'.,;:)])", text)
    escaped = [html.escape(part) for part in parts]
    return "".join(f'<a href="{part}">{part}</a>' if i % 2 else part for i, part in enumerate(escaped))


def duration(predicate: Mapping[str, Any]) -> str:
    """How long the run took, in words; empty while it runs."""
    if not predicate.get("ended"):
        return ""
    seconds = (when(predicate["ended"]) - when(predicate["started"])).total_seconds()
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def moment(stamp: str) -> str:
    """A record's time as people read it, to the second; what is no time is shown as it is."""
    try:
        return f"{when(stamp):%Y-%m-%d %H:%M:%S} UTC" if stamp else ""
    except (ValueError, TypeError):
        return str(stamp)


def _summary(predicate: Mapping[str, Any]) -> str:
    outcome, bump = predicate.get("outcome") or {}, predicate["bump"]
    library = predicate.get("library") or {}
    parts = [
        f"<p>{linked(outcome.get('sentence', ''))}</p>",
        facts(
            {
                "next": outcome.get("next"),
                "bump": f"{bump['repository']}, {bump['base']}, {bump['image_type']}, {bump['tag'] or 'no tag'}",
                "world": "practice: nothing left the machine" if bump["practice"] else "",
                "links": predicate.get("links"),
                "started": moment(predicate["started"]),
                "duration": duration(predicate),
                "by": predicate.get("who"),
                "parameters given": (predicate.get("parameters") or {}).get("given"),
                "parameters": (predicate.get("parameters") or {}).get("resolved"),
                "resolved": predicate.get("inputs"),
                "library": {**library, "dirty": "with uncommitted changes" if library.get("dirty") else None},
                "part of": predicate.get("parent"),
                "record": predicate["id"],
            }
        ),
    ]
    for title, key, columns in (
        ("Checks", "checks", ("name", "status", "detail")),
        ("What it changed", "effects", ("at", "effect", "target", "before", "after")),
        ("Exceptions allowed", "exceptions", ("exception", "reason")),
    ):
        if predicate.get(key):
            rows = [_brief(entry) for entry in predicate[key]]
            parts.append(f"<h2>{title}</h2>{listing(rows, columns)}")
    if predicate.get("warnings"):
        items = "".join(f"<li>{linked(sentence)}</li>" for sentence in predicate["warnings"])
        parts.append(f"<h2>Warnings</h2><ul>{items}</ul>")
    return "\n".join([*parts, "<hr>"])


def _brief(entry: Mapping[str, Any]) -> dict[str, object]:
    """As a person reads it: run.json has all of it."""
    found: dict[str, object] = {}
    for name, value in entry.items():
        text = re.sub(r"\b([0-9a-f]{10})(?:[0-9a-f]{30}|[0-9a-f]{54})\b", r"\1…", shown(value))
        found[name] = text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]} … (all of it in run.json)"
    if entry.get("at"):
        found["at"] = moment(entry["at"])[11:]
    if entry.get("url"):
        found["target"] = f"{found.get('target', '')} {found['url']}"
    return found


class _Room:
    """What is left of a budget."""

    def __init__(self, characters: int) -> None:
        self._left = characters

    def take(self, text: str) -> bool:
        self._left -= len(text)
        return self._left >= 0


def _cell(cell: Mapping[str, Any], room: _Room) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        import mistune

        return f"<section>{harmless(str(mistune.create_markdown(plugins=['table'])(source)))}</section>"
    if cell["cell_type"] != "code":
        return f"<pre>{html.escape(source)}</pre>"
    outputs = "\n".join(_output(output, room) for output in cell.get("outputs", ()))
    return f'<section><pre class="input">{html.escape(source)}</pre>\n{outputs}</section>'


def outputs(cell: Mapping[str, Any], *, images: int = _IMAGES) -> str:
    """What a code cell of an executed notebook shows, harmless in any page; ``images`` is in characters."""
    room = _Room(images)
    return "\n".join(_output(output, room) for output in cell.get("outputs", ()))


def _output(output: Mapping[str, Any], room: _Room) -> str:
    kind = output["output_type"]
    if kind == "stream":
        return f"<pre>{_cut(''.join(output['text']))}</pre>"
    if kind == "error":
        return f'<pre class="error">{_cut(_uncoloured(output["traceback"]))}</pre>'
    data = output.get("data", {})
    for mime in ("image/svg+xml", "image/png", "image/jpeg"):
        if mime in data:
            raw = "".join(data[mime])
            encoded = base64.b64encode(raw.encode()).decode() if mime == "image/svg+xml" else raw.replace("\n", "")
            if room.take(encoded):
                alt = html.escape("".join(data.get("text/plain", "")))
                return f'<img alt="{alt}" src="data:{mime};base64,{encoded}">'
            return f'<p class="muted">This image is in <a href="{EXECUTED}">{EXECUTED}</a>.</p>'
    markup = "".join(data.get("text/html", ""))
    if markup and len(markup) <= _LONGEST_OUTPUT:
        return f'<div class="output">{harmless(markup)}</div>'
    return f"<pre>{_cut(''.join(data.get('text/plain', '')))}</pre>"


def _uncoloured(lines: Sequence[str]) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))


def _cut(text: str) -> str:
    more = len(text) - _LONGEST_OUTPUT
    return html.escape(text[:_LONGEST_OUTPUT]) + (f"\n… {more} more characters in {EXECUTED}" if more > 0 else "")
