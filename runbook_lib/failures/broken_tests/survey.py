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

from runbook_lib import display
from runbook_lib.decisions import Kind
from runbook_lib.errors import Refused
from runbook_lib.failures.quarantines import issue_states, recipe_texts, resolve_targets
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.command import GitFailed
from runbook_lib.model import Question
from runbook_lib.pins.bump import Bump
from runbook_lib.recipes import quarantine
from runbook_lib.recipes.targets import Target
from runbook_lib.system.clock import now
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.ports import Forge


@dataclass(frozen=True)
class QuarantinedTest:
    """A row that is switched off, the date and commit of its current scope, and the state of its issue, if queried."""

    entry: quarantine.QuarantinedRow
    since: datetime | None = None
    commit: str = ""
    state: str = ""

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
            "row": self.entry.place,
        }  # fmt: skip


@dataclass(frozen=True)
class QuarantineSurvey:
    """The base branch's quarantined tests; without a tag, also those to re-enable and those that need issues."""

    branch: BumpBranch
    tests: tuple[QuarantinedTest, ...] = ()
    reenabled: tuple[Target, ...] = ()
    untracked: tuple[Target, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def bump(self) -> Bump:
        """The parameters, with their own branch and title if this changes anything."""
        bump = self.branch.bump
        targets = [*self.reenabled, *self.untracked]
        if bump.tag is not None or not targets:
            return bump
        names = sorted(f"{target.case}-{target.platform}" for target in targets)
        slug, tests = names[0], targets[0].case
        if len(names) > 1:
            slug = f"{len(names)}-tests-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:8]}"
            tests = f"{len(names)} tests"
        title = f"test: {'re-enable' if self.reenabled else 'track'} {tests}"
        return replace(bump, current_branch=f"quarantine/{bump.base}/{slug}", change_title=title)

    def questions(self) -> tuple[Question, ...]:
        """Return what a person may decide about each quarantined test."""
        bump = self.branch.bump
        asked = []
        for test in self.tests:
            if bump.image_type not in test.entry.row.environments or not test.entry.row.platforms:
                continue
            issue = f"#{test.entry.issue} {test.state}".strip() if test.entry.issue else "without an issue"
            kind: Kind = "reenable"
            reason = f"#{test.entry.issue} is closed" if test.state == "closed" else ""
            if bump.tag is not None:
                reason = f"try it on {bump.tag}"
            elif test.entry.issue is None:
                kind = "broken"
                reason = f"quarantined since {test.since:%Y-%m-%d} without an issue" if test.since else ""
            asked.append(Question(kind, test.name, f"Quarantined: {test.age}, {issue}.", reason))
        return tuple(asked)

    def show(self) -> display.View:
        """Show the quarantined tests with their age."""
        base = self.branch.bump.base
        view = display.table((test.row for test in self.tests), empty=f"No test is quarantined on {base}.")
        return view + display.notes(self.notes, title="Also")


def read_survey(branch: BumpBranch, github: Forge | None) -> QuarantineSurvey:
    """Read the base branch's quarantined tests; without a tag, plan the changes that people decided.

    Raises Refused for a broken test that is not quarantined: only a bump's run shows that it is broken.
    """
    bump, checkout = branch.bump, branch.checkout
    if not bump.repository.tests.recipes:
        return QuarantineSurvey(branch)
    on_base = replace(branch, start=branch.base_commit)
    texts = recipe_texts(on_base, quarantine.OFF_TEXTS)
    entries, notes = quarantine.quarantined_rows(texts, checkout.repository())
    dates = _dates(checkout, branch.base_commit, texts, entries)
    states = issue_states(github, entries) if bump.tag is None and github is not None else {}
    tests = []
    for entry in entries:
        since, commit = dates.get((entry.row.recipe, entry.row.line), (None, ""))
        tests.append(QuarantinedTest(entry, since, commit, states.get(entry.issue, "")))
    tests.sort(key=lambda test: (test.since is None, test.since))
    survey = QuarantineSurvey(branch, tuple(tests), notes=notes)
    if bump.tag is not None:
        return survey
    reenabled, _ = resolve_targets(branch, "reenable")
    untracked = []
    for target in resolve_targets(branch, "broken")[0]:
        rows = [test.entry for test in tests if target.is_of(test.entry.row)]
        if not rows:
            advice = "Give the tag of the bump whose CI run it failed in."
            raise Refused(f"{target} is not quarantined on {bump.base}. {advice}")
        if any(entry.issue is None for entry in rows):
            untracked.append(target)
        else:
            notes = (*notes, f"#{rows[0].issue} already tracks {target}.")
    return replace(survey, reenabled=tuple(reenabled), untracked=tuple(untracked), notes=notes)


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
            blame = checkout.git("blame", "--porcelain", *ranges, commit, "--", recipe)
        except GitFailed:
            continue  # the age is unknown
        changed_by, times, commits = "", {}, {}
        for text in blame.split("\n"):  # lines of the file's content begin with a tab
            if header := re.match(r"([0-9a-f]{40,64}) [0-9]{1,9} ([0-9]{1,9})", text):
                changed_by = header[1]
                commits[int(header[2])] = changed_by
            elif text.startswith("committer-time "):
                times[changed_by] = datetime.fromtimestamp(int(text.partition(" ")[2]), UTC)
        for number, commit_id in commits.items():
            if number in rows and commit_id in times:
                dates[recipe, rows[number]] = (times[commit_id], commit_id)
    return dates
