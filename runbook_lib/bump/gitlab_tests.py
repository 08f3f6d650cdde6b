"""The tests that only GitLab runs: in the LTS image, and with golden values that no run on GitHub refreshes.

Source: Megatron-LM's ``.github/workflows/cicd-main.yml`` (the label ``container::lts`` changes only the image),
``.gitlab/stages/04.functional-tests.yml`` and the recipes' rows with ``environment: [lts]``.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from runbook_lib import display, notebooks
from runbook_lib.compute.internal_gitlab import SCOPES
from runbook_lib.golden import coverage
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import LTS
from runbook_lib.text.recipes import rows as recipes
from runbook_lib.text.recipes.file_names import FOLDER, GoldenFileName
from runbook_lib.text.recipes.rows import RecipeRow
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.commands import command
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.commits import tree_changes
from runbook_lib.world.gitlab.models import Pipeline
from runbook_lib.world.ports import SecondCi

#: The environment's name in recipes, GitLab bridges and golden file names.
ENVIRONMENT = "lts"


def applies(bump: Bump) -> bool:
    """Return whether this is an LTS bump of a repository with golden values."""
    return bump.image_type == "lts" and bump.repository.tests.golden


def describe(branch: BumpBranch) -> tuple[str, ...]:
    """Return the steps of the validation, as sentences; none for other bumps."""
    if not applies(branch.bump):
        return ()
    counts: Counter[str] = Counter()
    for row in read_recipes(branch.checkout, branch.start)[0]:
        if ENVIRONMENT in row.environments:
            counts.update({scope.value for scope in row.scopes} & set(SCOPES))
    steps = [
        f"GitHub: the label {LTS} makes CI run the dev tests in the LTS image. Such a run writes golden_values_dev_* "
        "and never refreshes them."
    ]
    for scope in filter(counts.get, SCOPES):
        rows_of_scope = f"{counts[scope]} recipe rows with scope {scope}"
        steps.append(f"GitLab: {rows_of_scope} run in the environment lts: internal-ci with tests={scope}.")
    steps.append(
        f"Golden values golden_values_lts_* come only from these pipelines: {notebooks.GOLDEN_VALUES} with "
        "source=gitlab and run_id set to the pipeline's number."
    )
    steps.append("Unit tests in the LTS image run on GitLab with UNIT_TEST=yes, which internal-ci does not set.")
    return tuple(steps)


def testing(gitlab: SecondCi, pipelines: Iterable[Pipeline]) -> tuple[Pipeline, ...]:
    """Return the pipelines that are running or have run functional tests in the environment lts."""
    matching = []
    for pipeline in pipelines:
        if any(bridge.environment == ENVIRONMENT and bridge.pipeline for bridge in gitlab.bridges(pipeline.id)):
            matching.append(pipeline)
    return tuple(matching)


def golden_tests(checkout: Checkout, commit: str) -> tuple[list[str], list[RecipeRow]]:
    """Return the golden files of a commit, relative to their folder, and the rows of its recipes."""
    golden = checkout.list_files(commit, FOLDER)
    files = [path.removeprefix(f"{FOLDER}/") for path in golden if GoldenFileName.of_path(path)]
    return files, read_recipes(checkout, commit)[0]


def read_recipes(checkout: Checkout, commit: str) -> tuple[list[RecipeRow], list[str]]:
    """Return the rows of a commit's recipes, and sentences about recipes that cannot be read."""
    paths = checkout.list_files(commit, recipes.FOLDER)
    return recipes.read_all(checkout.read([path for path in paths if path.endswith((".yaml", ".yml"))], commit))


def unrefreshed(branch: BumpBranch, before: str, after: str) -> Iterator[str]:
    """Yield how many golden files that only GitLab tests are as in ``before``, by scope, and how to refresh them."""
    checkout, bump = branch.checkout, branch.bump
    files, rows = golden_tests(checkout, after)
    refreshed = {path.removeprefix(f"{FOLDER}/") for path in tree_changes(checkout, before, after)}
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
        then = command(notebooks.GOLDEN_VALUES, bump, source="gitlab")
        yield f"Nobody has refreshed {files_of} of GitLab's scope {scope}. To do so: {start}; once it has ended: {then}"
