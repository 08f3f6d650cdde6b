"""Tests that CI leaves out: rows of recipes, unit tests with a marker, and launch scripts that have been moved.

``GatingFiles`` answers for all three whether a test still gates a merge.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from runbook_lib.decisions import Decision, Kind
from runbook_lib.errors import Refused
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import LaunchScripts
from runbook_lib.text.edits import Edit
from runbook_lib.text.recipes import rows as recipes
from runbook_lib.text.recipes import unit_tests
from runbook_lib.text.recipes.quarantine import BROKEN, COMMENT, comment_above, gating_scopes
from runbook_lib.text.recipes.rows import RecipeRow, Target, resolve, target_of
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git.command import GitFailed

UNIT_TESTS = "tests/unit_tests"
_UNIT_TEST = re.compile(rf"{UNIT_TESTS}/[\w./-]{{1,300}}\.py")
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


def resolve_targets(branch: BumpBranch, kind: Kind) -> dict[Target, Decision]:
    """Return the tests of a person's decisions of this kind.

    Raises Refused for tests that are in no recipe or file on the branch.
    """
    bump = branch.bump
    decided = {}
    for decision in bump.decisions.of(kind):
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
    try:
        listed = branch.checkout.git(
            "grep", "-z", "-l", "--fixed-strings", *patterns, branch.start, "--", recipes.FOLDER
        )
    except GitFailed as error:
        if error.status != 1:  # status 1: git grep found no match
            raise
        return {}
    paths = [path.partition(":")[2] for path in listed.split("\0") if path.endswith((".yaml", ".yml"))]
    return {path: text for path, text in branch.checkout.read(paths, branch.start).items() if text is not None}
