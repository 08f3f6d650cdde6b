"""``runbook fleet``: the base images of several repositories on one page."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from runbook_lib.errors import RunbookError
from runbook_lib.records.pages import html
from runbook_lib.system.atomic_files import write
from runbook_lib.workflow import fleet
from runbook_lib.workflow.fleet import FleetRow

_HEADS = ("repository", "branch", "type", "image", "since", "newest", "state", "quarantined", "bump")


def command(options: argparse.Namespace) -> int:
    """Print or write the table; return 0, or 2 if something is unknown."""
    file = Path(options.file)
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunbookError(
            f"{file} cannot be read ({error}). It must list repositories as shown in docs/commands.md."
        ) from error
    rows = fleet.read(text, file)
    if options.json:
        print(json.dumps({"version": 1, "rows": [{**asdict(row), "state": row.state} for row in rows]}, indent=2))
    else:
        print(_as_text(rows))
    if options.html:
        page = html.render("fleet.html", title="Base images", made_of="", rows=rows, problems=fleet.problems(rows))
        write(Path(options.html), html.to_bytes(page))
    return 2 if any(row.problem for row in rows) else 0


def _as_text(rows: Sequence[FleetRow]) -> str:
    lines: list[Sequence[str]] = [_HEADS]
    for row in rows:
        bumps = "; ".join(f"{bump.tag}: {bump.state}" for bump in row.bumps)
        pins = " of ".join(filter(None, (row.image_type, row.image)))
        cells = (row.repository, row.ref, pins, ", ".join(row.tags), row.since, row.newest, row.state)
        lines.append((*cells, str(row.quarantined or ""), bumps))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = []
    for line in lines:
        text.append("  ".join(map(str.ljust, line, widths)).rstrip())
    for problem in fleet.problems(rows):
        text += ["", problem]
    return "\n".join(text)
