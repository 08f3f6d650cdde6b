"""Bumps that a person removed from the board.  Their records stay, and a later run restores a bump."""

import json
from collections.abc import Iterable
from pathlib import Path

from runbook_lib.records.status import BumpStatus
from runbook_lib.system.atomic_files import write

#: The file in the archive's root that maps each dismissed bump's folder to the start of its last run.
_FILE = "dismissed.json"


def read(archive: Path) -> dict[str, str]:
    """Return the start of each dismissed bump's last run, by folder; empty if the file is unreadable."""
    try:
        entries = json.loads((archive / _FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}


def dismiss(archive: Path, bumps: Iterable[BumpStatus]) -> None:
    """Remove these bumps from the board until they run again."""
    entries = read(archive) | {folder_name(archive, bump): bump.active for bump in bumps}
    write(archive / _FILE, json.dumps(entries, indent=2) + "\n")


def folder_name(archive: Path, bump: BumpStatus) -> str:
    """Return the folder of a bump, relative to the archive."""
    return Path(bump.story).parent.relative_to(archive.absolute()).as_posix()
