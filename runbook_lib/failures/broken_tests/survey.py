"""Notebook 06-broken-tests, third part: the tests quarantined on the base branch.

A bump lists them and offers to try them again.  Without a tag, tests are re-enabled, and issues filed for rows that
have none, on a separate branch and in a separate pull request.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from runbook_lib import display, notebooks
from runbook_lib.checks import Evidence, Next
from runbook_lib.decisions import Decision, Kind
from runbook_lib.errors import Refused
from runbook_lib.failures import quarantines
from runbook_lib.failures.broken_tests import issue as tracking
from runbook_lib.failures.broken_tests import passing
from runbook_lib.failures.broken_tests.change import QuarantineChange, QuarantineCommitted
from runbook_lib.failures.broken_tests.passing import PassingRuns
from runbook_lib.model import Condition, Outcome, Plan, Question
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import FUNCTIONAL
from runbook_lib.text import edits
from runbook_lib.text.markdown import code, prose
from runbook_lib.text.recipes import quarantine
from runbook_lib.text.recipes.rows import Target
from runbook_lib.world import bump_branch, bump_pull
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.conditions.commits import BranchTip, Pushed
from runbook_lib.world.conditions.forge import Described, Labelled, PullKey, PullOpen
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.command import GitFailed
from runbook_lib.world.github.models import Pull
from runbook_lib.world.machine.clock import now
from runbook_lib.world.ports import World


@dataclass(frozen=True)
class QuarantinedTest:
    """A row that is switched off, the date and commit of its current scope, and the state of its issue, if queried.

    ``ran`` are its runs in an open pull request that re-enables it.
    """

    entry: quarantine.QuarantinedRow
    since: datetime | None = None
    commit: str = ""
    state: str = ""
    ran: PassingRuns | None = None

    @property
    def name(self) -> str:
        """The test as a decision names it; the first platform stands for all platforms of the row."""
        return f"{self.entry.test}@{next(iter(self.entry.row.platforms), '')}"

    @property
    def age(self) -> str:
        """The age in words."""
        if self.since is None:
            return "unknown"
        return f"{display.count((now() - self.since).days, 'day')}, since {self.since:%Y-%m-%d} ({self.commit[:10]})"

    @property
    def row(self) -> dict[str, object]:
        """The test's table row."""
        row = self.entry.row
        issue = f"#{self.entry.issue} {self.state}".strip() if self.entry.issue else "none"
        environments, platforms = ", ".join(row.environments), ", ".join(row.platforms)
        return {
            "test": self.entry.test, "environments": environments, "platforms": platforms,
            "scopes": ", ".join(cell.value for cell in row.scopes), "age": self.age, "issue": issue,
            "runs": self.ran.sentence if self.ran else "", "row": self.entry.place,
        }  # fmt: skip


@dataclass(frozen=True)
class OwnChange:
    """A change of quarantined tests without a bump, on a ``branch`` and in a pull request of its own.

    ``passing`` are the runs of the re-enabled tests in it.
    """

    branch: BumpBranch
    head: str
    change: QuarantineChange
    passing: tuple[PassingRuns, ...] = ()

    @property
    def has_commit(self) -> bool:
        """True if the change is committed, here or on the remote, or will be."""
        return bool(self.change.edits) or self.branch.tip is not None


@dataclass(frozen=True)
class QuarantineSurvey:
    """The base branch's quarantined tests, and without a tag the change of them that a person asks for, if any."""

    bump: Bump
    tests: tuple[QuarantinedTest, ...] = ()
    notes: tuple[str, ...] = ()
    own: OwnChange | None = None

    def questions(self) -> tuple[Question, ...]:
        """Return what a person may decide about each quarantined test."""
        bump = self.bump
        asked = []
        for test in self.tests:
            if bump.image_type not in test.entry.row.environments or not test.entry.row.platforms:
                continue
            issue = f"#{test.entry.issue} {test.state}".strip() if test.entry.issue else "without an issue"
            kind: Kind = "reenable"
            reason = ""
            if bump.tag is not None:
                reason = f"try it on {bump.tag}"
            elif test.ran and test.ran.passed and not test.ran.failed:
                reason = test.ran.sentence
            elif test.entry.issue is None:
                kind = "broken"
                reason = f"quarantined since {test.since:%Y-%m-%d} without an issue" if test.since else ""
            asked.append(Question(kind, test.name, f"Quarantined: {test.age}, {issue}.", reason))
        return tuple(asked)

    @property
    def evidence(self) -> Evidence:
        """What the record keeps."""
        return Evidence(tables={"quarantined": [test.row for test in self.tests]}, warnings=self.notes)

    def show(self) -> display.View:
        """Show the quarantined tests with their age."""
        view = display.table((test.row for test in self.tests), empty=f"No test is quarantined on {self.bump.base}.")
        return view + display.notes(self.notes, title="Also")


