"""Tests that CI leaves out, and the change of them that a person decided on: rows, unit tests, and launch scripts.

``GatingFiles`` answers for rows of recipes, unit tests with a marker, and launch scripts that have been moved, whether
a test still gates a merge; ``QuarantineCommitted`` is the condition that the branch has a change.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from runbook_lib import display
from runbook_lib.decisions import Decision
from runbook_lib.errors import Refused
from runbook_lib.failures.tracking_issue import review_date
from runbook_lib.model import Check, Effect
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import LaunchScripts
from runbook_lib.text import edits
from runbook_lib.text.edits import Edit
from runbook_lib.text.markdown import unlinked
from runbook_lib.text.recipes import quarantine, unit_tests
from runbook_lib.text.recipes import rows as recipes
from runbook_lib.text.recipes.quarantine import BROKEN, COMMENT, comment_above, gating_scopes
from runbook_lib.text.recipes.rows import RecipeRow, Target, resolve, target_of
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.conditions.commits import BranchTip, CommitKind, Committed
from runbook_lib.world.conditions.forge import IssueFiled
from runbook_lib.world.github.models import Issue
from runbook_lib.world.ports import World

UNIT_TESTS = "tests/unit_tests"
_UNIT_TEST = re.compile(rf"{UNIT_TESTS}/[\w./-]{{1,300}}\.py")
#: What the commit of a change makes true.
_CHANGED = "the named tests are changed"
#: The comment above a unit test, and the test's name.
_UNIT = re.compile(rf"{COMMENT.pattern}(?:\n[ \t]*@[^\n]*){{1,50}}?\n[ \t]*(?:async )?(?:def|class) (?P<name>\w+)")


@dataclass(frozen=True)
class GatingFiles:
    """The files that decide whether tests gate a merge, by path; ``skip`` is the marker of unit tests left out."""

    texts: Mapping[str, str] = field(default_factory=dict)
    skip: str = ""

    @cached_property
    def rows(self) -> tuple[RecipeRow, ...]:
        """The rows of the recipes.  Raises CannotTell for a recipe that cannot be read."""
        found = (recipes.rows(path, text) for path, text in self.texts.items() if path.startswith(recipes.FOLDER))
        return tuple(itertools.chain.from_iterable(found))

    def rows_of(self, target: Target) -> list[RecipeRow]:
        """Return the rows of a test that gate."""
        return [row for row in self.rows if target.is_of(row) and gating_scopes(row) and not row.allow_failure]

    def is_off(self, target: Target) -> bool:
        """Return whether the files have the test, and it does not gate."""
        if target.script:
            return target.script not in self.texts and target.shelf in self.texts
        if target.is_unit_test:
            return unit_tests.is_skipped(self.texts, target.case, self.skip)
        return any(map(target.is_of, self.rows)) and not self.rows_of(target)

    def after(self, edits: Iterable[Edit]) -> "GatingFiles":
        """Return the files after these edits."""
        texts = dict(self.texts)
        for edit in edits:
            texts.pop(edit.source, None)
            texts[edit.path] = edit.after
        return GatingFiles(texts, self.skip)


def files_of(branch: BumpBranch, targets: Iterable[Target]) -> GatingFiles:
    """Return the files of these tests, from the branch's newest commit; a log may name tests that no file has."""
    targets = list(targets)
    paths = [path for each in targets for path in (each.script, each.shelf) if path]
    paths += [each.path for each in targets if each.is_unit_test and _UNIT_TEST.fullmatch(each.path)]
    texts = branch.checkout.read(list(dict.fromkeys(paths)), branch.start) if paths else {}
    found = {path: text for path, text in texts.items() if text is not None}
    found |= recipe_texts(branch, [each.case for each in targets if each.has_rows])
    return GatingFiles(found, branch.bump.repository.tests.skips.get(branch.bump.image_type, ""))


def script_target(bump: Bump, job: str) -> Target:
    """Return the test of a job that has a launch script."""
    assert bump.repository.tests.scripts is not None
    script, shelf = bump.repository.tests.scripts.paths(job)
    return Target(job, "", bump.image_type, script=script, shelf=shelf)


@dataclass(frozen=True)
class LeftOut:
    """A test that a file leaves out of CI, with reason and issue of its comment.

    ``soft`` are the environments, such as ``dev``, in which it runs and may fail.
    """

    test: str
    platforms: str
    scopes: str = ""
    reason: str = ""
    issue: int | None = None
    soft: tuple[str, ...] = ()


def quarantined_since_fork(branch: BumpBranch, head: str) -> list[LeftOut]:
    """Return the tests that a commit on the bump's branch quarantines beyond the base, with their issues."""
    checkout, fork = branch.checkout, branch.fork
    scripts = branch.bump.repository.tests.scripts
    folders = (recipes.FOLDER, UNIT_TESTS, *([scripts.folder] if scripts else []))
    listed = checkout.git("diff", "--name-only", "--no-renames", "-z", fork, head, "--", *folders)
    paths = [path for path in listed.split("\0") if path]
    before, after = checkout.read(paths, fork), checkout.read(paths, head)
    tests: list[LeftOut] = []
    for path, text in after.items():
        known = set(_left_out(path, before[path] or "", scripts))
        tests += [test for test in _left_out(path, text or "", scripts) if test not in known]
    return tests


