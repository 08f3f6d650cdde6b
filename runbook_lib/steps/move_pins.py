"""Notebooks 01-github-pin, 02-gitlab-pin and 07-sync-check: show the pins, move them, and compare them."""

from dataclasses import dataclass
from functools import partial

from runbook_lib import display
from runbook_lib.checks import Check
from runbook_lib.git.command import GitFailed
from runbook_lib.notebooks import GITHUB_PIN, GITLAB_PIN
from runbook_lib.pins.check import check_pins
from runbook_lib.pins.plan import PinPlan
from runbook_lib.pins.sites import read
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner.command_line import command
from runbook_lib.steps.context import Context
from runbook_lib.text import edits
from runbook_lib.workflow import bump_branch, bump_plan, old_tag, sync_survey
from runbook_lib.workflow.bump_plan import PlannedBump

_NO_TAG = "No tag was given, so nothing is planned."
_NAMED = 5  # lines in a sentence
_GIVE_TAG = "Run again with a tag, such as -p tag 26.04-py3."


def show(branch: bump_branch.BumpBranch, plan: PinPlan) -> display.View:
    """Return the commit that the plan starts from, and the plan's diff; without a tag, all pins as they are."""
    tag = branch.bump.tag
    if tag is None:
        return display.note(f"{_NO_TAG} {_GIVE_TAG}") + display.table(bump_plan.pin_rows(branch))
    no_change = _not_applicable(branch, plan) or f"All pins of this step are already at {tag}: nothing to change."
    view = display.note(branch.describe()) + display.diff(edits.diff(plan.edits), empty=no_change)
    return view + display.notes((*branch.warnings, *plan.warnings), title="Warnings")


def carry_out(step: StepRecord, branch: bump_branch.BumpBranch, planned: PlannedBump, plan: PinPlan) -> display.View:
    """Apply the edits to the checkout, on the bump's branch; change nothing in a preview.

    Raises Refused for an image that cannot be used, and for files with other uncommitted changes.
    """
    if not branch.bump.apply:
        return display.note("This is a preview: nothing was changed.")
    planned.require()
    written = bump_branch.apply_edits(branch, plan.edits)
    for edit in written:
        step.effect("edit", edit.path, *edit.digests)
    if reason := _not_applicable(branch, plan):
        return display.note(reason)
    if not plan.edits:
        return display.note("The branch already has these values: nothing was written.")
    sentence = f"Wrote {display.count(len(written), 'file')} on branch {branch.bump.branch}."
    if unchanged := len(plan.edits) - len(written):
        sentence += f" {display.count(unchanged, 'file')} already had the planned content."
    return display.note(sentence)


def verify(step: StepRecord, branch: bump_branch.BumpBranch, planned: PlannedBump, plan: PinPlan) -> display.View:
    """Read the files again, and record the checks and the outcome."""
    bump = branch.bump
    step.warn(*branch.warnings, *plan.warnings)
    digest = planned.image and planned.image.digest
    step.add_inputs(base_commit=branch.base_commit, plan_from=branch.start, digest=digest)
    step.table("changes", map(vars, plan.changes))
    step.diff(edits.diff(plan.edits))
    for exception, reason in planned.used_exceptions.items():
        step.allowed(exception, reason)
    if bump.tag is None:
        step.done(_NO_TAG, _GIVE_TAG)
        return display.note("There is nothing to verify.")
    if reason := _not_applicable(branch, plan):
        step.done(reason)
        return display.note(reason)
    step.check(*_checks(branch, plan), planned.check)
    count = f"{display.count(len(plan.changes), 'value')} in {display.count(len(plan.edits), 'file')}"
    if not plan.edits:
        place = bump.branch if branch.tip else bump.base
        step.done(f"Already done: all pins of this step are at {bump.tag} on {place}.")
    elif bump.apply:
        step.done(f"Moved {count} to {bump.tag} on branch {bump.branch}.", "03-open-pr commits them.")
    else:
        files = ", ".join(edits.edited_paths(plan.edits))
        step.would(f"change {display.count(len(plan.changes), 'line')} on branch {bump.branch}: {files}")
        step.done(f"Would change {count} to {bump.tag}.", command(step.name, bump, apply=True))
    return display.note("The record below lists the checks.")


def _not_applicable(branch: bump_branch.BumpBranch, plan: PinPlan) -> str:
    """Return why the repository or this branch has no pin that this step could move; empty if it has one."""
    bump = branch.bump
    notebook = {"github": GITHUB_PIN, "gitlab": GITLAB_PIN}.get(plan.ci, "")
    if reason := bump.repository.inapplicable(notebook):
        return reason
    sites = bump.repository.sites
    for reading in read(branch.checkout.read(sites.pin_paths, branch.start), sites):
        site = reading.site
        is_moved = site.lockstep and site.image_type == bump.image_type
        if is_moved and (site.ci == "gitlab") == (plan.ci == "gitlab") and (reading.pins or reading.problem):
            return ""
    reader = "that GitLab reads" if plan.ci == "gitlab" else "outside GitLab"
    return f"Not applicable: {bump.base} has no {bump.image_type} pin {reader}."


