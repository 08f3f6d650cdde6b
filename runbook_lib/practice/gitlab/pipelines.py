"""The pipelines of the practice GitLab: the jobs of each, and their status at a given moment.

Whenever CI of a commit starts on the forge, a pipeline of that commit starts here too; others start by GitLab's API.
Everything else is computed from that time and the clock.  The rules are those of Megatron-LM's
`.gitlab/stages/04.functional-tests.yml` and `tests/test_utils/python_scripts/generate_jet_trigger_job.py`: one bridge
per environment and platform starts a pipeline whose jobs are the tests, in stages named after the models.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from runbook_lib.errors import CannotTell
from runbook_lib.practice.ci import evidence, plan
from runbook_lib.practice.ci.plan import Planned, Situation
from runbook_lib.practice.git import BareRepository
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.state import InternalRunRecord, RunRecord, TicketRecord
from runbook_lib.recipes import rows
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.text import yaml_spans

BUILD = ".gitlab/stages/01.build.yml"
ENVIRONMENTS: Mapping[str, str] = {"lts": "CI_MCORE_LTS_IMAGE", "dev": "CI_MCORE_DEV_IMAGE"}
PLATFORMS = ("dgx_a100", "dgx_h100", "dgx_gb200")
#: The scopes of the recipes that a pipeline runs.
_SCOPES = ("mr", "nightly")
#: When the jobs of a bridge's pipeline are listed, as a fraction of the duration of CI.
_LISTED = 0.42
#: The jobs that build images, with start and end as fractions of the duration; the second needs the first.
_BUILDS = (("test:pre_build_image", 0.04, 0.28), ("test:build_image", 0.30, 0.36))
#: The difference between a run's ID and its pipeline's; IDs of child pipelines and jobs have more digits.
_FIRST = 4_900_000_000


@dataclass(frozen=True)
class GitLabStatus:
    """The status that GitLab shows of a job or a pipeline; times are seconds since 1970."""

    status: str
    started: float | None = None
    completed: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class GitLabJob:
    """A job of a pipeline, and its status now."""

    run: RunRecord
    number: int
    planned: Planned
    status: GitLabStatus

    @property
    def has_artifacts(self) -> bool:
        return self.planned.kind == "functional" and self.status.status in ("success", "failed")

    @property
    def log(self) -> str:
        """The log of the job, empty until it has ended."""
        if self.status.completed is None:
            return ""
        return evidence.log(self.planned, self.run.created + self.planned.starts)


@dataclass(frozen=True)
class PracticePipeline:
    """A pipeline of a run, and the pipelines that its bridges start; ``name`` is that of its own bridge, if any."""

    id: int
    run: RunRecord
    jobs: tuple[Planned, ...]
    name: str = ""
    children: "tuple[PracticePipeline, ...]" = ()
    skipped: bool = False

    @property
    def builds_pass(self) -> bool:
        return all(job.conclusion == "success" for job in self.jobs)

    def jobs_at(self, now: float) -> list[GitLabJob]:
        """Return the jobs of the pipeline."""
        first = 100 * (self.id if self.name else self.id * 100) + 1
        return [GitLabJob(self.run, number, job, self._job_at(job, now)) for number, job in enumerate(self.jobs, first)]

    def has_started(self, now: float) -> bool:
        """Return True if the pipeline exists, which its bridge starts."""
        stop = now if self.run.stopped is None else min(now, self.run.stopped)
        return not self.skipped and stop >= self.run.created + min((job.appears for job in self.jobs), default=0.0)

    def at(self, now: float) -> GitLabStatus:
        """Return the status of the pipeline, or of the bridge if that has not started it."""
        if self.skipped:
            return GitLabStatus("skipped")
        if not self.has_started(now):
            return GitLabStatus("created" if self.run.stopped is None else "canceled")
        # A failure of the tests of lts does not fail the parent, as upstream.
        statuses = [(job.allow_failure, self._job_at(job, now)) for job in self.jobs]
        if self.builds_pass:
            statuses += [(child.name.startswith("functional:run_lts"), child.at(now)) for child in self.children]
        names = {status.status for _, status in statuses}
        if names & {"created", "pending", "running"}:
            return GitLabStatus("running")
        if "canceled" in names:
            return GitLabStatus("canceled")
        failed = any(status.status == "failed" and not allow_failure for allow_failure, status in statuses)
        return GitLabStatus("failed" if failed else "success")

    def _job_at(self, job: Planned, now: float) -> GitLabStatus:
        if job.conclusion == "skipped":
            return GitLabStatus("skipped")
        status = plan.job_at(job, self.run.created, now, self.run.stopped)
        if status is None or status.status == "queued":
            return GitLabStatus("pending")
        if status.completed is None:
            return GitLabStatus("running", status.started)
        times = status.started, status.completed
        if status.conclusion == "success":
            return GitLabStatus("success", *times)
        if status.completed < self.run.created + job.ends:
            return GitLabStatus("canceled", *times)
        # A job that exceeded its time limit is cancelled on GitHub, but failed on GitLab, with the reason.
        return GitLabStatus("failed", *times, "job_execution_timeout" if job.cause == "hang" else "script_failure")


class Pipelines:
    """The pipelines of one project.  Each method is called inside a transaction of the hub."""

    def __init__(self, hub: Hub, repository: BareRepository) -> None:
        self.hub, self.repository = hub, repository
        # The jobs of a run do not change, and are computed from many files.
        self._jobs: dict[int, tuple[tuple[Planned, ...], dict[str, tuple[Planned, ...]]]] = {}

    def all(self) -> list[PracticePipeline]:
        """Return the pipelines that were not started by a bridge, newest first."""
        self.hub.tickets()  # a push since the last request may have stopped one
        runs: list[RunRecord] = [*self.hub.store.all(RunRecord), *self.hub.store.all(InternalRunRecord)]
        newest = sorted(runs, key=lambda run: -run.id)
        return [self._pipeline(run) for run in newest if run.internal != "none"]

    def find(self, number: int) -> PracticePipeline:
        """Return a pipeline by its number; a bridge's pipeline exists once started.  Raises LookupError."""
        if run := self._run(number):
            return self._pipeline(run)
        if parent := self._run(number // 100):
            for child in self._pipeline(parent).children:
                if child.id == number and child.has_started(self.hub.clock()):
                    return child
        raise LookupError(number)

    def find_job(self, number: int) -> GitLabJob:
        """Return a job by its number.  Raises LookupError."""
        owner = number // 100
        if owner % 100 == 0:  # a job of the parent
            owner //= 100
        jobs = self.find(owner).jobs_at(self.hub.clock())
        return {job.number: job for job in jobs}[number]

    def tip(self, branch: str) -> str | None:
        """Return the newest commit of a branch: pushed here, or mirrored from the forge; None without it."""
        return self.repository.tips().get(branch) or self.hub.home.tips().get(branch)

    def start(self, branch: str, tip: str, variables: Mapping[str, str]) -> PracticePipeline:
        """Start a pipeline for a branch's newest commit, and cancel the branch's running pipelines."""
        hub, now = self.hub, self.hub.clock()
        hub.home.fetch(self.repository, tip)
        for run in hub.store.all(InternalRunRecord):
            if run.head_branch == branch and run.stopped is None:
                hub.store.change(run, stopped=now)
        main = hub.home.tips()["main"]
        run = hub.store.create(
            InternalRunRecord, run_number=hub.store.next("run"), pull=0, title=branch, author="", head_sha=tip,
            head_branch=branch, merge_sha=tip, base_sha=hub.home.compare(main, tip)[2] or main, labels=[], created=now,
            event="api", seconds=hub.seconds, variables=[f"{name}={value}" for name, value in variables.items()],
            broken=hub.store.setting("broken jobs", []), how=hub.store.setting("broken how", ""),
        )  # fmt: skip
        return self._pipeline(run)

    def situations(self, run: RunRecord, *more: str) -> dict[str, Situation]:
        """Return the inputs of the tests of each environment, including the golden files in ``more`` folders.

        GitLab tests the head, not its merge into the base.
        """
        home, head, base = self.hub.home, run.head_sha, run.base_sha
        folders = [*self.hub.compared_paths(base, head), *more]
        situation = Situation(
            frozenset(), True, run.seconds, "", "", home.texts(head, rows.FOLDER), home.texts(head, *folders),
            home.texts(base, *folders),
        )  # fmt: skip
        new, old = _images(self._build(head)), _images(self._build(base))
        situations = {}
        for environment, name in ENVIRONMENTS.items():
            situations[environment] = replace(situation, image=new.get(name, ""), base_image=old.get(name, ""))
        return situations

    def _build(self, commit: str) -> str:
        return self.hub.home.texts(commit, BUILD).get(BUILD, "")

    def _run(self, number: int) -> RunRecord | None:
        store = self.hub.store
        if own := store.find(InternalRunRecord, number + _FIRST):
            return own
        run = store.find(RunRecord, number + _FIRST)
        if run and (pull := store.find(TicketRecord, run.pull)):
            self.hub.refreshed(pull)
            run = store.find(RunRecord, run.id) or run
        return run if run and run.internal != "none" else None

    def _pipeline(self, run: RunRecord) -> PracticePipeline:
        if run.id not in self._jobs:
            self._jobs[run.id] = self._plan(run)
        builds, bridges = self._jobs[run.id]
        skipped = run.internal == "skipped"
        parent = PracticePipeline(run.id - _FIRST, run, () if skipped else builds, skipped=skipped)
        children = []
        for number, (name, jobs) in enumerate(bridges.items(), 1):
            blocked = skipped or not parent.builds_pass
            children.append(PracticePipeline(parent.id * 100 + number, run, jobs, name, skipped=blocked))
        return replace(parent, children=tuple(children))

    def _plan(self, run: RunRecord) -> tuple[tuple[Planned, ...], dict[str, tuple[Planned, ...]]]:
        """Return the jobs that build images, and name of a bridge → the jobs of the pipeline that it starts."""
        builds: tuple[Planned, ...] = ()
        if "BUILD=no" not in run.variables:
            builds = build_jobs(self._build(run.head_sha), run.seconds, run.broken, run.how)
        bridges = {}
        if "FUNCTIONAL_TEST=no" not in run.variables:
            situations = self.situations(run)
            recipe_rows = situations["dev"].rows
            for environment, platform in itertools.product(ENVIRONMENTS, PLATFORMS):
                jobs = _test_jobs(situations[environment], recipe_rows, environment, platform)
                bridges[f"functional:run_{environment}_{platform}"] = tuple(jobs)
        return builds, bridges


def _images(build: str) -> dict[str, str]:
    """Return name of an image of CI → its base image, from the text of the build matrix; empty for another form."""
    try:
        return {str(row["IMAGE"]): str(row["BASE_IMAGE"]) for row in _matrix(build, _BUILDS[0][0])}
    except (KeyError, TypeError):
        return {}


def build_jobs(build: str, seconds: float, broken: Iterable[str] = (), how: str = "") -> tuple[Planned, ...]:
    """Return the jobs that build images, one per row of a matrix, with GitLab's names.

    Jobs whose name contains one of ``broken`` fail, and their log contains ``how``; jobs that need them are skipped.
    """
    jobs: list[Planned] = []
    for name, start, end in _BUILDS:
        needs_failed = any(job.conclusion == "failure" for job in jobs)
        for number, row in enumerate(_matrix(build, name)):
            full_name = f"{name}: [{', '.join(map(str, row.values()))}]"
            end_of_row = (end - 0.02 * (number % 4)) * seconds  # rows end one after another
            job = Planned(full_name, "build", 0.0, start * seconds, end_of_row, "success", model="build")
            if needs_failed:
                job = replace(job, conclusion="skipped")
            elif any(part in full_name for part in broken):
                job = replace(job, conclusion="failure", cause="broken", detail=how)
            jobs.append(job)
    return tuple(jobs)


def _matrix(build: str, job: str) -> list[Mapping[str, object]]:
    try:
        return list(yaml_spans.load(build)[job]["parallel"]["matrix"])
    except (CannotTell, KeyError, TypeError):
        return []


def _test_jobs(
    situation: Situation, recipe_rows: Iterable[RecipeRow], environment: str, platform: str
) -> list[Planned]:
    jobs: list[Planned] = []
    seconds = situation.seconds
    for row in plan.select(recipe_rows, _SCOPES, environment, platform):
        job = plan.functional_job(situation, row, environment, platform)
        if job.cause == "nccl":  # GitLab retries such a job automatically
            job = replace(job, conclusion="success", cause="")
        jobs.append(replace(job, name=job.test_case, appears=_LISTED * seconds))
    if not jobs:
        name, times = "empty-pipeline-placeholder", (_LISTED * seconds, 0.5 * seconds, 0.51 * seconds)
        jobs = [Planned(f"{name}-job", "placeholder", *times, "success", platform=platform, model=name)]
    return jobs
