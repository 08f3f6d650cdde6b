"""Steps 1, 2 and 7: show how the pins would move, move them in the checkout, and verify by reading again."""

from collections.abc import Sequence

from runbook_lib import display, notebooks
from runbook_lib.checks import Check
from runbook_lib.display import View
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.check import check_pins
from runbook_lib.pins.plan import Plan
from runbook_lib.pins.sites import Sites
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner.command_line import command
from runbook_lib.text import edits
from runbook_lib.workflow import bump_branch, bump_plan, sync_survey
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.bump_plan import PlannedBump
from runbook_lib.workflow.sync_survey import Survey

NO_TAG = "No tag was given, so nothing is planned."
HOW = "Run again with a tag, such as -p tag 26.04-py3."


def show(branch: BumpBranch, plan: Plan) -> View:
    """Where the plan starts and its diff; without a tag, every pin as it stands."""
    if branch.bump.tag is None:
        return display.note(f"{NO_TAG} {HOW}") + display.table(bump_plan.pin_rows(branch))
    done = _idle(branch, plan) or f"Every pin of this step already names {branch.bump.tag}: nothing to change."
    shown = display.note(branch.describe()) + display.diff(edits.diff(plan.edits), empty=done)
    return shown + display.notes((*branch.warnings, *plan.warnings), title="Warnings")


def carry_out(step: StepRecord, branch: BumpBranch, ahead: PlannedBump, plan: Plan) -> View:
    """Make the edits in the checkout, on the bump's branch; in a preview, say so and do nothing."""
    if not branch.bump.apply:
        return display.note("This is a preview: nothing was changed.")
    ahead.require()
    written = bump_branch.apply_edits(branch, plan.edits)
    for edit in written:
        step.effect("edit", edit.path, *edit.digests)
    if why := _idle(branch, plan):
        return display.note(why)
    if not plan.edits:
        return display.note("The branch holds these values already: nothing was written.")
    found = len(plan.edits) - len(written)
    held = f" {display.count(found, 'file')} already held the plan." if found else ""
    return display.note(f"Wrote {display.count(len(written), 'file')} on the branch {branch.bump.branch}.{held}")


def verify(step: StepRecord, branch: BumpBranch, ahead: PlannedBump, plan: Plan) -> View:
    """Read the files again, and tell the record what was done or would be."""
    bump = branch.bump
    step.warn(*branch.warnings, *plan.warnings)
    step.add_inputs(base_commit=branch.base_commit, plan_from=branch.start, digest=ahead.image and ahead.image.digest)
    step.table("changes", [vars(change) for change in plan.changes])
    step.diff(edits.diff(plan.edits))
    for name, why in ahead.used_exceptions.items():
        step.allowed(name, why)
    if bump.tag is None:
        step.done(NO_TAG, HOW)
        return display.note("There is nothing to verify.")
    if why := _idle(branch, plan):
        step.done(why)
        return display.note(why)
    step.check(*_checks(branch, plan), ahead.check)
    count = f"{display.count(len(plan.changes), 'value')} in {display.count(len(plan.edits), 'file')}"
    if not plan.edits:
        step.done(f"Found done: every pin of this step names {bump.tag} on {bump.branch if branch.tip else bump.base}.")
    elif bump.apply:
        step.done(f"Moved {count} to {bump.tag}, on the branch {bump.branch}.", "03-open-pr commits them.")
    else:
        files = ", ".join(edit.path for edit in plan.edits)
        step.would(f"change {display.count(len(plan.changes), 'line')} on the branch {bump.branch}: {files}")
        step.done(f"Would change {count} to {bump.tag}.", command(step.name, bump, apply=True))
    return display.note("The checks are in the record below.")


def _idle(branch: BumpBranch, plan: Plan) -> str:
    """Why the repository has nothing for this step to move; empty where it has."""
    return branch.bump.repository.idle(
        {"github": notebooks.GITHUB_PIN, "gitlab": notebooks.GITLAB_PIN}.get(plan.ci, "")
    )


