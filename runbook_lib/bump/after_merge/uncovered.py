"""The golden files that a merged pull request's run did not compare, and the commands that refresh them."""

from collections import Counter
from collections.abc import Mapping, Sequence

from runbook_lib.clients.github.ci_status import branch_of, choose
from runbook_lib.clients.github.models import WorkflowJob
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.golden import ci_runs, coverage
from runbook_lib.notebooks import GOLDEN_VALUES
from runbook_lib.recipes.file_names import FOLDER, GoldenFileName
from runbook_lib.world import bump_pull
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.commands import command
from runbook_lib.world.ports import Forge


def uncovered_rows(
    branch: BumpBranch, github: Forge | None, files: Sequence[str], recipe_texts: Mapping[str, str | None], *,
    pipeline: int,
) -> tuple[list[dict[str, object]], str]:  # fmt: skip
    """Return rows like ``coverage.coverage_rows``, and why the run's files are unknown (empty if known).

    If they are unknown, the rows list only the files that no run on GitHub covers.  ``pipeline`` is the base branch's
    GitLab pipeline, 0 for none.
    """
    bump, problem = branch.bump, ""
    tests: list[coverage.ScopedTest] = []
    for path, text in recipe_texts.items():
        tests += coverage.scoped_tests(path, text or "")[0]
    compared: set[str] = set()
    try:
        compared = compared_files(branch, github, files, tests)
    except RunbookError as error:
        problem = f"Which golden files the pull request's run compared is unknown. {error}"
    golden = [path for path in files if path.startswith(FOLDER) and GoldenFileName.of_path(path)]
    covered = coverage.coverage([path.removeprefix(f"{FOLDER}/") for path in golden], tests, compared, bump.image_type)
    if problem:
        covered = [file for file in covered if file.kind != "not produced"]  # that is known only of a run
    refresh = command(GOLDEN_VALUES, bump, mode=None)
    refresh += f" -r source gitlab -r run_id {pipeline or 'PIPELINE'}"
    finished = f"{refresh}, once that pipeline on {bump.base} has finished"
    rows = coverage.coverage_rows(covered, {**coverage.COMMANDS, "gitlab": finished})
    return rows[1:] if problem else rows, problem


def compared_files(
    branch: BumpBranch, github: Forge | None, files: Sequence[str], tests: Sequence[coverage.ScopedTest]
) -> set[str]:
    """Return the golden files, relative to their folder, that the pull request's run compared.

    Raises CannotTell if no merged pull request with a run is found, and RunbookError if GitHub fails.
    """
    if branch.bump.image_type == "lts":  # GitHub runs no LTS tests
        return set()
    tested = ci_runs.functional_tests(_jobs(branch, github))
    counts = Counter((test.model, test.test_case) for test in tested if test.state in ("passed", "failed"))
    compared: set[str] = set()
    for name, count in counts.items():
        of_test = (test.golden for test in tests if (test.model, test.case) == name and test.scope in coverage.GITHUB)
        golden = {file for file in of_test if f"golden_values_{branch.bump.image_type}_" in file}
        # GB200 jobs have the same names as H100 jobs; they come last, because they run only for maintainers.
        compared.update(sorted(golden, key=lambda file: "gb200" in file)[:count])
    below = {path.removeprefix(f"{FOLDER}/") for path in files}
    return compared | ({file.replace(".json", "_2nd.json") for file in compared} & below)


def _jobs(branch: BumpBranch, github: Forge | None) -> tuple[WorkflowJob, ...]:
    bump = branch.bump
    closed = github.pulls(bump_pull.head_of(branch.checkout, bump), bump.base, "closed") if github else ()
    pull = next((pull for pull in closed if pull.merged), None)
    if github and pull and (run := choose(github.runs(branch_of(pull.number), pull.head_sha), pull.head_sha)):
        return github.jobs(run.id)
    raise CannotTell(f"No merged pull request from {bump.branch} with a run was found.")
