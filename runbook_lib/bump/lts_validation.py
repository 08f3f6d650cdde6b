"""The validation of an LTS bump: the tests of the LTS image, and where they run.

Source: Megatron-LM's ``.github/workflows/cicd-main.yml`` (the label ``container::lts`` changes only the image),
``.gitlab/stages/04.functional-tests.yml`` and the recipes' rows with ``environment: [lts]``.
"""

from collections import Counter
from collections.abc import Iterable

from runbook_lib import notebooks
from runbook_lib.compute.internal_ci.plan import SCOPES
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import LTS
from runbook_lib.text.recipes import rows
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git import commit_changes
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
    checkout, commit = branch.checkout, branch.start
    recipes, _ = rows.read_all(checkout.read(commit_changes.list_files(checkout, commit, rows.FOLDER), commit))
    counts: Counter[str] = Counter()
    for row in recipes:
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
