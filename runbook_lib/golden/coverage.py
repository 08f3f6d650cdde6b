"""Which golden files the recipes use, and which of them a run on GitHub could never refresh, with the reason.

A row of a recipe stands for each combination of its environments, scopes and platforms.  Scopes map to tiers: of them
GitHub runs L0 and L1 alone.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from runbook_lib.errors import CannotTell
from runbook_lib.golden.values import GoldenName
from runbook_lib.recipes import rows as recipes

#: GitHub's tiers by scope; every other scope is GitLab's, or somebody's who runs it by name.
GITHUB = {"mr-github-slim": "L0", "mr-github": "L1", "L0": "L0", "L1": "L1"}
_LATER = {"nightly": "runs nightly, in GitLab only", "L2": "runs nightly, in GitLab only"}
_LATER |= {"weekly": "runs weekly, in GitLab only", "L3": "runs weekly, in GitLab only"}


@dataclass(frozen=True)
class Row:
    """One workload of a recipe: a test case in one environment, scope and platform."""

    recipe: str
    model: str
    case: str
    environment: str
    scope: str
    platform: str

    @property
    def golden(self) -> str:
        """The golden file that it compares with; what ``_2nd`` files there are belongs to it as well."""
        return f"{self.model}/{self.case}/golden_values_{self.environment}_{self.platform}.json"


@dataclass(frozen=True)
class Coverage:
    """A golden file and what can refresh it.  ``covered``: the run gave it; else ``reason`` says why not."""

    file: str
    scopes: tuple[str, ...]
    platform: str
    covered: bool
    reason: str


def rows(recipe: str, text: str) -> tuple[list[Row], list[str]]:
    """The rows of one recipe, and sentences about what in it cannot be understood (and is left out)."""
    try:
        listed = recipes.rows(recipe, text)
    except CannotTell as error:
        return [], [f"{error} Its golden files count as unused."]
    found = [
        Row(recipe, row.model, row.case, environment, scope.value, platform)
        for row in listed
        for environment, scope, platform in itertools.product(row.environments, row.scopes, row.platforms)
    ]
    return found, sorted(set(recipes.problems(listed)))


def coverage(files: Iterable[str], used: Iterable[Row], given: Iterable[str], environment: str) -> list[Coverage]:
    """What the files that a run gave cover of all golden files of an image type, in order of name."""
    by_file: dict[str, list[Row]] = {}
    for row in used:
        by_file.setdefault(row.golden, []).append(row)
    brought = set(given)
    found = []
    for file in sorted(files):
        name = GoldenName.parse(file)
        if name is None or name.environment != environment:
            continue
        users = by_file.get(file.replace("_2nd.json", ".json"), [])
        scopes = tuple(sorted({row.scope for row in users}))
        reason = "" if file in brought else _reason(scopes, name)
        found.append(Coverage(file, scopes, name.platform, file in brought, reason))
    return found


def _reason(scopes: tuple[str, ...], name: GoldenName) -> str:
    if not scopes:
        return "no recipe uses it"
    if any(scope in GITHUB for scope in scopes):
        if "gb200" in name.platform:
            return "GB200 runs for maintainers only, and when the repository allows it"
        return "the run gave none"
    if all(scope.endswith(("-broken", "-disabled")) or scope in ("flaky", "deprecated") for scope in scopes):
        return "put out of the way: runs only when its scope is named"
    later = sorted({_LATER[scope] for scope in scopes if scope in _LATER})
    return later[0] if later else f"GitHub never runs the scope {scopes[0]}; GitLab does"
