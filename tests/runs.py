"""Archives for the tests of what reads them: records of runs that nothing ran."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runbook_lib.record import archive, run_file
from runbook_lib.record.store import Store
from runbook_lib.records.statement import Identity, parse_time
from runbook_lib.system import provenance
from runbook_lib.system.clock import stamp
from runbook_lib.system.files import make_folder, write

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
    run = {
        "id": f"{started[:19].replace('-', '').replace(':', '')}Z-{name}-0000{at:04}", "state": state,
        "bump": bump.as_json(), "notebook": {"name": name}, "started": started, "ended": None,
        "outcome": {"sentence": sentence, "next": ""},
        "process": provenance.process() | ({} if live else {"started": 0}), **fields,
    }  # fmt: skip
    folder = audit.joinpath(*bump.parts) / str(run["id"])
    Store(audit).create()
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


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file."""
    data = json.loads(path.read_bytes())
    change(data)
    path.write_text(json.dumps(data))
