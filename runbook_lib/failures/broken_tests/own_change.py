"""Notebook 06-broken-tests without a tag: re-enable tests and file issues in a separate pull request."""

from dataclasses import dataclass, replace

from runbook_lib import display
from runbook_lib.checks import Evidence, Next
from runbook_lib.failures.broken_tests import issue as tracking
from runbook_lib.failures.broken_tests.rows import RowChange, RowsChanged
from runbook_lib.failures.broken_tests.survey import QuarantineSurvey, read_survey
from runbook_lib.failures.quarantines import recipe_texts
from runbook_lib.model import Condition, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import FUNCTIONAL
from runbook_lib.recipes.targets import Target
from runbook_lib.text import edits
from runbook_lib.text.markdown import code, prose, unlinked
from runbook_lib.world import bump_branch, bump_pull
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.conditions.commits import BranchTip, Pushed
from runbook_lib.world.conditions.issues import IssueFiled
from runbook_lib.world.conditions.pulls import Labelled, PullKey, PullOpen
from runbook_lib.world.outside import World
from runbook_lib.world.ports import Forge


@dataclass(frozen=True)
class OwnChange:
    """A change of rows without a bump, on a ``branch`` and in a pull request of its own."""

    branch: BumpBranch
    head: str
    rows: RowChange

    @property
    def has_commit(self) -> bool:
        """True if the change is committed, here or on the remote, or will be."""
        return bool(self.rows.edits) or self.branch.tip is not None


@dataclass(frozen=True)
class QuarantineFacts:
    """The quarantined tests, and the change of them that a person asks for without a tag, if any."""

    survey: QuarantineSurvey
    change: OwnChange | None = None


def look(world: World, bump: Bump) -> QuarantineFacts:
    """Read the quarantined tests; without a tag also the change's branch, and the issue of each test without one."""
    survey = read_survey(bump_branch.look(world, bump), world.github)
    own = survey.bump
    if own.tag is not None or not (survey.reenabled or survey.untracked):
        return QuarantineFacts(survey)
    branch = bump_branch.look(world, own)
    texts = recipe_texts(branch, [target.case for target in (*survey.reenabled, *survey.untracked)])
    issues = {target: _issue(world.github, survey, target) for target in survey.untracked}
    rows = RowChange(texts, issues, survey.reenabled, True, bool(own.allowed("whole-row")))
    return QuarantineFacts(survey, OwnChange(branch, bump_pull.head_of(world.checkout, own), rows))


def _issue(github: Forge | None, survey: QuarantineSurvey, target: Target) -> IssueFiled:
    found = tracking.open_issue(github, target) if github else None
    test = next(test for test in survey.tests if target.is_of(test.entry.row))
    body = tracking.body_of_quarantined(target, test.entry.row, test.age)
    title = unlinked(f"Quarantined in CI: {target}")
    return tracking.filed(target, title, body, survey.bump.base, found.number if found else 0)


def plan(facts: QuarantineFacts, bump: Bump) -> Plan[World]:
    """Plan the issues, the commit on a branch of its own, the push, and a draft pull request."""
    survey, own = facts.survey, facts.change
    shown, questions = (survey.show(),), survey.questions()
    evidence = Evidence(tables={"quarantined": [test.row for test in survey.tests]}, warnings=survey.notes)
    untracked = sum(test.entry.issue is None for test in survey.tests)
    state = f"{display.count(len(survey.tests), 'quarantined row')} on {bump.base}, {untracked} without an issue"
    if own is None:
        action = Next.again(
            "Name tests under `reenable:`, or under `broken:` to file an issue, in a file:", decisions="FILE"
        )
        return Plan(Outcome(f"No tag was given: {state}.", action), shown, questions=questions, evidence=evidence)
    diff = edits.diff(own.rows.edits)
    change = f"Done: {own.rows.summary}" if own.has_commit else "No row changes"
    return Plan(
        Outcome(f"{change}; {state}."),
        (*shown, display.diff(diff, empty="No recipe changes.")),
        _conditions(own),
        questions,
        evidence=replace(evidence, diff=diff),
        on_branch=own.branch.bump.branch,
    )


def _conditions(own: OwnChange) -> tuple[Condition[World], ...]:
    rows, branch, bump = own.rows, own.branch, own.branch.bump
    tip, key = BranchTip(bump.branch, branch.start), PullKey(own.head, bump.base)
    conditions: list[Condition[World]] = list(rows.issues.values())
    if rows.edits:
        conditions.append(RowsChanged(tip, rows, bump.title))
    if own.has_commit:
        conditions.append(Pushed(tip, bump.remote, branch.remote_tip))
        conditions.append(PullOpen(key, bump.remote, bump.title, _body(rows)))
        if rows.reenabled:
            conditions.append(Labelled(key, frozenset({FUNCTIONAL})))
    return tuple(conditions)


def _body(rows: RowChange) -> str:
    text = ["### Quarantined tests", ""]
    text += [f"- {code(str(target))} is re-enabled: {prose(target.reason)}" for target in rows.reenabled]
    for target, issue in rows.issues.items():
        tracked = f"#{issue.known}" if issue.known else "the issue that its row names"
        text.append(f"- {code(str(target))} is tracked by {tracked}")
    return "\n".join([*text, ""])
