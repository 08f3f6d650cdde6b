"""Earlier failures in an archive of records: failures with the same cause, and flaky failures of a job."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib.display import count
from runbook_lib.failures.failure import Failure
from runbook_lib.failures.patterns import RERUN
from runbook_lib.record import run_file

_COMPARED = 150  # characters of a cause that are compared; tables store at most 160
#: Maximum number of earlier failures listed for a job, newest first.
_MAX_LISTED = 5


@dataclass(frozen=True)
class History:
    """The earlier failures, oldest first, each with the location of its record."""

    rows: Sequence[tuple[str, dict[str, str]]]

    def add_to(self, failure: Failure, platform: str = "") -> Failure:
        """Add how many earlier runs in the archive had a failure with this class and cause, or a note if it is new.

        Other jobs of the same run failed at the same time, so they are no history, nor is the job of the same name on
        another platform; an earlier attempt of the job is.
        """
        if not self.rows:
            return failure
        signature, current = _signature(failure.kind, failure.cause), _run_of(failure.url)
        places: dict[str, str] = {}
        for place, row in self.rows:
            url = row.get("url", "")
            run = _run_of(url)
            is_same_job = (row.get("job"), row.get("platform", "")) == (failure.job, platform)
            is_earlier = not url or run != current or (is_same_job and url != failure.url)
            if is_earlier and _signature(row.get("class", ""), row.get("cause", "")) == signature:
                places[run or place] = place
        sentence = "not seen before in this archive"
        if places:
            times = "once" if len(places) == 1 else f"{len(places)} times"
            sentence = f"seen {times} in this archive, last on {list(places.values())[-1]}"
        return replace(failure, details={**failure.details, "history": sentence})

    def flaky_runs(self, failure: Failure, platform: str) -> str:
        """Return the earlier runs in which the job failed because of infrastructure; empty if there are none."""
        # By URL, which identifies one attempt, so that a repeated record counts once.
        runs: dict[str, str] = {}
        for place, row in self.rows:
            is_same_job = row.get("job") == failure.job and row.get("platform", "") in (platform, "")
            if is_same_job and row.get("class") in RERUN:
                runs.setdefault(row.get("url", ""), place)
        runs.pop(failure.url, None)
        if not runs:
            return ""
        history = f"{count(len(runs), 'time')}: {', '.join(sorted(runs.values())[-_MAX_LISTED:])}"
        if len(runs) > _MAX_LISTED:
            history += f" and {len(runs) - _MAX_LISTED} earlier"
        return history


def read(archive: Path) -> History:
    """Return the failures in an archive, or in a part of it."""
    rows = []
    for table in sorted(archive.glob("**/*failures.csv"), key=lambda path: path.parent.name):
        day, bump = table.parent.name[:8], table.parent.parent.name
        for row in run_file.rows(table):
            address = f" ({row['url']})" if row.get("url") else ""
            rows.append((f"{day[:4]}-{day[4:6]}-{day[6:]} in {bump}{address}", row))
    return History(rows)


def _run_of(url: str) -> str:
    """Return the address of the run to which the address of a job on GitHub belongs; of others, the job's own."""
    return url.partition("/job/")[0]


def _signature(kind: str, cause: str) -> tuple[str, str]:
    """Return class and cause, without ranks, numbers, addresses and folders."""
    words = re.sub(r"Rank \d{1,6}|A process", "", cause[:_COMPARED])
    words = re.sub(r"(?:/[\w.+-]{1,100})+/", "", words)
    return kind, re.sub(r"0x[0-9a-f]{1,16}|[0-9a-f]{8,40}|\d{1,20}", "#", words).strip(" .…")
