"""The internal GitLab pipeline of a bump's branch: start it once, and follow it until the pin has been built.

All state is on GitLab: a later run finds the pushed commit and its pipeline there.
"""

import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from runbook_lib import display, notebooks
from runbook_lib.checks import Check
from runbook_lib.clients.github.client import once
from runbook_lib.clients.gitlab.client import GitLab, NoSuchRef
from runbook_lib.clients.gitlab.models import Pipeline
from runbook_lib.errors import Refused
from runbook_lib.records.step_record import StepRecord
from runbook_lib.steps.internal_ci import destination, logs, plan
from runbook_lib.steps.internal_ci.dry_run import DryRun, find_pipeline, look, variables
from runbook_lib.text.lists import capitalized
from runbook_lib.transport import polling
from runbook_lib.workflow import branch_history

__all__ = ["DryRun", "PipelineResult", "carry_out", "follow", "look", "show", "verify"]

#: Seconds before each further attempt to start a pipeline: GitLab may need a moment to notice a push.
DELAYS = (1.0, 2.0, 4.0, 8.0)
_CHECKS = ("GitLab has the bump's commit", "the pipeline tests that commit", "the GitLab pin builds")


@dataclass(frozen=True)
class PipelineResult:
    """The pipeline's state, and the causes of its failed builds."""

    progress: plan.PipelineProgress
    explained: tuple[logs.ExplainedJob, ...] = ()


def carry_out(step: StepRecord, dry_run: DryRun, confirm: str = "") -> DryRun:
    """Push the commit to its destination and start the pipeline, once ``confirm`` names the destination.

    An existing branch or pipeline for the commit is left alone.  ``waiting`` in the result says what must happen first.
    Raises Refused if the confirmation does not match, or the destination has moved since the dry run.
    """
    bump, gitlab = dry_run.branch.bump, dry_run.gitlab
    step.add_inputs(head_commit=dry_run.commit or None, base_commit=dry_run.branch.base_commit)
    if dry_run.pipeline and gitlab:
        started_with = variables(gitlab, dry_run.pipeline)
        if plan.runs_tests(started_with, dry_run.variables) is None:
            scope = dry_run.variables["FUNCTIONAL_TEST_SCOPE"]
            sentence = f"Following pipeline {dry_run.pipeline.id}, which exists for this commit. GitLab does not show"
            step.warn(f"{sentence} whether it runs the tests of tests={scope}: see {dry_run.pipeline.url}")
    if gitlab is None or dry_run.waiting or dry_run.pipeline:
        return dry_run
    if not bump.publish:
        return dry_run.wait("waiting for publish, without which nothing is pushed to GitLab", "publish=True")
    if not confirm:
        confirmation = f"Read the dry run above, then run again with -r confirm {dry_run.destination}"
        return dry_run.wait(f"waiting for confirmation of the destination {dry_run.destination}", confirmation)
    if confirm != dry_run.destination:
        raise Refused(f"confirm is {confirm!r}, but the destination is {dry_run.destination!r}: nothing was pushed.")
    review = branch_history.review(dry_run.branch, dry_run.commit, step.records)
    review.record(step)
    if review.foreign:
        return dry_run.wait(review.waiting, review.next)
    destination.require_replaceable(dry_run.destination, gitlab.protected(), gitlab.project().default_branch)
    if dry_run.pushes:
        _push(step, dry_run)
    return replace(dry_run, pipeline=_start(step, dry_run, gitlab), current=dry_run.commit)


def _push(step: StepRecord, dry_run: DryRun) -> None:
    busy, target = dry_run.busy, dry_run.destination
    if busy:
        reason = f"pipeline {busy.id} of {busy.sha[:10]} is still running on {target} ({busy.url})"
        if "push-while-running" not in dry_run.branch.bump.allow:
            raise Refused(f"Nothing was pushed: {reason}, and a push may cancel it.", "push-while-running")
        step.allowed("push-while-running", f"{reason}.")
    checkout, commit, settings = dry_run.branch.checkout, dry_run.commit, dry_run.settings
    try:
        checkout.push(dry_run.remote, target, commit, replaces=dry_run.current or "", settings=settings)
    except Refused:  # continue if only the response was lost
        if checkout.remote_tip(dry_run.remote, target, settings) != commit:
            raise
    step.effect("push", f"{dry_run.remote} {target}", dry_run.current, commit)


def _start(step: StepRecord, dry_run: DryRun, gitlab: GitLab) -> Pipeline:
    branch = dry_run.destination
    attempts: list[str] = []

    def create() -> Pipeline:
        attempts.append(branch)
        for delay in DELAYS:
            with suppress(NoSuchRef):
                return gitlab.start(branch, dry_run.variables)
            time.sleep(delay)
        return gitlab.start(branch, dry_run.variables)

    pipeline = once(lambda: find_pipeline(gitlab, dry_run), create)
    if attempts:  # also if the response was lost and the pipeline was found later
        step.effect("pipeline", branch, None, dict(dry_run.variables), url=pipeline.url)
    if pipeline.sha != dry_run.commit:
        raise Refused(
            f"Pipeline {pipeline.id} tests {pipeline.sha[:10]}, not {dry_run.commit[:10]}: somebody else has since "
            f"pushed to {branch}. See {pipeline.url} before you run this again."
        )
    return pipeline


