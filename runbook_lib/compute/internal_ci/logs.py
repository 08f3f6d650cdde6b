"""The cause of a failed build on GitLab, from the job's log."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from runbook_lib import display
from runbook_lib.clients.gitlab.client import GitLab
from runbook_lib.clients.gitlab.models import PipelineJob
from runbook_lib.errors import RunbookError
from runbook_lib.failures import diagnose, known_problems, read_logs
from runbook_lib.failures.failure import FailedJob, Failure
from runbook_lib.text.redact import Redactor
from runbook_lib.transport.ranges import Address, Web

_LARGEST = 2**28  # bytes in a log
_TAIL = 2**20  # bytes at the end of a log that are searched for known problems
_MOST = 4  # jobs; a pin has a row for each platform


@dataclass(frozen=True)
class ExplainedJob:
    """A failed job, its cause, and the known problems whose symptoms are in its log."""

    failure: Failure
    pitfalls: tuple[known_problems.Pitfall, ...]


def explain(gitlab: GitLab, jobs: Sequence[PipelineJob]) -> tuple[ExplainedJob, ...]:
    """Return the causes of failed jobs; if a log cannot be read, the cause says so."""
    with Web(1) as web, TemporaryDirectory(prefix="runbook-") as folder:
        return tuple(_explain(gitlab, web, job, Path(folder, f"job-{job.id}.log")) for job in jobs[:_MOST])


def _explain(gitlab: GitLab, web: Web, job: PipelineJob, log: Path) -> ExplainedJob:
    failed_job, hide = FailedJob(job.name, job.url), Redactor(os.environ).text
    try:
        with log.open("wb") as file:

            def restart() -> None:
                file.seek(0)
                file.truncate()

            web.file(Address(*gitlab.trace(job.id))).download(file.write, restart, _LARGEST)
        failure = read_logs.diagnose_folder(log, failed_job, hide=hide)
    except RunbookError as error:
        cause = f"The job's log could not be read. {error}"
        return ExplainedJob(diagnose.conclude(failed_job, [], hide, cause), ())
    with log.open("rb") as read:
        read.seek(max(0, log.stat().st_size - _TAIL))
        tail = read.read(_TAIL).decode("utf-8", "replace")
    return ExplainedJob(failure, known_problems.find(tail))


def show(explained: Sequence[ExplainedJob]) -> display.View:
    """Show each failed job with its cause, the evidence, and the fix if the problem is known."""
    columns = {"job": "failure.job", "kind": "failure.kind", "cause": "failure.cause", "next": "failure.next"}
    shown = display.table(display.rows(explained, **columns))
    for job in explained:
        if job.failure.evidence:
            shown += display.code("\n".join(job.failure.evidence), title=job.failure.job)
        fixes = [f"{pitfall.sign} {pitfall.cause} {pitfall.fix}" for pitfall in job.pitfalls]
        shown += display.notes(fixes, title="Known pitfalls")
    return shown
