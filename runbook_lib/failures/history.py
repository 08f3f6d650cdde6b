"""The earlier occurrences of a failure, from the tables of failures in the archive."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from runbook_lib import display
from runbook_lib.failures.evidence import Failure
from runbook_lib.failures.patterns import RERUN
from runbook_lib.record import run_file

_COMPARED = 150  # characters of a cause
#: Earlier failures, the oldest first, each with the location of its record.
History = Sequence[tuple[str, dict[str, str]]]


def describe(rows: History, failure: Failure, platform: str = "") -> str:
    """Return how often the class and cause have been seen, and how often infrastructure failed the job.

    Other jobs of the same run failed at the same time, so they are no history, nor is the job of the same name on
    another platform; an earlier attempt of the job is.
    """
    if not rows:
        return ""
    same: dict[str, str] = {}
    flaky: dict[str, str] = {}
    for place, row in rows:
        url, kind = row.get("url", ""), row.get("class", "")
        is_same_job = row.get("job") == failure.job and row.get("platform", "") in (platform, "")
        if url and (url == failure.url or (_run_of(url) == _run_of(failure.url) and not is_same_job)):
            continue
        if kind == failure.kind and _signature(row.get("cause", "")) == _signature(failure.cause):
            same[_run_of(url) or place] = place
        if is_same_job and kind in RERUN:
            flaky[url or place] = place
    seen = _times(same) if same else "not seen before in this archive"
    return f"{seen}; infrastructure failed this job before: {_times(flaky)}" if flaky else seen


def read(archive: Path) -> History:
    """Return the failures in an archive, or in a part of it."""
    rows = []
    for table in sorted(archive.glob("**/*failures.csv"), key=lambda path: path.parent.name):
        day, bump = table.parent.name[:8], table.parent.parent.name
        for row in run_file.rows(table):
            address = f" ({row['url']})" if row.get("url") else ""
            rows.append((f"{day[:4]}-{day[4:6]}-{day[6:]} in {bump}{address}", row))
    return rows


def _times(places: Mapping[str, str]) -> str:
    return f"seen {display.count(len(places), 'time')} in this archive, last on {list(places.values())[-1]}"


def _run_of(url: str) -> str:
    """Return the address of the run to which the address of a job on GitHub belongs; of others, the job's own."""
    return url.partition("/job/")[0]


def _signature(cause: str) -> str:
    """Return a cause without ranks, numbers, addresses and folders."""
    words = re.sub(r"Rank \d{1,6}|A process|(?:/[\w.+-]{1,100})+/", "", cause[:_COMPARED])
    return re.sub(r"0x[0-9a-f]{1,16}|[0-9a-f]{8,40}|\d{1,20}", "#", words).strip(" .…")
