"""The tests from the recipes to run on a cluster, and the obstacles to each of them.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runbook_lib.compute.slurm.site import Site
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.golden import coverage
from runbook_lib.recipes import file_names, rows
from runbook_lib.recipes.device_connections import Connections, architecture, choose
from runbook_lib.recipes.parallelism import Parallelism
from runbook_lib.recipes.workloads import Workload, read
from runbook_lib.text.suggestions import did_you_mean

#: The tests that CI runs on a bump's pull request, and whose golden values the bump moves.
BUMP = "bump"
_UNSET = Connections(None, "")


@dataclass(frozen=True)
class SelectedTest:
    """A test with its requirements; ``obstacle`` is the reason why it cannot run, empty if it can."""

    test: Workload
    connections: Connections
    obstacle: str = ""


def read_tests(texts: Mapping[str, str | None]) -> tuple[tuple[Workload, ...], Mapping[str, tuple[str, ...]]]:
    """Return all tests of these recipes; and by path the problems of each recipe, as sentences.

    ``texts`` are by path.  A recipe that cannot be read has no tests.
    """
    tests: list[Workload] = []
    problems: dict[str, tuple[str, ...]] = {}
    for path, text in texts.items():
        if not path.endswith((".yaml", ".yml")):
            continue
        try:
            tests += [test for test in read(path, text or "") if test.gpus and test.nodes and test.script.strip()]
            problems[path] = rows.problems(rows.rows(path, text or ""))
        except RunbookError as error:
            problems[path] = (f"{error} Its tests are left out.",)
    return tuple(tests), problems


def select(tests: Sequence[Workload], words: str, platform: str, environment: str) -> tuple[Workload, ...]:
    """Return the tests named by ``words``, in the same order, on one platform (empty: any) in one environment.

    ``words`` are comma-separated or separated by spaces: ``bump``, scopes, and tests as ``case`` or ``model/case``.
    Raises Refused for a word without a test for this platform and environment.
    """
    candidates = []
    for test in tests:
        if test.environment == environment and platform in ("", "".join(test.platform.split())):
            candidates.append(test)
    names = words.replace(",", " ").split()
    for name in names:
        if not any(_is_named(test, name) for test in candidates):
            raise Refused(_unknown(name, tests, candidates, platform, environment))
    return tuple(test for test in candidates if any(_is_named(test, name) for name in names))


def _is_named(test: Workload, word: str) -> bool:
    if word == BUMP:
        return not coverage.GITHUB.keys().isdisjoint(test.scopes)
    return word in test.scopes or word in (test.case, f"{test.model}/{test.case}", test.name)


def _unknown(
    word: str, tests: Sequence[Workload], candidates: Sequence[Workload], platform: str, environment: str
) -> str:
    places = sorted({f"{test.platform} ({test.environment})" for test in tests if _is_named(test, word)})
    if places:
        return f"{word} runs on {', '.join(places)}, not on {platform or 'any platform'} ({environment})."
    names: set[str] = set()
    for test in candidates:
        names |= {test.case, *test.scopes}
    hint = did_you_mean(word, names, 3)
    return f"No recipe has the scope or the test {word!r}{hint}. Name a scope such as nightly, a test case, or bump."


def config_of(test: Workload) -> str:
    """Return the path of a test's settings."""
    return f"{file_names.FOLDER}/{test.model}/{test.case}/model_config.yaml"


def prepare(test: Workload, config: str | None, site: Site) -> SelectedTest:
    """Return a test with its requirements; ``config`` is the text of its settings, None if there are none."""
    if test.values.get("tag") == "legacy":
        return SelectedTest(test, _UNSET, "It tests an older release, and only CI prepares a checkout of that.")
    try:
        test.command(assets_dir="", artifacts_dir="", name="")
        if config is None:
            reason = "It has no model_config.yaml; its script sets the variables it needs."
            return SelectedTest(test, Connections(None, reason))
        parallelism = Parallelism.parse(config, config_of(test))
        connections = choose(architecture(test.platform), parallelism)
    except RunbookError as error:
        return SelectedTest(test, _UNSET, str(error))
    gpus = site.gpus_for(test)
    obstacle = " ".join(parallelism.problems(test.nodes * gpus))
    if obstacle and gpus == test.gpus:
        obstacle += (
            f" Its recipe requests {test.gpus} GPUs per node, but CI's runners provide all of theirs: see least-gpus."
        )
    return SelectedTest(test, connections, obstacle)
