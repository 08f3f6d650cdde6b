"""Notebook internal-ci: start the internal GitLab pipeline of a bump's branch once, and follow it until the pin builds.

All state is on GitLab: a later run finds the pushed commit and its pipeline there.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from runbook_lib import display, notebooks
from runbook_lib.checks import Check, Evidence, Next, Status
from runbook_lib.clients.gitlab.models import NoSuchRef, Pipeline
from runbook_lib.compute.internal_ci import destination, logs, plan
from runbook_lib.compute.internal_ci.dry_run import DryRun, Server, find_pipeline, newest_pipeline, read_dry_run
from runbook_lib.compute.known_builds import GITLAB_REMOTE
from runbook_lib.errors import Refused
from runbook_lib.failures.failure import Failure
from runbook_lib.model import Effect, Outcome, Plan, Question
from runbook_lib.pins.bump import Bump
from runbook_lib.text.lists import capitalized
from runbook_lib.transport import polling
from runbook_lib.world import bump_branch
from runbook_lib.world.once import once
from runbook_lib.world.outside import World

#: Seconds before each further attempt to start a pipeline: GitLab may need a moment to notice a push.
DELAYS = (1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class OnGitLab:
    """GitLab has the bump's commit: at the destination, or in a pipeline that somebody else started for it."""

    dry_run: DryRun
    server: Server
    leaves_machine = True

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        push = f"push {self.dry_run.commit[:10]} to {self.server.project} as {self.dry_run.destination}"
        return f"{push}; currently there: {self.server.replaces}"

    def holds(self, world: World) -> Check:
        """Read the destination, and look for a pipeline of the commit elsewhere."""
        dry_run, name = self.dry_run, "GitLab has the bump's commit"
        current = world.checkout.remote_tip(GITLAB_REMOTE, dry_run.destination, self.server.settings)
        if current != dry_run.commit and (pipeline := find_pipeline(self.server.gitlab, dry_run)):
            return Check(name, "passed", f"Pipeline {pipeline.id} tests it, on {pipeline.ref}.")
        place = f"at {current[:10]}" if current else "not there"
        return Check.of(name, current == dry_run.commit, f"{dry_run.destination} is {place}.")

    def make_true(self, world: World) -> Iterator[Effect]:
        """Push, if nothing protects the destination and it is still as the dry run saw it.  Raises Refused if not."""
        dry_run, server = self.dry_run, self.server
        require_replaceable(dry_run, server)
        target, current = dry_run.destination, server.current
        if server.busy and not dry_run.branch.bump.allowed("push-while-running", _busy(server.busy, target)):
            reason = f"Nothing was pushed: {_busy(server.busy, target)}, and a push may cancel it."
            raise Refused(reason, "push-while-running")
        try:
            world.checkout.push(
                GITLAB_REMOTE, target, dry_run.commit, replaces=current or "", settings=server.settings
            )  # fmt: skip
        except Refused:  # continue if only the response was lost
            if world.checkout.remote_tip(GITLAB_REMOTE, target, server.settings) != dry_run.commit:
                raise
        yield Effect("push", f"{GITLAB_REMOTE} {target}", current, dry_run.commit)


@dataclass(frozen=True)
class PipelineStarted:
    """A pipeline exists that tests exactly the bump's commit, and shows whether the pin builds."""

    dry_run: DryRun
    server: Server
    leaves_machine = True

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        return f"start a pipeline for {self.dry_run.destination} there"

    def holds(self, world: World) -> Check:
        """Look for the commit's pipeline."""
        name, pipeline = "the pipeline tests that commit", find_pipeline(self.server.gitlab, self.dry_run)
        if pipeline is None:
            return Check(name, "failed", f"No pipeline of {self.dry_run.commit[:10]} shows whether the pin builds.")
        return Check(name, "passed", f"Pipeline {pipeline.id} tests {pipeline.sha[:10]}.")

    def make_true(self, world: World) -> Iterator[Effect]:
        """Start one, unless somebody else is faster.  Raises Refused if it tests another commit."""
        dry_run, gitlab = self.dry_run, self.server.gitlab
        require_replaceable(dry_run, self.server)
        branch, attempts = dry_run.destination, list[str]()

        def create() -> Pipeline:
            attempts.append(branch)
            for delay in DELAYS:
                with suppress(NoSuchRef):
                    return gitlab.start(branch, dry_run.variables)
                world.sleep(delay)
            return gitlab.start(branch, dry_run.variables)

        pipeline = once(lambda: find_pipeline(gitlab, dry_run), create)
        if attempts:  # also if the response was lost and the pipeline was found later
            yield Effect("pipeline", branch, None, dict(dry_run.variables), pipeline.url)
        if pipeline.sha != dry_run.commit:
            raise Refused(
                f"Pipeline {pipeline.id} tests {pipeline.sha[:10]}, not {dry_run.commit[:10]}: somebody else has since "
                f"pushed to {branch}. See {pipeline.url} before you run this again."
            )


