"""Notebook internal-ci: start the internal GitLab pipeline of a bump's branch once, and follow it until the pin builds.

All state is on GitLab: a later run finds the pushed commit and its pipeline there.  Megatron-LM's own
``tools/trigger_internal_ci.py`` is not run: it replaces the destination without a lease, with whatever is checked out,
and starts another pipeline each time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from runbook_lib import display, notebooks
from runbook_lib.compute.internal_gitlab import (
    GITLAB_REMOTE,
    BuildJob,
    PipelineProgress,
    builds,
    judge,
    variables,
)
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.failures.evidence import FailedJob
from runbook_lib.failures.failed_jobs import show_evidence
from runbook_lib.failures.read_logs import JobLogs, diagnose_all
from runbook_lib.images.reference import ImageRef
from runbook_lib.model import Check, Effect, Evidence, Next, Outcome, Plan, Question
from runbook_lib.pins.bump import Bump
from runbook_lib.text.lists import capitalized
from runbook_lib.world import polling
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git.remote_url import RemoteUrl
from runbook_lib.world.ports import SecondCi, World

#: Seconds until GitLab knows a branch that was pushed.
PAUSE = 5.0
_MOST_LOGS = 4  # read of a pipeline


@dataclass(frozen=True)
class Destination:
    """The branch ``name`` on GitLab for the bump's ``commit``, and the jobs that have to build its pinned images.

    It is never a branch that people share, nor a pull request's mirror.  ``current`` is its commit now, and
    ``replaces`` the effect of the push on it, in words.
    """

    gitlab: SecondCi
    project: RemoteUrl
    name: str
    commit: str
    builds: tuple[BuildJob, ...]
    current: str | None
    replaces: str

    def find(self, scope: str) -> PipelineProgress | None:
        """Return the progress of the commit's pipeline that shows whether the pin builds and runs a scope's tests."""
        for pipeline in self.gitlab.pipelines(self.commit):
            if pipeline.status in ("canceled", "canceling", "skipped"):
                continue
            if scope and self.gitlab.variables(pipeline.id).get("FUNCTIONAL_TEST_SCOPE") != scope:
                continue
            if progress := judge(pipeline, self.gitlab.jobs(pipeline.id), self.builds, tested=bool(scope)):
                return progress
        return None


@dataclass(frozen=True)
class PipelineFacts:
    """A bump's branch, and its pipelines on GitLab by the scope of their tests, which is empty without tests.

    ``missing`` is what has to happen before a pipeline makes sense; ``to`` and the pipelines are read then.
    """

    branch: BumpBranch
    missing: Outcome | None = None
    to: Destination | None = None
    pipelines: Mapping[str, PipelineProgress | None] = field(default_factory=dict)


@dataclass(frozen=True)
class PipelineStarted:
    """GitLab has the bump's commit, and a pipeline that tests exactly it and shows whether the pin builds."""

    to: Destination
    scope: str
    leaves_machine = True

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        push = f"push {self.to.commit[:10]} to {self.to.project} as {self.to.name}"
        chosen = ", ".join(map("=".join, variables(self.scope).items()))
        return f"{push}, and start a pipeline there with {chosen}; currently there: {self.to.replaces}"

    def holds(self, world: World) -> Check:
        """Look for the commit's pipeline."""
        name, commit = "a pipeline tests the bump's commit", self.to.commit[:10]
        if progress := self.to.find(self.scope):
            return Check(name, "passed", f"Pipeline {progress.pipeline.id} tests {commit}.")
        reason = f"If one was just started, somebody else has pushed to {self.to.name} in between."
        return Check(name, "failed", f"No pipeline of {commit} shows whether the pin builds. {reason}")

    def make_true(self, world: World) -> Iterator[Effect]:
        """Push, and start a pipeline.  Raises Refused unless the destination is still as it was seen."""
        to, chosen = self.to, variables(self.scope)
        if world.checkout.remote_tip(GITLAB_REMOTE, to.name) != to.commit:
            world.checkout.push(GITLAB_REMOTE, to.name, to.commit, replaces=to.current or "")
            yield Effect("push", f"{GITLAB_REMOTE} {to.name}", to.current, to.commit)
            world.sleep(PAUSE)
        yield Effect("pipeline", to.name, None, chosen, to.gitlab.start(to.name, chosen).url)


@dataclass(frozen=True)
class PinBuilds:
    """The jobs of all the pin's rows succeeded for the bump's commit, and the requested tests have ended.

    With ``wait`` the pipeline is followed.  A failed build needs a person's decision, so the run waits instead of
    failing.
    """

    to: Destination
    scope: str
    wait: bool
    leaves_machine = False
    sentence = "follow the pipeline until it is known whether the pin builds, and the requested tests have ended"

    def holds(self, world: World) -> Check:
        """Read the pipeline and its jobs, and the logs of failed ones."""
        name, progress = "the GitLab pin builds", self.to.find(self.scope)
        if self.scope:
            name += f", and the {self.scope} tests have ended"
        if progress is None:
            advice = Next.again("Start another if one has ended:", mode="publish")
            return Check(name, "waiting", "waiting for a pipeline of this commit that builds the pin", advice)
        pipeline, failed = progress.pipeline, [job for job in progress.jobs if job.status == "failed"][:_MOST_LOGS]
        logs = [JobLogs(FailedJob(job.name, job.url), log=self.to.gitlab.log(job.id)) for job in failed]
        failures = diagnose_all(logs)
        jobs = display.rows(progress.jobs, job="name", state="status", url="url")
        shown = display.note(capitalized(progress.sentence)) + display.table(jobs, empty="None of its jobs is listed.")
        for failure in failures:
            shown += display.note(f"{failure.job}: {failure.cause}") + show_evidence(failure)
        evidence = Evidence(
            {"pipeline_id": pipeline.id}, {"GitLab pipeline": pipeline.url},
            {"build jobs": list(map(vars, progress.jobs))}, shown=(shown,),
        )  # fmt: skip
        if progress.state == "passed":
            advice = Next.run(notebooks.GOLDEN_VALUES, "Judge and refresh their values:", source="gitlab")
            return Check(name, "passed", progress.sentence, advice if self.scope else Next(), evidence)
        fixes = dict.fromkeys(failure.next for failure in failures)
        action = replace(progress.next_action, because=" ".join([*fixes, progress.next_action.because]).strip())
        is_followed = self.wait and progress.state == "waiting"
        return Check(name, "failed" if is_followed else "waiting", progress.sentence, action, evidence)

    def make_true(self, world: World) -> Sequence[Effect]:
        """Follow the pipeline, and print each change of its state.  Raises Unreachable if GitLab stays unreachable."""

        def observe(progress: PipelineProgress | None) -> polling.Observation:
            is_over = progress is None or progress.state != "waiting"
            return polling.Observation(progress.sentence if progress else "", is_over)

        polling.follow(partial(self.to.find, self.scope), observe, world.sleep, world.services.monotonic)
        return ()