def look(world: World, branch: BumpBranch) -> QuarantineSurvey:
    """Read the base branch's quarantined tests; without a tag, also the change that people decided on.

    Raises Refused for a broken test that is not quarantined: only a bump's run shows that it is broken.
    """
    bump, checkout, github = branch.bump, branch.checkout, world.github
    if bump.repository.inapplicable(notebooks.BROKEN_TESTS):
        return QuarantineSurvey(bump)
    on_base = replace(branch, start=branch.base_commit)
    texts = quarantines.recipe_texts(on_base, quarantine.OFF_TEXTS)
    entries, notes = quarantine.quarantined_rows(texts, checkout.repository())
    dates = _dates(checkout, branch.base_commit, texts, entries)
    names = {entry: Target(entry.row.case, next(iter(entry.row.platforms), ""), bump.image_type, entry.row.model)
             for entry in entries}  # fmt: skip
    if bump.tag is not None:
        reenabled, broken = dict[Target, Decision](), dict[Target, Decision]()
    else:
        reenabled, broken = (quarantines.resolve_targets(branch, kind) for kind in ("reenable", "broken"))
    states, own_pulls = dict[int | None, str](), list[int]()
    if entries and bump.tag is None and github is not None:
        states = quarantines.issue_states(github, entries)
        own_pulls = [pull.number for pull in github.pulls(base=bump.base) if _is_own(pull, branch)]
    ran = passing.look(github, own_pulls, [*names.values(), *reenabled])
    runs = {each.test: each for each in ran if each.passed or each.failed}
    tests = []
    for entry, target in names.items():
        since, commit = dates.get((entry.row.recipe, entry.row.line), (None, ""))
        tests.append(QuarantinedTest(entry, since, commit, states.get(entry.issue, ""), runs.get(target)))
    tests.sort(key=lambda test: (test.since is None, test.since))
    survey = QuarantineSurvey(bump, tuple(tests), notes)
    untracked: dict[Target, QuarantinedTest] = {}
    for target in broken:
        found = [test for test in tests if target.is_of(test.entry.row)]
        if not found:
            advice = "Give the tag of the bump whose CI run it failed in."
            raise Refused(f"{target} is not quarantined on {bump.base}. {advice}")
        if any(test.entry.issue is None for test in found):
            untracked[target] = found[0]
        else:
            survey = replace(survey, notes=(*survey.notes, f"#{found[0].entry.issue} already tracks {target}."))
    if not (reenabled or untracked):
        return survey
    own = _own_bump(bump, [*reenabled, *untracked], "re-enable" if reenabled else "track")
    branch = bump_branch.look(world, own)
    issues = {}
    for target, test in untracked.items():
        issues[target] = tracking.of_quarantined(github, target, own, test.entry.row, test.age)
    change = QuarantineChange(quarantines.files_of(branch, [*reenabled, *untracked]), issues, tuple(reenabled))
    if own.allowed("whole-row") is None:
        change.require_own_rows()
    passed = tuple(each for each in ran if each.test in reenabled)
    own_change = OwnChange(branch, bump_pull.head_of(checkout, own), change, passed)
    return replace(survey, own=own_change)


def _is_own(pull: Pull, branch: BumpBranch) -> bool:
    """Return True for our pull request that changes quarantined tests."""
    own = replace(branch.bump, current_branch=pull.head_ref)
    return pull.head_ref.startswith("quarantine/") and bump_pull.is_mine(pull, bump_pull.head_of(branch.checkout, own))


