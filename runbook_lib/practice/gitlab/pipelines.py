"""The pipelines of the practice GitLab: which exist, and what each runs.

Whenever CI of a commit starts on the forge, a pipeline of that commit starts here too; others start by GitLab's API.
Everything else follows from that moment and the clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from runbook_lib.practice.ci import plan, suites
from runbook_lib.practice.git import BareRepository
from runbook_lib.practice.gitlab import ci as gitlab_ci
from runbook_lib.practice.gitlab.ci import GitLabStatus, PlannedBridge
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.state import InternalRunRecord, RunRecord, TicketRecord

#: The ids of runs minus this are those of their pipelines; ids of child pipelines and jobs have more digits.
_FIRST = 4_900_000_000


@dataclass(frozen=True)
class PracticePipeline:
    """A pipeline of a run; ``bridge`` is the number of the bridge that started it, or 0 for the parent.

    ``builds`` are the jobs of the parent.
    """

    run: RunRecord
    bridges: tuple[PlannedBridge, ...]
    builds: tuple[plan.Planned, ...] = ()
    bridge: int = 0

    @property
    def id(self) -> int:
        if self.bridge:
            return self.parent_id * 100 + self.bridge
        return self.parent_id

    @property
    def parent_id(self) -> int:
        return self.run.id - _FIRST

    @property
    def source(self) -> str:
        """GitLab's name for what started the pipeline."""
        if self.bridge:
            return "parent_pipeline"
        return "api" if isinstance(self.run, InternalRunRecord) else "push"

    @property
    def runs_bridges(self) -> bool:
        """False if an image was not built, or if the pipeline is skipped."""
        return not self.skipped and gitlab_ci.all_passed(self.builds)

    @property
    def skipped(self) -> bool:
        """True if the entire pipeline is skipped."""
        return self.run.internal == "skipped"

    @property
    def jobs(self) -> tuple[plan.Planned, ...]:
        if self.bridge:
            return self.bridges[self.bridge - 1].jobs
        if self.skipped:
            return ()
        return self.builds

    def job_number(self, position: int) -> int:
        """Return the number of a job by its position, from 1."""
        return (self.parent_id * 100 + self.bridge) * 100 + position

    def child(self, number: int) -> "PracticePipeline":
        """Return the pipeline that a bridge starts; ``number`` is the position of the bridge, from 1."""
        return PracticePipeline(self.run, self.bridges, self.builds, number)

    def children(self) -> "list[PracticePipeline]":
        """Return the pipelines of all bridges; a child has none."""
        if self.bridge:
            return []
        return [self.child(number) for number in range(1, len(self.bridges) + 1)]

    def at(self, now: float) -> GitLabStatus:
        """Return the status of the pipeline."""
        stopped, created = self.run.stopped, self.run.created
        if self.bridge and not self.runs_bridges:
            return GitLabStatus("skipped")
        if self.bridge:
            return gitlab_ci.bridge_at(self.bridges[self.bridge - 1], created, now, stopped)
        if self.skipped:
            return GitLabStatus("skipped")
        return gitlab_ci.pipeline_at(self.builds, self.bridges, created, now, stopped)

    def job_at(self, job: plan.Planned, now: float) -> GitLabStatus:
        """Return the status of a job of the pipeline."""
        return gitlab_ci.job_at(job, self.run.created, now, self.run.stopped)


