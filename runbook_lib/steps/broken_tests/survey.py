"""Notebook 06-broken-tests, third part: the tests that are quarantined on the base branch.

A bump lists them and offers to try them again.  Without a tag, tests are re-enabled, and issues filed for rows that
have none, on a branch and in a pull request of their own.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from runbook_lib import display
from runbook_lib.bump import Bump
from runbook_lib.checks import REENABLED, Check
from runbook_lib.clients.github import issues as github_issues
from runbook_lib.clients.github.client import GitHub, once
from runbook_lib.clients.github.errors import NotAllowed
from runbook_lib.clients.github.models import Issue
from runbook_lib.display import View
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.command import GitFailed
from runbook_lib.pins.repositories import FUNCTIONAL
from runbook_lib.recipes import quarantine
from runbook_lib.recipes.quarantine import QuarantinedRow
from runbook_lib.recipes.targets import Target
from runbook_lib.records.step_record import StepRecord
from runbook_lib.steps.broken_tests import issue as tracking
from runbook_lib.steps.broken_tests.decide import open_issue
from runbook_lib.steps.broken_tests.quarantine import file_issue
from runbook_lib.system.clock import now
from runbook_lib.text import edits
from runbook_lib.text.edits import Edit
from runbook_lib.text.markdown import code, prose, unlinked
from runbook_lib.workflow import branch_history, bump_branch
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.proposal import head_of
from runbook_lib.workflow.quarantines import recipe_texts, resolve_targets


@dataclass(frozen=True)
class QuarantinedTest:
    """A quarantined row, the day and commit since which its scope reads so, and the state of its issue, if queried."""

    entry: QuarantinedRow
    since: datetime | None = None
    commit: str = ""
    state: str = ""

    @property
    def name(self) -> str:
        """The test as the parameters take it; the first platform stands for all of the row."""
        return f"{self.entry.test}@{next(iter(self.entry.row.platforms), '')}"

    @property
    def age(self) -> str:
        """The age in words."""
        if self.since is None:
            return "unknown"
        return f"{display.count((now() - self.since).days, 'day')}, since {self.since:%Y-%m-%d} ({self.commit[:10]})"

    @property
    def row(self) -> dict[str, object]:
        """A row for a table."""
        row = self.entry.row
        return {
            "test": self.entry.test,
            "environments": ", ".join(row.environments),
            "platforms": ", ".join(row.platforms),
            "age": self.age,
            "issue": f"#{self.entry.issue} {self.state}".strip() if self.entry.issue else "none",
            "row": self.entry.place,
        }


@dataclass(frozen=True)
class QuarantineSurvey:
    """The quarantined tests of the base branch; without a tag also those to re-enable, and those to file issues for."""

    branch: BumpBranch
    github: GitHub | None
    tests: tuple[QuarantinedTest, ...] = ()
    reenabled: tuple[Target, ...] = ()
    untracked: tuple[Target, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def bump(self) -> Bump:
        """The parameters, with a branch and title of their own where this changes anything."""
        bump = self.branch.bump
        targets = [*self.reenabled, *self.untracked]
        if bump.tag is not None or not targets:
            return bump
        names = sorted(f"{target.case}-{target.platform}" for target in targets)
        slug = names[0]
        if len(names) > 1:
            slug = f"{len(names)}-tests-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:8]}"
        verb = "re-enable" if self.reenabled else "track"
        title = f"test: {verb} {targets[0].case if len(targets) == 1 else display.count(len(targets), 'test')}"
        return replace(bump, current_branch=f"quarantine/{bump.base}/{slug}", change_title=title)

    def decisions(self) -> list[tuple[str, str, str, str]]:
        """Return what a person may decide: parameter, test, why, and the reason suggested."""
        bump = self.branch.bump
        decisions = []
        for test in self.tests:
            if bump.image_type not in test.entry.row.environments or not test.entry.row.platforms:
                continue
            age = f"It is quarantined: {test.age}"
            if bump.tag is not None:
                issue = f", #{test.entry.issue}" if test.entry.issue else ", without an issue"
                decisions.append(("reenable", test.name, f"{age}{issue}.", f"try it on {bump.tag}"))
            elif test.entry.issue is None:
                reason = f"quarantined since {test.since:%Y-%m-%d} without an issue" if test.since else ""
                decisions.append(("broken", test.name, f"{age}, without an issue.", reason))
            else:
                reason = f"#{test.entry.issue} is closed" if test.state == "closed" else ""
                decisions.append(("reenable", test.name, f"{age}, #{test.entry.issue} {test.state}.", reason))
        return decisions

    def edits(self, branch: BumpBranch, issues: Mapping[Target, int]) -> tuple[Edit, ...]:
        """Return the edits that re-enable tests and name issues in the comments of rows."""
        edited = []
        cases = [target.case for target in (*self.reenabled, *issues)]
        whole_rows = "whole-row" in branch.bump.allow
        for path, before in recipe_texts(branch, cases).items():
            after = quarantine.unmark(path, before, self.reenabled, whole_rows=whole_rows).after
            for target, number in issues.items():
                after = quarantine.track(path, after, target, number).after
            if after != before:
                edited.append(Edit(path, before, after))
        return tuple(edited)

    def show(self) -> View:
        """Show the quarantined tests with their age, and what would change."""
        base = self.branch.bump.base
        view = display.table((test.row for test in self.tests), empty=f"No test is quarantined on {base}.")
        if self.reenabled or self.untracked:
            planned = self.edits(self.branch, dict.fromkeys(self.untracked, 0))
            view += display.diff(edits.diff(planned), empty="No recipe changes.")
        return view + display.notes(self.notes, title="Also")


@dataclass(frozen=True)
class SurveyOutcome:
    """The state after the change: issues by test, the commit, and the address of the pull request."""

    survey: QuarantineSurvey
    issues: Mapping[Target, Issue] = field(default_factory=dict)
    commit: str = ""
    url: str = ""
    messages: tuple[str, ...] = ()

    @property
    def view(self) -> View:
        """A message for each thing done."""
        return display.notes(self.messages)


def look(branch: BumpBranch, github: GitHub | None, *, broken: str = "", reenable: str = "") -> QuarantineSurvey:
    """Read the quarantined tests of the base branch; without a tag, plan what ``broken`` and ``reenable`` name.

    Raises Refused without a tag for a test in ``broken`` that is not quarantined: only a bump's run shows it broken.
    """
    bump, checkout = branch.bump, branch.checkout
    if not bump.repository.recipes:
        return QuarantineSurvey(branch, github)
    on_base = replace(branch, start=branch.base_commit)
    texts = recipe_texts(on_base, [quarantine.BROKEN])
    entries, notes = quarantine.quarantined_rows(texts, checkout.repository())
    dates = _dates(checkout, branch.base_commit, texts, entries)
    states: dict[int | None, str] = {None: ""}
    if bump.tag is None and github is not None:
        for number in {entry.issue for entry in entries if entry.issue}:
            states[number] = _issue_state(github, number)
    tests = []
    for entry in entries:
        since, commit = dates.get((entry.row.recipe, entry.row.line), (None, ""))
        tests.append(QuarantinedTest(entry, since, commit, states.get(entry.issue, "")))
    tests.sort(key=lambda test: (test.since is None, test.since))
    survey = QuarantineSurvey(branch, github, tuple(tests), notes=notes)
    if bump.tag is not None:
        return survey
    reenabled, _ = resolve_targets(branch, reenable, "reenable")
    untracked = []
    for target in resolve_targets(branch, broken, "broken")[0]:
        rows = [test.entry for test in tests if target.is_of(test.entry.row)]
        if not rows:
            raise Refused(
                f"{target} is not quarantined on {bump.base}. Give the tag of the bump in whose CI run it failed."
            )
        if any(entry.issue is None for entry in rows):
            untracked.append(target)
        else:
            notes = (*notes, f"#{rows[0].issue} tracks {target} already.")
    return replace(survey, reenabled=reenabled, untracked=tuple(untracked), notes=notes)


def _issue_state(github: GitHub, number: int) -> str:
    try:
        return github_issues.read(github, number).state
    except RunbookError:
        return "cannot be read"


def _dates(
    checkout: Checkout, commit: str, texts: Mapping[str, str], entries: Iterable[QuarantinedRow]
) -> dict[tuple[str, int], tuple[datetime, str]]:
    """Return when, and in which commit, the scope of each row was last changed, by recipe and line of the row."""
    lines: dict[str, dict[int, int]] = defaultdict(dict)
    for entry in entries:
        row = entry.row
        broken = next(cell for cell in row.scopes if cell.value.endswith(quarantine.BROKEN))
        lines[row.recipe][texts[row.recipe].count("\n", 0, broken.end) + 1] = row.line
    dates = {}
    for recipe, rows in lines.items():
        ranges = [f"-L{line},{line}" for line in rows]
        try:
            blame = checkout.git("blame", "--porcelain", *ranges, commit, "--", recipe)
        except GitFailed:
            continue  # the age is unknown
        changed_by, times, commits = "", {}, {}
        for text in blame.split("\n"):  # the lines of the file begin with a tab
            if header := re.match(r"([0-9a-f]{40,64}) [0-9]{1,9} ([0-9]{1,9})", text):
                changed_by = header[1]
                commits[int(header[2])] = changed_by
            elif text.startswith("committer-time "):
                times[changed_by] = datetime.fromtimestamp(int(text.partition(" ")[2]), UTC)
        for number, commit_id in commits.items():
            if number in rows and commit_id in times:
                dates[recipe, rows[number]] = (times[commit_id], commit_id)
    return dates


def carry_out(step: StepRecord, survey: QuarantineSurvey) -> SurveyOutcome:
    """Offer the decisions; without a tag file issues, commit on a branch of its own, push it and open a pull request.

    Raises Refused where git or the remote refuses.
    """
    for parameter, test, why, suggestion in survey.decisions():
        step.decide(parameter, test, why, suggestion)
    step.table("quarantined", [test.row for test in survey.tests])
    bump = survey.bump
    if bump.tag is not None or not bump.apply or not (survey.reenabled or survey.untracked):
        return SurveyOutcome(survey)
    branch = bump_branch.find(survey.branch.checkout, bump)
    branch.checkout.require_work_tree()
    branch.checkout.identity()
    messages: list[str] = []
    issues = _file_issues(step, survey, messages) if bump.publish else {}
    if survey.untracked and not bump.publish:
        messages.append("Skipped without publish: issues are filed, and then named in the rows.")
    edited = survey.edits(branch, {target: issue.number for target, issue in issues.items()})
    commit = branch.tip or ""
    if edited:
        step.diff(edits.diff(edited))
        commit = branch_history.make(step, branch, edited, _message(survey, issues))
        messages.append(f"Committed {commit[:10]} on {bump.branch}.")
    if not commit:
        return SurveyOutcome(survey, issues, messages=(*messages, "No row changes."))
    url = ""
    if bump.publish and survey.github is not None:
        url = _publish(step, survey, survey.github, commit, issues, messages)
    return SurveyOutcome(survey, issues, commit, url, tuple(messages))


def _file_issues(step: StepRecord, survey: QuarantineSurvey, messages: list[str]) -> dict[Target, Issue]:
    github, issues = survey.github, {}
    assert github is not None  # publishing needs a token
    for target in survey.untracked:
        (test, *_) = [test for test in survey.tests if target.is_of(test.entry.row)]
        title = unlinked(f"Quarantined in CI: {target}")
        known = open_issue(github, target)
        body = tracking.body_of_quarantined(target, test.entry.row, test.age)
        issue = known or file_issue(github, target, title, body, survey.bump.base)
        issues[target] = issue
        if known is None:
            step.effect("issue", f"#{issue.number}", None, title, url=issue.url)
        messages.append(f"#{issue.number} {'tracks' if known else 'was filed for'} {target}.")
    return issues


def _message(survey: QuarantineSurvey, issues: Mapping[Target, Issue]) -> str:
    lines = [f"- {unlinked(f'{target} is re-enabled: {target.reason}')}" for target in survey.reenabled]
    lines += [f"- {unlinked(f'{target}: {target.reason}')} (#{issue.number})" for target, issue in issues.items()]
    return "\n".join([survey.bump.title, "", *lines])


def _publish(
    step: StepRecord, survey: QuarantineSurvey, github: GitHub, commit: str, issues: Mapping[Target, Issue],
    messages: list[str],
) -> str:  # fmt: skip
    """Push the reviewed branch, open its draft pull request, and return the address of that."""
    bump, checkout = survey.bump, survey.branch.checkout
    branch = bump_branch.find(checkout, bump)
    remote_tip = checkout.remote_tip(bump.remote, bump.branch)
    if remote_tip != commit:
        review = branch_history.review(branch, commit, step.records)
        review.record(step)
        branch_history.push(step, review, remote_tip)
        messages.append(f"Pushed {bump.branch} to {bump.remote}.")
    head = head_of(checkout, bump)
    existing = github.pulls(head=head, base=bump.base)
    pull = next(iter(existing), None) or once(
        lambda: next(iter(github.pulls(head=head, base=bump.base)), None),
        lambda: github.open_pull(bump.title, head, bump.base, _pull_text(survey, issues), draft=True),
    )
    if not existing:
        step.effect("pull request", f"#{pull.number}", None, bump.title, url=pull.url)
        messages.append(f"Opened the draft #{pull.number}: {pull.url}")
    step.link("pull request", pull.url)
    if survey.reenabled and FUNCTIONAL not in pull.labels:
        try:
            github.add_label(pull.number, FUNCTIONAL)
            step.effect("label", f"#{pull.number} {FUNCTIONAL}", False, True, url=pull.url)
        except NotAllowed as error:
            step.warn(f"Ask a maintainer to set the label {FUNCTIONAL!r} on {pull.url}. {error}")
    return pull.url


def _pull_text(survey: QuarantineSurvey, issues: Mapping[Target, Issue]) -> str:
    lines = [f"- {code(str(target))} is re-enabled: {prose(target.reason)}" for target in survey.reenabled]
    lines += [f"- {code(str(target))} is tracked by #{issue.number}" for target, issue in issues.items()]
    return "\n".join(["### Quarantined tests", "", *lines]) + "\n"


def verify(step: StepRecord, outcome: SurveyOutcome) -> View:
    """Read the branch again; without a tag record the checks and the outcome."""
    survey, bump = outcome.survey, outcome.survey.bump
    step.warn(*survey.notes)
    if bump.tag is not None:
        return display.note(f"{display.count(len(survey.tests), 'row')} quarantined on {bump.base}.")
    untracked = sum(test.entry.issue is None for test in survey.tests)
    state = f"{display.count(len(survey.tests), 'quarantined row')} on {bump.base}, {untracked} without an issue"
    if not (survey.reenabled or survey.untracked):
        step.done(f"No tag was given: {state}.", '-r reenable "case@platform: reason", or -r broken for one without.')
        return display.note(f"{state}.")
    if not bump.apply:
        _record_plan(step, survey)
        step.done(f"Preview: {_counts(survey)}; {state}.", "Run again with -p apply True -p publish True.")
        return display.note("The record below lists what would be done.")
    branch = bump_branch.find(survey.branch.checkout, bump)
    rows = quarantine.quarantined_rows(recipe_texts(branch, [quarantine.BROKEN]), survey.branch.checkout.repository())[
        0
    ]
    step.check(*_checks(survey, rows, outcome))
    step.done(f"{_counts(survey)}: {outcome.url or outcome.commit[:10] or 'no row changes'}.", outcome.url)
    return display.note("The record below lists the checks.")


def _checks(survey: QuarantineSurvey, rows: Sequence[QuarantinedRow], outcome: SurveyOutcome) -> list[Check]:
    checks = []
    if survey.reenabled:
        stopped = [str(target) for target in survey.reenabled if any(target.is_of(entry.row) for entry in rows)]
        names = ", ".join(stopped or map(str, survey.reenabled))
        checks.append(Check.of(REENABLED, not stopped, f"{names} {'still do not run' if stopped else 'run again'}."))
    tracked, name = [], "every named row has its issue"
    for target, issue in outcome.issues.items():
        tracked += [target for entry in rows if target.is_of(entry.row) and entry.issue == issue.number]
    if outcome.issues:
        checks.append(Check.of(name, set(tracked) == set(outcome.issues), ", ".join(map(str, tracked))))
    elif survey.untracked:
        checks.append(Check(name, "skipped", "Only publish files issues."))
    return checks


def _counts(survey: QuarantineSurvey) -> str:
    parts = []
    if survey.reenabled:
        parts.append(f"{display.count(len(survey.reenabled), 'test')} re-enabled")
    if survey.untracked:
        parts.append(f"{display.count(len(survey.untracked), 'quarantined test')} tracked by an issue")
    return ", ".join(parts)


def _record_plan(step: StepRecord, survey: QuarantineSurvey) -> None:
    branch = survey.bump.branch
    if survey.untracked:
        step.would(f"file {display.count(len(survey.untracked), 'issue')}, or use the open ones", publish=True)
    step.would(f"commit the rows on the branch {branch}")
    step.would(f"push {branch}, and open a draft pull request", publish=True)