def _checks(branch: bump_branch.BumpBranch, plan: PinPlan) -> list[Check]:
    name = "the files match the plan exactly"
    if not branch.bump.apply:
        return [Check(name, "skipped", "This is a preview.")]
    texts = branch.checkout.read(edits.edited_paths(plan.edits))
    differing = edits.unapplied(plan.edits, texts)
    detail = f"{display.count(len(plan.changes), 'value')} in {display.count(len(texts), 'file')}."
    if differing:
        detail = f"These files differ from the plan: {', '.join(differing)}."
    return [Check.of(name, not differing, detail), untouched(branch)]


def untouched(branch: bump_branch.BumpBranch, ref: str | None = None) -> Check:
    """Check that the bump's branch leaves the pins of the other image type as they are on its base.

    ``ref`` None reads the work tree.  Skipped with ``allow=both-types``, because the bump then moves both.
    """
    bump = branch.bump
    image_type = bump.repository.other_type(bump.image_type)
    if image_type is None:
        return Check("no other pin is touched", "skipped", f"All pins in {bump.repository.name} are of one image type.")
    name = f"the {image_type} pins are untouched"
    if "both-types" in bump.allow:
        return Check(name, "skipped", "both-types is allowed.")
    fork = branch.checkout.merge_base(branch.base_commit, ref or "HEAD") or branch.base_commit
    before = _images(branch, fork, f"lockstep {image_type}")
    after = _images(branch, ref, f"lockstep {image_type}")
    moved = sorted(before ^ after)
    detail = "; ".join(f"{pin} names {image}" for pin, image in moved) or f"{len(after)} pins as on {bump.base}."
    return Check.of(name, not moved, detail)


def _images(branch: bump_branch.BumpBranch, ref: str | None, role: str) -> set[tuple[str, str]]:
    """Return the pins with this role, each with its image."""
    sites = branch.bump.repository.sites
    verdicts = check_pins(branch.checkout.read(sites.pin_paths, ref), sites)
    return {(f"{pin.path} ({pin.selector})", pin.image) for pin in verdicts if pin.role == role}


@dataclass(frozen=True)
class SyncCheck:
    """The pins that step 07 judges: as they are, or as ``planned``, with the current problems in ``findings``."""

    survey: sync_survey.Survey
    planned: bool = False
    findings: tuple[str, ...] = ()


def survey(run: Context, refs: str) -> SyncCheck:
    """Compare the pins on ``refs``, names or patterns separated by spaces or commas.

    Without refs it compares the pins on the bump's branch, or in the work tree if there is no branch yet or it has
    uncommitted pin edits.  A preview compares them as the bump will leave them.  Raises CannotTell for a ref that
    does not exist, and RunbookError for pins that cannot be planned.
    """
    bump, branch, checkout, remote = run.bump, run.branch, run.checkout, run.branch.base_remote
    compare = partial(sync_survey.survey, checkout.path, image_type=bump.image_type, repository=bump.repository)
    names = []
    for ref in refs.replace(",", " ").split():  # a local branch may be outdated, so its remote branch counts
        is_pattern = not set(ref).isdisjoint("*?[")
        if not is_pattern and checkout.tracked_tip(remote, ref):
            ref = f"{remote}/{ref}"
        names.append(ref)
    if names:
        return SyncCheck(compare(names))  # other branches may use another month
    # Run on its own, the step proves that a branch is in sync now; in a bump's preview the edits are still to come.
    if bump.tag and not bump.apply and (branch.tip is None or run.record.parent):
        edits = bump_plan.plan_commit(branch, branch.start).edits
        planned = compare([branch.start], expected=bump.tag, edits=edits, of_bump=True)
        present = compare([branch.start])
        findings = present.sentences if present.outcome != "in sync" else ()
        return SyncCheck(planned, bool(edits), findings)
    if branch.tip and not (branch.on_branch and checkout.uncommitted(bump.repository.sites.pin_paths)):
        names = [branch.start]
    if branch.tip is None:
        return SyncCheck(compare(names))
    return SyncCheck(compare(names, expected=bump.tag, of_bump=True))


def conclude(run: Context, sync: SyncCheck) -> display.View:
    """Record whether the pins agree, or will agree after the planned edits."""
    step, branch, survey = run.record, run.branch, sync.survey
    in_sync = survey.outcome == "in sync"
    summary = survey.summary
    if sync.planned:
        summary = f"With the planned edits: {summary}"
    step.check(Check.of("all pins agree", in_sync, " ".join([summary, *survey.notes])))
    if branch.tip:
        step.check(untouched(branch, branch.start))
    step.table("pins", survey.rows())
    step.warn(*survey.sentences)
    findings = [f"Before this bump: {sentence}" for sentence in sync.findings]
    old_lines = {}
    if branch.bump.tag is not None and survey.image_type is not None:
        try:
            old_lines = old_tag.find(branch, survey.snapshots[0].verdicts)
        except GitFailed as error:
            findings.append(f"{branch.checkout.path} could not be searched for lines that name the old tag. {error}")
    if old_lines:
        places = display.first_names(list(old_lines), _NAMED)
        findings.append(f"The old tag is still named outside of the pins: {places}. A bump does not move these lines.")
    step.warn(*findings)
    step.add_inputs(base_commit=branch.base_commit, head_commit=branch.start)
    step.done(summary, "" if in_sync else "Fix the pins named above; a bump moves them together.")
    view = display.notes((*survey.sentences, *findings)) + display.note(summary)
    if old_lines:
        rows = [{"place": place, "line": line} for place, line in old_lines.items()]
        step.table("old-tag", rows)
        view += display.table(rows)
    return view
