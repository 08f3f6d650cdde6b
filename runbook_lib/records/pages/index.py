"""``index.html`` of an archive: one row per bump, built only from the ``run.json`` files; and the bumps' stories."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runbook_lib.records import attachments
from runbook_lib.records.archive import BumpRecords, bump_folders, place_of, read_records
from runbook_lib.records.chain import LOCK
from runbook_lib.records.pages import html, story
from runbook_lib.records.pages.formats import format_period, format_time
from runbook_lib.records.statement import REPORT, STORY
from runbook_lib.records.status import BumpStatus, bump_status
from runbook_lib.system.files import locked, remove_drafts, write

INDEX = "index.html"
_LOCK = ".index.lock"


def write_index(archive: Path) -> None:
    """Write the index, and each story whose records have changed.  Raises RunbookError if one cannot be written."""
    archive = archive.absolute()
    with locked(archive / _LOCK):  # otherwise a slower writer could overwrite a newer view with an older one
        bumps = []
        remove_drafts(archive)
        for folder in bump_folders(archive):
            records = read_records(folder)
            status = bump_status(folder, records.readable, records.unreadable)
            if status is None:
                continue
            bumps.append((status, records))
            if records.readable:
                _write_story(folder, status, records)
        write(archive / INDEX, html.to_bytes(render(archive, bumps)))


def _write_story(folder: Path, status: BumpStatus, records: BumpRecords) -> None:
    """Write the story unless it was made from these same records: a state can change without a file changing."""
    content = json.dumps([records.readable, records.unreadable], sort_keys=True, default=str)
    made_of = sha256(content.encode("utf-8", "backslashreplace")).hexdigest()
    if f'<meta name="made-of" content="{made_of}">' in attachments.text(folder / STORY):
        return
    page = html.to_bytes(story.render(folder, status, records.readable, made_of))
    with locked(folder / LOCK):  # the lock's holder removes drafts
        write(folder / STORY, html.sealed(page, place_of(folder)))


def render(archive: Path, bumps: Sequence[tuple[BumpStatus, BumpRecords]]) -> str:
    """Return an archive's page from the status and records of each bump."""
    newest_first = sorted(bumps, key=lambda entry: entry[0].active, reverse=True)
    rows = [_row(archive, bump, len(records.readable)) for bump, records in newest_first]
    return html.render(
        "index.html",
        title="Base image bumps",
        made_of="",
        rows=rows,
        states=Counter(row["bump"].state for row in rows),
        repositories=Counter(row["bump"].repository for row in rows),
        worlds=Counter(row["world"] for row in rows),
        as_of=format_time(max((row["bump"].last for row in rows), default="")),
    )


def _row(archive: Path, bump: BumpStatus, records: int) -> Mapping[str, Any]:
    links = {name: url for name, url in bump.links.items() if html.is_web_address(url)}
    report = Path(bump.record) / REPORT
    if bump.step and report.is_file():
        links[f"report of {bump.step}"] = _address(archive, report)
    story_page = Path(bump.story).parent / STORY
    return {
        "bump": bump,
        "world": "practice" if bump.practice else "real",
        "story": _address(archive, story_page) if story_page.is_file() else "",
        "period": format_period(bump.started, bump.last),
        "records": records,
        "links": links,
    }


def _address(archive: Path, file: Path) -> str:
    return quote(file.relative_to(archive).as_posix())
