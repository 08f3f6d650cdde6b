"""Any CI run, job or pull request looked into: why its jobs failed, and which changed files may have to do with it."""

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
class Findings:
    """``touched`` are the files that the run's pull request changes; a row each, those that the logs name first."""

    asked: RequestedRun | None
    seen: tuple[DiagnosedJob, ...] = ()
    touched: tuple[dict[str, object], ...] = ()

    def show(self) -> View:
        """The run, its failed jobs with their evidence, and the files that could matter."""
        if self.asked is None:
            return display.note("No run was named, so nothing is looked into. Give one, such as -r place '#12'.")
        run = self.asked.run
        about = {
            "run": run.url,
            "branch": run.head_branch,
            "commit": run.head_sha,
            "ended": run.conclusion or "not yet",
        }
        shown = display.facts(**about) + failed_jobs.show(self.seen)
        if self.touched:
            shown += display.note("Files of the pull request, those that the logs name first:") + display.table(
                self.touched
            )
        return shown


def look(
    checkout: Checkout, github: GitHub | None, place: str, base: str = "main", say: Callable[[str], object] = print
) -> Findings:  # fmt: skip
    """Look into what ``place`` names, as ``failures.find`` takes it.  Changes nothing."""
    if not place or github is None:
        return Findings(None)
    asked = failed_jobs.find_run(github, place, choose(checkout).workflow)
    seen = failed_jobs.diagnose_run(github, asked, base, say)
    number = re.fullmatch(r"pull-request/([0-9]{1,18})", asked.run.head_branch)
    return Findings(asked, seen, _touched(checkout, github.files(int(number[1])), seen) if number else ())


def _touched(
    checkout: Checkout, files: tuple[str, ...], seen: tuple[DiagnosedJob, ...]
) -> tuple[dict[str, object], ...]:
    texts = checkout.read(PLACES, "HEAD")
    named = owners(next((text for text in texts.values() if text), ""), files)
    rows: list[dict[str, object]] = []
    for path in files:
        jobs = [it.failure.job for it in seen if _names(it, path)]
        rows.append({"file": path, "owners": " ".join(named[path]), "named by": "; ".join(dict.fromkeys(jobs))})
    return tuple(sorted(rows, key=lambda row: (not row["named by"], str(row["file"]))))


def _names(seen: DiagnosedJob, path: str) -> bool:
    """Whether the evidence of a failure has the path in it, or the path is one of its test's files."""
    return any(path in line for line in seen.failure.evidence) or bool(seen.test and f"/{seen.test}/" in path)


def verify(step: StepRecord, found: Findings) -> View:
    """Tell the record what was found."""
    if found.asked is None:
        step.done("No run was named, so nothing was looked into.", "Give one: -r place '#12', a branch, or an address.")
        return display.note("There is nothing to verify.")
    run = found.asked.run
    step.add_inputs(run_id=run.id, run_attempt=run.attempt, head_commit=run.head_sha)
    step.link("CI run", run.url)
    step.table("failures", [it.row for it in found.seen])
    step.table("files", found.touched)
    unknown = [it.failure.job for it in found.seen if it.failure.kind == "unknown"]
    told = f"{', '.join(unknown)} told none." if unknown else f"{display.count(len(found.seen), 'failed job')}."
    step.check(Check("every failed job has a cause", "skipped" if unknown else "passed", told))
    kinds = ", ".join(sorted({it.failure.kind for it in found.seen})) or "no job failed"
    step.done(f"CI run {run.id} ({run.conclusion or run.status}): {kinds}.")
    return display.note("The checks are in the record below.")
