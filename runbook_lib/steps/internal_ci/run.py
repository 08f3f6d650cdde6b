"""The internal GitLab pipeline of a bump's branch: looked at, started once, and followed until the pin has built.

GitLab itself is the memory: a commit that was pushed there, and a pipeline of it, are found again by any later run.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from runbook_lib import display
from runbook_lib.checks import Check
from runbook_lib.clients.github.client import once
from runbook_lib.clients.gitlab.client import GitLab, NoSuchRef
from runbook_lib.clients.gitlab.models import Pipeline
from runbook_lib.display import View
from runbook_lib.errors import Refused
from runbook_lib.records.step_record import StepRecord
from runbook_lib.steps.internal_ci import logs, plan
from runbook_lib.steps.internal_ci.dry_run import Ahead, look, telling
from runbook_lib.steps.internal_ci.logs import Explained
from runbook_lib.steps.internal_ci.plan import Progress
from runbook_lib.transport import polling
from runbook_lib.workflow import branch_history

__all__ = ["Ahead", "Found", "carry_out", "follow", "look", "show", "verify"]

#: Seconds before each further try to start a pipeline: GitLab may need a moment to know of a push.
_DELAYS = (1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class Found:
    """Where the pipeline stands, and why its failed builds failed."""

    progress: Progress
    explained: tuple[Explained, ...] = ()


def carry_out(step: StepRecord, ahead: Ahead, confirm: str = "") -> Ahead:
    """Push the commit to its destination and start the pipeline, once ``confirm`` names the destination.

    What is there already is found and left alone.  What keeps it from going on is in ``held`` of the result.  Raises
    Refused for a confirmation of something else, and where the destination has moved since the dry run.
    """
    bump, gitlab = ahead.branch.bump, ahead.gitlab
    step.add_inputs(head_commit=ahead.commit or None, base_commit=ahead.branch.base_commit)
    if ahead.pipeline and "FUNCTIONAL_TEST_SCOPE" in ahead.variables:
        step.warn(
            f"Pipeline {ahead.pipeline.id} of this commit was there already and is followed, and none is started for "
            f"tests={ahead.variables['FUNCTIONAL_TEST_SCOPE']}: look there whether it runs them ({ahead.pipeline.url})."
        )
    if gitlab is None or ahead.held or ahead.pipeline:
        return ahead
    if not bump.publish:
        return replace(ahead, held="waiting for publish: only then anything is pushed to GitLab", next="publish=True")
    if not confirm:
        return replace(
            ahead, held=f"waiting for confirmation of the destination {ahead.destination}",
            next=f"Read the dry run above, then run again with -r confirm {ahead.destination}",
        )  # fmt: skip
    if confirm != ahead.destination:
        raise Refused(f"confirm is {confirm!r}, and the destination is {ahead.destination!r}: nothing was pushed.")
    reviewed = branch_history.review(ahead.branch, ahead.commit, step.records)
    reviewed.record(step)
    if reviewed.foreign:
        return replace(ahead, held=reviewed.held, next=reviewed.next)
    plan.guard(ahead.destination, gitlab.protected(), gitlab.project().default_branch)
    if ahead.pushes:
        _push(step, ahead)
    return replace(ahead, pipeline=_start(step, ahead, gitlab), seen=ahead.commit)


def _push(step: StepRecord, ahead: Ahead) -> None:
    if ahead.busy:
        why = f"pipeline {ahead.busy.id} of {ahead.busy.sha[:10]} still runs on {ahead.destination} ({ahead.busy.url})"
        if "push-while-running" not in ahead.branch.bump.allow:
            raise Refused(f"Nothing was pushed: {why}, and a push may cancel it.", "push-while-running")
        step.allowed("push-while-running", f"{why}.")
    checkout, to = ahead.branch.checkout, ahead.destination
    try:
        checkout.push_commit(ahead.remote, ahead.commit, to, seen=ahead.seen, settings=ahead.settings)
    except Refused:  # or the answer was lost on its way
        if checkout.remote_tip(ahead.remote, to, ahead.settings) != ahead.commit:
            raise
    step.effect("push", f"{ahead.remote} {ahead.destination}", ahead.seen, ahead.commit)


def _start(step: StepRecord, ahead: Ahead, gitlab: GitLab, sleep: Callable[[float], None] = time.sleep) -> Pipeline:
    tried: list[str] = []

    def create() -> Pipeline:
        tried.append(ahead.destination)
        for delay in _DELAYS:
            with suppress(NoSuchRef):
                return gitlab.start(ahead.destination, ahead.variables)
            sleep(delay)
        return gitlab.start(ahead.destination, ahead.variables)

    found = once(lambda: telling(gitlab, ahead), create)
    if tried:  # also where the answer was lost, and the pipeline found afterwards
        step.effect("pipeline", ahead.destination, None, dict(ahead.variables), url=found.url)
    if found.sha != ahead.commit:
        raise Refused(
            f"Pipeline {found.id} tests {found.sha[:10]}, not {ahead.commit[:10]}: somebody else pushed to "
            f"{ahead.destination} meanwhile. Look there first: {found.url}"
        )
    return found


def follow(
    step: StepRecord,
    ahead: Ahead,
    *,
    wait: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], object] = print,
) -> Found | None:
    """The pipeline as it is now; with ``wait`` until it is known whether the pin builds, saying each change.

    A preview never waits: it shows what is.
    None where there is nothing to follow.  Raises Unreachable when GitLab stays away for long.
    """
    gitlab, pipeline, wait = ahead.gitlab, ahead.pipeline, wait and ahead.branch.bump.apply
    if gitlab is None or pipeline is None:
        return None

    def look() -> plan.Progress:
        it = gitlab.pipeline(pipeline.id)
        return plan.judge(it, gitlab.pipeline_jobs(it.id), ahead.builds, ahead.commit)

    patient = partial(polling.follow, wait=wait, sleep=sleep, clock=clock, say=say)
    now = patient(look, lambda now: polling.Seen(now.sentence, now.ended))
    explained = patient(lambda: logs.explain(gitlab, now.bad), lambda _: polling.Seen("", over=True))
    found = Found(now, explained)
    _account(step, found)
    return found


def _account(step: StepRecord, found: Found) -> None:
    """What the record keeps of the pipeline."""
    now = found.progress
    if now.pipeline:
        step.add_inputs(pipeline_id=now.pipeline.id, pipeline_commit=now.pipeline.sha, pipeline_state=now.state)
        step.link("GitLab pipeline", now.pipeline.url)
    step.table("build jobs", [vars(it) for it in now.jobs])


def show(ahead: Ahead, found: Found | None) -> View:
    """Where the pipeline stands: each job that builds the pin's images, and why those failed that did."""
    if found is None:
        return display.note(ahead.held or ahead.problem or "There is no pipeline to follow.")
    now = found.progress
    shown = display.note(f"{now.sentence[:1].upper()}{now.sentence[1:]}")
    rows = [
        {"job": it.name, "state": it.status, "minutes": round(it.seconds / 60, 1), "url": it.url} for it in now.jobs
    ]
    shown += display.table(rows, empty="None of the pin's jobs is listed yet.")
    return shown + logs.show(found.explained) if found.explained else shown


