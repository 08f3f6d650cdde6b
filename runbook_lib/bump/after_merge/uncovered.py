"""The golden files that a merged pull request's run did not compare, and the commands that refresh them."""

from collections.abc import Iterable, Sequence

from runbook_lib.compute.internal_ci.plan import SCOPES
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.golden import ci_runs, coverage
from runbook_lib.notebooks import GOLDEN_VALUES
from runbook_lib.text.recipes import rows as recipes
from runbook_lib.text.recipes.file_names import FOLDER, GoldenFileName
from runbook_lib.text.recipes.rows import RecipeRow
from runbook_lib.world import bump_pull
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.commands import command
from runbook_lib.world.git import commit_changes
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.github.ci_status import branch_of, choose
from runbook_lib.world.github.models import WorkflowJob
from runbook_lib.world.ports import Forge


def golden_tests(checkout: Checkout, commit: str) -> tuple[list[str], list[RecipeRow]]:
    """Return the golden files of a commit, relative to their folder, and the rows of its recipes."""
    listed = commit_changes.list_files(checkout, commit, FOLDER, recipes.FOLDER)
    golden = [path for path in listed if path.startswith(FOLDER) and GoldenFileName.of_path(path)]
    recipe_paths = [path for path in listed if path.startswith(recipes.FOLDER) and path.endswith((".yaml", ".yml"))]
    return [path.removeprefix(f"{FOLDER}/") for path in golden], recipes.read_all(checkout.read(recipe_paths, commit))[
        0
    ]


def changed_files(checkout: Checkout, before: str, after: str) -> set[str]:
    """Return the golden files that differ between two commits, relative to their folder."""
    return {path.removeprefix(f"{FOLDER}/") for path in commit_changes.tree_changes(checkout, before, after)}


def pipeline_scope(scopes: Iterable[str]) -> str:
    """Return the scope by which a pipeline on GitLab runs a test of these scopes; empty if none does."""
    cadences = {coverage.ON_GITLAB.get(scope, scope) for scope in scopes}
    return next(filter(cadences.__contains__, SCOPES), "")


def uncovered_rows(
    branch: BumpBranch, github: Forge | None, merge: str, *, pipeline: int
) -> tuple[list[dict[str, object]], str]:
    """Return rows like ``coverage.coverage_rows``, and why the run's files are unknown (empty if known).

    If they are unknown, the rows list only the files that no run on GitHub covers.  ``merge`` is the commit of the
    merge, whose own golden files are covered, and ``pipeline`` the base branch's GitLab pipeline, 0 for none.
    """
    bump, problem = branch.bump, ""
    files, rows_of_recipes = golden_tests(branch.checkout, branch.base_commit)
    compared = changed_files(branch.checkout, f"{merge}^", merge)
    try:
        compared |= compared_files(branch, github, files, rows_of_recipes)
    except RunbookError as error:
        problem = f"Which golden files the pull request's run compared is unknown. {error}"
    covered = coverage.coverage(files, rows_of_recipes, compared, bump.image_type)
    if problem:
        covered = [file for file in covered if file.kind != "not produced"]  # that is known only of a run
    rows = coverage.coverage_rows(covered, {**coverage.COMMANDS, "gitlab": ""})
    refresh = command(GOLDEN_VALUES, bump, mode=None, source="gitlab", run_id=str(pipeline or ""))
    for row in rows[1:]:
        if not row["next"]:
            scope = pipeline_scope(str(row["scopes"]).split(", "))
            start = command("internal-ci", bump, tests=scope, mode=None)
            row["next"] = f"{refresh}, once that pipeline on {bump.base} has finished" if pipeline else start
    return rows[1:] if problem else rows, problem


def compared_files(
    branch: BumpBranch, github: Forge | None, files: Sequence[str], recipe_rows: Sequence[RecipeRow]
) -> set[str]:
    """Return the golden files, relative to their folder, that the pull request's run compared.

    Raises CannotTell if no merged pull request with a run is found, and RunbookError if GitHub fails.
    """
    if branch.bump.image_type == "lts":  # GitHub runs no LTS tests
        return set()
    tested = ci_runs.functional_tests(_jobs(branch, github))
    finished = [test for test in tested if test.state in ("passed", "failed")]
    return coverage.compared_files(finished, recipe_rows, files, branch.bump.image_type)


def _jobs(branch: BumpBranch, github: Forge | None) -> tuple[WorkflowJob, ...]:
    bump = branch.bump
    closed = github.pulls(bump_pull.head_of(branch.checkout, bump), bump.base, "closed") if github else ()
    pull = next((pull for pull in closed if pull.merged), None)
    if github and pull and (run := choose(github.runs(branch_of(pull.number), pull.head_sha), pull.head_sha)):
        return github.jobs(run.id)
    raise CannotTell(f"No merged pull request from {bump.branch} with a run was found.")