@dataclass(frozen=True)
class InternalCi:
    """The step.  Nothing is pushed or started unless a person has allowed it, to whom the dry run was shown."""

    tests: str = ""
    wait: bool = False

    def look(self, world: World, bump: Bump) -> PipelineFacts:
        """Read the branch, GitLab and its git remote.

        Raises Refused for a protected destination, RunbookError for a scope that the pipeline does not offer.
        """
        branch, sites = BumpBranch.look(world, bump), bump.repository.sites
        expected = builds(branch.texts(sites.pin_paths), sites, bump.image_type)
        scopes = self.tests.replace(",", " ").split() or [""]
        for scope in scopes:
            variables(scope)
        if bump.tag is None:
            return PipelineFacts(branch)
        if missing := _missing(branch, expected):
            return PipelineFacts(branch, missing)
        to = _read_destination(branch, expected)
        return PipelineFacts(branch, to=to, pipelines={scope: to.find(scope) for scope in scopes})

    def plan(self, facts: PipelineFacts, bump: Bump) -> Plan[World]:
        """Plan the push, the pipelines, and what they have to show."""
        to, evidence = facts.to, Evidence({"head_commit": facts.branch.start, "base_commit": facts.branch.base_commit})
        if to is None:
            return Plan(Outcome("No tag was given."), waiting=facts.missing, evidence=evidence)
        starts = [PipelineStarted(to, scope) for scope, progress in facts.pipelines.items() if progress is None]
        follows = [PinBuilds(to, scope, self.wait) for scope in facts.pipelines]
        sentences = [start.sentence for start in starts]
        rows = {
            "exists": "\n".join(f"{it.pipeline.url} ({it.sentence})" for it in facts.pipelines.values() if it),
            "to be done": "\n".join(sentences),
            "must succeed": "\n".join(build.name for build in to.builds),
        }
        planned: Plan[World] = Plan(Outcome(""), (display.mapping(rows),), (*starts, *follows), evidence=evidence)
        if not starts:  # nothing is published, so nobody has to confirm anything
            return replace(planned, on_branch=False)
        if not bump.publish:
            return planned
        sentence = "; ".join(sentences)
        if confirmed := bump.allowed("internal-ci", sentence):
            return replace(planned, evidence=replace(evidence, decided=(confirmed,)))
        waiting = Outcome("waiting for a person: may the branch be pushed to the internal GitLab?")
        question = Question("allow", "internal-ci", f"Allowed: {sentence}.")
        return replace(planned, conditions=(), waiting=waiting, questions=(question,))


def _missing(branch: BumpBranch, expected: Sequence[BuildJob]) -> Outcome | None:
    """Return what has to happen before a pipeline makes sense."""
    bump = branch.bump
    if branch.tip is None:
        return Outcome(f"waiting for branch {bump.branch}", Next.run(notebooks.OPEN_PR, "Create it:", mode="publish"))
    if not expected:
        problem = "waiting for a person: no GitLab matrix row names this pin, so no job would build it"
        return Outcome(problem, Next("Build it by hand."))
    for build in expected:
        if ImageRef.parse(build.image).tag != str(bump.tag):
            waiting = f"waiting for the pin: {branch.start[:10]} builds {build.image} in {build.name}"
            return Outcome(waiting, Next.run(notebooks.GITLAB_PIN, "Move it:"))
    return None


def _read_destination(branch: BumpBranch, expected: tuple[BuildJob, ...]) -> Destination:
    checkout, commit, name = branch.checkout, branch.start, f"pull-request/{branch.bump.branch}"
    project = checkout.remote(GITLAB_REMOTE)
    gitlab = branch.services.second_ci(project)
    if gitlab is None:
        raise RunbookError(f"The remote {GITLAB_REMOTE!r}, {project}, names no server.", "Set GITLAB_URL.")
    if gitlab.is_protected(name):
        advice = "Ask a maintainer of the project where the branches of pull requests belong."
        raise Refused(f"GitLab protects {name}, so nothing is pushed to it.", advice)
    current = checkout.remote_tip(GITLAB_REMOTE, name)
    replaces = "nothing: the branch will be new"
    if current == commit:
        replaces = "this same commit: nothing is pushed"
    elif current:
        is_behind = checkout.is_ancestor(current, commit)
        replaces = f"{current}: {'the branch is fast-forwarded' if is_behind else 'it is replaced (force)'}"
    return Destination(gitlab, project, name, commit, expected, current, replaces)