def verify(step: StepRecord, ahead: Ahead, found: Found | None) -> View:
    """Read GitLab's branch again, and tell the record whether the pin builds."""
    bump = ahead.branch.bump
    step.check(*_checks(ahead, found))
    now = found.progress if found else None
    if now and now.state == "passed":
        step.done(now.sentence, "05-golden-values takes its golden values with source=gitlab, once its tests have run."
                  if ahead.variables.get("FUNCTIONAL_TEST") == "yes" else "")  # fmt: skip
    elif now:
        known = [it.mend for each in (found.explained if found else ()) for it in each.pitfalls]
        step.waiting(now.sentence, " ".join([*dict.fromkeys(known), now.next]))
    elif ahead.problem:
        step.done(ahead.problem)
    elif bump.apply:
        step.waiting(ahead.held, ahead.next)
    elif ahead.gitlab is None or not ahead.destination:
        step.done(f"Preview: {ahead.held}.", ahead.next)
    else:
        if ahead.pushes:
            to = f"{ahead.place} as {ahead.destination}"
            step.would(f"push {ahead.commit[:10]} to {to}; what stands there now: {ahead.replaces}", publish=True)
        step.would(f"start a pipeline of {ahead.destination} there", publish=True)
        step.done(f"Preview: would start the internal pipeline of {ahead.destination}.",
                  f"Run again with -p apply True -p publish True -r confirm {ahead.destination}")  # fmt: skip
    return display.note("The checks are in the record below.")


def _checks(ahead: Ahead, found: Found | None) -> list[Check]:
    holds, same, builds = "GitLab has the bump's commit", "the pipeline is of that commit", "the GitLab pin builds"
    if found is None or ahead.gitlab is None or found.progress.pipeline is None:
        why = ahead.held or ahead.problem or "This is a preview."
        return [Check(name, "skipped", why) for name in (holds, same, builds)]
    now, pipeline = found.progress, found.progress.pipeline
    tip = ahead.gitlab.branch(pipeline.ref)
    at = f"{pipeline.ref} is at {tip.commit[:10]}." if tip else f"{pipeline.ref} is gone since."
    # A branch that went on since takes nothing from what the pipeline tells of the commit.
    held = tip is not None and tip.commit == ahead.commit
    return [
        Check(holds, "passed" if held else "waiting", at),
        Check.of(same, pipeline.sha == ahead.commit, f"Pipeline {pipeline.id} is of {pipeline.sha[:10]}."),
        # A red build is for a person to judge: the bump waits, and does not fail.
        Check(builds, "passed" if now.state == "passed" else "waiting", now.sentence),
    ]
