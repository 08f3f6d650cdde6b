"""The pages for people: ``report.html`` of a record, its Markdown by nbconvert, and the archive's index.

A page loads nothing, and its content security policy lets nothing run that a quoted text might contain.
"""

import base64
import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from runbook_lib import display
from runbook_lib.display import View
from runbook_lib.model import Next
from runbook_lib.record import run_file
from runbook_lib.record.run_file import EXECUTED, REPORT, RUN
from runbook_lib.text.lists import shorten
from runbook_lib.text.sanitize import clean_html, visible
from runbook_lib.world import commands
from runbook_lib.world.machine import startup
from runbook_lib.world.machine.files import write

#: Maximum characters of one output, and of a row of the index; the executed notebook and run.json have everything.
_LONGEST_OUTPUT, _LONGEST_ROW, _LONGEST_TITLE = 200_000, 300, 120
#: The commits of a run, as a reader needs to tell them apart.
_COMMITS = {
    "base_commit": "commit of the base",
    "head_commit": "commit of the bump's branch, here",
    "checked_commit": "commit of the pull request, checked for the merge",
    "merge_commit": "its merge with the base, which CI tests",
}
_PICTURES = ("image/svg+xml", "image/png", "image/jpeg")
#: A tag, or the address of a file, such as that of a page of the practice environment.
_TAG_OR_FILE = re.compile(r"<[^<>]*>|file:///[^\s<>\"']*")


def write_report(folder: Path, run: Mapping[str, Any]) -> None:
    """Write the report of a run and of the executed notebook in its record, both without secrets.

    Raises RunbookError.
    """
    name = f"{run['notebook']['name']} {run['bump']['tag']}".rstrip()
    title = shorten(f"{name}: {run['outcome']['sentence'] or run['state']}", _LONGEST_TITLE)
    body = f"<h1>{html.escape(title)}</h1>\n{_summary(folder, run)}\n"
    body += "\n".join(_texts_and_outputs(folder / EXECUTED))
    if run["bump"]["practice"]:
        body = link_pages(body, folder, lambda page: quote(page.as_posix()))
    write(folder / REPORT, page(title, body))


def link_pages(markup: str, folder: Path, address: Callable[[Path], str]) -> str:
    """Return HTML with links from the pages of the practice environment to their copies in the record.

    ``address`` returns the URL of a copy by its path in the record; empty if there is none.
    """

    def link(match: re.Match[str]) -> str:
        shown, dot, behind = match[0].rpartition(".html")
        below = shown.rpartition("/pages/")[2].split("/", 2)  # owner, repository, page
        page = Path("practice", f"{below[-1]}{dot}")
        if len(below) < 3 or not dot or ".." in page.parts or not (folder / page).is_file():
            return match[0]
        url = address(page)
        return f'<a href="{html.escape(url)}">{shown}{dot}</a>{behind}' if url else match[0]

    return _TAG_OR_FILE.sub(link, markup)


def page(title: str, body: str) -> bytes:
    """Return a page for people, in the frame of all of them."""
    frame = Template(files(__package__).joinpath("templates/page.html").read_text("utf-8"))
    return visible(frame.substitute(title=html.escape(title), body=body)).encode("utf-8", "xmlcharrefreplace")


def outcome(run: Mapping[str, Any], place: str, label: str = "", following: str | None = None) -> View:
    """Return how a run ended: its outcome behind a label, what comes next, its warnings and links, and its ``place``.

    ``following`` is what comes next, if it is not told as a command.
    """
    told, changes = run["outcome"], ", ".join(effect["kind"] for effect in run["effects"])
    unfinished = f"Not finished. Done so far: {changes}." if changes else "Nothing was done."
    view = display.note(f"{label}{' '.join(told['sentence'].split()) or unfinished}")
    if next_action := commands.text(Next(**told["next"])) if following is None else following:
        view += display.note(f"Next: {next_action}")
    view += display.notes(run["warnings"], title="Warnings")
    view += display.notes(f"{name}: {url}" for name, url in run["links"].items())
    return view + display.note(place)


def _summary(folder: Path, run: Mapping[str, Any]) -> str:
    """Return what somebody must know who reads nothing else: outcome, image, commits, people, decisions, unknowns."""
    bump, inputs, outcome = run["bump"], run["inputs"], run["outcome"]
    facts = {
        "outcome": f"{display.mark(run['state'])}: {outcome['sentence'] or 'no result yet'}",
        "next": commands.text(Next(**outcome["next"])),
        "bump": f"{bump['image_type']} image on {bump['base']} of {bump['repository']}",
        "PRACTICE": "nothing here is real, and nothing left the machine" if bump["practice"] else "",
        "image": f"{bump['tag'] or 'no tag'} {inputs.get('digest') or ''}",
        **{label: inputs.get(name) for name, label in _COMMITS.items()},
        **run["links"],
        "run by": person(run),
        "when": f"{run['started']} to {run.get('ended') or 'now'}, mode {run['mode'] or 'unknown'}",
    }
    view = display.table({"what": name, "value": value} for name, value in facts.items() if value)
    pins = [
        {"pin": f"{row.get('path')}:{row.get('line')}", "from": row.get("old"), "to": row.get("new")}
        for row in _rows(folder, "changes")
    ]
    pins = pins or [{name: row.get(name) for name in ("site", "pin", "image")} for row in _rows(folder, "pins")]
    unproven = [
        {"before the merge": each.get("name"), "state": each.get("state"), "found": each.get("evidence")}
        for each in run_file.requirements(run)
        if each.get("state") in ("missing", "unknown")
    ]
    for heading, table in (
        ("Missing or unknown", unproven),
        ("Pins", pins),
        ("Decisions", list(decisions(run))),
        ("Still to decide", list(_open(run))),
    ):
        if table:
            view += display.note(f"{heading}:") + display.table(table)
    view += display.notes(run["warnings"], title="Warnings")
    return f'<section class="summary output">{view.html}</section>'