@dataclass(frozen=True)
class PinBuilds:
    """The jobs of all the pin's rows succeeded for the bump's commit; with ``wait`` the pipeline is followed.

    A failed build needs a person's decision, so the run waits instead of failing.
    """

    dry_run: DryRun
    server: Server
    wait: bool
    leaves_machine = False
    sentence = "follow the pipeline until it is known whether the pin builds"

    def holds(self, world: World) -> Check:
        """Read the pipeline and its jobs, and the logs of failed ones."""
        name = "the GitLab pin builds"
        progress = polling.patiently(self._read, world.sleep, print) if self.wait else self._read()
        if progress is None or progress.pipeline is None:
            return Check(name, "waiting", "waiting for a pipeline of this commit", Next.again())
        pipeline = progress.pipeline
        explained = logs.explain(self.server.gitlab, [job for job in progress.jobs if job.status == "failed"])
        evidence = Evidence(
            inputs={
                "pipeline_id": pipeline.id, "pipeline_commit": pipeline.sha, "pipeline_state": progress.state,
            },
            links={"GitLab pipeline": pipeline.url},
            tables={"build jobs": list(map(vars, progress.jobs))},
            shown=(_show(progress, explained),),
        )  # fmt: skip
        if progress.state == "passed":
            advice = Next.run(notebooks.GOLDEN_VALUES, "Once its tests have run:", source="gitlab")
            is_tested = self.dry_run.variables.get("FUNCTIONAL_TEST") == "yes"
            return Check(name, "passed", progress.sentence, advice if is_tested else Next(), evidence)
        pitfalls = itertools.chain.from_iterable(map(logs.pitfalls, explained))
        fixes = dict.fromkeys(pitfall.fix for pitfall in pitfalls)
        action = progress.next_action or Next(f"See {pipeline.url}")
        action = replace(action, because=" ".join([*fixes, action.because]).strip())
        is_followed = self.wait and progress.state == "waiting"
        status: Status = "failed" if is_followed else "waiting"
        return Check(name, status, progress.sentence, action, evidence)

    def make_true(self, world: World) -> Sequence[Effect]:
        """Follow the pipeline, and print each change of its state.  Raises Unreachable if GitLab stays unreachable."""

        def observe(progress: plan.PipelineProgress | None) -> polling.Observation:
            if progress is None:
                return polling.Observation("", over=True)
            return polling.Observation(progress.sentence, progress.state != "waiting")

        polling.follow(self._read, observe, wait=True, sleep=world.sleep, clock=world.monotonic)
        return ()

    def _read(self) -> plan.PipelineProgress | None:
        gitlab, dry_run = self.server.gitlab, self.dry_run
        pipeline = newest_pipeline(gitlab, dry_run)
        if pipeline is None:
            return None
        newest = gitlab.pipeline(pipeline.id)
        return plan.judge(newest, gitlab.pipeline_jobs(newest.id), dry_run.builds, dry_run.commit)


def require_replaceable(dry_run: DryRun, server: Server) -> None:
    """Read again what GitLab protects.  Raises Refused unless a push may replace the destination."""
    gitlab = server.gitlab
    destination.require_replaceable(dry_run.destination, gitlab.protected(), gitlab.project().default_branch)


def _busy(pipeline: Pipeline, target: str) -> str:
    return f"pipeline {pipeline.id} of {pipeline.sha[:10]} is still running on {target} ({pipeline.url})"


def _show(progress: plan.PipelineProgress, explained: Sequence[Failure]) -> display.View:
    """Show the pipeline's state, each job that builds the pin's images, and the causes of failures."""
    shown = display.note(capitalized(progress.sentence))
    rows = []
    for job in progress.jobs:
        rows.append({"job": job.name, "state": job.status, "minutes": round(job.seconds / 60, 1), "url": job.url})
    shown += display.table(rows, empty="None of the pin's jobs are listed yet.")
    return shown + logs.show(explained) if explained else shown


@dataclass(frozen=True)
class InternalCi:
    """The step.  Nothing is pushed or started unless a person has allowed it, to whom the dry run was shown."""

    tests: str = ""
    wait: bool = False

    def look(self, world: World, bump: Bump) -> DryRun:
        """Read the branch, GitLab and its git remote.  Raises RunbookError like ``read_dry_run``."""
        return read_dry_run(bump_branch.look(world, bump), tests=self.tests)

    def plan(self, facts: DryRun, bump: Bump) -> Plan[World]:
        """Plan the push, the pipeline, and what it has to show."""
        inputs = {"head_commit": facts.commit or None, "base_commit": facts.branch.base_commit}
        planned: Plan[World] = Plan(
            Outcome(facts.problem), (facts.show(),), waiting=facts.waiting, evidence=Evidence(inputs)
        )  # fmt: skip
        server = facts.server
        if server is None:
            return planned
        follow = PinBuilds(facts, server, self.wait)
        if server.pipeline:  # nothing is published, so nobody has to confirm anything
            evidence = replace(planned.evidence, warnings=(server.warning,) if server.warning else ())
            return replace(planned, conditions=(follow,), evidence=evidence, on_branch=False)
        confirmed = allowed = None
        if bump.publish:
            push = OnGitLab(facts, server).sentence
            confirmed = bump.allowed("internal-ci", push)
            if confirmed is None:
                return replace(
                    planned,
                    waiting=Outcome("waiting for a person: may the branch be pushed to the internal GitLab?"),
                    questions=(Question("allow", "internal-ci", f"Allowed: {push}."),),
                )
            if server.busy:
                allowed = bump.allowed("push-while-running", _busy(server.busy, facts.destination))
        return replace(
            planned,
            conditions=(OnGitLab(facts, server), PipelineStarted(facts, server), follow),
            evidence=replace(planned.evidence, decided=tuple(filter(None, (confirmed, allowed)))),
        )
