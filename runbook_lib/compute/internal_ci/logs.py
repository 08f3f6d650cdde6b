"""The cause of a failed build on GitLab, from the job's log."""

from collections.abc import Sequence

from runbook_lib import display
from runbook_lib.clients.gitlab.models import PipelineJob
from runbook_lib.failures import known_problems, read_logs
from runbook_lib.failures.failure import FailedJob, Failure
from runbook_lib.failures.known_problems import Pitfall
from runbook_lib.failures.read_logs import JobLogs
from runbook_lib.world.ports import SecondCi

_MOST = 4  # jobs; a pin has a row for each platform


def explain(gitlab: SecondCi, jobs: Sequence[PipelineJob]) -> tuple[Failure, ...]:
    """Return the causes of failed jobs; if a log cannot be read, the cause says so."""
    logs = [JobLogs(FailedJob(job.name, job.url), log=gitlab.log(job.id)) for job in jobs[:_MOST]]
    return read_logs.diagnose_all(logs)


def pitfalls(failure: Failure) -> tuple[Pitfall, ...]:
    """Return the known problems whose symptoms are in a failure's evidence."""
    return known_problems.find("\n".join([failure.cause, *failure.evidence]))


def show(failures: Sequence[Failure]) -> display.View:
    """Show each failed job with its cause, the evidence, and the fix if the problem is known."""
    shown = display.table(display.rows(failures, job="job", kind="kind", cause="cause", next="next"))
    for failure in failures:
        if failure.evidence:
            shown += display.code("\n".join(failure.evidence), title=failure.job)
        fixes = [f"{pitfall.sign} {pitfall.cause} {pitfall.fix}" for pitfall in pitfalls(failure)]
        shown += display.notes(fixes, title="Known pitfalls")
    return shown
