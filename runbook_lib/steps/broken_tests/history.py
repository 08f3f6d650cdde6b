"""Earlier failures of infrastructure, by job, from the records of this bump and of others of the repository."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from runbook_lib import notebooks
from runbook_lib.records import attachments
from runbook_lib.triage.failed_jobs import DiagnosedJob

#: Of a job, the newest that are listed.
_MAX_LISTED = 5


def with_history(jobs: Iterable[DiagnosedJob], records: Path | None) -> tuple[DiagnosedJob, ...]:
    """Add to each failed job the earlier runs in which infrastructure failed it; ``records`` is the bump's folder."""
    jobs = tuple(jobs)
    if records is None or not jobs:
        return jobs
    names = {job.failure.job for job in jobs}
    earlier: dict[tuple[str, str], dict[str, str]] = {}
    pattern = f"*/*/*-{notebooks.BROKEN_TESTS}-*/failures.csv"
    for table in sorted(records.parent.parent.glob(pattern), key=lambda path: path.parent.name):
        day, bump = table.parent.name[:8], table.parent.parent.name
        for row in attachments.rows(table):
            if row.get("job") in names and row.get("class") == "flaky infrastructure":
                # The address of a job is that of one attempt: a record that was repeated counts once.
                place = f"{day[:4]}-{day[4:6]}-{day[6:]} in {bump} ({row.get('url', '')})"
                earlier.setdefault((row["job"], row.get("platform", "")), {}).setdefault(row.get("url", ""), place)
    return tuple(replace(job, flaky_before=_listed(job, earlier)) for job in jobs)


def _listed(job: DiagnosedJob, earlier: dict[tuple[str, str], dict[str, str]]) -> str:
    runs: dict[str, str] = {}
    for platform in {job.platform, ""}:
        runs |= earlier.get((job.failure.job, platform), {})
    runs.pop(job.failure.url, None)
    if not runs:
        return ""
    more = f" and {len(runs) - _MAX_LISTED} earlier" if len(runs) > _MAX_LISTED else ""
    return f"{len(runs)} times: {', '.join(sorted(runs.values())[-_MAX_LISTED:])}{more}"
