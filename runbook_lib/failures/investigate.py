"""Notebook investigate-ci: the causes of a CI run's failed jobs, and the changes that may be related."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from runbook_lib import display
from runbook_lib.errors import RunbookError
from runbook_lib.failures import failed_jobs
from runbook_lib.golden import ci_runs
from runbook_lib.model import Check, Evidence, Next, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.text.lists import join_first
from runbook_lib.world.git.checkout import Checkout, slug_of
from runbook_lib.world.github import ci_status
from runbook_lib.world.github.models import Pull, WorkflowRun
from runbook_lib.world.ports import Forge, World
from runbook_lib.world.repository import choose

_NAME_ONE = Next.again("Name a branch, or the number or URL of a run, job or pull request:", place="#12")
_MAX_LINES = 300  # of a pull request's difference


@dataclass(frozen=True)
class Investigation:
    """The failed jobs of a run, or the ``problem`` that prevented finding one.

    ``pull`` is the pull request that the run tests, ``labels`` are those that it had when the run began, which select
    the tests, and ``changes`` are its files with their patches.
    """

    place: ci_runs.RequestedRun | None
    failures: tuple[failed_jobs.DiagnosedJob, ...] = ()
    changes: Mapping[str, str] = field(default_factory=dict)
    pull: Pull | None = None
    labels: Collection[str] = ()
    problem: str = ""

    @property
    def files(self) -> list[dict[str, object]]:
        """Table rows of the changed files; those that a failed job names come first."""
        rows: list[dict[str, object]] = []
        for path in self.changes:
            jobs: dict[str, None] = {}
            for failure in self.failures:
                is_of_test = bool(failure.test) and f"/{failure.test}/" in path
                if is_of_test or any(path in line for line in failure.failure.evidence):
                    jobs[failure.failure.job] = None
            rows.append({"file": path, "named by": "; ".join(jobs)})
        return sorted(rows, key=lambda row: (not row["named by"], str(row["file"])))

    def show_changes(self) -> display.View:
        """Show the changed files and their difference, as far as it is not too long."""
        if not self.changes:
            return display.View("", "")
        rows, shown, left_out = self.files, list[str](), list[str]()
        for path in (str(row["file"]) for row in rows):
            lines = self.changes[path].split("\n")
            if self.changes[path] and len(shown) + len(lines) <= _MAX_LINES:
                shown += [f"--- a/{path}", f"+++ b/{path}", *lines]
            else:
                left_out.append(path)
        view = display.note("Files in the pull request; those named in the logs come first:") + display.table(rows)
        view += display.diff("\n".join(shown), empty="No difference can be shown.")
        if left_out:
            view += display.note(f"Too long, or binary: {join_first(left_out, 6)}")
        return view


@dataclass(frozen=True)
class InvestigateCi:
    """The step: it investigates the run that ``place`` names, as ``ci_runs.find_run`` parses it.

    Without a place it is the current branch's run.  A branch with an open pull request, such as
    ``bump/main/dev-26.04-py3``, stands for that pull request.
    """

    place: str = ""

    def look(self, world: World, bump: Bump) -> Investigation:
        """Read the run, its logs, its pull request, and earlier failures of the repository from the records."""
        checkout, github, place = world.checkout, world.github, self.place.strip()
        branch = place or checkout.current_branch()
        if branch is None:
            return Investigation(None, problem="No branch is checked out.")
        if github is None:
            return Investigation(None, problem="GitHub cannot be queried without a token.")
        try:
            name = _pull_of(checkout, github, branch) or branch
            repository = choose(checkout)
            requested = ci_runs.find_run(github, name, repository.ci.workflow)
        except RunbookError as error:
            if place:
                raise
            return Investigation(None, problem=str(error))
        number = ci_status.pull_of(requested.run.head_branch)
        pull = github.pull(number) if number else None
        base, change = (pull.base_ref, f"#{pull.number}") if pull else (bump.base, "this run")
        failures = failed_jobs.diagnose_run(github, requested, base, change, repository.sites.pin_paths)
        failures = failed_jobs.add_history(failures, world.records)
        if pull is None:
            return Investigation(requested, failures)
        labels = ci_status.labels_at(pull.labels, github.labellings(pull.number), requested.run.created)
        return Investigation(requested, failures, github.files(pull.number), pull, labels)

    def plan(self, facts: Investigation, bump: Bump) -> Plan[World]:
        """Return what was found: there is nothing to change."""
        if facts.place is None:
            done = Outcome(facts.problem, _NAME_ONE)
            return Plan(done, (display.note(f"{done.sentence} {done.next}"),))
        run, pull, failures = facts.place.run, facts.pull, facts.failures
        kinds = {failure.failure.kind for failure in failures}
        unknown = [failure.failure.job for failure in failures if failure.failure.kind == "unknown"]
        check = Check("every failed job has a cause", "passed", f"{display.count(len(failures), 'failed job')}.")
        if unknown:
            check = Check(check.name, "skipped", f"The logs of {', '.join(unknown)} do not show one.")
        inputs = {"run_id": run.id, "run_attempt": run.attempt, "head_commit": run.head_sha}
        links = {"CI run": run.url}
        if pull:
            inputs |= {"pull_request": pull.number, "labels": sorted(facts.labels)}
            links["pull request"] = pull.url
        tables = {"failures": [failure.row for failure in failures], "files": facts.files}
        kinds_found = ", ".join(sorted(kinds)) or "no job failed"
        return Plan(
            Outcome(f"CI run {run.id} ({run.conclusion or run.status}): {kinds_found}."),
            (_show(facts, run),),
            checks=(check,),
            evidence=Evidence(inputs, links, tables),
        )


def _show(facts: Investigation, run: WorkflowRun) -> display.View:
    """Show the run and its pull request, its failed jobs with their evidence, and the changes."""
    pull = facts.pull
    rows = {
        "run": run.url, "branch": run.head_branch, "commit": run.head_sha, "ended": run.conclusion or "not yet",
    }  # fmt: skip
    if pull:
        rows |= {"pull request": f"#{pull.number} {pull.title}", "author": pull.author, "base": pull.base_ref}
        rows["labels when the run began"] = ", ".join(sorted(facts.labels)) or "none"
    return display.mapping(rows) + failed_jobs.show(facts.failures) + facts.show_changes()


def _pull_of(checkout: Checkout, github: Forge, branch: str) -> str:
    """Return the open pull request from a branch of the repository or a remote, as ``#12``; empty if there is none."""
    if branch.startswith(("#", "https://", "http://")) or branch.isdigit():
        return ""
    owners = {github.repository.partition("/")[0]: None}
    for remote in checkout.remote_urls():
        with suppress(RunbookError):  # a URL without an owner
            owners[slug_of(checkout.remote_url(remote, push=True) or "").partition("/")[0]] = None
    for owner in owners:
        if pulls := github.pulls(head=f"{owner}:{branch}"):
            return f"#{pulls[0].number}"
    return ""
