"""``runbook status`` and ``runbook audit``: the status of each bump, and verification of the archive."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from runbook_lib import display, notebooks
from runbook_lib.cli.command import Command, command, json_option
from runbook_lib.errors import RunbookError
from runbook_lib.record import archive
from runbook_lib.record import status as records
from runbook_lib.record import verify as verifying
from runbook_lib.record.run_file import REPORT, parse_time
from runbook_lib.record.status import BumpStatus
from runbook_lib.record.store import RecordStore
from runbook_lib.system.clock import ago
from runbook_lib.system.files import read_named
from runbook_lib.world import commands


@command("status", "RUNBOOK_AUDIT=~/audit runbook status")
@json_option
def status(as_json: bool) -> int:
    """Show the status of each bump in the archive ($RUNBOOK_AUDIT, else audit/)."""
    root = archive.default()
    bumps = records.status(root) if os.path.isdir(root) else []
    if as_json:
        print(
            json.dumps(
                {"version": 1, "bumps": [asdict(bump) | {"next": commands.text(bump.next)} for bump in bumps]}, indent=2
            )
        )
        return 0
    if not any(bump.is_started for bump in bumps):
        print(f"There is no bump in {root}. Start one: {commands.papermill(notebooks.BUMP, {'tag': '26.04-py3'})}")
    for bump in bumps:
        if bump.is_started:
            print("\n".join(_lines(bump)))
    unstarted = [bump for bump in bumps if not bump.is_started]
    if unstarted:
        print("Runs that changed nothing:")
        for bump in unstarted:
            print(f"  {_name(bump)}: {bump.state}. {bump.sentence}".rstrip())
    for bump in bumps:
        if bump.warning:
            print(f"{_name(bump)}: {bump.warning}", file=sys.stderr)
    return 0


def _name(bump: BumpStatus) -> str:
    practice = " (practice)" if bump.practice else ""
    return f"{bump.repository} {bump.base} {bump.image_type} {bump.tag or 'no tag'}{practice}"


def _lines(bump: BumpStatus) -> Iterator[str]:
    yield f"{_name(bump)}: {bump.state}"
    if bump.step:
        yield f"  {bump.step}: {bump.sentence or 'no result yet'}"
    else:
        yield f"  {bump.sentence}"
    if bump.since:
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


@audit.command("verify", cls=Command, epilog="Example: runbook audit verify ~/audit")
@click.argument("folder", default="", metavar="[DIR]")
@json_option
def verify(folder: str, as_json: bool) -> int:
    """Check every record of the archive DIR against its commit, digests and history.

    Exit status: 0 intact, 1 not intact, 2 there is no archive.
    """
    root = Path(folder).expanduser().absolute() if folder else archive.default()
    problems, counts = verifying.verify(root) if os.path.isdir(root) else ([], None)
    if counts is None or (not RecordStore(root).exists and not problems):  # without a record nothing is verified
        raise RunbookError(f"There is no archive {root}. Name its folder: runbook audit verify DIR")
    if as_json:
        checked = {"version": 1, "archive": str(root), "problems": problems, "checked": str(counts)}
        print(json.dumps({**checked, "remarks": counts.remarks}, indent=2))
        return 1 if problems else 0
    for problem in problems:
        print(problem, file=sys.stderr)
    result = "intact"
    if problems:
        result = f"not intact: {display.count(len(problems), 'problem')}"
    print(f"{root} is {result}. Checked {counts}.")
    for remark in counts.remarks:
        print(remark)
    return 1 if problems else 0


@audit.command("add", cls=Command, epilog="Example: runbook audit add out.ipynb")
@click.argument("file", metavar="OUT.ipynb")
@json_option
def add(file: str, as_json: bool) -> int:
    """Add the executed notebook OUT.ipynb, which names its record, to the record of a run without the engine."""
    try:
        notebook = json.loads(read_named(Path(file).expanduser()))
        cells = [cell["cell_type"] for cell in notebook["cells"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunbookError(
            f"{file} cannot be read as a notebook: {error}. Name the executed copy that papermill wrote."
        ) from error
    folder = archive.attach(archive.default(), notebook)
    if as_json:
        print(json.dumps({"version": 1, "record": str(folder), "report": str(folder / REPORT)}, indent=2))
        return 0
    print(f"{display.count(len(cells), 'cell')} added to {folder}\nReport: {folder / REPORT}")
    return 0