def _rows(folder: Path, table: str) -> list[dict[str, str]]:
    """Return the rows of all tables of that name, those of the steps too, each once."""
    tables = [folder / f"{table}.csv", *sorted(folder.glob(f"*.{table}.csv"))]
    rows = [row for file in tables for row in run_file.rows(file)]
    return list({tuple(row.items()): row for row in rows}.values())


def decisions(run: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield what people have decided that the run used, each once, and who and why."""
    for (kind, subject), entry in {(used["kind"], used["subject"]): used for used in run["exceptions"]}.items():
        yield {
            "decision": f"{kind} {subject} ({entry['confirm']})".removesuffix(" ()"), "why": entry["reason"],
            "who": entry["by"] or person(run), "when": entry["at"] or run["started"],
        }  # fmt: skip


def _open(run: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the open questions; offers to switch tests on again, which no bump waits for, are only counted."""
    offers = 0
    for entry in run["decisions"]:
        if entry.get("kind") == "reenable":
            offers += 1
        else:
            yield {"what": f"{entry.get('kind')} {entry.get('subject')}", "why": str(entry.get("why"))}
    if offers:
        why = "Optional: they are switched off. 06-broken-tests lists them with their age."
        yield {"what": f"reenable {display.count(offers, 'test')}", "why": why}


def person(run: Mapping[str, Any]) -> str:
    """Return the person who ran it, as named by git and the CI service, else the machine's user."""
    who = run["who"]
    name, ci = run_file.person(who), who.get("ci")
    return f"{name}, by {ci['service']} of {ci['actor']}" if ci else name


def cells(notebook: Path) -> list[Any]:
    """Return the cells of an executed notebook; none if it cannot be read."""
    startup.skip_notebook_formats()
    from nbformat.v4 import reads_json

    try:
        return list(reads_json(run_file.text(notebook))["cells"])
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return []


def _texts_and_outputs(notebook: Path) -> Iterator[str]:
    for cell in cells(notebook):
        if cell["cell_type"] == "markdown":
            yield _prose(cell["source"])
        yield from map(shown, cell.get("outputs", ()))


def _prose(text: str) -> str:
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath  # takes long to import

    markdown: Any = MarkdownWithMath(renderer=IPythonRenderer(escape=False, exclude_anchor_links=True))
    return clean_html(markdown.render(text))


def shown(output: Mapping[str, Any]) -> str:
    """Return an output of a cell as harmless HTML."""
    kind, text = "", str(output.get("text", ""))
    if output["output_type"] == "error":
        kind, text = ' class="error"', "\n".join(output["traceback"])
    data = output.get("data", {})
    if heading := data.get("text/markdown"):
        return _prose(heading)
    for name in _PICTURES:
        if content := data.get(name):
            code = base64.b64encode(content.encode()).decode() if "svg" in name else "".join(content.split())
            alt = html.escape(str(data.get("text/plain", "")))
            return clean_html(f'<p><img alt="{alt}" src="data:{name};base64,{code}"></p>')
    markup, text = data.get("text/html", ""), text or data.get("text/plain", "")
    if markup and len(markup) <= _LONGEST_OUTPUT:
        return f'<div class="output">{clean_html(markup)}</div>'
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    more = f"\n… {len(text) - _LONGEST_OUTPUT} more characters in {EXECUTED}" if len(text) > _LONGEST_OUTPUT else ""
    return f"<pre{kind}>{html.escape(text[:_LONGEST_OUTPUT] + more)}</pre>"


def write_index(file: Path, bumps: Mapping[Path, Sequence[Mapping[str, Any]]]) -> None:
    """Write the page with the runs of each bump by its folder, the newest first, each with a link to its report."""
    body = "<h1>Base image bumps</h1>\n"
    for bump, runs in bumps.items():
        folder = bump.relative_to(file.parent)
        body += f"<h2>{html.escape(' / '.join(folder.parts))}</h2>\n<ul>\n"
        for run in runs:
            file_name = REPORT if (bump / run["id"] / REPORT).is_file() else RUN
            address = quote((folder / run["id"] / file_name).as_posix())
            sentence = shorten(run["outcome"]["sentence"] or "no result yet", _LONGEST_ROW)
            name = f"{html.escape(run['started'][:16].replace('T', ' '))} {html.escape(run['notebook']['name'])}"
            body += f'<li><a href="{address}">{name}</a>: {html.escape(display.mark(run["state"]))}. '
            body += f"{display.linked(sentence)}</li>\n"
        body += "</ul>\n"
    write(file, page("Base image bumps", body))
