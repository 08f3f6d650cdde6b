"""The requested tests in a commit: recipe, settings and golden files."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from runbook_lib.compute.slurm import selection
from runbook_lib.compute.slurm.site import Site
from runbook_lib.git import commit_changes
from runbook_lib.recipes import rows
from runbook_lib.recipes.file_names import FOLDER, GoldenFileName
from runbook_lib.recipes.workloads import Workload
from runbook_lib.world.bump_branch import BumpBranch


def read_commit_tests(
    branch: BumpBranch, site: Site, words: str
) -> tuple[tuple[selection.SelectedTest, ...], Mapping[str, str | None], tuple[str, ...]]:
    """Return the tests that ``words`` select in the recipes, their settings and golden files by path, and warnings.

    Raises Refused for a test that does not exist.
    """
    paths = commit_changes.list_files(branch.checkout, branch.start, rows.FOLDER, FOLDER)
    candidates, problems = selection.read_tests(branch.texts([path for path in paths if path.startswith(rows.FOLDER)]))
    workloads = selection.select(candidates, words, site.platform, branch.bump.image_type)
    settings = branch.texts({selection.config_of(test) for test in workloads})
    tests: dict[str, selection.SelectedTest] = {}
    repeated = []
    golden: set[str] = set()
    for workload in workloads:
        test = selection.prepare(workload, settings[selection.config_of(workload)], site)
        if tests.setdefault(workload.name, test) is not test:
            repeated.append(replace(test, obstacle=test.obstacle or "An earlier row has the same name."))
        golden.update(golden_files(workload, paths))
    used = {test.recipe for test in workloads}
    readable = {test.recipe for test in candidates}
    warnings: list[str] = []
    for path, sentences in problems.items():
        if path in used or path not in readable:
            warnings += sentences
    return (*tests.values(), *repeated), {**branch.texts(golden), **settings}, tuple(warnings)


def golden_files(test: Workload, paths: Iterable[str]) -> list[str]:
    """Return those of ``paths`` that are the test's golden files on its platform, including a resumed training's."""
    folder = f"{FOLDER}/{test.model}/{test.case}/"
    files = []
    for path in paths:
        file = path.startswith(folder) and GoldenFileName.of_artifact(path.removeprefix(folder))
        if file and (file.environment, file.platform) == (test.environment, test.platform):
            files.append(path)
    return files