def follow(
    step: StepRecord, dry_run: DryRun, *, wait: bool = False, sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> PipelineResult | None:  # fmt: skip
    """Return the pipeline's state, None without a pipeline; with ``wait``, first wait for the pin's verdict.

    Each change of state is printed.  A preview never waits.  Raises Unreachable if GitLab stays unreachable.
    """
    gitlab, pipeline = dry_run.gitlab, dry_run.pipeline
    if gitlab is None or pipeline is None:
        return None

    def read() -> plan.PipelineProgress:
        newest = gitlab.pipeline(pipeline.id)
        return plan.judge(newest, gitlab.pipeline_jobs(newest.id), dry_run.builds, dry_run.commit)

    progress = polling.follow(
        read, lambda state: polling.Observation(state.sentence, state.state != "waiting"),
        wait=wait and dry_run.branch.bump.apply, sleep=sleep, clock=clock,
    )  # fmt: skip
    explained = logs.explain(gitlab, [job for job in progress.jobs if job.status == "failed"])
    if progress.pipeline:
        newest = progress.pipeline
        step.add_inputs(pipeline_id=newest.id, pipeline_commit=newest.sha, pipeline_state=progress.state)
        step.link("GitLab pipeline", newest.url)
    step.table("build jobs", map(vars, progress.jobs))
    return PipelineResult(progress, explained)


def show(dry_run: DryRun, result: PipelineResult | None) -> display.View:
    """Show the pipeline's state, each job that builds the pin's images, and the causes of failures."""
    if result is None:
        return display.note(dry_run.waiting or dry_run.problem or "There is no pipeline to follow.")
    progress = result.progress
    shown = display.note(capitalized(progress.sentence))
    rows = []
    for job in progress.jobs:
        rows.append({"job": job.name, "state": job.status, "minutes": round(job.seconds / 60, 1), "url": job.url})
    shown += display.table(rows, empty="None of the pin's jobs are listed yet.")
    if result.explained:
        shown += logs.show(result.explained)
    return shown


def verify(step: StepRecord, dry_run: DryRun, result: PipelineResult | None) -> None:
    """Read GitLab's branch again, and record whether the pin builds."""
    step.check(*_checks(dry_run, result))
    if result and result.progress.state == "passed":
        advice = f"Once its tests have run, collect golden values: {notebooks.GOLDEN_VALUES} with source=gitlab."
        tested = dry_run.variables.get("FUNCTIONAL_TEST") == "yes"
        step.done(result.progress.sentence, advice if tested else "")
    elif result:
        pitfalls = itertools.chain.from_iterable(job.pitfalls for job in result.explained)
        fixes = dict.fromkeys(pitfall.fix for pitfall in pitfalls)
        step.waiting(result.progress.sentence, " ".join([*fixes, result.progress.next_action]))
    elif dry_run.problem:
        step.done(dry_run.problem)
    elif dry_run.branch.bump.apply:
        step.waiting(dry_run.waiting, dry_run.next_action)
    elif dry_run.gitlab is None or not dry_run.destination:
        step.done(f"Preview: {dry_run.waiting}.", dry_run.next_action)
    else:
        name = dry_run.destination
        if dry_run.pushes:
            push = f"push {dry_run.commit[:10]} to {dry_run.project} as {name}"
            step.would(f"{push}; currently there: {dry_run.replaces}", publish=True)
        step.would(f"start a pipeline for {name} there", publish=True)
        command = f"Run again with -p apply True -p publish True -r confirm {name}"
        step.done(f"Preview: would start the internal pipeline for {name}.", command)


def _checks(dry_run: DryRun, result: PipelineResult | None) -> list[Check]:
    if result is None or dry_run.gitlab is None or result.progress.pipeline is None:
        reason = dry_run.waiting or dry_run.problem or "This is a preview."
        return Check.each(_CHECKS, "skipped", reason)
    progress, pipeline = result.progress, result.progress.pipeline
    at_commit, at_pipeline, at_build = _CHECKS
    head = dry_run.gitlab.branch(pipeline.ref)
    detail = f"{pipeline.ref} is at {head.commit[:10]}." if head else f"{pipeline.ref} has since been deleted."
    # Waiting, not failed: the verdict on the commit stands even if the branch has moved on, and a failed build needs
    # a person's decision.
    has_commit = head is not None and head.commit == dry_run.commit
    return [
        Check.of(at_commit, has_commit, detail, "waiting"),
        Check.of(at_pipeline, pipeline.sha == dry_run.commit, f"Pipeline {pipeline.id} tests {pipeline.sha[:10]}."),
        Check.of(at_build, progress.state == "passed", progress.sentence, "waiting"),
    ]
