"""The golden values that only GitLab's tests write, and that nobody has refreshed for an image."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from runbook_lib import display
from runbook_lib.compute.internal_ci.plan import SCOPES
from runbook_lib.golden import coverage
from runbook_lib.notebooks import GOLDEN_VALUES
from runbook_lib.text.recipes import rows as recipes
from runbook_lib.text.recipes.file_names import FOLDER, GoldenFileName
from runbook_lib.text.recipes.rows import RecipeRow
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.commands import command
from runbook_lib.world.git import commit_changes
from runbook_lib.world.git.checkout import Checkout


def golden_tests(checkout: Checkout, commit: str) -> tuple[list[str], list[RecipeRow]]:
    """Return the golden files of a commit, relative to their folder, and the rows of its recipes."""
    golden = commit_changes.list_files(checkout, commit, FOLDER)
    files = [path.removeprefix(f"{FOLDER}/") for path in golden if GoldenFileName.of_path(path)]
    paths = commit_changes.list_files(checkout, commit, recipes.FOLDER)
    rows, _ = recipes.read_all(checkout.read([path for path in paths if path.endswith((".yaml", ".yml"))], commit))
    return files, rows


def unrefreshed(branch: BumpBranch, before: str, after: str) -> Iterator[str]:
    """Yield how many such files of commit ``after`` are as in ``before``, by scope, and how to refresh them."""
    checkout, bump = branch.checkout, branch.bump
    files, rows = golden_tests(checkout, after)
    refreshed = {path.removeprefix(f"{FOLDER}/") for path in commit_changes.tree_changes(checkout, before, after)}
    platforms: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for file in coverage.coverage(files, rows, refreshed, bump.image_type):
        if file.kind == "gitlab":
            cadences = {coverage.ON_GITLAB.get(scope, scope) for scope in file.scopes}
            offered = next(filter(cadences.__contains__, SCOPES), "")
            platforms[offered][file.platform or "any platform"] += 1
    for scope, counts in sorted(platforms.items()):
        counted = ", ".join(f"{count} on {name}" for name, count in sorted(counts.items()))
        files_of = f"{display.count(counts.total(), 'golden file')} ({counted})"
        if not scope:
            yield f"Nobody refreshes {files_of} of scopes that no pipeline offers."
            continue
        start = command("internal-ci", bump, tests=scope)
        then = command(GOLDEN_VALUES, bump, source="gitlab")
        yield f"Nobody has refreshed {files_of} of GitLab's scope {scope}. To do so: {start}; once it has ended: {then}"
