"""The archive: a folder per bump with the records of its runs, from their beginning to their commit."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs

from runbook_lib.errors import RunbookError
from runbook_lib.record import report, run_file
from runbook_lib.record.run_file import (
    CHECKPOINTS,
    DECISIONS,
    EXECUTED,
    INDEX,
    RUN,
    Identity,
)
from runbook_lib.record.store import RecordStore
from runbook_lib.text.redact import Redactor
from runbook_lib.text.sanitize import visible
from runbook_lib.world.git.command import GitFailed
from runbook_lib.world.machine import clock, provenance
from runbook_lib.world.machine.files import is_draft, locked, make_folder, temporary_folder, write

#: The lock in the git folder, held while the index is written.
_LOCK = "runbook-index.lock"
#: Where bumps have their folders.  Those of git, and drafts, begin with a dot, and may vanish meanwhile.
_PLACES = ("[!.]*/[!.]*/[!.]*", "practice/[!.]*/[!.]*/[!.]*")
#: Seconds after which a draft was left behind by a killed process.
_OLD = 3600.0


def default() -> Path:
    """Return the archive: $RUNBOOK_AUDIT, else ``audit/`` in the clone, or the user's data folder for a package."""
    if variable := os.environ.get("RUNBOOK_AUDIT"):
        return Path(os.path.expanduser(variable)).absolute()
    is_package = provenance.IS_INSTALLED
    root = platformdirs.user_data_path("base-image-runbook") if is_package else provenance.ROOT
    return root / "audit"


def begin(
    root: Path,
    identity: Identity,
    notebook: str,
    parameters: Mapping[str, object],
    *,
    engine: Mapping[str, object] | None = None,
) -> Path:
    """Begin the record of a run: create its folder with a run.json, and return it.  Raises RunbookError.

    ``engine`` is the process that closes it, if not the kernel.  Dead runs of the same bump are closed first.
    """
    started = clock.now()
    run: dict[str, Any] = Redactor(os.environ).data(
        {
            **run_file.empty_run(),
            "id": run_file.record_id(started, notebook),
            "bump": asdict(identity),
            "notebook": {"name": notebook},
            "parameters": dict(parameters),
            "library": provenance.library(),
            "who": provenance.who(os.environ),
            "process": provenance.process(),
            "engine": engine,
            "started": clock.stamp(started),
            "ended": None,
        }
    )
    RecordStore(root).create()
    bump = root.joinpath(*Identity(**run["bump"]).parts)
    make_folder(bump)
    _close_dead(root, bump)
    folder = bump / str(run["id"])
    with temporary_folder(bump) as draft:
        record = draft / folder.name
        make_folder(record)
        write(record / RUN, run_file.to_bytes(run))
        record.rename(folder)
    return folder


