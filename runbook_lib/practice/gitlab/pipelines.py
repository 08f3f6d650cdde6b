"""The pipelines of the practice GitLab: which there are, and what each runs.

Whenever CI of a commit starts on the forge, a pipeline of that commit starts here too; others start by GitLab's API.
All else follows from that moment and the clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from runbook_lib.practice.ci import plan, suites
from runbook_lib.practice.git import Bare
from runbook_lib.practice.gitlab import ci as gitlab_ci
from runbook_lib.practice.gitlab.ci import Bridge, Seen
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.state import InternalRun, Run, Ticket

#: Numbers of pipelines, of those that bridges start, and of jobs are told apart from the run's by their length.
_FIRST = 4_900_000_000


@dataclass(frozen=True)
class Pipeline:
    """A pipeline of a run; ``bridge`` is the number of the one that started it, 0 for the parent.

    ``builds`` are the parent's own jobs.
    """

    run: Run
    bridges: tuple[Bridge, ...]
    builds: tuple[plan.Planned, ...] = ()
    bridge: int = 0

    @property
    def id(self) -> int:
        parent = self.run.id - _FIRST
        return parent * 100 + self.bridge if self.bridge else parent

    @property
    def source(self) -> str:
        """As GitLab calls it."""
        return "parent_pipeline" if self.bridge else "api" if isinstance(self.run, InternalRun) else "push"

    @property
    def internal(self) -> Literal["run", "skipped"]:
        """What becomes of its bridges: they are skipped where no image was built."""
        return "skipped" if self.skipped or any(it.conclusion != "success" for it in self.builds) else "run"

    @property
    def skipped(self) -> bool:
        """Whether it is skipped as a whole."""
        return self.run.internal == "skipped"

    @property
    def jobs(self) -> tuple[plan.Planned, ...]:
        return self.bridges[self.bridge - 1].jobs if self.bridge else () if self.skipped else self.builds

    def number(self, position: int) -> int:
        """The number of a job, by its position, from 1."""
        return (self.id if self.bridge else self.id * 100) * 100 + position

    def child(self, number: int) -> "Pipeline":
        """The pipeline that a bridge starts, by its number."""
        return Pipeline(self.run, self.bridges, self.builds, number)

    def at(self, now: float) -> Seen:
        stopped, created = self.run.stopped, self.run.created
        if self.bridge:
            return gitlab_ci.bridge_at(self.bridges[self.bridge - 1], created, now, stopped, self.internal)
        whole: Literal["run", "skipped"] = "skipped" if self.skipped else "run"
        return gitlab_ci.pipeline_at(self.builds, self.bridges, created, now, stopped, whole)

    def job_at(self, job: plan.Planned, now: float) -> Seen:
        return gitlab_ci.job_at(job, self.run.created, now, self.run.stopped)


class Pipelines:
    """Those of one project, whose repository is ``place``.  Each method is called inside a transaction of the hub's."""

    def __init__(self, hub: Hub, place: Bare) -> None:
        self.hub, self.place = hub, place
        # What a run tests does not change, and is worked out from many files.
        self._plans: dict[int, tuple[tuple[Bridge, ...], tuple[plan.Planned, ...]]] = {}

    def all(self) -> list[Pipeline]:
        """The pipelines that nobody's bridge started, newest first."""
        self.hub.tickets()  # a push that nobody has seen yet may have stopped one
        runs: list[Run] = [*self.hub.store.all(Run), *self.hub.store.all(InternalRun)]
        newest = sorted(filter(_has_pipeline, runs), key=lambda run: -run.id)
        return [Pipeline(run, *self._plan(run)) for run in newest]

    def find(self, number: int) -> Pipeline | None:
        """A pipeline by its number, or None; that of a bridge once it has started."""
        for divisor in (1, 100):
            run = self._run(number // divisor)
            if run is None:
                continue
            found = Pipeline(run, *self._plan(run)).child(number % 100 if divisor == 100 else 0)
            if divisor == 1 or (0 < found.bridge <= len(found.bridges) and self.started(found)):
                return found
        return None

    def find_job(self, number: int) -> tuple[Pipeline, int] | None:
        """A job by its number: its pipeline, and its position there, from 1."""
        owner, position = number // 100, number % 100
        if owner % 100:
            found = self.find(owner)
        else:
            run = self._run(owner // 100)
            found = Pipeline(run, *self._plan(run)) if run else None
        return (found, position) if found and 0 < position <= len(found.jobs) else None

    def started(self, child: Pipeline) -> bool:
        """Whether a bridge has started its pipeline."""
        bridge, run = child.bridges[child.bridge - 1], child.run
        return child.internal == "run" and gitlab_ci.has_started(bridge, run.created, self.hub.clock(), run.stopped)

    def tip(self, branch: str) -> str | None:
        """The newest commit of a branch: one that was pushed here, or that is mirrored from the forge."""
        for place in (self.place, self.hub.home):
            if found := place.tips(branch).get(branch):
                return found
        return None

    def start(self, branch: str, tip: str, variables: Mapping[str, str]) -> Pipeline:
        """Start a pipeline of a branch's newest commit; those of the branch that still run are cancelled."""
        hub, now = self.hub, self.hub.clock()
        hub.home.bring(self.place, tip)
        for run in hub.store.all(InternalRun):
            if run.head_branch == branch and run.stopped is None:
                hub.store.change(run, stopped=now)
        main = hub.home.tips("main")["main"]
        run = hub.store.save(InternalRun(
            hub.store.next(), hub.store.next("run"), 0, branch, "", tip, branch, tip,
            hub.home.compare(main, tip)[2] or main, (), now, event="api",
            seconds=float(hub.store.setting("ci seconds", hub.seconds)),
            variables=tuple(f"{name}={value}" for name, value in variables.items()),
            broken=tuple(hub.store.setting("broken jobs", [])), how=str(hub.store.setting("broken how", "")),
        ))  # fmt: skip
        return Pipeline(run, *self._plan(run))

    def images(self, commit: str) -> dict[str, str]:
        """Environment → base image at a commit."""
        return gitlab_ci.images(self._build(commit))

    def _build(self, commit: str) -> str:
        return self.hub.home.texts(commit, gitlab_ci.BUILD).get(gitlab_ci.BUILD, "")

    def _run(self, number: int) -> Run | None:
        store = self.hub.store
        if own := store.find(InternalRun, number + _FIRST):
            return own
        run = store.find(Run, number + _FIRST)
        if run and (pull := store.find(Ticket, run.pull)):
            self.hub.refreshed(pull)
            run = store.find(Run, run.id) or run
        return run if run and _has_pipeline(run) else None

    def _plan(self, run: Run) -> tuple[tuple[Bridge, ...], tuple[plan.Planned, ...]]:
        if run.id not in self._plans:
            asked = dict(it.partition("=")[::2] for it in run.variables) if isinstance(run, InternalRun) else {}
            broken, how = (run.broken, run.how) if isinstance(run, InternalRun) else ((), "")
            builds = gitlab_ci.builds(self._build(run.head_sha), run.seconds, broken, how)
            self._plans[run.id] = (
                () if asked.get("FUNCTIONAL_TEST") == "no" else gitlab_ci.plan(self._situations(run)),
                () if asked.get("BUILD") == "no" else builds,
            )
        return self._plans[run.id]

    def _situations(self, run: Run) -> dict[str, plan.Situation]:
        """What the tests of each environment depend on.  Here the head is tested, not its merge into the base."""
        home = self.hub.home
        changed = [it.path for it in home.changes(run.base_sha, run.head_sha) if it.path.startswith(plan.TEST_CASES)]
        folders = [*changed, *(f"{plan.TEST_CASES}/{name}" for name in plan.FATES)]
        new, old = (self.images(commit) for commit in (run.head_sha, run.base_sha))
        recipes = home.texts(run.head_sha, suites.RECIPES)
        golden, base_golden = home.texts(run.head_sha, *folders), home.texts(run.base_sha, *folders)
        return {
            environment: plan.Situation(
                frozenset({"Run functional tests"}), True, run.seconds, new.get(environment, ""),
                old.get(environment, ""), recipes, golden, base_golden,
            )
            for environment in gitlab_ci.ENVIRONMENTS
        }  # fmt: skip


def _has_pipeline(run: Run) -> bool:
    # A run of an older version of this forge does not say how long its pipeline took.
    return run.internal != "none" and run.seconds > 0
