"""Why a build on GitLab failed: its log, read in pieces, tells the cause, and which known pitfall it is."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runbook_lib import display
from runbook_lib.clients.gitlab.client import GitLab
from runbook_lib.clients.gitlab.models import Job
from runbook_lib.display import View
from runbook_lib.errors import RunbookError
from runbook_lib.system.temporary import TemporaryFolder
from runbook_lib.text.redact import Redactor
from runbook_lib.transport.ranges import Address, Web
from runbook_lib.triage import diagnose, known_problems, read_logs
from runbook_lib.triage.diagnose import FailedJob, Failure
from runbook_lib.triage.known_problems import Pitfall

_LARGEST = 2**28  # bytes of a log
_END = 2**20  # bytes of its end, in which pitfalls are looked for
_MOST = 4  # jobs; a pin has a row for each platform


@dataclass(frozen=True)
class Explained:
    """A failed job, why it failed, and the pitfalls whose signs its log shows."""

    failure: Failure
    pitfalls: tuple[Pitfall, ...]


def explain(gitlab: GitLab, jobs: Sequence[Job]) -> tuple[Explained, ...]:
    """Why these jobs failed.  What cannot be read is said in the failure."""
    with Web(1) as web, TemporaryFolder() as folder:
        return tuple(_explained(gitlab, web, job, folder / f"job-{job.id}.log") for job in jobs[:_MOST])


def _explained(gitlab: GitLab, web: Web, job: Job, log: Path) -> Explained:
    asked, hide = FailedJob(job.name, job.url), Redactor(os.environ).text
    try:
        with log.open("wb") as into:

            def restart() -> None:
                into.seek(0)
                into.truncate()

            web.file(Address(*gitlab.trace(job.id))).whole(into.write, restart, _LARGEST)
        failure = read_logs.of_folder(log, asked, hide=hide)
    except RunbookError as error:
        return Explained(diagnose.conclude(asked, [], hide, f"The job's log could not be read. {error}"), ())
    with log.open("rb") as whole:
        whole.seek(max(0, log.stat().st_size - _END))
        end = whole.read(_END).decode("utf-8", "replace")
    return Explained(failure, known_problems.find(end))


def show(found: Sequence[Explained]) -> View:
    """Each failed job with its cause, the lines that show it, and the mend of a known pitfall."""
    shown = display.table(
        {"job": it.failure.job, "kind": it.failure.kind, "cause": it.failure.cause, "next": it.failure.next}
        for it in found
    )
    for it in found:
        if it.failure.evidence:
            shown += display.code("\n".join(it.failure.evidence), title=it.failure.job)
        told = [f"{known.sign} {known.cause} {known.mend}" for known in it.pitfalls]
        if told:
            shown += display.notes(told, title="Known pitfalls")
    return shown
