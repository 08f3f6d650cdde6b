"""Notebook 06-broken-tests: the tests quarantined on the base branch, and how often re-enabled ones have passed.

A bump lists them and offers to try them again.  Without a tag, tests are re-enabled, and issues filed for rows that
have none, on a separate branch and in a separate pull request.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from runbook_lib import display, notebooks
from runbook_lib.decisions import Kind
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.failures import quarantines
from runbook_lib.failures import tracking_issue as tracking
from runbook_lib.failures.quarantines import QuarantineChange, QuarantineCommitted
from runbook_lib.model import Condition, Evidence, Next, Outcome, Plan, Question
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import FUNCTIONAL
from runbook_lib.text import edits
from runbook_lib.text.markdown import code, prose
from runbook_lib.text.recipes import quarantine
from runbook_lib.text.recipes import rows as recipes
from runbook_lib.text.recipes.rows import RecipeRow, Target
from runbook_lib.world.bump_branch import BumpBranch, head_of, is_mine, marked
from runbook_lib.world.conditions.commits import BranchTip, Pushed
from runbook_lib.world.conditions.forge import Described, IssueFiled, Labelled, PullKey, PullOpen
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.command import GitFailed
from runbook_lib.world.github.ci_status import branch_of, labels_at, platform_of, wrong_tests
from runbook_lib.world.github.models import Pull, WorkflowJob
from runbook_lib.world.machine.clock import now
from runbook_lib.world.ports import Forge, World

#: In the porcelain of git blame: the commit, the line, and the time; lines of the file begin with a tab.
_BLAMED = re.compile(r"^([0-9a-f]{40,64}) \d+ (\d+)\b.*?^committer-time (\d+)$", re.MULTILINE | re.DOTALL)
#: A job runs its test so often with the label for functional tests, and stops at the first failure.
REPEATS = 5
_CONFIDENCE = 0.95
_MAX_RUNS = 20


@dataclass(frozen=True)
class PassingRuns:
    """The CI runs that a re-enabled test has passed and failed.

    A closed issue proves nothing: only runs do, and few of them prove little.
    """

    test: Target
    passed: int = 0
    failed: int = 0

    @property
    def bound(self) -> float:
        """The highest failure rate at which as many passes in a row are at least as likely as one in twenty."""
        return 1.0 - (1.0 - _CONFIDENCE) ** (1.0 / (REPEATS * self.passed)) if self.passed else 1.0

    @property
    def sentence(self) -> str:
        """The runs, and what they say."""
        if self.failed:
            return f"it failed in {self.failed} of {display.count(self.failed + self.passed, 'run')}"
        if not self.passed:
            return "no run yet: nothing shows that it passes"
        runs = f"{display.count(self.passed, 'passing run')} ({display.count(REPEATS * self.passed, 'repeat')})"
        return f"{runs}: it fails in at most {self.bound:.0%} of its repeats ({_CONFIDENCE:.0%} confidence)"


@dataclass(frozen=True)
class QuarantinedTest:
    """A row that is switched off, its issue, and the date and commit of its current scope.

    ``state`` is that of the issue, if queried, and ``ran`` the runs in an open pull request that re-enables the test.
    """

    row: RecipeRow
    issue: int | None
    since: datetime | None = None
    commit: str = ""
    state: str = ""
    ran: PassingRuns | None = None

    @property
    def platform(self) -> str:
        """The first platform of the row, which stands for all."""
        return next(iter(self.row.platforms), "")

    @property
    def name(self) -> str:
        """The test as a decision names it."""
        return f"{self.row.test}@{self.platform}"

    @property
    def age(self) -> str:
        """The age in words."""
        if self.since is None:
            return "unknown"
        return f"{display.count((now() - self.since).days, 'day')}, since {self.since:%Y-%m-%d} ({self.commit[:10]})"

    @property
    def tracker(self) -> str:
        """The issue and its state; empty if there is none."""
        return f"#{self.issue} {self.state}".strip() if self.issue else ""

    @property
    def columns(self) -> dict[str, object]:
        """The test's row in a table."""
        row = self.row
        place = f"{row.recipe.removeprefix(recipes.FOLDER).lstrip('/')}:{row.line}"
        environments, platforms = ", ".join(row.environments), ", ".join(row.platforms)
        return {
            "test": row.test, "environments": environments, "platforms": platforms,
            "scopes": ", ".join(cell.value for cell in row.scopes), "age": self.age, "issue": self.tracker or "none",
            "runs": self.ran.sentence if self.ran else "", "row": place,
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
            if bump.image_type not in test.row.environments or not test.row.platforms:
                continue
            issue = test.tracker or "without an issue"
            kind: Kind = "reenable"
            reason = ""
            if bump.tag is not None:
                reason = f"try it on {bump.tag}"
            elif test.ran and test.ran.passed and not test.ran.failed:
                reason = test.ran.sentence
            elif test.issue is None:
                kind = "broken"
                reason = f"quarantined since {test.since:%Y-%m-%d} without an issue" if test.since else ""
            asked.append(Question(kind, test.name, f"Quarantined: {test.age}, {issue}.", reason))
        return tuple(asked)

    @property
    def evidence(self) -> Evidence:
        """The tests and notes that the record keeps."""
        return Evidence(tables={"quarantined": [test.columns for test in self.tests]}, warnings=self.notes)

    def show(self) -> display.View:
        """Show the quarantined tests with their age."""
        view = display.table(
            (test.columns for test in self.tests), empty=f"No test is quarantined on {self.bump.base}."
        )
        return view + display.notes(self.notes, title="Also")


def look(world: World, branch: BumpBranch) -> QuarantineSurvey:
    """Read the base branch's quarantined tests; without a tag, also the change that people decided on.

    Raises Refused for a broken test that is not quarantined: only a bump's run shows that it is broken.
    """
    bump, checkout = branch.bump, branch.checkout
    if bump.repository.inapplicable(notebooks.BROKEN_TESTS):
        return QuarantineSurvey(bump)
    texts = quarantines.recipe_texts(replace(branch, tip=None), quarantine.OFF_TEXTS)
    rows, notes = quarantine.quarantined_rows(texts, checkout.repository())
    dates = _dates(checkout, branch.base_commit, rows)
    tests = [QuarantinedTest(row, issue, *dates.get((row.recipe, _line(row)), ())) for row, issue in rows.items()]
    tests.sort(key=lambda test: (test.since is None, test.since))
    survey = QuarantineSurvey(bump, tuple(tests), notes)
    return survey if bump.tag is not None else _look_change(world, branch, survey)


def _look_change(world: World, branch: BumpBranch, survey: QuarantineSurvey) -> QuarantineSurvey:
    """Add the states of the issues, the runs in open pull requests, and the change that people decided on."""
    bump, github = branch.bump, world.github
    decisions = quarantines.resolve_targets(branch)
    reenabled = tuple(target for target, decision in decisions.items() if decision.kind == "reenable")
    own_pulls, states = list[int](), dict[int | None, str]()
    if survey.tests and github is not None:
        own_pulls = [pull.number for pull in github.pulls(base=bump.base) if _is_own(pull, branch)]
        states = _issue_states(github, survey.tests)
    names = [Target(test.row.case, test.platform, bump.image_type, test.row.model) for test in survey.tests]
    ran = passing_runs(github, bump, own_pulls, [*names, *reenabled])
    tests, notes, issues = list[QuarantinedTest](), list(survey.notes), dict[Target, IssueFiled]()
    for test, runs in zip(survey.tests, ran, strict=False):
        tests.append(replace(test, state=states.get(test.issue, ""), ran=runs if runs.passed or runs.failed else None))
    for target in (target for target, decision in decisions.items() if decision.kind == "broken"):
        found = [test for test in tests if target.is_of(test.row)]
        if not found:
            advice = "Give the tag of the bump whose CI run it failed in."
            raise Refused(f"{target} is not quarantined on {bump.base}.", advice)
        if all(test.issue for test in found):
            notes.append(f"#{found[0].issue} already tracks {target}.")
            continue
        known, warning = tracking.known_issue(github, target)
        notes += filter(None, [warning])
        issues[target] = tracking.of_quarantined(github, target, bump, found[0].row, found[0].age, known)
    survey = replace(survey, tests=tuple(tests), notes=tuple(notes))
    changed = [*reenabled, *issues]
    if not changed:
        return survey
    own = _own_bump(bump, changed, "re-enable" if reenabled else "track")
    branch = BumpBranch.look(world, own)
    change = QuarantineChange(quarantines.files_of(branch, changed), issues, reenabled)
    if own.allowed("whole-row") is None:
        change.require_own_rows()
    passed = ran[len(tests) :]
    return replace(survey, own=OwnChange(branch, head_of(branch.checkout, own), change, passed))


def _issue_states(github: Forge, tests: Iterable[QuarantinedTest]) -> dict[int | None, str]:
    """Return the state of each issue that a row names, or why it is unknown."""
    states: dict[int | None, str] = {}
    for number in sorted({test.issue for test in tests if test.issue}):
        try:
            issue = github.issue(number)
            states[number] = "a pull request" if issue.is_pull else issue.state
        except RunbookError as error:
            states[number] = f"cannot be read: {error}"
    return states


def _is_own(pull: Pull, branch: BumpBranch) -> bool:
    """Return True for our pull request that changes quarantined tests."""
    own = replace(branch.bump, current_branch=pull.head_ref)
    return pull.head_ref.startswith("quarantine/") and is_mine(pull, head_of(branch.checkout, own))


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
    untracked = sum(test.issue is None for test in survey.tests)
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
        (*shown, display.diff(diff, empty="No recipe changes."), show_passing(own.passing)),
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
        body = marked(_body(own), bump, "broken-tests")
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


def _line(row: RecipeRow) -> int:
    """Return the line of a row's first scope that is switched off."""
    return quarantine.switched_off(row)[0].line


def _dates(checkout: Checkout, commit: str, rows: Iterable[RecipeRow]) -> dict[tuple[str, int], tuple[datetime, str]]:
    """Return the time and commit of the last change to each row's scope, by recipe and line."""
    ranges: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        ranges[row.recipe].append(f"-L{_line(row)},+1")
    dates = {}
    for recipe, lines in ranges.items():
        with suppress(GitFailed):  # the age is unknown
            blame = checkout.git("blame", "--line-porcelain", *lines, commit, "--", recipe)
            for changed_by, line, seconds in _BLAMED.findall(blame):
                dates[recipe, int(line)] = datetime.fromtimestamp(int(seconds), UTC), changed_by
    return dates


def passing_runs(
    github: Forge | None, bump: Bump, pulls: Iterable[int], tests: Iterable[Target]
) -> tuple[PassingRuns, ...]:
    """Return how the functional tests among these ended in the finished CI runs of pull requests.

    A run that began without the labels of a bump tests less, or another image, and does not count.
    """
    functional = [test for test in tests if test.has_rows]
    runs: list[Sequence[WorkflowJob]] = []
    for number in pulls if functional else ():
        assert github is not None, "it has these pull requests"
        labels, events = github.pull(number).labels, github.labellings(number)
        for run in github.runs(branch_of(number))[:_MAX_RUNS]:
            wrong = wrong_tests(labels_at(labels, events, run.created), bump.image_type, bump.repository)
            if run.status == "completed" and not run.fork and not wrong:
                runs.append(github.jobs(run.id))
    found = []
    for test in functional:
        conclusions = [job.conclusion for jobs in runs for job in _jobs_of(test, jobs)]
        failed = conclusions.count("failure") + conclusions.count("timed_out")
        found.append(PassingRuns(test, conclusions.count("success"), failed))
    return tuple(found)


def _jobs_of(test: Target, jobs: Iterable[WorkflowJob]) -> list[WorkflowJob]:
    """Return the jobs of a test on its platform; a single job may hide its platform."""
    named = [job for job in jobs if job.name.partition(" - ")[0] == test.name]
    is_only = len(named) == 1 and not platform_of(named[0])
    return [job for job in named if is_only or platform_of(job) == test.platform]


def show_passing(found: Iterable[PassingRuns]) -> display.View:
    """Show how often each test has passed; nothing without a test."""
    rows = [{"re-enabled test": str(each.test), "runs": each.sentence} for each in found]
    return display.table(rows) if rows else display.View("", "")
