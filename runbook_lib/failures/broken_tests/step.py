"""Notebook 06-broken-tests: why the jobs of a CI run failed, and what a person decided about their tests."""

from dataclasses import dataclass, replace
from typing import ClassVar

from runbook_lib import notebooks
from runbook_lib.checks import Evidence
from runbook_lib.failures.broken_tests import decide, failures, quarantine, survey
from runbook_lib.failures.broken_tests.change import QuarantineChange
from runbook_lib.failures.broken_tests.quarantine import RunFailures
from runbook_lib.failures.broken_tests.survey import QuarantineSurvey
from runbook_lib.git.commits import follow, tree_with
from runbook_lib.golden import bisect_offer, run_choice
from runbook_lib.model import Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.world import bump_branch, pull_request
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.outside import World


@dataclass(frozen=True)
class BrokenTestFacts:
    """The failures of the run, and the tests quarantined on the base branch."""

    found: RunFailures
    survey: QuarantineSurvey


@dataclass(frozen=True)
class BrokenTests:
    """The step; ``run_id`` and ``source`` name the run."""

    run_id: str = ""
    source: str = "github"

    NAME: ClassVar[str] = notebooks.BROKEN_TESTS

    def look(self, world: World, bump: Bump) -> BrokenTestFacts:
        """Read the run, its logs and golden values, the recipes, and the issues of the tests.

        Raises Refused for a decision that cannot be carried out, before anything is filed.
        """
        branch = bump_branch.look(world, bump)
        state = pull_request.read_state(branch, world.github, records=world.records)
        triaged = failures.triage(run_choice.choose_run(state, run_id=self.run_id, source=self.source))
        searches = bisect_offer.look_searches(branch, world.records)
        decided = decide.decide(triaged, searches)
        surveyed = survey.look(world, branch)
        if bump.apply:
            _require_committable(branch, decided.change)
            if own := surveyed.own:
                _require_committable(own.branch, own.change)
        return BrokenTestFacts(RunFailures(triaged, decided, searches), surveyed)

    def plan(self, facts: BrokenTestFacts, bump: Bump) -> Plan[World]:
        """Plan the responses to the run; without a tag, the change of quarantined tests."""
        if bump.tag is None:
            own = survey.plan(facts.survey, bump)
            kept, shown = quarantine.evidence(facts.found), (facts.found.triage.show(), *own.shown)
            return replace(own, shown=shown, evidence=_joined(replace(kept, diff=own.evidence.diff), own.evidence))
        planned, surveyed = quarantine.plan(facts.found, bump), facts.survey
        return replace(
            planned,
            shown=(*planned.shown, surveyed.show()),
            questions=(*planned.questions, *surveyed.questions()),
            evidence=_joined(planned.evidence, surveyed.evidence),
        )


def _joined(evidence: Evidence, of_survey: Evidence) -> Evidence:
    """Return the evidence with the tables and warnings of the survey."""
    tables, warnings = {**evidence.tables, **of_survey.tables}, (*evidence.warnings, *of_survey.warnings)
    return replace(evidence, tables=tables, warnings=warnings)


def _require_committable(branch: BumpBranch, change: QuarantineChange) -> None:
    """Raise RunbookError for anything that would prevent the commit, before an issue is filed for it."""
    if planned := change.edits:
        branch.checkout.identity()
        tree = tree_with(branch.checkout, branch.start, planned)
        name = branch.bump.branch
        follow(branch.checkout, name, tree, branch.checkout.branch_tip(name), "-n")
