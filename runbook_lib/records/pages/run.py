"""A record's ``report.html``: the run and its executed notebook on one page that opens anywhere."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runbook_lib.records.attachments import image
from runbook_lib.records.pages import html
from runbook_lib.records.pages.formats import abbreviate, format_time, run_duration
from runbook_lib.records.statement import EXECUTED, REPORT
from runbook_lib.records.timeline import person
from runbook_lib.system.files import write
from runbook_lib.text.sanitize import clean_html

if TYPE_CHECKING:
    from markupsafe import Markup

#: Maximum characters of one output, and of all images, in a report; the executed notebook beside it has everything.
_LONGEST_OUTPUT, _IMAGES = 60_000, 400_000
_LONGEST_REPORT = 900_000
#: Title, statement field and columns of each table; changes are folded.
_CHANGES = "Changes"
_TABLES = (
    ("Decisions", "decisions", ("decision", "reason", "at (UTC)", "by")),
    ("Checks", "checks", ("name", "status", "detail")),
    (_CHANGES, "effects", ("at (UTC)", "step", "effect", "target", "before", "after")),
    ("Exceptions allowed", "exceptions", ("exception", "reason")),
)


def write_report(folder: Path, predicate: Mapping[str, Any]) -> None:
    """Write the report of a record from its predicate and the executed notebook in its folder, if there is one."""
    try:
        notebook = json.loads((folder / EXECUTED).read_bytes())
    except (OSError, ValueError, RecursionError):
        notebook = {"cells": []}
    write(folder / REPORT, html.to_bytes(render(predicate, notebook)))


def render(predicate: Mapping[str, Any], notebook: Mapping[str, Any]) -> str:
    """Return the page of a run.  Both arguments are redacted already."""
    cells: list[Markup] = []
    is_cut = False
    images = html.ByteBudget(_IMAGES)
    length = 0
    for number, cell in enumerate(notebook["cells"]):
        markup = _cell(cell, images, is_first=number == 0)
        length += len(markup)
        if length > _LONGEST_REPORT:
            is_cut = True
            break
        cells.append(markup)
    outcome = predicate.get("outcome") or {}
    return html.render(
        "run.html",
        title=f"{predicate['notebook']['name']}: {predicate['state']}",
        made_of="",
        state=predicate["state"],
        sentence=outcome.get("sentence", ""),
        next=outcome.get("next", ""),
        values=_facts(predicate),
        folded=dict(_folded(predicate)),
        tables=list(_tables(predicate)),
        steps=predicate.get("steps") or (),
        warnings=predicate.get("warnings"),
        cells=cells,
        is_cut=is_cut,
        executed=EXECUTED,
    )


def _facts(predicate: Mapping[str, Any]) -> dict[str, object]:
    bump = predicate["bump"]
    mode = predicate.get("mode") or ""
    if mode == "publish" and bump["practice"]:
        mode = "publish, to the practice environment's forge"
    return {
        "bump": f"{bump['repository']}, {bump['base']}, {bump['image_type']}, {bump['tag'] or 'no tag'}",
        "world": "practice: nothing left the machine" if bump["practice"] else "",
        "mode": mode,
        "links": [f"{name}: {url}" for name, url in (predicate.get("links") or {}).items()],
        "started": format_time(predicate["started"]),
        "duration": run_duration(predicate),
        "by": person(predicate),
    }


def _folded(predicate: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the title and the facts of each part that few readers need."""
    library, parameters = predicate.get("library") or {}, predicate.get("parameters") or {}
    given, resolved = parameters.get("given") or {}, parameters.get("resolved") or {}
    if given:
        yield "Parameters given", given
    if resolved:
        yield "All parameters", resolved
    yield (
        "Inputs and environment",
        {
            **(predicate.get("inputs") or {}),
            "run by": predicate.get("who"),
            "library": {**library, "dirty": "with uncommitted changes" if library.get("dirty") else None},
            "part of": predicate.get("parent"),
            "record": predicate["id"],
        },
    )


def _tables(predicate: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for title, field, columns in _TABLES:
        # Open decisions are among the cells' outputs.
        rows = [_row(entry) for entry in predicate.get(field) or () if "parameter" not in entry]
        if rows:
            used = [name for name in columns if any(name in row for row in rows)]
            yield {"title": title, "columns": used, "rows": rows, "is_open": title != _CHANGES}


def _row(entry: Mapping[str, Any]) -> dict[str, object]:
    """Return an entry with abbreviated values; run.json has them in full."""
    row: dict[str, object] = {name: abbreviate(value, "… (in full in run.json)") for name, value in entry.items()}
    if entry.get("at"):
        row["at (UTC)"] = format_time(entry["at"])[11:19]
    if entry.get("url") and "target" in entry:
        row["target"] = f"{row.get('target', '')} {row.pop('url')}"
    return row


def _cell(cell: Mapping[str, Any], images: html.ByteBudget, *, is_first: bool = False) -> "Markup":
    from markupsafe import Markup

    kind, content = cell["cell_type"], "".join(cell["source"])
    if kind == "markdown":
        import mistune

        kind = "introduction" if is_first else kind
        content = Markup(clean_html(str(mistune.create_markdown(escape=False, plugins=["table"])(content))))
    cell_outputs = Markup(outputs(cell, images) if kind == "code" else "")
    markup: Markup = html.macros("notebook.html").cell(kind, content, cell_outputs)
    return markup


def outputs(cell: Mapping[str, Any], images: html.ByteBudget) -> str:
    """Return the outputs of a code cell as harmless HTML, with those images that fit."""
    output_markup = html.macros("notebook.html").output
    return "\n".join(output_markup(*_output(output, images)) for output in cell.get("outputs", ()))


def _output(output: Mapping[str, Any], images: html.ByteBudget) -> tuple[str, str]:
    """Return an output's kind, as named in the template, and its content (Markup if it is HTML)."""
    from markupsafe import Markup

    if output["output_type"] == "stream":
        return "text", _truncate("".join(output["text"]))
    if output["output_type"] == "error":
        return "error", _truncate(re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output["traceback"])))
    data = output.get("data", {})
    picture = image(data)
    if picture is not None:
        if images.take(picture.html):
            return "image", Markup(picture.html)
        return "omitted image", EXECUTED
    markup = "".join(data.get("text/html", ""))
    if markup and len(markup) <= _LONGEST_OUTPUT:
        safe = Markup(clean_html(markup))
        return ("table" if "<table" in safe else "html"), safe
    return "text", _truncate("".join(data.get("text/plain", "")))


def _truncate(text: str) -> str:
    excess = len(text) - _LONGEST_OUTPUT
    if excess <= 0:
        return text
    return f"{text[:_LONGEST_OUTPUT]}\n… {excess} more characters in {EXECUTED}"
