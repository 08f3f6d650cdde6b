"""Notebooks 01-github-pin, 02-gitlab-pin and 07-sync-check: show the pins, move them, and compare them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from runbook_lib import display
from runbook_lib.bump import Bump
from runbook_lib.checks import Check, Evidence
from runbook_lib.git.command import GitFailed
from runbook_lib.model import Outcome, Plan
from runbook_lib.notebooks import GITHUB_PIN, GITLAB_PIN, OPEN_PR
from runbook_lib.pins.check import check_pins
from runbook_lib.pins.plan import PinPlan
from runbook_lib.pins.sites import Sites, read
from runbook_lib.steps.context import Context
from runbook_lib.text import edits
from runbook_lib.workflow import bump_branch, bump_plan, old_tag, sync_survey
from runbook_lib.workflow.bump_plan import PlannedBump
from runbook_lib.world.conditions.commits import BranchTip, Committed
from runbook_lib.world.outside import World

_NAMED = 5  # lines in a sentence
_NO_TAG = Outcome("No tag was given, so nothing is planned.", "Run again with a tag, such as -p tag 26.04-py3.")


@dataclass(frozen=True)
class PinFacts:
    """The bump's branch, and the plan on its newest commit with the registry's answer."""

    branch: bump_branch.BumpBranch
    planned: PlannedBump

    def evidence(self, part: PinPlan) -> Evidence:
        """Return what the record keeps of a step that shows this part of the plan."""
        branch, planned = self.branch, self.planned
        digest = planned.image and planned.image.digest
        return Evidence(
            inputs={"base_commit": branch.base_commit, "plan_from": branch.start, "digest": digest},
            tables={"changes": list(map(vars, planned.plan.changes))},
            diff=edits.diff(planned.plan.edits),
            exceptions=planned.used_exceptions,
            warnings=(*branch.warnings, *part.warnings),
        )


@dataclass(frozen=True)
class PinStep:
    """The step that shows the pins of one CI.

    All pins move in one commit, so that no commit has only some of them: the first of the two steps makes it, and the
    second one finds it.
    """

    notebook: str
    ci: Literal["github", "gitlab"]

    def look(self, world: World, bump: Bump) -> PinFacts:
        """Read the branch and the registry.  Raises RunbookError like ``bump_plan.plan_bump``."""
        branch = bump_branch.look(world, bump)
        return PinFacts(branch, bump_plan.plan_bump(branch))

    def plan(self, facts: PinFacts, bump: Bump) -> Plan[World]:
        """Plan the commit.  Raises Refused for an image that cannot be used, unless this is a preview."""
        branch, planned = facts.branch, facts.planned
        part = planned.plan.part(self.ci)
        evidence = facts.evidence(part)
        if bump.tag is None:
            shown = display.note(f"{_NO_TAG.sentence} {_NO_TAG.next}") + display.table(bump_plan.pin_rows(branch))
            return Plan(_NO_TAG, (shown,), evidence=evidence)
        if reason := _not_applicable(branch, self.notebook, self.ci):
            return Plan(Outcome(reason), (display.note(reason),), evidence=evidence)
        if bump.apply:
            planned.require()
        no_change = f"All pins of this step are already at {bump.tag}: nothing to change."
        shown = display.note(branch.describe()) + display.diff(edits.diff(part.edits), empty=no_change)
        place = bump.branch if branch.tip or part.edits else bump.base
        return Plan(
            Outcome(f"All pins of this step are at {bump.tag} on {place}.", OPEN_PR),
            (shown,),
            conditions=pins_committed(facts),
            checks=(planned.check, *_untouched(facts)),
            evidence=evidence,
        )


github = PinStep(GITHUB_PIN, "github")
gitlab = PinStep(GITLAB_PIN, "gitlab")


def pins_committed(facts: PinFacts) -> tuple[Committed, ...]:
    """Return the condition that all pins are committed; none if the branch has them."""
    branch, plan = facts.branch, facts.planned.plan
    if not plan.edits:
        return ()
    tip = BranchTip(branch.bump.branch, branch.start)
    message = bump_plan.commit_message(branch.bump, plan)
    return (Committed(tip, plan.edits, message, "the branch has the complete bump"),)


def _not_applicable(branch: bump_branch.BumpBranch, notebook: str, ci: str) -> str:
    """Return why the repository or this branch has no pin that this step could move; empty if it has one."""
    bump = branch.bump
    if reason := bump.repository.inapplicable(notebook):
        return reason
    sites = bump.repository.sites
    for reading in read(branch.checkout.read(sites.pin_paths, branch.start), sites):
        site = reading.site
        is_moved = site.lockstep and site.image_type == bump.image_type
        if is_moved and (site.ci == "gitlab") == (ci == "gitlab") and (reading.pins or reading.problem):
            return ""
    reader = "that GitLab reads" if ci == "gitlab" else "outside GitLab"
    return f"Not applicable: {bump.base} has no {bump.image_type} pin {reader}."


def _untouched(facts: PinFacts) -> tuple[Check, ...]:
    """Check that the planned texts leave the pins of the other image type as they are where the branch starts."""
    branch = facts.branch
    before = branch.checkout.read(branch.bump.repository.sites.pin_paths, branch.start)
    after = before | {edit.path: edit.after for edit in facts.planned.plan.edits if edit.path in before}
    return (_compare_other_type(branch.bump, before, after),)


def untouched(branch: bump_branch.BumpBranch, ref: str) -> Check:
    """Check that a commit of the bump's branch leaves the pins of the other image type as they are on its base."""
    paths = branch.bump.repository.sites.pin_paths
    fork = branch.checkout.merge_base(branch.base_commit, ref) or branch.base_commit
    return _compare_other_type(branch.bump, branch.checkout.read(paths, fork), branch.checkout.read(paths, ref))