def _checks(branch: BumpBranch, plan: Plan) -> list[Check]:
    holds = "the files hold exactly the plan"
    if not branch.bump.apply:
        return [Check(holds, "skipped", "This is a preview.")]
    texts = branch.checkout.read([edit.path for edit in plan.edits])
    wrong = [edit.path for edit in plan.edits if texts[edit.path] != edit.after]
    held = f"{display.count(len(plan.changes), 'value')} in {display.count(len(texts), 'file')}."
    detail = f"{', '.join(wrong)} is not as planned." if wrong else held
    return [Check.of(holds, not wrong, detail), untouched(branch)]


def untouched(branch: BumpBranch, ref: str | None = None) -> Check:
    """Whether the pins of the other image type are, on the bump's branch, what they are where it left its base.

    ``ref`` None reads the work tree.  Skipped with ``allow=both-types``, as the bump then moves both.
    """
    bump = branch.bump
    kind = bump.repository.other_type(bump.image_type)
    if kind is None:
        return Check("no other pin is touched", "skipped", f"{bump.repository.name} has pins of one type alone.")
    name, sites = f"the {kind} pins are untouched", bump.repository.sites
    if "both-types" in bump.allow:
        return Check(name, "skipped", "both-types is allowed.")
    fork = branch.checkout.merge_base(branch.base_commit, ref or "HEAD") or branch.base_commit
    before, after = (_frozen(branch.checkout, at, f"lockstep {kind}", sites) for at in (fork, ref))
    moved = sorted(set(after) ^ set(before))
    told = "; ".join(f"{path} names {image}" for path, image in moved) or f"{len(after)} pins as on {bump.base}."
    return Check.of(name, not moved, told)


def _frozen(checkout: Checkout, ref: str | None, role: str, sites: Sites) -> list[tuple[str, str]]:
    verdicts = check_pins(checkout.read(sites.pin_paths, ref), sites)
    return [(f"{it.path} ({it.selector})", it.image) for it in verdicts if it.role == role]


def survey(branch: BumpBranch, refs: str) -> Survey:
    """The pins on the refs asked for (names or patterns, apart by spaces or commas).

    Without any: on the bump's branch, as committed, or as the work tree has it while edits wait to be committed; and
    before there is a branch, as the work tree has it.
    """
    bump, checkout = branch.bump, branch.checkout
    asked: Sequence[str] = refs.replace(",", " ").split()
    if not asked and branch.tip and not (branch.on_branch and checkout.uncommitted(bump.repository.sites.pin_paths)):
        asked = [branch.start]
    asked = [_known(checkout, branch.base_remote, ref) for ref in asked]
    # Another branch may well stand on another month: only the bump's own must have the tag.
    expected = bump.tag if branch.tip and not refs else None
    return sync_survey.survey(
        checkout.path, asked, expected=expected, image_type=bump.image_type, repository=bump.repository
    )


def _known(checkout: Checkout, remote: str, ref: str) -> str:
    """The remote's branch of that name, which is newer than a local one and there in a fresh clone too."""
    tracked = not set(ref) & set("*?[") and checkout.tracked_tip(remote, ref)
    return f"{remote}/{ref}" if tracked else ref


def conclude(step: StepRecord, branch: BumpBranch, found: Survey) -> View:
    """Tell the record whether the pins agree."""
    outcome = found.outcome
    step.check(Check.of("all pins agree", outcome == "in sync", " ".join([found.summary, *found.notes])))
    if branch.tip:
        step.check(untouched(branch, branch.start))
    step.table("pins", found.rows())
    step.warn(*found.sentences)
    step.add_inputs(base_commit=branch.base_commit, head_commit=branch.start)
    step.done(found.summary, "" if outcome == "in sync" else "Mend the pins named above; a bump moves them together.")
    return display.notes(found.sentences) + display.note(found.summary)
