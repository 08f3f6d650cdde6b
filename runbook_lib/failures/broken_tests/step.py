"""Notebook 06-broken-tests: why the jobs of a CI run failed, and what a person decided about their tests."""

from dataclasses import dataclass, replace
from typing import ClassVar

from runbook_lib import notebooks
from runbook_lib.failures.broken_tests import decide, failures, quarantine, survey
from runbook_lib.failures.broken_tests.change import QuarantineChange
from runbook_lib.failures.broken_tests.quarantine import RunFailures
from runbook_lib.failures.broken_tests.survey import QuarantineSurvey
from runbook_lib.golden import bisect_offer, run_choice
from runbook_lib.model import Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.world import bump_branch, pull_request
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git.commits import follow, tree_with
from runbook_lib.world.outside import World


@dataclass(frozen=True)
class BrokenTestFacts:
    """The tests quarantined on the base branch, and in a bump the failures of its run."""

    survey: QuarantineSurvey
    found: RunFailures | None = None


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
        surveyed = survey.look(world, branch)
        found = self._look_failures(world, branch) if bump.tag is not None else None
        if bump.apply and found:
            _require_committable(branch, found.decisions.change)
        if bump.apply and (own := surveyed.own):
            _require_committable(own.branch, own.change)
        return BrokenTestFacts(surveyed, found)

    def _look_failures(self, world: World, branch: BumpBranch) -> RunFailures:
        state = pull_request.read_state(branch, world.github, records=world.records)
        triaged = failures.triage(run_choice.choose_run(state, run_id=self.run_id, source=self.source))
        searches = bisect_offer.look_searches(branch, world.records)
        return RunFailures(triaged, decide.decide(triaged, searches), searches)

    def plan(self, facts: BrokenTestFacts, bump: Bump) -> Plan[World]:
        """Plan the responses to the run; without a tag, the change of quarantined tests."""
        if facts.found is None:
            return survey.plan(facts.survey, bump)
        planned, surveyed = quarantine.plan(facts.found, bump), facts.survey
        kept, listed = planned.evidence, surveyed.evidence
        return replace(
            planned,
            shown=(*planned.shown, surveyed.show()),
            questions=(*planned.questions, *surveyed.questions()),
            evidence=replace(
                kept, tables={**kept.tables, **listed.tables}, warnings=(*kept.warnings, *listed.warnings)
            ),
        )


def _require_committable(branch: BumpBranch, change: QuarantineChange) -> None:
    """Raise RunbookError for anything that would prevent the commit, before an issue is filed for it."""
    if planned := change.edits:
        branch.checkout.identity()
        tree = tree_with(branch.checkout, branch.start, planned)
        name = branch.bump.branch
        follow(branch.checkout, name, tree, branch.checkout.branch_tip(name), "-n")
