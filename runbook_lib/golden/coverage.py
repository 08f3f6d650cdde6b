"""The golden files used by recipes, and the reason for each that a run on GitHub cannot refresh.

A recipe row represents every combination of its environments, scopes and platforms.  Scopes map to tiers, of which
GitHub runs only L0 and L1.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from runbook_lib.errors import CannotTell
from runbook_lib.golden.file_names import GoldenFileName
from runbook_lib.recipes import rows as recipes

#: GitHub's tiers by scope; all other scopes run on GitLab, or only when named.
GITHUB = {"mr-github-slim": "L0", "mr-github": "L1", "L0": "L0", "L1": "L1"}
_ON_GITLAB = {"nightly": "nightly", "L2": "nightly", "weekly": "weekly", "L3": "weekly"}


@dataclass(frozen=True)
class ScopedTest:
    """A test case of a recipe in one environment, scope and platform."""

    model: str
    case: str
    environment: str
    scope: str
    platform: str

    @property
    def golden(self) -> str:
        """Return the golden file that the test compares with; a ``_2nd`` file belongs to the test too."""
        return f"{self.model}/{self.case}/golden_values_{self.environment}_{self.platform}.json"


@dataclass(frozen=True)
class Coverage:
    """A golden file and the scopes that refresh it.  ``covered``: the run produced it; else ``reason`` explains."""

    file: str
    scopes: tuple[str, ...]
    platform: str
    covered: bool
    reason: str


def scoped_tests(recipe: str, text: str) -> tuple[list[ScopedTest], list[str]]:
    """Return the tests of one recipe, and sentences about its unreadable parts, which are left out."""
    try:
        rows = recipes.rows(recipe, text)
    except CannotTell as error:
        return [], [f"{error} Its golden files count as unused."]
    tests = []
    for row in rows:
        for environment, scope, platform in itertools.product(row.environments, row.scopes, row.platforms):
            tests.append(ScopedTest(row.model, row.case, environment, scope.value, platform))
    return tests, sorted(set(recipes.problems(rows)))


def coverage(
    files: Iterable[str], tests: Iterable[ScopedTest], refreshed: Iterable[str], environment: str
) -> list[Coverage]:
    """Return the golden files of an image type, sorted by name, and for each if the ``refreshed`` files cover it."""
    scopes_by_file: dict[str, set[str]] = {}
    for test in tests:
        scopes_by_file.setdefault(test.golden, set()).add(test.scope)
    refreshed = set(refreshed)
    result = []
    for file in sorted(files):
        name = GoldenFileName.of_path(file)
        if name is None or name.environment != environment:
            continue
        scopes = tuple(sorted(scopes_by_file.get(file.replace("_2nd.json", ".json"), ())))
        covered = file in refreshed
        reason = "" if covered else _reason(scopes, name.platform)
        result.append(Coverage(file, scopes, name.platform, covered, reason))
    return result


def _reason(scopes: tuple[str, ...], platform: str) -> str:
    if not scopes:
        return "no recipe uses it"
    if not GITHUB.keys().isdisjoint(scopes):
        if "gb200" in platform:
            return "GB200 runs only for maintainers, and only if the repository allows it"
        return "the run produced none"
    if all(scope.endswith(("-broken", "-disabled")) or scope in ("flaky", "deprecated") for scope in scopes):
        return "quarantined: runs only when its scope is named"
    for scope in scopes:
        if scope in _ON_GITLAB:
            return f"runs {_ON_GITLAB[scope]}, in GitLab only"
    return f"GitHub never runs the scope {scopes[0]}; GitLab does"
