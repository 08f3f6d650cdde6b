"""A record's ``report.html``: the run and its executed notebook on one page that opens anywhere."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runbook_lib.display import linked
from runbook_lib.records.attachments import image
from runbook_lib.records.pages.html import Room, boxed, brief, duration, facts, listing, moment, page, to_bytes
from runbook_lib.records.statement import EXECUTED, REPORT
from runbook_lib.system.atomic_files import write
from runbook_lib.text.sanitize import harmless

#: Characters of one output, and of all images together, that a report shows; the executed notebook beside it has all.
_LONGEST_OUTPUT, _IMAGES = 60_000, 400_000
_LONGEST_REPORT = 900_000


def write_report(folder: Path, predicate: Mapping[str, Any]) -> None:
    """Write the report of a record from its predicate and the executed notebook in its folder, if there is one."""
    try:
        notebook = json.loads((folder / EXECUTED).read_bytes())
    except (OSError, ValueError, RecursionError):
        notebook = {"cells": []}
    write(folder / REPORT, to_bytes(render(predicate, notebook)))


def render(predicate: Mapping[str, Any], notebook: Mapping[str, Any]) -> str:
    """The page.  Both arguments are redacted already."""
    name = str(predicate["notebook"]["name"])
    parts = [f"<h1>{html.escape(name)}: {html.escape(predicate['state'])}</h1>", _summary(predicate)]
    room = Room(_IMAGES)
    length = 0
    for cell in notebook["cells"]:
        part = _cell(cell, room)
        length += len(part)
        if length > _LONGEST_REPORT:
            parts.append(f'<p class="muted">The rest is in <a href="{EXECUTED}">{EXECUTED}</a>.</p>')
            break
        parts.append(part)
    return page(f"{name}: {predicate['state']}", "\n".join(parts))


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
        ("What it changed", "effects", ("at (UTC)", "effect", "target", "before", "after")),
        ("Exceptions allowed", "exceptions", ("exception", "reason")),
    ):
        if predicate.get(key):
            rows = [_brief(entry) for entry in predicate[key]]
            parts.append(f"<h2>{title}</h2>{listing(rows, columns, named=title)}")
    if predicate.get("warnings"):
        items = "".join(f"<li>{linked(sentence)}</li>" for sentence in predicate["warnings"])
        parts.append(f"<h2>Warnings</h2><ul>{items}</ul>")
    return "\n".join([*parts, "<hr>"])


def _brief(entry: Mapping[str, Any]) -> dict[str, object]:
    """As a person reads it: run.json has all of it."""
    found: dict[str, object] = {name: brief(value, "… (all of it in run.json)") for name, value in entry.items()}
    if entry.get("at"):
        found["at (UTC)"] = moment(entry["at"])[11:19]
    if entry.get("url"):
        found["target"] = f"{found.get('target', '')} {found.pop('url')}"
    return found


def _cell(cell: Mapping[str, Any], room: Room) -> str:
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
    room = Room(images)
    return "\n".join(_output(output, room) for output in cell.get("outputs", ()))


def _output(output: Mapping[str, Any], room: Room) -> str:
    kind = output["output_type"]
    if kind == "stream":
        return f"<pre>{_cut(''.join(output['text']))}</pre>"
    if kind == "error":
        return f'<pre class="error">{_cut(_uncoloured(output["traceback"]))}</pre>'
    data = output.get("data", {})
    if found := image(data):
        if room.take(found.html):
            return found.html
        return f'<p class="muted">This image is in <a href="{EXECUTED}">{EXECUTED}</a>.</p>'
    markup = "".join(data.get("text/html", ""))
    if markup and len(markup) <= _LONGEST_OUTPUT:
        made = harmless(markup)
        return boxed(made, "table", "output") if "<table" in made else f'<div class="output">{made}</div>'
    return f"<pre>{_cut(''.join(data.get('text/plain', '')))}</pre>"


def _uncoloured(lines: Sequence[str]) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))


def _cut(text: str) -> str:
    more = len(text) - _LONGEST_OUTPUT
    return html.escape(text[:_LONGEST_OUTPUT]) + (f"\n… {more} more characters in {EXECUTED}" if more > 0 else "")