class Pipelines:
    """The pipelines of one project.  Each method is called inside a transaction of the hub."""

    def __init__(self, hub: Hub, repository: BareRepository) -> None:
        self.hub, self.repository = hub, repository
        # The jobs of a run do not change, and are computed from many files.
        self._plans: dict[int, tuple[tuple[PlannedBridge, ...], tuple[plan.Planned, ...]]] = {}

    def all(self) -> list[PracticePipeline]:
        """Return the pipelines that were not started by a bridge, newest first."""
        self.hub.tickets()  # a push since the last request may have stopped one
        runs: list[RunRecord] = [*self.hub.store.all(RunRecord), *self.hub.store.all(InternalRunRecord)]
        newest = sorted(filter(_has_pipeline, runs), key=lambda run: -run.id)
        return [PracticePipeline(run, *self._plan(run)) for run in newest]

    def find(self, number: int) -> PracticePipeline | None:
        """Return a pipeline by its number, or None; that of a bridge once it has started."""
        if run := self._run(number):
            return PracticePipeline(run, *self._plan(run))
        run, bridge = self._run(number // 100), number % 100
        if run is None:
            return None
        parent = PracticePipeline(run, *self._plan(run))
        if not 0 < bridge <= len(parent.bridges):
            return None
        child = parent.child(bridge)
        if not self.has_started(child):
            return None
        return child

    def find_job(self, number: int) -> tuple[PracticePipeline, int] | None:
        """Return a job by its number: its pipeline, and its position there, from 1; None without it."""
        owner, position = number // 100, number % 100
        if owner % 100 == 0:  # a job of the parent
            owner //= 100
        pipeline = self.find(owner)
        if pipeline is None or not 0 < position <= len(pipeline.jobs):
            return None
        return pipeline, position

    def has_started(self, child: PracticePipeline) -> bool:
        """Return whether a bridge has started its pipeline."""
        bridge, run = child.bridges[child.bridge - 1], child.run
        return child.runs_bridges and gitlab_ci.has_started(bridge, run.created, self.hub.clock(), run.stopped)

    def tip(self, branch: str) -> str | None:
        """Return the newest commit of a branch: pushed here, or mirrored from the forge; None without it."""
        return self.repository.tips(branch).get(branch) or self.hub.home.tips(branch).get(branch)

    def start(self, branch: str, tip: str, variables: Mapping[str, str]) -> PracticePipeline:
        """Start a pipeline of the newest commit of a branch, and cancel those of the branch that still run."""
        hub, now = self.hub, self.hub.clock()
        hub.home.fetch(self.repository, tip)
        for run in hub.store.all(InternalRunRecord):
            if run.head_branch == branch and run.stopped is None:
                hub.store.change(run, stopped=now)
        main = hub.home.tips("main")["main"]
        run = hub.store.save(InternalRunRecord(
            hub.store.next(), hub.store.next("run"), 0, branch, "", tip, branch, tip,
            hub.home.compare(main, tip)[2] or main, (), now, event="api",
            seconds=float(hub.store.setting("ci seconds", hub.seconds)),
            variables=tuple(f"{name}={value}" for name, value in variables.items()),
            broken=tuple(hub.store.setting("broken jobs", [])), how=str(hub.store.setting("broken how", "")),
        ))  # fmt: skip
        return PracticePipeline(run, *self._plan(run))

    def images(self, commit: str) -> dict[str, str]:
        """Return environment → base image at a commit."""
        return gitlab_ci.images(self._build(commit))

    def _build(self, commit: str) -> str:
        return self.hub.home.texts(commit, gitlab_ci.BUILD).get(gitlab_ci.BUILD, "")

    def _run(self, number: int) -> RunRecord | None:
        store = self.hub.store
        if own := store.find(InternalRunRecord, number + _FIRST):
            return own
        run = store.find(RunRecord, number + _FIRST)
        if run and (pull := store.find(TicketRecord, run.pull)):
            self.hub.refreshed(pull)
            run = store.find(RunRecord, run.id) or run
        return run if run and _has_pipeline(run) else None

    def _plan(self, run: RunRecord) -> tuple[tuple[PlannedBridge, ...], tuple[plan.Planned, ...]]:
        if run.id not in self._plans:
            build = self._build(run.head_sha)
            bridges, builds = gitlab_ci.plan(self._situations(run)), gitlab_ci.builds(build, run.seconds)
            if isinstance(run, InternalRunRecord):
                builds = gitlab_ci.builds(build, run.seconds, run.broken, run.how)
                if "FUNCTIONAL_TEST=no" in run.variables:
                    bridges = ()
                if "BUILD=no" in run.variables:
                    builds = ()
            self._plans[run.id] = bridges, builds
        return self._plans[run.id]

    def _situations(self, run: RunRecord) -> dict[str, plan.Situation]:
        """Return what the tests of each environment depend on.  GitLab tests the head, not its merge into the base."""
        home = self.hub.home
        folders = plan.compared_paths(home.changed_paths(run.base_sha, run.head_sha))
        new, old = (self.images(commit) for commit in (run.head_sha, run.base_sha))
        recipes = home.texts(run.head_sha, suites.RECIPES)
        golden, base_golden = home.texts(run.head_sha, *folders), home.texts(run.base_sha, *folders)
        situations = {}
        for environment in gitlab_ci.ENVIRONMENTS:
            situations[environment] = plan.Situation(
                frozenset(), True, run.seconds, new.get(environment, ""), old.get(environment, ""), recipes, golden,
                base_golden,
            )  # fmt: skip
        return situations


def _has_pipeline(run: RunRecord) -> bool:
    # A run of an older version of the forge does not contain the duration of its pipeline.
    return run.internal != "none" and run.seconds > 0
