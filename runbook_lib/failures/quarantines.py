"""The tests that the bump's branch quarantines, and the recipe rows of tests that a person names."""

import re
from collections.abc import Iterable, Mapping, Sequence

from runbook_lib.decisions import Decision, Kind
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.git.command import GitFailed
from runbook_lib.recipes import quarantine
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.quarantine import BROKEN, QuarantinedRow, comment_of
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.recipes.targets import Target, resolve, target_of
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.ports import Forge

#: The comment above a row that the runbook quarantined: the reason, and the issue number.
_COMMENT = re.compile(r"# Broken: (.*?)(?: — )?see issue #([0-9]{1,9})\.")


def quarantined_since_fork(branch: BumpBranch, commit: str = "") -> list[dict[str, object]]:
    """Return the tests that the bump's branch quarantines beyond its base, with the issue named in the comment.

    Reads ``commit`` instead of the branch's newest commit, if given.
    """
    checkout, fork, head = branch.checkout, branch.fork, commit or branch.start
    listed = checkout.git("diff", "--name-only", "--no-renames", "-z", fork, head, "--", recipes.FOLDER)
    paths = [path for path in listed.split("\0") if path]
    before, after = checkout.read(paths, fork), checkout.read(paths, head)
    tests = []
    for path, text in after.items():
        old_rows = {_key(row): row for row in recipes.rows(path, before[path] or "")}
        for row in recipes.rows(path, text or ""):
            old = old_rows.get(_key(row))
            newly_broken = _broken_scopes(row) > _broken_scopes(old)
            newly_soft = row.allow_failure and not (old and old.allow_failure)
            if newly_broken or newly_soft:
                tests.append(_describe(row, text or "", "broken" if newly_broken else "soft"))
    return tests


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


def resolve_targets(branch: BumpBranch, kind: Kind) -> tuple[dict[Target, Decision], tuple[RecipeRow, ...]]:
    """Return the tests of a person's decisions of this kind, and the recipe rows that name their cases.

    Raises Refused for tests that are in no recipe on the branch.
    """
    decided = {target_of(each, branch.bump.image_type): each for each in branch.bump.decisions.of(kind)}
    rows = rows_of(branch, [target.case for target in decided])
    return {resolve(target, rows): decision for target, decision in decided.items()}, rows


def is_quarantined(row: RecipeRow) -> bool:
    """Return whether a row no longer blocks a merge."""
    return not quarantine.gating_scopes(row)


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
                states[number] = github.issue(number).state
            except RunbookError as error:
                states[number] = f"cannot be read: {error}"
    return states
