"""``index.html`` of an archive: every bump with its steps, built from the ``run.json`` files alone."""

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runbook_lib.archive import BumpStatus, bump_folders, bump_status, predicates
from runbook_lib.files import write
from runbook_lib.ledger import locked
from runbook_lib.report import duration, facts, linked, moment, page
from runbook_lib.statement import EXECUTED, REPORT, RUN

INDEX = "index.html"
_FILES = {"report": REPORT, "notebook": EXECUTED, "json": RUN}


def write_index(archive: Path) -> None:
    """Write the index.  Raises RunbookError when it cannot be written."""
    with locked(archive / ".index.lock"):  # else a slower writer could put an older view over a newer one
        write(archive / INDEX, render(archive).encode("utf-8", "xmlcharrefreplace"))


def render(archive: Path) -> str:
    """The page."""
    bumps = []
    for folder in bump_folders(archive):
        runs = list(predicates(folder))
        status = bump_status(folder, runs)
        if status is not None:
            bumps.append((runs[-1]["started"], _bump(archive, folder, status, runs)))
    bumps.sort(key=lambda bump: bump[0], reverse=True)
    body = "\n".join(text for _, text in bumps) or "<p>No bump yet.</p>"
    return page("Base image bumps", f"<h1>Base image bumps</h1>\n{body}")


def _bump(archive: Path, folder: Path, status: BumpStatus, runs: list[dict[str, Any]]) -> str:
    title = f"{status.repository}: {status.tag or 'no tag'} ({status.image_type}) on {status.base}"
    summary = facts(
        {
            "state": status.state,
            "step": status.step,
            "outcome": status.sentence,
            "next": status.next,
            "since": moment(status.since),
            "world": "practice: nothing left the machine" if status.practice else "",
        }
    )
    link = quote(folder.relative_to(archive).as_posix())
    rows = "".join(_row(folder, link, run) for run in reversed(runs))
    head = "".join(f'<th scope="col">{name}</th>' for name in ("started", "step", "state", "outcome", "took", "record"))
    table = f'<table class="list"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f"<section><h2>{html.escape(title)}</h2>{summary}{table}</section>"


def _row(bump: Path, link: str, run: Mapping[str, Any]) -> str:
    indent = "" if run.get("parent") is None else "↳ "
    files = [(said, name) for said, name in _FILES.items() if (bump / run["id"] / name).is_file()]
    links = " ".join(f'<a href="{html.escape(link)}/{quote(run["id"])}/{name}">{said}</a>' for said, name in files)
    cells = (
        f"<time>{moment(run['started'])}</time>",
        html.escape(f"{indent}{run['notebook']['name']}"),
        html.escape(str(run["state"])),
        linked(str((run.get("outcome") or {}).get("sentence", ""))),
        html.escape(duration(run)),
        links,
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
