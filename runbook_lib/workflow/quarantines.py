"""Tests that the bump's branch quarantines, and the tests that a person names, as the recipes have them."""

import os
import re
from collections.abc import Iterable, Sequence

from runbook_lib.errors import CannotTell, Refused
from runbook_lib.git.command import GitFailed
from runbook_lib.recipes import quarantine
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.quarantine import BROKEN, comment_of
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.recipes.targets import Target, parse_targets, resolve
from runbook_lib.text.redact import Redactor
from runbook_lib.workflow.bump_branch import BumpBranch

#: The comment above a row that the runbook quarantined: the reason, and the number of the issue.
_COMMENT = re.compile(r"# Broken(?: \(scope [0-9, ]+\))?: (.*?)(?: — )?see issue #([0-9]{1,9})\.")


def quarantined_since_fork(branch: BumpBranch, commit: str = "") -> list[dict[str, object]]:
    """Return the tests that the bump's branch quarantines beyond its base, with the issue that the comment names.

    ``commit`` is read instead of the branch's newest, where given.
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


def resolve_targets(branch: BumpBranch, text: str, parameter: str) -> tuple[tuple[Target, ...], tuple[RecipeRow, ...]]:
    """Return the tests of a person's list, and the rows of the recipes that name their cases.

    Raises Refused for a list of another form, and for tests that no recipe of the branch has.
    """
    targets = parse_targets(text, branch.bump.image_type, Redactor(os.environ), parameter)
    rows = rows_of(branch, [target.case for target in targets])
    return tuple(resolve(target, rows) for target in targets), rows


def is_quarantined(row: RecipeRow, soft: bool) -> bool:
    """Return whether a row blocks no merge any more; ``soft``: because it may fail."""
    return (soft and row.allow_failure) or not quarantine.gating_scopes(row)


def recipe_texts(branch: BumpBranch, cases: Iterable[str], commit: str = "") -> dict[str, str]:
    """Return the recipes that contain one of these cases, by path, as ``commit`` or the branch's newest has them."""
    patterns = [part for case in dict.fromkeys(cases) for part in ("-e", case)]
    if not patterns:
        return {}
    ref = commit or branch.start
    try:
        listed = branch.checkout.git("grep", "-z", "-l", "--fixed-strings", *patterns, ref, "--", recipes.FOLDER)
    except GitFailed as error:
        if error.status != 1:  # git grep found nothing
            raise
        listed = ""
    paths = [path.partition(":")[2] for path in listed.split("\0") if path.endswith((".yaml", ".yml"))]
    return {path: text for path, text in branch.checkout.read(paths, ref).items() if text is not None}


def rows_of(branch: BumpBranch, cases: Sequence[str], commit: str = "") -> tuple[RecipeRow, ...]:
    """Return the rows of the recipes that name these cases; of all recipes where none does, for a hint at the name."""
    texts = recipe_texts(branch, cases, commit)
    if cases and not texts:
        texts = recipe_texts(branch, ["test_case"], commit)
    rows: list[RecipeRow] = []
    for path, text in texts.items():
        try:
            rows += recipes.rows(path, text)
        except CannotTell as error:
            raise Refused(f"{error} Fix it first: it may have the test. Nothing was changed.") from error
    return tuple(rows)
