"""The requested tests as a commit has them: recipe, settings and golden files."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from runbook_lib.golden.file_names import FOLDER, GoldenFileName
from runbook_lib.recipes import rows
from runbook_lib.recipes.workloads import Workload
from runbook_lib.slurm import selection
from runbook_lib.slurm.selection import SelectedTest
from runbook_lib.slurm.site import Site
from runbook_lib.workflow.bump_branch import BumpBranch


@dataclass(frozen=True)
class CommitTests:
    """The requested tests.  ``texts`` are their settings and golden files by path, None for a missing file."""

    tests: tuple[SelectedTest, ...]
    texts: Mapping[str, str | None]
    warnings: tuple[str, ...]


def read_commit_tests(
    branch: BumpBranch, site: Site, words: str, platform: str, training: tuple[Workload, str] | None
) -> CommitTests:
    """Read the tests that ``words`` select from the recipes, or instead a ``training`` with the text of its settings.

    Raises Refused for a test that does not exist.
    """
    paths = branch.checkout.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", branch.start).split("\0")
    recipes = [path for path in paths if path.startswith(f"{rows.FOLDER}/")]
    candidates, problems = selection.read_tests(branch.texts(recipes))
    if training:
        selected: tuple[Workload, ...] = (training[0],)
    else:
        selected = selection.select(candidates, words, platform, branch.bump.image_type)
    texts = dict(branch.texts({selection.config_of(test) for test in selected}))
    if training:
        texts[selection.config_of(training[0])] = training[1]
    tests = _prepare(selected, texts, site)
    golden: set[str] = set()
    for test in selected:
        golden.update(golden_files(test, paths))
    used = {test.recipe for test in selected}
    readable = {test.recipe for test in candidates}
    warnings: list[str] = []
    for path, sentences in problems.items():
        if path in used or path not in readable:
            warnings += sentences
    return CommitTests(tests, {**branch.texts(golden), **texts}, tuple(warnings))


def _prepare(workloads: Iterable[Workload], settings: Mapping[str, str | None], site: Site) -> tuple[SelectedTest, ...]:
    names: set[str] = set()
    tests = []
    for workload in workloads:
        test = selection.prepare(workload, settings[selection.config_of(workload)], site)
        if workload.name in names and not test.obstacle:
            test = replace(test, obstacle="A row before it has the same name.")
        names.add(workload.name)
        tests.append(test)
    return tuple(tests)


def golden_folder(test: Workload) -> str:
    """Return the folder of a test in the repository, with a slash at the end."""
    return f"{FOLDER}/{test.model}/{test.case}/"


def golden_files(test: Workload, paths: Iterable[str]) -> list[str]:
    """Return those of ``paths`` that are golden files of the test on its platform, of a resumed training too."""
    folder = golden_folder(test)
    files = []
    for path in paths:
        if not path.startswith(folder):
            continue
        file = GoldenFileName.of_artifact(path.removeprefix(folder))
        if file and (file.environment, file.platform) == (test.environment, test.platform):
            files.append(path)
    return files
