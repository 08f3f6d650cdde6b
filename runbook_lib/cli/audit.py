"""``runbook status`` and ``runbook audit``: the status of each bump, and verification of the archive."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from runbook_lib import display, notebooks
from runbook_lib.cli.command import Answer, command
from runbook_lib.errors import RunbookError
from runbook_lib.record import archive, store
from runbook_lib.record import status as records
from runbook_lib.record.run_file import REPORT, parse_time
from runbook_lib.record.status import BumpStatus
from runbook_lib.world import commands
from runbook_lib.world.machine.clock import ago
from runbook_lib.world.machine.files import read_named


@command("status")
def status() -> Answer:
    """Show the status of each bump in the archive ($RUNBOOK_AUDIT, else audit/)."""
    root = archive.default()
    bumps, warnings = records.status(root), list(records.warnings(root))
    shown = [asdict(bump) | {"next": commands.text(bump.next)} for bump in bumps]
    return Answer(0, {"bumps": shown, "warnings": warnings}, _status_lines(root, bumps), warnings)


def _status_lines(root: Path, bumps: Sequence[BumpStatus]) -> Iterator[str]:
    started = [bump for bump in bumps if bump.is_started]
    if not started:
        yield f"There is no bump in {root}. Start one: {commands.papermill(notebooks.BUMP, {'tag': '26.04-py3'})}"
    for bump in started:
        yield from _lines(bump)
    if others := [bump for bump in bumps if not bump.is_started]:
        yield "Runs that changed nothing:"
    for bump in others:
        yield f"  {bump.title}: {bump.state}. {bump.sentence}".rstrip()


def _lines(bump: BumpStatus) -> Iterator[str]:
    yield f"{bump.title}: {bump.state}"
    yield f"  {bump.step}: {bump.sentence or 'no result yet'}"
    yield f"  since {parse_time(bump.since):%Y-%m-%d %H:%M} UTC ({ago(bump.since)})"
    if bump.next:
        yield f"  next: {commands.text(bump.next)}"
    yield from (f"  {name}: {url}" for name, url in bump.links.items())
    yield f"  record: {bump.record}"
    if (report := Path(bump.record) / REPORT).is_file():
        yield f"  report: {report}"


@click.group()
def audit() -> None:
    """Verify an archive of records, or add a notebook to one."""


@command("audit verify ~/audit", audit)
@click.argument("folder", default="", metavar="[DIR]")
def verify(folder: str) -> Answer:
    """Check every record of the archive DIR against its commit, digests and history.

    Exit status: 0 intact, 1 not intact, 2 there is no archive.
    """
    root = Path(os.path.expanduser(folder)).absolute() if folder else archive.default()
    problems, counts = store.verify(root)
    if not store.RecordStore(root).exists and not problems:  # one that this machine has seen has lost its history
        raise RunbookError(f"There is no archive {root}.", "Name its folder: runbook audit verify DIR")
    result = f"not intact: {display.count(len(problems), 'problem')}" if problems else "intact"
    return Answer(
        int(bool(problems)),
        {"archive": str(root), "problems": problems, "checked": str(counts)},
        [f"{root} is {result}. Checked {counts}."],
        problems,
    )


@command("audit add out.ipynb", audit)
@click.argument("file", metavar="OUT.ipynb")
def add(file: str) -> Answer:
    """Add the executed notebook OUT.ipynb, which names its record, to the record of a run without the engine."""
    try:
        notebook = json.loads(read_named(Path(os.path.expanduser(file))))
        cells = [cell["cell_type"] for cell in notebook["cells"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunbookError(
            f"{file} cannot be read as a notebook: {error}.", "Name the executed copy that papermill wrote."
        ) from error
    folder = archive.attach(archive.default(), notebook)
    report = folder / REPORT
    lines = [f"{display.count(len(cells), 'cell')} added to {folder}", f"Report: {report}"]
    return Answer(0, {"record": str(folder), "report": str(report)}, lines)
