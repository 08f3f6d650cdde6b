"""The tests from a commit's recipes to run on a cluster, with settings and golden files, and the obstacles to each."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from runbook_lib.compute.slurm.site import Site
from runbook_lib.compute.workloads import Parallelism, Workload, choose, read
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.golden import coverage
from runbook_lib.text.lists import did_you_mean
from runbook_lib.text.recipes import file_names, rows
from runbook_lib.world.bump_branch import BumpBranch

#: The tests that CI runs on a bump's pull request, and whose golden values the bump moves.
BUMP = "bump"
#: The folders of CI's runners that recipes use.  The last two are for caches, which one node can create for itself.
_DATA, _SHARED_BY_NODES = "/mnt/artifacts", ("/lustre/fsw", "/workspace/data")


@dataclass(frozen=True)
class SelectedTest:
    """A test with its requirements and files; ``obstacle`` is the reason why it cannot run, empty if it can.

    ``connections`` is the value of CUDA_DEVICE_MAX_CONNECTIONS.  ``config`` is the text of its settings, None if there
    are none.  ``golden`` are the texts of its golden files on its platform by name, including a resumed training's: it
    should write the same.
    """

    test: Workload
    connections: int | None = None
    obstacle: str = ""
    config: str | None = None
    golden: Mapping[str, str | None] = field(default_factory=dict)


def read_commit_tests(branch: BumpBranch, site: Site, words: str) -> tuple[tuple[SelectedTest, ...], list[str]]:
    """Return the tests that ``words`` select in the recipes, and warnings.

    Raises Refused for a test that does not exist.
    """
    paths = branch.checkout.list_files(branch.start, rows.FOLDER, file_names.FOLDER)
    candidates, warnings = read_tests(branch.texts([path for path in paths if path.startswith(rows.FOLDER)]))
    selected = select(candidates, words, site.platform, branch.bump.image_type)
    workloads = {workload.name: workload for workload in selected}  # each name once: its jobs have it
    golden = {name: _golden_files(workload, paths) for name, workload in workloads.items()}
    texts = branch.texts({*map(config_of, selected), *itertools.chain.from_iterable(golden.values())})
    tests: list[SelectedTest] = []
    for name, workload in workloads.items():
        test = prepare(workload, texts[config_of(workload)], site)
        tests.append(replace(test, golden={path.rpartition("/")[2]: texts[path] for path in golden[name]}))
    return tuple(tests), warnings


def _golden_files(test: Workload, paths: Iterable[str]) -> list[str]:
    folder = config_of(test).removesuffix("model_config.yaml")
    files = []
    for path in paths:
        file = path.startswith(folder) and file_names.GoldenFileName.of_artifact(path.removeprefix(folder))
        if file and (file.environment, file.platform) == (test.environment, test.platform):
            files.append(path)
    return files


def read_tests(texts: Mapping[str, str | None]) -> tuple[list[Workload], list[str]]:
    """Return all tests of these recipes, by path, and a sentence on each recipe that cannot be read."""
    tests: list[Workload] = []
    problems: list[str] = []
    for path, text in texts.items():
        if not path.endswith((".yaml", ".yml")):
            continue
        try:
            tests += [
                test for test in read(path, text or "") if test.needs.gpus and test.needs.nodes and test.script.strip()
            ]
        except RunbookError as error:
            problems.append(f"{error} Its tests are left out.")
    return tests, problems


def select(tests: Sequence[Workload], words: str, platform: str, environment: str) -> tuple[Workload, ...]:
    """Return the tests named by ``words``, in the same order, on one platform in one environment.

    ``words`` are comma-separated or separated by spaces: ``bump``, scopes, and tests as ``case`` or ``model/case``.
    Raises Refused for a word without a test for this platform and environment.
    """
    wanted = (environment, platform)
    # Blanks in the name of a platform are a typo of some recipes.
    candidates = [test for test in tests if (test.environment, "".join(test.platform.split())) == wanted]
    names = words.replace(",", " ").split()
    for name in names:
        if any(_is_named(test, name) for test in candidates):
            continue
        if places := sorted({f"{test.platform} ({test.environment})" for test in tests if _is_named(test, name)}):
            raise Refused(f"{name} runs on {', '.join(places)}, not on {platform} ({environment}).")
        hint = did_you_mean(name, {word for test in candidates for word in (test.case, *test.scopes)}, 3)
        advice = "Name a scope such as nightly, a test case, or bump."
        raise Refused(f"No recipe has the scope or the test {name!r}{hint}.", advice)
    return tuple(test for test in candidates if any(_is_named(test, name) for name in names))


def _is_named(test: Workload, word: str) -> bool:
    if word == BUMP:
        return not coverage.GITHUB.keys().isdisjoint(test.scopes)
    return word in test.scopes or word in (test.case, f"{test.model}/{test.case}")


def config_of(test: Workload) -> str:
    """Return the path of a test's settings."""
    return f"{file_names.FOLDER}/{test.model}/{test.case}/model_config.yaml"


def prepare(test: Workload, config: str | None, site: Site) -> SelectedTest:
    """Return a test with its requirements, and with the GPUs per node that it gets at the site.

    ``config`` is the text of its settings, None if there are none.
    """
    if test.values.get("tag") == "legacy":
        return SelectedTest(test, obstacle="It tests an older release, and only CI prepares a checkout of that.")
    asked = test.needs
    needs = replace(asked, gpus=asked.gpus and max(asked.gpus, site.least_gpus))
    connections, obstacle = None, _unmounted(test, config, site)
    try:
        test.command(assets_dir="", artifacts_dir="", name="")
        if config is not None:  # else its script sets the variables that it needs
            parallelism = Parallelism.parse(config, config_of(test))
            connections = choose(test.platform, parallelism)
            if problems := " ".join(parallelism.problems(needs.nodes * needs.gpus)):
                hint = f" Its recipe requests {asked.gpus} GPUs per node, but CI's runners provide all: see least-gpus."
                obstacle = problems + (hint if needs == asked else "")
    except RunbookError as error:
        obstacle = str(error)
    return SelectedTest(replace(test, needs=needs), connections, obstacle, config)


def _unmounted(test: Workload, config: str | None, site: Site) -> str:
    """Return a sentence on what a test uses and its container lacks; empty if it has all.

    A mount inside a folder of CI counts as the folder: a user who mounts parts of it knows which are read.
    """
    text = f"{test.script}\n{config}"
    used = [folder for folder in (_DATA, *(_SHARED_BY_NODES if test.needs.nodes > 1 else ())) if folder in text]
    present = [f"{mount.split(':')[1].rstrip('/')}/" for mount in site.mounts]
    missing = [it for it in used if not any(f"{it}/".startswith(path) or path.startswith(f"{it}/") for path in present)]
    if not missing:
        return ""
    return (
        f"The test uses {' and '.join(missing)}, and nothing is mounted there. Add its data folder to mounts in the "
        f"site file, such as /shared/data:{missing[0]}."
    )
