"""Which golden files the recipes use, and which of them a run on GitHub could never refresh, with the reason.

A recipe (``tests/test_utils/recipes/**.yaml``) lists ``products: [{test_case: [name], products: [{environment, scope,
platforms, …}]}]``; only the first entry of ``test_case`` counts, the rest is a cartesian product
(``tests/test_utils/python_scripts/recipe_parser.py``).  Scopes map to tiers: of them GitHub runs L0 and L1 alone.
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from runbook_lib.golden import GoldenName

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
        data = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError):
        return [], [f"{recipe} is no YAML that can be read; its golden files count as unused."]
    spec = data.get("spec") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(spec, dict) or not isinstance(data.get("products"), list):
        return [], []
    found: list[Row] = []
    problems: list[str] = []
    for product in data["products"]:
        case = product.get("test_case") if isinstance(product, dict) else None
        case = case[0] if isinstance(case, list) and case else None
        if not isinstance(case, str) or not isinstance(product.get("products"), list):
            continue
        for entry in product["products"]:
            if isinstance(entry, dict):
                found += _expanded(recipe, case, spec, entry)
    for row in found:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", row.platform):
            problems.append(f"{recipe}: {row.case} names the platform {row.platform!r}, which is none.")
    return found, sorted(set(problems))


def _expanded(recipe: str, case: str, spec: Mapping[str, Any], entry: Mapping[str, Any]) -> Iterable[Row]:
    names = ("model", "environment", "scope", "platforms")
    values = [entry.get(name, spec.get(name, "")) for name in names]
    choices = [value if isinstance(value, list) else [value] for value in values]
    for model, environment, scope, platform in itertools.product(*choices):
        yield Row(recipe, str(model), case, str(environment), str(scope), str(platform))


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
