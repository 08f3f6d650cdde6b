"""The causes of a CI run's failed jobs, and the changed files that may be related."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from runbook_lib import display
from runbook_lib.checks import Check
from runbook_lib.clients.github.client import GitHub
from runbook_lib.display import View
from runbook_lib.git.checkout import Checkout
from runbook_lib.records.step_record import StepRecord
from runbook_lib.text.codeowners import PLACES, owners
from runbook_lib.triage import failed_jobs
from runbook_lib.triage.failed_jobs import DiagnosedJob, RequestedRun
from runbook_lib.workflow.repository import choose


@dataclass(frozen=True)
class Investigation:
    """The failed jobs of a run, None if none was named.  ``changed_files`` are table rows of its pull request."""

    place: RequestedRun | None
    failures: tuple[DiagnosedJob, ...] = ()
    changed_files: tuple[dict[str, object], ...] = ()

    def show(self) -> View:
        """Show the run, its failed jobs with their evidence, and the changed files."""
        if self.place is None:
            return display.note("No run was named, so there is nothing to show. Name one, such as -r place '#12'.")
        run = self.place.run
        shown = display.facts(
            run=run.url, branch=run.head_branch, commit=run.head_sha, ended=run.conclusion or "not yet"
        )
        shown += failed_jobs.show(self.failures)
        if self.changed_files:
            shown += display.note("Files of the pull request, those that the logs name first:")
            shown += display.table(self.changed_files)
        return shown


def look(
    checkout: Checkout, github: GitHub | None, place: str, base: str = "main", say: Callable[[str], object] = print
) -> Investigation:  # fmt: skip
    """Investigate the run that ``place`` names, as ``failed_jobs.find_run`` parses it.  Changes nothing."""
    if not place or github is None:
        return Investigation(None)
    requested = failed_jobs.find_run(github, place, choose(checkout).workflow)
    failures = failed_jobs.diagnose_run(github, requested, base, say)
    number = re.fullmatch(r"pull-request/([0-9]{1,18})", requested.run.head_branch)
    if number is None:
        return Investigation(requested, failures)
    return Investigation(requested, failures, _file_rows(checkout, github.files(int(number[1])), failures))


def _file_rows(
    checkout: Checkout, files: tuple[str, ...], failures: tuple[DiagnosedJob, ...]
) -> tuple[dict[str, object], ...]:  # fmt: skip
    texts = checkout.read(PLACES, "HEAD")
    code_owners = owners(next((text for text in texts.values() if text), ""), files)
    rows: list[dict[str, object]] = []
    for path in files:
        jobs = dict.fromkeys(failure.failure.job for failure in failures if _is_related(failure, path))
        rows.append({"file": path, "owners": " ".join(code_owners[path]), "named by": "; ".join(jobs)})
    return tuple(sorted(rows, key=lambda row: (not row["named by"], str(row["file"]))))


def _is_related(failure: DiagnosedJob, path: str) -> bool:
    """Return True if the evidence of a failure contains the path, or the path is one of its test's files."""
    if failure.test and f"/{failure.test}/" in path:
        return True
    return any(path in line for line in failure.failure.evidence)


def verify(step: StepRecord, investigation: Investigation) -> View:
    """Record the result."""
    if investigation.place is None:
        step.done("No run was named.", "Name one: -r place '#12', a branch, or an address.")
        return display.note("There is nothing to verify.")
    run, failures = investigation.place.run, investigation.failures
    step.add_inputs(run_id=run.id, run_attempt=run.attempt, head_commit=run.head_sha)
    step.link("CI run", run.url)
    step.table("failures", [failure.row for failure in failures])
    step.table("files", investigation.changed_files)
    kinds = {failure.failure.kind for failure in failures}
    unknown = [failure.failure.job for failure in failures if failure.failure.kind == "unknown"]
    check = Check("every failed job has a cause", "passed", f"{display.count(len(failures), 'failed job')}.")
    if unknown:
        check = Check(check.name, "skipped", f"The logs of {', '.join(unknown)} show none.")
    step.check(check)
    step.done(f"CI run {run.id} ({run.conclusion or run.status}): {', '.join(sorted(kinds)) or 'no job failed'}.")
    return display.note("The checks are in the record below.")
