"""Earlier failures of the same kind and cause, from the tables of failures in an archive of records."""

import re
from pathlib import Path

from runbook_lib.records import attachments
from runbook_lib.triage.failure import Failure

_SAME = 120  # characters of a cause that are compared


def earlier(failure: Failure, archive: Path) -> str:
    """Return how often the archive has a failure with this class and cause, and where last; empty where it has none."""
    signature = _signature(failure.kind, failure.cause)
    places: dict[str, str] = {}
    for table in sorted(archive.glob("**/failures.csv"), key=lambda path: path.parent.name):
        for row in attachments.rows(table):
            if _signature(row.get("class", ""), row.get("cause", "")) == signature and row.get("url") != failure.url:
                places[row.get("url") or str(table)] = table.parent.name
    if not places:
        return ""
    times = "once" if len(places) == 1 else f"{len(places)} times"
    return f"seen {times} in this archive, last in {list(places.values())[-1]}"


def _signature(kind: str, cause: str) -> tuple[str, str]:
    """Return class and cause without ranks, numbers, addresses and folders."""
    words = re.sub(r"Rank \d{1,6}|A process", "", cause[:1000])
    words = re.sub(r"(?:/[\w.+-]{1,100})+/", "", words)
    return kind, re.sub(r"0x[0-9a-f]{1,16}|[0-9a-f]{8,40}|\d{1,20}", "#", words).strip(" .…")[:_SAME]
