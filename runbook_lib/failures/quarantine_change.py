"""The change of tests that a person decided on, and the condition that the branch has it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from runbook_lib import display
from runbook_lib.errors import Refused
from runbook_lib.failures.quarantines import GatingFiles
from runbook_lib.failures.tracking_issue import review_date
from runbook_lib.model import Check, Effect, Evidence
from runbook_lib.text import edits
from runbook_lib.text.edits import Edit
from runbook_lib.text.markdown import unlinked
from runbook_lib.text.recipes import quarantine, unit_tests
from runbook_lib.text.recipes.rows import Target
from runbook_lib.world.conditions.commits import BranchTip, Committed
from runbook_lib.world.conditions.forge import IssueFiled
from runbook_lib.world.github.models import Issue
from runbook_lib.world.ports import World


@dataclass(frozen=True)
class QuarantineChange:
    """The tests in ``issues`` are taken out of CI, each with its issue, and ``reenabled`` tests come back."""

    files: GatingFiles
    issues: Mapping[Target, IssueFiled]
    reenabled: tuple[Target, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits as they can be shown now: an issue that is still to be filed is ``#(new)``."""
        return self.edits_with({target: issue.known for target, issue in self.issues.items()})

    def edits_with(self, numbers: Mapping[Target, int]) -> tuple[Edit, ...]:
        """Return the edits, with the number of each test's issue."""
        edited = list(self._moves(numbers))
        for path, before in self.files.texts.items() if not edited else ():
            change = self._units if path.endswith(".py") else self._rows
            after = change(path, before, numbers)
            if after != before:
                edited.append(Edit(path, before, after))
        return tuple(edited)

    def _moves(self, numbers: Mapping[Target, int]) -> Iterator[Edit]:
        """Yield the moves of launch scripts, whose second line gives the reason and the issue."""
        for target, issue in numbers.items():
            if text := self.files.texts.get(target.script):
                first, _, rest = text.partition("\n")
                comment = f"# Broken: {quarantine.note(target.reason, issue, review_date())}"
                yield Edit(target.shelf, text, f"{first}\n{comment}\n{rest}", target.script)
        for target in self.reenabled:
            if text := self.files.texts.get(target.shelf):
                lines = [line for line in text.split("\n") if not line.startswith("# Broken: ")]
                yield Edit(target.script, text, "\n".join(lines), target.shelf)

    def _units(self, path: str, text: str, numbers: Mapping[Target, int]) -> str:
        skip = self.files.skip
        for target, issue in numbers.items():
            if target.path == path:
                text = unit_tests.mark(text, target.case, skip, target.reason, issue, review_date())
        for target in self.reenabled:
            if target.path == path:
                text = unit_tests.unmark(text, target.case, skip)
        return text

    def _rows(self, path: str, text: str, numbers: Mapping[Target, int]) -> str:
        for target, issue in numbers.items():
            text = quarantine.mark(path, text, target, issue, review_date())
        return quarantine.unmark(path, text, self.reenabled)

    def require_own_rows(self) -> None:
        """Raise Refused for a row that covers more than the named tests: passing ones would leave CI, too."""
        tests = (*self.issues, *self.reenabled)
        for row in self.files.rows if self.edits else ():
            if any(test.is_of(row) for test in tests) and (also := quarantine.also_covered(row, tests)):
                raise Refused(
                    f"The row of {row.case} in {row.recipe}:{row.line} also covers {also}. Give this platform a row of "
                    "its own first, or name the others too.",
                    "whole-row",
                )

    @property
    def summary(self) -> str:
        """The change in the imperative, such as ``mark 2 tests broken, re-enable 1 test``."""
        parts = []
        if self.issues:
            parts.append(f"mark {display.count(len(self.issues), 'test')} broken")
        if self.reenabled:
            parts.append(f"re-enable {display.count(len(self.reenabled), 'test')}")
        return ", ".join(parts)


@dataclass(frozen=True)
class QuarantineCommitted:
    """The branch has the change, from one commit.

    A quarantine names the issue of its test, which may be filed in the same run: the commit is planned with the issues
    found when it is made, and without an issue nothing is committed.
    """

    tip: BranchTip
    change: QuarantineChange
    title: str

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        return f"{self.change.summary}, in one commit on branch {self.tip.branch}"

    @property
    def leaves_machine(self) -> bool:
        """True if an issue has to be filed first."""
        return not all(issue.known for issue in self.change.issues.values())

    def holds(self, world: World) -> Check:
        """Compare the recipes on the branch with the change, with the issues that are open now."""
        name, issues = "the named tests are changed", self._issues(world)
        if untracked := self._untracked(issues):
            return Check(name, "failed", f"No issue tracks {untracked} yet.")
        committed = self._committed(issues)
        check = committed.holds(world)
        if check.status != "passed":
            return replace(check, name=name)
        tests = [f"{target}: #{issue.number}" for target, issue in issues.items()]
        tests += [f"{target} runs again" for target in self.change.reenabled]
        quarantined = [_named(test) | {"issue": issue.number, "url": issue.url} for test, issue in issues.items()]
        decided = {"quarantined": quarantined, "reenabled": list(map(_named, self.change.reenabled))}
        evidence = Evidence({**check.evidence.inputs, **decided}, diff=edits.diff(committed.edits))
        return Check(name, "passed", f"{check.detail} {', '.join(tests)}.", evidence=evidence)

    def make_true(self, world: World) -> Sequence[Effect]:
        """Commit.  Raises Refused for a test without an issue, and if the branch or a recipe has changed."""
        issues = self._issues(world)
        if untracked := self._untracked(issues):
            raise Refused(f"No open issue tracks {untracked}, so nothing was changed. Run again with mode=publish.")
        return self._committed(issues).make_true(world)

    def _issues(self, world: World) -> dict[Target, Issue]:
        found = {target: filed.find(world) for target, filed in self.change.issues.items()}
        return {target: issue for target, issue in found.items() if issue is not None}

    def _untracked(self, issues: Mapping[Target, Issue]) -> str:
        return ", ".join(str(target) for target in self.change.issues if target not in issues)

    def _committed(self, issues: Mapping[Target, Issue]) -> Committed:
        numbers = {target: issue.number for target, issue in issues.items()}
        message = commit_message(self.title, numbers, self.change.reenabled)
        kind: Literal["quarantine", "reenable"] = "quarantine" if issues else "reenable"
        return Committed(self.tip, self.change.edits_with(numbers), message, kind=kind)


def commit_message(title: str, issues: Mapping[Target, int], reenabled: Sequence[Target]) -> str:
    """Return the message of a commit that quarantines or tracks tests and re-enables others, without the sign-off."""
    lines = [f"- {unlinked(f'{test}: {test.reason}')} (#{number})" for test, number in issues.items()]
    lines += [f"- {unlinked(f'{test} is re-enabled: {test.reason}'.removesuffix(': '))}" for test in reenabled]
    return "\n".join([title, "", *lines])


def _named(test: Target) -> dict[str, object]:
    return {"test": test.subject, "reason": test.reason}