def _left_out(path: str, text: str, scripts: LaunchScripts | None) -> Iterator[LeftOut]:
    """Yield the tests in a file that CI leaves out."""
    if path.endswith(".py"):
        for match in _UNIT.finditer(text):
            yield LeftOut(f"{path}::{match['name']}", "all", "", match["reason"], int(match["issue"]))
    elif scripts and path.startswith(f"{scripts.folder}/"):
        if scripts.flaky in path.split("/") and text:
            *_, hardware, _, name = path.split("/")
            prefix = "gb200_" if hardware == "gb200" else ""
            yield LeftOut(f"{prefix}{name.removesuffix('.sh')}", hardware, "", *_commented(COMMENT.search(text)))
    else:
        for row in recipes.rows(path, text):
            broken = ", ".join(cell.value for cell in row.scopes if cell.value.endswith(BROKEN))
            if broken or row.allow_failure:
                platforms, soft = ", ".join(row.platforms), () if broken else row.environments
                yield LeftOut(row.test, platforms, broken, *_commented(comment_above(row, text)), soft)


def _commented(match: re.Match[str] | None) -> tuple[str, int | None]:
    """Return reason and issue of a comment."""
    return (match["reason"], int(match["issue"])) if match else ("", None)


def resolve_targets(branch: BumpBranch) -> dict[Target, Decision]:
    """Return the tests of a person's decisions.

    Raises Refused for tests that are in no recipe or file on the branch.
    """
    bump = branch.bump
    decided = {}
    for decision in bump.decisions.entries:
        if decision.kind not in ("broken", "reenable", "rerun"):
            continue
        target = target_of(decision, bump.image_type)
        if bump.repository.tests.scripts:
            target = replace(script_target(bump, target.case), reason=target.reason, issue=target.issue)
        decided[target] = decision
    cases = [each.case for each in decided if each.has_rows]
    # If no recipe has a case, all are read, to suggest one.
    rows = GatingFiles(recipe_texts(branch, cases) or recipe_texts(branch, cases and ["test_case"])).rows
    resolved = {}
    for target, decision in decided.items():
        if target.has_rows:
            target = resolve(target, rows)
        elif not files_of(branch, [target]).texts:
            paths = " and ".join(filter(None, (target.path, target.shelf)))
            raise Refused(f"{target} is not on the branch: {paths} do not exist. Nothing was changed.")
        resolved[target] = decision
    return resolved


def recipe_texts(branch: BumpBranch, cases: Iterable[str]) -> dict[str, str]:
    """Return the recipes that contain one of these cases, by path, from the branch's newest commit."""
    patterns = [f"-e{case}" for case in dict.fromkeys(cases)]
    if not patterns:
        return {}
    listed = branch.checkout.git("grep", "-z", "-l", "--fixed-strings", *patterns, branch.start, "--", recipes.FOLDER)
    paths = [path.partition(":")[2] for path in listed.split("\0") if path.endswith((".yaml", ".yml"))]
    return {path: text for path, text in branch.checkout.read(paths, branch.start).items() if text is not None}


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
        edited, marker = list(self._moves(numbers)), self.files.skip
        for path, before in self.files.texts.items() if not edited else ():
            mark, unmark = quarantine.mark, quarantine.unmark
            if path.endswith(".py"):
                mark, unmark = partial(unit_tests.mark, marker=marker), partial(unit_tests.unmark, marker=marker)
            after = before
            for target, issue in numbers.items():
                after = mark(path, after, target, issue, review_date())
            after = unmark(path, after, self.reenabled)
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

    def require_own_rows(self) -> None:
        """Raise Refused for a row that covers more than the named tests: passing ones would leave CI, too."""
        tests = (*self.issues, *self.reenabled)
        for row in self.files.rows if self.edits else ():
            if any(test.is_of(row) for test in tests) and (also := quarantine.also_covered(row, tests)):
                raise Refused(
                    f"The row of {row.case} in {row.recipe}:{row.line} also covers {also}.",
                    "Give this platform a row of its own first, or name the others too.",
                    exception="whole-row",
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
        issues = self._issues(world)
        if untracked := self._untracked(issues):
            return Check(_CHANGED, "failed", f"No issue tracks {untracked} yet.")
        committed = self._committed(issues)
        check = committed.holds(world)
        if check.status != "passed":
            return check
        tests = [f"{target}: #{issue.number}" for target, issue in issues.items()]
        tests += [f"{target} runs again" for target in self.change.reenabled]
        evidence = replace(check.evidence, diff=edits.diff(committed.edits))
        return replace(check, detail=f"{check.detail} {', '.join(tests)}.", evidence=evidence)

    def make_true(self, world: World) -> Sequence[Effect]:
        """Commit.  Raises Refused for a test without an issue, and if the branch or a recipe has changed."""
        issues = self._issues(world)
        if untracked := self._untracked(issues):
            raise Refused(f"No open issue tracks {untracked}, so nothing was changed.", "Run again with mode=publish.")
        return self._committed(issues).make_true(world)

    def _issues(self, world: World) -> dict[Target, Issue]:
        found = {target: filed.find(world) for target, filed in self.change.issues.items()}
        return {target: issue for target, issue in found.items() if issue is not None}

    def _untracked(self, issues: Mapping[Target, Issue]) -> str:
        return ", ".join(str(target) for target in self.change.issues if target not in issues)

    def _committed(self, issues: Mapping[Target, Issue]) -> Committed:
        numbers = {target: issue.number for target, issue in issues.items()}
        message = commit_message(self.title, numbers, self.change.reenabled)
        kind: CommitKind = "quarantine" if issues else "reenable"
        return Committed(self.tip, self.change.edits_with(numbers), message, _CHANGED, kind=kind)


def commit_message(title: str, issues: Mapping[Target, int], reenabled: Sequence[Target]) -> str:
    """Return the message of a commit that quarantines or tracks tests and re-enables others, without the sign-off."""
    lines = [f"- {unlinked(f'{test}: {test.reason}')} (#{number})" for test, number in issues.items()]
    lines += [f"- {unlinked(f'{test} is re-enabled: {test.reason}'.removesuffix(': '))}" for test in reenabled]
    return "\n".join([title, "", *lines])
