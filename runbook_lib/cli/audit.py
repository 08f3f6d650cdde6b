"""``runbook status`` and ``runbook audit``: the status of each bump, and verification of the archive."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from runbook_lib import display, notebooks
from runbook_lib.errors import RunbookError
from runbook_lib.record import archive
from runbook_lib.record.run_file import REPORT, parse_time
from runbook_lib.record.store import RecordStore
from runbook_lib.record.verify import verify
from runbook_lib.records.status import BumpStatus, status
from runbook_lib.system.clock import ago
from runbook_lib.system.files import read_named
from runbook_lib.world import commands


def command_status(options: argparse.Namespace) -> int:
    """Print the status of each bump; return 0."""
    root = _existing(options.audit)
    if options.audit and not os.path.isdir(root):
        raise RunbookError(f"There is no archive {root}. Name the folder of the records: runbook status --audit DIR")
    bumps = status(root) if os.path.isdir(root) else []
    if options.json:
        print(json.dumps([asdict(bump) for bump in bumps], indent=2))
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
        yield f"  next: {bump.next}"
    yield from (f"  {name}: {url}" for name, url in bump.links.items())
    yield f"  record: {bump.record}"
    if (report := Path(bump.record) / REPORT).is_file():
        yield f"  report: {report}"


def command_verify(options: argparse.Namespace) -> int:
    """Print all damage to an archive; return 0 if it is intact, 1 if it is not."""
    root = _existing(options.dir)
    problems, counts = verify(root) if os.path.isdir(root) else ([], None)
    if counts is None or (not RecordStore(root).exists and not problems):  # without a record nothing is verified
        raise RunbookError(f"There is no archive {root}. Name its folder: runbook audit verify DIR")
    for problem in problems:
        print(problem, file=sys.stderr)
    result = "intact"
    if problems:
        result = f"not intact: {display.count(len(problems), 'problem')}"
    print(f"{root} is {result}. Checked {counts}.")
    for remark in counts.remarks:
        print(remark)
    return 1 if problems else 0


def command_add(options: argparse.Namespace) -> int:
    """Add an executed notebook to the record of its run; return 0."""
    try:
        notebook = json.loads(read_named(Path(options.notebook).expanduser()))
        cells = [cell["cell_type"] for cell in notebook["cells"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunbookError(
            f"{options.notebook} cannot be read as a notebook: {error}. Name the executed copy that papermill wrote."
        ) from error
    folder = archive.attach(_existing(options.audit), notebook)
    print(f"{display.count(len(cells), 'cell')} added to {folder}\nReport: {folder / REPORT}")
    return 0


def _existing(name: str) -> Path:
    return Path(name).expanduser().absolute() if name else archive.default()