def close(folder: Path, notebook: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Close a record, with the executed notebook if there is one, and return its run.

    A run that reported no end was interrupted.  A closed record stays as it is.  Raises RunbookError.
    """
    run = run_file.read(folder)
    if "files" in run:
        return run
    if run["state"] == "running":
        run = run_file.interrupted(run)
    if notebook is not None:
        write(folder / EXECUTED, executed(notebook))
    if (folder / EXECUTED).is_file():
        report.write_report(folder, run)
    return run_file.seal(folder, run)


def attach(root: Path, notebook: Mapping[str, Any]) -> Path:
    """Add an executed notebook and its report to the record that it names, and commit it; return the record's folder.

    Raises RunbookError if there is no such record, or it has another notebook.
    """
    name = run_file.printed_id(notebook)
    folder = find(root, name)
    if folder is None:
        raise RunbookError(
            f"The notebook names {f'the record {name}, which is not' if name else 'no record that is'} in {root}.",
            "Name the executed copy that papermill wrote, and the archive with RUNBOOK_AUDIT.",
        )
    run = run_file.read(folder)
    if "files" not in run and run_file.is_active(run):
        raise RunbookError(f"The run of {folder} has not ended.", "Wait for its end, and run the same command again.")
    run = close(folder)
    content, file = executed(notebook), folder / EXECUTED
    if file.is_file() and file.read_bytes() != content:
        raise RunbookError(f"The record {folder} already has another executed notebook. Nothing was changed.")
    write(file, content)
    report.write_report(folder, run)
    run_file.protect(folder)
    commit(folder)
    return folder


def find(root: Path, name: str) -> Path | None:
    """Return the folder of the record with this ID; None if there is none."""
    forms = _PLACES if name else ()
    return next((file.parent for form in forms for file in root.glob(f"{form}/{name}/{RUN}")), None)


def executed(notebook: Mapping[str, Any]) -> bytes:
    """Return a notebook in its stored form: without secrets, and without widgets, which need a kernel."""
    data = Redactor(os.environ).data(notebook)
    data["metadata"].pop("widgets", None)
    for cell in data["cells"]:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    text = json.dumps(data, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    return text.encode("utf-8", "backslashreplace")


def commit(folder: Path) -> None:
    """Commit a closed record with the bump's decisions, and bring the index up to date.  Raises RunbookError."""
    run = run_file.read(folder)
    root = folder.parents[len(Identity(**run["bump"]).parts)]
    files = run_file.contents(folder)
    decisions = folder.parent / DECISIONS
    if decisions.is_file() and not decisions.is_symlink():
        files.append(decisions)
    sentence = " ".join(run["outcome"]["sentence"].split())
    title = f"{run['notebook']['name']}: {run['state']}"
    message = visible(f"{title}\n\n{sentence}\n\nRecord: {folder.relative_to(root).as_posix()}\n")
    try:
        RecordStore(root).commit(message, files)
    except GitFailed as error:
        raise RunbookError(
            f"The record {folder} is complete, but could not be committed: {error.stderr}",
            "Fix that and run the same command again, which commits it.",
        ) from error
    write_index(root)


def _close_dead(root: Path, bump: Path) -> None:
    """Close the records of a bump whose processes have ended, and commit what is not committed."""
    committed = RecordStore(root).records(bump)
    for folder in sorted(bump.iterdir()):
        if is_draft(folder.name) and time.time() - folder.lstat().st_mtime > _OLD:
            shutil.rmtree(folder, ignore_errors=True)
        if folder.name in committed or folder.is_symlink() or not (folder / RUN).is_file():
            continue
        try:
            run = run_file.read(folder)
        except RunbookError:
            continue  # `audit verify` reports it
        if not run_file.is_active(run):
            close(folder)
            commit(folder)


@dataclass(frozen=True)
class BumpRecords:
    """A bump's records: the runs of the readable ones, oldest first, and the names of the unreadable ones."""

    readable: list[dict[str, Any]]
    unreadable: list[str]


def read_records(bump: Path) -> BumpRecords:
    """Read a bump's records; none without its folder.

    One that is open although its process has ended is ``interrupted``.
    """
    readable: list[dict[str, Any]] = []
    unreadable: list[str] = []
    for folder in sorted(bump.iterdir()) if bump.is_dir() else ():
        if not folder.is_dir() or folder.is_symlink() or folder.name == CHECKPOINTS or is_draft(folder.name):
            continue
        try:
            run = run_file.read(folder)
            if run["state"] == "running" and not run_file.is_active(run):
                run = run_file.interrupted(run)
        except RunbookError:
            unreadable.append(folder.name)  # `audit verify` reports the reason
        else:
            readable.append(run)
    readable.sort(key=lambda run: (run["started"], run["id"]))
    return BumpRecords(readable, unreadable)


def read_all(archive: Path) -> dict[Path, BumpRecords]:
    """Return the records of each bump by its folder, the most recently active bump first."""
    folders = {file.parent.parent for form in _PLACES for file in archive.glob(f"{form}/[!.]*/{RUN}")}
    records = {folder: read_records(folder) for folder in folders}
    by_start = sorted(folders, key=lambda folder: [run["started"] for run in records[folder].readable[-1:]])
    return {folder: records[folder] for folder in reversed(by_start)}


def inputs_of(bump: Path | None, notebook: str = "") -> Iterator[Mapping[str, Any]]:
    """Yield the resolved inputs of a bump's readable records, newest first; with ``notebook``, of that one's."""
    for file in sorted(bump.glob(f"*-{notebook}*/{RUN}"), reverse=True) if bump else ():
        with contextlib.suppress(RunbookError):
            yield run_file.read(file.parent)["inputs"]


def write_index(root: Path) -> None:
    """Write the page with all runs of the archive, the newest first.  Raises RunbookError."""
    with locked(RecordStore(root).folder / _LOCK):  # otherwise a slower writer could replace a newer page
        runs = {folder: records.readable[::-1] for folder, records in read_all(root).items()}
        report.write_index(root / INDEX, runs)