def _compare_other_type(bump: Bump, before: Mapping[str, str | None], after: Mapping[str, str | None]) -> Check:
    """Compare the lockstep pins of the other image type; skipped with ``allow=both-types``, which moves both."""
    image_type = bump.repository.other_type(bump.image_type)
    if image_type is None:
        return Check("no other pin is touched", "skipped", f"All pins in {bump.repository.name} are of one image type.")
    name = f"the {image_type} pins are untouched"
    if "both-types" in bump.allow:
        return Check(name, "skipped", "both-types is allowed.")
    sites, role = bump.repository.sites, f"lockstep {image_type}"
    old, new = _images(before, sites, role), _images(after, sites, role)
    detail = "; ".join(f"{pin} names {image}" for pin, image in sorted(old ^ new))
    return Check.of(name, not detail, detail or f"{len(new)} pins as on {bump.base}.")


def _images(texts: Mapping[str, str | None], sites: Sites, role: str) -> set[tuple[str, str]]:
    """Return the pins with this role, each with its image."""
    return {(f"{pin.path} ({pin.selector})", pin.image) for pin in check_pins(texts, sites) if pin.role == role}


@dataclass(frozen=True)
class SyncCheck:
    """The pins that step 07 judges: as they are, or as ``planned``, with the current problems in ``findings``."""

    survey: sync_survey.Survey
    planned: bool = False
    findings: tuple[str, ...] = ()


def survey(run: Context, refs: str) -> SyncCheck:
    """Compare the pins on ``refs``, names or patterns separated by spaces or commas.

    Without refs it compares the pins on the bump's branch, or in the work tree if there is no branch yet.  A preview
    compares them as the bump will leave them.  Raises CannotTell for a ref that does not exist, and RunbookError for
    pins that cannot be planned.
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
    if branch.tip is None:
        return SyncCheck(compare(names))
    return SyncCheck(compare([branch.start], expected=bump.tag, of_bump=True))


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
