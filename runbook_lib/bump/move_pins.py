"""Notebooks 01-github-pin and 02-gitlab-pin: show the pins, and move them."""

from dataclasses import dataclass
from typing import Literal

from runbook_lib import display
from runbook_lib.bump import bump_plan, sync_survey
from runbook_lib.bump.bump_plan import PlannedBump
from runbook_lib.checks import Evidence, Next
from runbook_lib.model import Outcome, Plan
from runbook_lib.notebooks import GITHUB_PIN, GITLAB_PIN, OPEN_PR
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.sites import read
from runbook_lib.text import edits
from runbook_lib.world import bump_branch
from runbook_lib.world.conditions.commits import BranchTip, Committed
from runbook_lib.world.outside import World

_NO_TAG = Outcome("No tag was given, so nothing is planned.", Next.again(tag="26.04-py3"))


@dataclass(frozen=True)
class PinFacts:
    """The bump's branch, and the plan on its newest commit with the registry's answer.

    ``inapplicable`` says why the step has no pin to move, and ``rows`` are the present pins.
    """

    branch: bump_branch.BumpBranch
    planned: PlannedBump
    inapplicable: str
    rows: list[dict[str, str]]


@dataclass(frozen=True)
class PinStep:
    """The step that shows the pins of one CI.

    All pins move in one commit, so that no commit has only some of them: the first of the two steps makes it, and the
    second one finds it.
    """

    NAME: str
    ci: Literal["github", "gitlab"]

    def look(self, world: World, bump: Bump) -> PinFacts:
        """Read the branch and the registry.  Raises RunbookError like ``bump_plan.plan_bump``."""
        branch = bump_branch.look(world, bump)
        planned = bump_plan.plan_bump(branch)
        inapplicable = _not_applicable(branch, self.NAME, self.ci)
        pins = sync_survey.survey(branch.checkout.path, [branch.start], repository=bump.repository)
        return PinFacts(branch, planned, inapplicable, pins.rows())

    def plan(self, facts: PinFacts, bump: Bump) -> Plan[World]:
        """Plan the commit.  Raises Refused for an image that cannot be used, unless this is a preview."""
        branch, planned = facts.branch, facts.planned
        part = planned.plan.part(self.ci)
        evidence = Evidence(
            inputs={
                "base_commit": branch.base_commit,
                "plan_from": branch.start,
                "digest": planned.image and planned.image.digest,
            },
            tables={"changes": list(map(vars, planned.plan.changes))},
            diff=edits.diff(planned.plan.edits),
            decided=planned.decided,
            warnings=(*branch.warnings, *part.warnings),
        )
        if bump.tag is None:
            shown = display.note(f"{_NO_TAG.sentence} {_NO_TAG.next}") + display.table(facts.rows)
            return Plan(_NO_TAG, (shown,), evidence=evidence)
        if facts.inapplicable:
            return Plan(Outcome(facts.inapplicable), (display.note(facts.inapplicable),), evidence=evidence)
        if bump.apply:
            planned.require()
        no_change = f"All pins of this step are already at {bump.tag}: nothing to change."
        shown = display.note(branch.describe()) + display.diff(edits.diff(part.edits), empty=no_change)
        message = bump_plan.commit_message(bump, planned.plan)
        tip = BranchTip(bump.branch, branch.start)
        committed = Committed(tip, planned.plan.edits, message, "the branch has the complete bump")
        place = bump.branch if branch.tip or part.edits else bump.base
        return Plan(
            Outcome(f"All pins of this step are at {bump.tag} on {place}.", Next.run(OPEN_PR)),
            (shown,),
            conditions=(committed,) if planned.plan.edits else (),
            checks=(planned.check,),  # the plan has proven that no other pin moves
            evidence=evidence,
        )


github = PinStep(GITHUB_PIN, "github")
gitlab = PinStep(GITLAB_PIN, "gitlab")


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
