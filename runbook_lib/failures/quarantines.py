"""The tests that the bump's branch quarantines, and the recipe rows of tests that a person names."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from runbook_lib.decisions import Decision, Kind
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.git.command import GitFailed
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import LaunchScripts
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.quarantine import BROKEN, QuarantinedRow, comment_of
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.recipes.targets import Target, resolve, target_of
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.ports import Forge

UNIT_TESTS = "tests/unit_tests"
_NODE = re.compile(rf"({UNIT_TESTS}/[\w./-]{{1,300}}\.py)::")
#: The comment above a row that the runbook quarantined: the reason, and the issue number.
_COMMENT = re.compile(r"# Broken: ((?:(?!# Broken: ).)*?)(?: — )?see issue #([0-9]{1,9})(?:, review by [0-9-]{10})?\.")
#: It, above a unit test, and the name of the test.
_UNIT = re.compile(rf"{_COMMENT.pattern}(?:\n[ \t]*@[^\n]*){{1,50}}?\n[ \t]*(?:async )?(?:def|class) (\w+)")


def quarantined_since_fork(branch: BumpBranch, commit: str = "") -> list[dict[str, object]]:
    """Return the tests that the bump's branch quarantines beyond its base, with the issue named in the comment.

    Reads ``commit`` instead of the branch's newest commit, if given.
    """
    checkout, fork, head = branch.checkout, branch.fork, commit or branch.start
    scripts = branch.bump.repository.tests.scripts
    folders = (recipes.FOLDER, UNIT_TESTS, *([scripts.folder] if scripts else []))
    listed = checkout.git("diff", "--name-only", "--no-renames", "-z", fork, head, "--", *folders)
    paths = [path for path in listed.split("\0") if path]
    before, after = checkout.read(paths, fork), checkout.read(paths, head)
    tests: list[dict[str, object]] = []
    for path, text in after.items():
        if path.endswith(".py"):
            tests += _units(path, before[path] or "", text or "")
            continue
        if scripts and path.startswith(f"{scripts.folder}/"):
            if scripts.flaky in path.split("/") and text and not before[path]:
                tests.append(_script(path, text))
            continue
        old_rows = {_key(row): row for row in recipes.rows(path, before[path] or "")}
        for row in recipes.rows(path, text or ""):
            old = old_rows.get(_key(row))
            newly_broken = _broken_scopes(row) > _broken_scopes(old)
            newly_soft = row.allow_failure and not (old and old.allow_failure)
            if newly_broken or newly_soft:
                tests.append(_describe(row, text or "", "broken" if newly_broken else "soft"))
    return tests


def _units(path: str, before: str, after: str) -> Iterator[dict[str, object]]:
    known = {match[0] for match in _UNIT.finditer(before)}
    for match in _UNIT.finditer(after):
        if match[0] not in known:
            yield {
                "test": f"{path}::{match[3]}", "platforms": "all", "environments": "", "form": "broken",
                "issue": int(match[2]), "reason": match[1],
            }  # fmt: skip


def _script(path: str, text: str) -> dict[str, object]:
    match = _COMMENT.search(text)
    *_, hardware, _, name = path.split("/")
    prefix = "gb200_" if hardware == "gb200" else ""
    return {
        "test": f"{prefix}{name.removesuffix('.sh')}", "platforms": hardware, "environments": "", "form": "broken",
        "issue": int(match[2]) if match else None, "reason": match[1] if match else "",
    }  # fmt: skip


def _broken_scopes(row: RecipeRow | None) -> int:
    return sum(cell.value.endswith(BROKEN) for cell in row.scopes) if row else 0


def _describe(row: RecipeRow, text: str, form: str) -> dict[str, object]:
    comment = comment_of(row, text)
    match = _COMMENT.match(comment, max(comment.find("# Broken"), 0))
    return {
        "test": f"{row.model}/{row.case}",
        "platforms": ", ".join(row.platforms),
        "environments": ", ".join(row.environments),
        "form": form,
        "issue": int(match[2]) if match else None,
        "reason": match[1] if match else "",
    }


def _key(row: RecipeRow) -> tuple[str, ...]:
    scopes = sorted(cell.value.removesuffix(BROKEN) for cell in row.scopes)
    return (row.model, row.case, *row.environments, "/", *row.platforms, "/", *scopes)


def skip_marker(bump: Bump) -> str:
    """Return the marker of unit tests that CI leaves out for the bump's image type; empty if there is none."""
    return bump.repository.tests.skips.get(bump.image_type, "")


