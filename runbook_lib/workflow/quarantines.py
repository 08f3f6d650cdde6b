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

_OURS = re.compile(r"# Broken(?: \(scope [0-9, ]+\))?: (.*?)(?: — )?see issue #([0-9]{1,9})\.")


def quarantined_since_fork(branch: BumpBranch, commit: str = "") -> list[dict[str, object]]:
    """The tests that the bump's branch puts out of the way beyond its base, with the issue that the comment names."""
    checkout = branch.checkout
    fork = checkout.merge_base(branch.start, branch.base_commit) or branch.base_commit
    ref = commit or branch.start
    changed = checkout.git("diff", "--name-only", "--no-renames", "-z", fork, ref, "--", recipes.FOLDER).split("\0")
    before, after = (checkout.read([path for path in changed if path], at) for at in (fork, ref))
    found: list[dict[str, object]] = []
    for path, text in after.items():
        was = {_key(row): row for row in recipes.rows(path, before[path] or "")}
        for row in recipes.rows(path, text or ""):
            old = was.get(_key(row))
            newly = sum(cell.value.endswith(BROKEN) for cell in row.scopes) - (
                sum(cell.value.endswith(BROKEN) for cell in old.scopes) if old else 0
            )
            if newly > 0 or (row.allow_failure and not (old and old.allow_failure)):
                comment = comment_of(row, text or "")
                told = _OURS.match(comment, max(comment.find("# Broken"), 0))
                found.append(
                    {"test": f"{row.model}/{row.case}", "platforms": ", ".join(row.platforms),
                     "environments": ", ".join(row.environments), "form": "soft" if newly <= 0 else "broken",
                     "issue": int(told[2]) if told else None, "reason": told[1] if told else ""}
                )  # fmt: skip
    return found


def _key(row: RecipeRow) -> tuple[str, ...]:
    scopes = sorted(cell.value.removesuffix(BROKEN) for cell in row.scopes)
    return (row.model, row.case, *row.environments, "/", *row.platforms, "/", *scopes)


def require(branch: BumpBranch, broken: str) -> None:
    """Raise Refused for a list ``broken`` of another form, and for tests that no recipe of the branch has."""
    settled(branch, broken, "broken")


def settled(branch: BumpBranch, text: str, parameter: str) -> tuple[tuple[Target, ...], tuple[RecipeRow, ...]]:
    """The tests of a person's list, and the rows of the recipes that name their cases."""
    listed = parse_targets(text, branch.bump.image_type, Redactor(os.environ), parameter)
    rows = rows_of(branch, [it.case for it in listed])
    return tuple(resolve(it, rows) for it in listed), rows


def is_out(row: RecipeRow, soft: bool) -> bool:
    """Whether a row stops nothing any more; ``soft``: as it may fail."""
    return (soft and row.allow_failure) or not quarantine.gating_scopes(row)


def recipe_texts(branch: BumpBranch, cases: Iterable[str], commit: str = "") -> dict[str, str]:
    """The recipes that have one of these words in them, as the plan's commit has them."""
    patterns = [part for case in dict.fromkeys(cases) for part in ("-e", case)]
    if not patterns:
        return {}
    ref = commit or branch.start
    try:
        listed = branch.checkout.git("grep", "-z", "-l", "--fixed-strings", *patterns, ref, "--", recipes.FOLDER)
    except GitFailed as error:
        if error.status != 1:  # git's way to say that nothing was found
            raise
        listed = ""
    paths = [path.partition(":")[2] for path in listed.split("\0") if path.endswith((".yaml", ".yml"))]
    return {path: text for path, text in branch.checkout.read(paths, ref).items() if text is not None}


def rows_of(branch: BumpBranch, cases: Sequence[str], commit: str = "") -> tuple[RecipeRow, ...]:
    """The rows of the recipes that name these cases; of all recipes where none does, for a hint at the right name."""
    texts = recipe_texts(branch, cases, commit)
    if cases and not texts:
        texts = recipe_texts(branch, ["test_case"], commit)
    found: list[RecipeRow] = []
    for path, text in texts.items():
        try:
            found += recipes.rows(path, text)
        except CannotTell as error:
            raise Refused(f"{error} Mend it first: the test could stand in it. Nothing was changed.") from error
    return tuple(found)
