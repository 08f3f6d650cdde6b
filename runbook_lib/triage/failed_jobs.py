"""The failed jobs of a CI run on GitHub, each with its cause, and whether it fails on the base branch as well."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from runbook_lib import display
from runbook_lib.clients.github.ci_status import WORKFLOW, branch_of
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.models import WorkflowJob, WorkflowRun
from runbook_lib.clients.gitlab.client import GitLab
from runbook_lib.display import View
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.golden import ci_runs, match_artifacts
from runbook_lib.golden.collect import GoldenSource
from runbook_lib.golden.match_artifacts import Upload
from runbook_lib.transport.ranges import Address
from runbook_lib.triage import read_logs
from runbook_lib.triage.diagnose import FailedJob, Failure
from runbook_lib.triage.read_logs import JobLogs

#: Characters of a cause in a table; the evidence below has it whole.
_SHOWN = 160
BAD = frozenset({"failure", "timed_out", "cancelled", "startup_failure"})
#: The job that sums up a run fails with any other.
SUMMARY = "Nemo_CICD"
_PLACE = re.compile(
    r"https?://[^/\s]+/(?P<repository>[^/\s]+/[^/\s]+)/"
    r"(?:actions/runs/(?P<run>[0-9]{1,18})(?:/(?:attempts/[0-9]+/)?job/(?P<job>[0-9]{1,18}))?|pull/(?P<pull>[0-9]{1,18}))(?:[/?#]\S*)?"
)


@dataclass(frozen=True)
class Seen:
    """A failed job.  ``test`` is ``<model>/<test case>``, empty for a job of another kind.

    ``on_base`` is how the job of this name ended in the newest finished run of the base branch; empty where there is
    none, or it is the same run.
    """

    failure: Failure
    test: str = ""
    on_base: str = ""

    @property
    def row(self) -> dict[str, object]:
        """For a table."""
        it = self.failure
        return {
            "job": it.job,
            "class": it.kind,
            "cause": it.cause if len(it.cause) <= _SHOWN else f"{it.cause[:_SHOWN]} …",
            "on the base branch": self.on_base or "not run",
            "next": it.next,
            "url": it.url,
        }


@dataclass(frozen=True)
class Place:
    """What a person asked about: a run, and of it one job or all that failed."""

    run: WorkflowRun
    job: int | None = None


def find(github: GitHub, place: str, workflow: str = WORKFLOW) -> Place:
    """The run that a text names: the address of a run, job or pull request, ``#12``, a run's number, or a branch.

    A pull request and a branch stand for the newest run of ``workflow`` there: of that which copy-pr-bot starts, or,
    where it is empty, of any.  Raises Refused for another repository's, and RunbookError where there is no run.
    """
    text = place.strip()
    found = _PLACE.fullmatch(text)
    if found and found["repository"].lower() != github.repository.lower():
        raise Refused(f"{text} belongs to {found['repository']}, and the checkout to {github.repository}.")
    if found and found["run"]:
        return Place(github.run(int(found["run"])), int(found["job"]) if found["job"] else None)
    if re.fullmatch(r"[0-9]{5,18}", text):
        return Place(github.run(int(text)))
    number = (found and found["pull"]) or (re.fullmatch(r"#?([0-9]{1,7})", text) or ("", ""))[1]
    if number and not workflow:
        branch = f"#{number}"
        runs = github.runs(head_sha=github.pull(int(number)).head_sha)
    else:
        branch = branch_of(int(number)) if number else text
        runs = github.runs(branch)
    newest = _newest(runs, workflow)
    if newest is None:
        raise RunbookError(
            f"{github.repository} has no run of {workflow or 'CI'} on {branch!r}. Give the address of a run, a job or "
            "a pull request, the number of a pull request, or a branch that CI runs on."
        )
    return Place(newest)


def _newest(runs: Iterable[WorkflowRun], workflow: str) -> WorkflowRun | None:
    return max((run for run in runs if workflow in ("", run.name)), key=lambda run: (run.created, run.id), default=None)


def failed(jobs: Iterable[WorkflowJob]) -> tuple[WorkflowJob, ...]:
    """The jobs that failed, without the one that only sums them up; a hanging one is cancelled by its time limit."""
    return tuple(job for job in jobs if job.conclusion in BAD and not job.name.startswith(SUMMARY))


def triage(
    github: GitHub, asked: Place, base: str = "main", say: Callable[[str], object] = print
) -> tuple[Seen, ...]:  # fmt: skip
    """Why each failed job of a run failed, by name.  Reads of the logs what is needed; prints how far it is."""
    listed = github.jobs(asked.run.id)
    jobs = sorted(failed(listed), key=lambda job: (job.name, job.id))
    if asked.job is not None:
        jobs = [job for job in listed if job.id == asked.job] or [github.job(asked.job)]  # of an earlier attempt
    artifacts = _artifacts(github, asked.run.id, listed)
    asked_of = [FailedJob(job.name, job.url, job.conclusion, job.failed_steps) for job in jobs]
    lie_at = [
        JobLogs(of, *artifacts.get(job.id, (None, 0, False)), Address(*github.log(job.id)))
        for job, of in zip(jobs, asked_of, strict=True)
    ]
    found = read_logs.triage_all(lie_at, progress=_teller(say))
    then = _on_base(github, asked.run, base)
    names = {job.id: ci_runs.functional_tests(job) for job in jobs}
    return tuple(
        Seen(
            failure,
            f"{names[job.id][0].model}/{names[job.id][0].test_case}" if names[job.id] else "",
            then.get(job.name, ""),
        )
        for job, failure in zip(jobs, found, strict=True)
    )


def of_gitlab(source: GoldenSource, say: Callable[[str], object] = print) -> tuple[Seen, ...]:
    """Why each failed functional job of a pipeline failed, by name."""
    gitlab = GitLab.connect()
    jobs = sorted((it for it in source.jobs if it.state not in ("passed", "skipped")), key=lambda it: (it.name, it.id))
    uploads = {it.jobs[0].id: it.upload for it in source.matches}
    lie_at = []
    for job in jobs:
        upload, log = uploads.get(job.id), Address(*gitlab.trace(job.id))
        if upload:
            lie_at.append(JobLogs(FailedJob(job.name), source.address(upload), upload.size, upload.expired, log))
        else:
            lie_at.append(JobLogs(FailedJob(job.name), log=log))
    found = read_logs.triage_all(lie_at, progress=_teller(say))
    return tuple(Seen(it, f"{job.model}/{job.test_case}") for job, it in zip(jobs, found, strict=True))


def _teller(say: Callable[[str], object]) -> Callable[[int, int, str], object]:
    return lambda done, total, _: say(f"{done} of {total} failed jobs read") if done == total else None


def _artifacts(github: GitHub, run_id: int, jobs: Sequence[WorkflowJob]) -> dict[int, tuple[Address | None, int, bool]]:
    """The artifact of each functional job that is surely its own."""
    ran = [it for job in jobs for it in ci_runs.functional_tests(job)]
    uploads = [Upload(it.id, it.name, it.size, it.expired, it.created) for it in github.artifacts(run_id)]
    return {
        it.jobs[0].id: (Address(*github.download(it.upload.id)), it.upload.size, it.upload.expired)
        for it in match_artifacts.match_uploads(ran, uploads, run_id)
        if len(it.jobs) == 1
    }


def _on_base(github: GitHub, run: WorkflowRun, base: str) -> dict[str, str]:
    """How each job ended in the newest finished run of the same workflow on the base branch; the worse of two."""
    # A fork may call its branch as it likes.
    finished = (it for it in github.runs(base) if it.status == "completed" and it.id != run.id and not it.fork)
    newest = _newest(finished, run.name)
    if newest is None:
        return {}
    ended: dict[str, str] = {}
    for job in github.jobs(newest.id):
        if job.conclusion in BAD or job.name not in ended:
            ended[job.name] = f"fails there too: {job.url}" if job.conclusion in BAD else f"{job.conclusion} there"
    return ended


def show(seen: Sequence[Seen]) -> View:
    """Each failed job with its cause, then the evidence, verbatim."""
    shown = display.table((it.row for it in seen), empty="No job failed.")
    for it in seen:
        where = it.failure.where
        title = f"{it.failure.job}: {it.failure.kind}" + (f" ({where.log}, line {where.line})" if where else "")
        if it.failure.evidence:
            shown += display.code("\n".join(it.failure.evidence), title=title)
        told = "; ".join(f"{name}: {value}" for name, value in it.failure.details.items() if name != "error")
        if told:
            shown += display.note(told)
    return shown