def resolve_targets(branch: BumpBranch, kind: Kind) -> tuple[dict[Target, Decision], tuple[RecipeRow, ...]]:
    """Return the tests of a person's decisions of this kind, and the recipe rows that name their cases.

    Raises Refused for tests that are in no recipe or file on the branch.
    """
    decided = {target_of(each, branch.bump.image_type): each for each in branch.bump.decisions.of(kind)}
    if scripts := branch.bump.repository.tests.scripts:
        return {_resolve_script(branch, scripts, target): decided[target] for target in decided}, ()
    rows = rows_of(branch, [target.case for target in decided if not target.is_unit_test])
    for target in decided:
        if target.is_unit_test and not unit_test_texts(branch, [target.case]):
            raise Refused(f"{target} is not on the branch: it has no file {target.path}. Nothing was changed.")
    return {each if each.is_unit_test else resolve(each, rows): decided[each] for each in decided}, rows


def _resolve_script(branch: BumpBranch, scripts: LaunchScripts, target: Target) -> Target:
    """Complete the job of a launch script with its paths.  Raises Refused if the branch has no such script."""
    paths = scripts.paths(target.case)
    if not any(branch.checkout.read(paths, branch.start).values()):
        raise Refused(f"No launch script runs the job {target.case}: {' and '.join(paths)} do not exist.")
    return replace(target, script=paths[0], shelf=paths[1])


def texts_of(branch: BumpBranch, targets: Iterable[Target]) -> dict[str, str]:
    """Return the recipes, the files of unit tests and the scripts with which these tests are switched off, by path."""
    targets = list(targets)
    if paths := [path for target in targets for path in (target.script, target.shelf) if path]:
        texts = branch.checkout.read(paths, branch.start)
        return {path: text for path, text in texts.items() if text is not None}
    recipes_of_rows = recipe_texts(branch, [target.case for target in targets if not target.is_unit_test])
    return recipes_of_rows | unit_test_texts(branch, [target.case for target in targets if target.is_unit_test])


def unit_test_texts(branch: BumpBranch, nodes: Iterable[str]) -> dict[str, str]:
    """Return the files of unit tests, given by pytest's IDs, by path, from the branch's newest commit."""
    paths = list(dict.fromkeys(match[1] for match in map(_NODE.match, nodes) if match))  # a log may name anything
    texts = branch.checkout.read(paths, branch.start) if paths else {}
    return {path: text for path, text in texts.items() if text is not None}


def recipe_texts(branch: BumpBranch, cases: Iterable[str], commit: str = "") -> dict[str, str]:
    """Return the recipes that contain one of these cases, by path, from ``commit`` or the branch's newest commit."""
    patterns = [f"-e{case}" for case in dict.fromkeys(cases)]
    if not patterns:
        return {}
    ref = commit or branch.start
    try:
        listed = branch.checkout.git("grep", "-z", "-l", "--fixed-strings", *patterns, ref, "--", recipes.FOLDER)
    except GitFailed as error:
        if error.status != 1:  # status 1: git grep found no match
            raise
        listed = ""
    paths = [path.partition(":")[2] for path in listed.split("\0") if path.endswith((".yaml", ".yml"))]
    return {path: text for path, text in branch.checkout.read(paths, ref).items() if text is not None}


def rows_of(branch: BumpBranch, cases: Sequence[str], commit: str = "") -> tuple[RecipeRow, ...]:
    """Return the rows of recipes that name these cases; if none does, of all recipes, to suggest a name."""
    texts = recipe_texts(branch, cases, commit)
    if cases and not texts:
        texts = recipe_texts(branch, ["test_case"], commit)
    return parse_rows(texts)


def parse_rows(texts: Mapping[str, str]) -> tuple[RecipeRow, ...]:
    """Return the rows of recipes.  Raises Refused for a recipe that cannot be read."""
    rows: list[RecipeRow] = []
    for path, text in texts.items():
        try:
            rows += recipes.rows(path, text)
        except CannotTell as error:
            raise Refused(f"{error} Fix this first, as the file may contain the test. Nothing was changed.") from error
    return tuple(rows)


def issue_states(github: Forge | None, entries: Iterable[QuarantinedRow]) -> dict[int | None, str]:
    """Return the state of each issue named in quarantined rows, or why it is unknown; ``no issue`` for none."""
    states: dict[int | None, str] = {None: "no issue"}
    for number in sorted({entry.issue for entry in entries if entry.issue}):
        states[number] = "not queried: no token"
        if github is not None:
            try:
                issue = github.issue(number)
                states[number] = "a pull request" if issue.is_pull else issue.state
            except RunbookError as error:
                states[number] = f"cannot be read: {error}"
    return states