def _own_bump(bump: Bump, targets: list[Target], verb: str) -> Bump:
    """Return the parameters with a branch and a title for a change of these tests."""
    names = sorted(re.sub(r"[^\w.-]+", "-", f"{target.case}-{target.platform}").strip("-") for target in targets)
    slug, tests = names[0], targets[0].case
    if len(names) > 1:
        slug = f"{len(names)}-tests-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:8]}"
        tests = f"{len(names)} tests"
    return replace(bump, current_branch=f"quarantine/{bump.base}/{slug}", change_title=f"test: {verb} {tests}")


def plan(survey: QuarantineSurvey, bump: Bump) -> Plan[World]:
    """Plan the issues, the commit on a branch of its own, the push, and a draft pull request."""
    own, shown, questions = survey.own, (survey.show(),), survey.questions()
    evidence = survey.evidence
    untracked = sum(test.entry.issue is None for test in survey.tests)
    state = f"{display.count(len(survey.tests), 'quarantined row')} on {bump.base}, {untracked} without an issue"
    if own is None:
        action = Next.again(
            "Name tests under `reenable:`, or under `broken:` to file an issue, in a file:", decisions="decisions.yaml"
        )
        return Plan(Outcome(f"No tag was given: {state}.", action), shown, questions=questions, evidence=evidence)
    diff = edits.diff(own.change.edits)
    change = f"Done: {own.change.summary}" if own.has_commit else "No row changes"
    return Plan(
        Outcome(f"{change}; {state}."),
        (*shown, display.diff(diff, empty="No recipe changes."), passing.show(own.passing)),
        _conditions(own),
        questions,
        evidence=replace(evidence, diff=diff),
        on_branch=own.branch.bump.branch,
    )


def _conditions(own: OwnChange) -> tuple[Condition[World], ...]:
    change, branch, bump = own.change, own.branch, own.branch.bump
    tip, key = BranchTip(bump.branch, branch.start), PullKey(own.head, bump.base)
    conditions: list[Condition[World]] = list(change.issues.values())
    if change.edits:
        conditions.append(QuarantineCommitted(tip, change, bump.title))
    if own.has_commit:
        conditions.append(Pushed(tip, bump.remote, branch.remote_tip))
        body = bump_pull.marked(_body(own), bump, "broken-tests")
        conditions += [PullOpen(key, bump.remote, bump.title, body), Described(key, body, "broken-tests")]
        if change.reenabled and bump.repository.tests.recipes:
            conditions.append(Labelled(key, frozenset({FUNCTIONAL})))
    return tuple(conditions)


def _body(own: OwnChange) -> str:
    """Return our part of the description: what is re-enabled, with the runs that show that it passes, or tracked."""
    text = ["### Quarantined tests", ""]
    ran = {each.test: each.sentence for each in own.passing}
    for target in own.change.reenabled:
        words = filter(None, (prose(target.reason), ran.get(target)))
        text.append(f"- {code(str(target))} is re-enabled: {'; '.join(words)}".removesuffix(": "))
    text += [f"- {code(str(target))} is tracked by the issue that its row names" for target in own.change.issues]
    return "\n".join(text)


def _dates(
    checkout: Checkout, commit: str, texts: Mapping[str, str], entries: Iterable[quarantine.QuarantinedRow]
) -> dict[tuple[str, int], tuple[datetime, str]]:
    """Return the time and commit of the last change to each row's scope, by recipe and line."""
    lines: dict[str, dict[int, int]] = defaultdict(dict)
    for entry in entries:
        row = entry.row
        off = quarantine.switched_off(row)[0]
        lines[row.recipe][texts[row.recipe].count("\n", 0, off.end) + 1] = row.line
    dates = {}
    for recipe, rows in lines.items():
        ranges = [f"-L{line},{line}" for line in rows]
        try:
            blame = checkout.git("blame", "--line-porcelain", *ranges, commit, "--", recipe)
        except GitFailed:
            continue  # the age is unknown
        commit_id, number = "", 0
        for text in blame.split("\n"):  # lines of the file's content begin with a tab
            if header := re.match(r"([0-9a-f]{40,64}) [0-9]{1,9} ([0-9]{1,9})", text):
                commit_id, number = header[1], int(header[2])
            elif text.startswith("committer-time ") and number in rows:
                changed = datetime.fromtimestamp(int(text.partition(" ")[2]), UTC)
                dates[recipe, rows[number]] = (changed, commit_id)
    return dates
