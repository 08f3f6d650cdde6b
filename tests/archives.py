"""Archives for the tests of what reads them: records of runs that nothing ran."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from runbook_lib.record import archive, run_file
from runbook_lib.record.recorder import Recorder
from runbook_lib.record.run_file import Identity, parse_time
from runbook_lib.record.store import RecordStore
from runbook_lib.world.machine import provenance
from runbook_lib.world.machine.clock import stamp
from runbook_lib.world.machine.files import make_folder, write

#: What the whole runbook looked up when it found a bump ready.
READY = {"inputs": {"requirements": [{"kind": "ci", "state": "met", "evidence": "Run 5.", "blocks": False}]}}
BUMP = Identity("o/r", "main", "dev", "26.04-py3", practice=False)


def record(
    audit: Path,
    name: str,
    state: str,
    sentence: str = "",
    *,
    at: int = 0,
    bump: Identity = BUMP,
    live: bool = True,
    notebook: bool = True,
    files: Mapping[str, str] | None = None,
    **fields: object,
) -> str:
    """Add a run that started so many minutes into the first of April, took half a minute, and is committed.

    ``files`` lie in the record, with an executed ``notebook`` and a report; ``fields`` are more of its run.json.
    """
    started = stamp(parse_time(f"2026-04-01T{at // 60:02}:{at % 60:02}:00Z"))
    steps = [{"name": name, "state": state, "decisions": fields.get("decisions", [])}] if name != "bump" else []
    run = {
        "steps": steps, "id": f"{started[:19].replace('-', '').replace(':', '')}Z-{name}-0000{at:04}", "state": state,
        "bump": asdict(bump), "notebook": {"name": name}, "started": started, "ended": None,
        "outcome": {"sentence": sentence, "next": {}},
        "process": provenance.process() | ({} if live else {"started": 0}), **fields,
    }  # fmt: skip
    folder = audit.joinpath(*bump.parts) / str(run["id"])
    RecordStore(audit).create()
    make_folder(folder)
    texts = {"executed.ipynb": f"{name} {at}", "report.html": "report"} if notebook else {}
    for file, text in (texts | dict(files or {})).items():
        (folder / file).write_text(text)
    if state == "running":
        write(folder / run_file.RUN, run_file.to_bytes(run))
    else:
        run_file.seal(folder, run | {"ended": run["ended"] or started.replace(":00.", ":30.")})
        archive.commit(folder)
    for path in folder.iterdir():
        path.chmod(0o600)  # for tests that change it, as its owner can
    return folder.name


class _Page(HTMLParser):
    """The elements of a page with their attributes, and what it says."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.text += "" if tag in ("a", "code", "em", "span", "strong", "time") else " "

    def handle_data(self, data: str) -> None:
        self.text += "" if self.lasttag in ("style", "script") else data


def elements(page: str) -> list[tuple[str, dict[str, str]]]:
    """All elements of a page, with their attributes."""
    return _Page(page).elements


def words(page: str) -> str:
    """What a page says, its spaces evened out."""
    return " ".join(_Page(page).text.split())


def executed(record: str) -> dict[str, Any]:
    """Return an executed notebook that names this record."""
    output = {"output_type": "stream", "name": "stdout", "text": f"Record: {record}"}
    cell = {"cell_type": "code", "source": "", "metadata": {}, "execution_count": 1, "outputs": [output]}
    return {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def told(record: Recorder, kind: str) -> Any:
    """Return what a run has told its record: a field, or its outcomes of this kind: ``done`` or ``waiting``."""
    if kind not in ("done", "waiting"):
        return record.run[kind]
    state = record.step["state"]
    return [record.run["outcome"]] if kind == state or (kind, state) == ("done", "previewed") else []


def two_bumps(tmp_path: Path) -> Path:
    """Write an archive of two bumps, one with four records, of which one is open."""
    place = tmp_path / "audit"
    record(place, "bump", "running")
    record(place, "01-pin", "done", "4 lines changed.", at=1)
    record(place, "04-run-ci", "waiting", "Waiting for CI.", at=2)
    record(place, "07-sync-check", "done", "In sync.", at=3)
    check = {"name": "the tag", "status": "failed", "detail": "No such tag."}
    practised = Identity("o/r", "dev", "lts", "26.04-py3", practice=True)
    record(place, "bump", "failed", "No such tag.", at=9, bump=practised, checks=[check])
    return place


PIN, CI = "01-pin", "04-run-ci"


def record_folder(audit: Path, name: str) -> Path:
    """Return the folder of the only record of that notebook."""
    (path,) = audit.glob(f"o-r/main/dev-26.04-py3/*-{name}-*")
    return path


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file."""
    data = json.loads(path.read_bytes())
    change(data)
    path.write_text(json.dumps(data))
