"""The functional tests that a run of the practice CI starts: recipes and tiers.  This module is pure.

The rules are those of Megatron-LM's `.github/workflows/cicd-main.yml` and
`tests/test_utils/python_scripts/recipe_parser.py`.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runbook_lib.errors import CannotTell
from runbook_lib.recipes.ci_selection import CiSelection
from runbook_lib.text import yaml_spans

RECIPES = "tests/test_utils/recipes"
UNIT_TESTS = f"{RECIPES}/{{}}/unit-tests.yaml"


#: Scope in a recipe → tier, and the cadence that the scope implies.
TIERS: Mapping[str, tuple[str, tuple[str, ...] | None]] = {
    "mr-github-slim": ("L0", None),
    "mr-github": ("L1", None),
    "nightly": ("L2", ("nightly",)),
    "weekly": ("L3", ("weekly",)),
}
_DEFAULT_CADENCE = ("pr", "nightly", "mergegroup")


@dataclass(frozen=True)
class SuiteRow:
    """One row of a recipe after the expansion of its products."""

    model: str
    test_case: str
    platform: str
    environment: str
    tier: str
    cadence: tuple[str, ...]
    allow_failure: bool = False  # only GitLab uses it


def rows(recipes: Mapping[str, str]) -> tuple[SuiteRow, ...]:
    """Return the rows of all recipes (path → text).  A file that cannot be parsed has none."""
    expanded: list[SuiteRow] = []
    for path in sorted(recipes):
        try:
            recipe = yaml_spans.load(recipes[path])
        except CannotTell:
            continue
        if isinstance(recipe, dict) and isinstance(recipe.get("spec"), dict):
            for product in recipe.get("products") or ():
                expanded += _rows(recipe["spec"], product)
    return tuple(expanded)


def _rows(spec: Mapping[str, Any], product: Mapping[str, Any]) -> Iterable[SuiteRow]:
    for entry in product.get("products") or ():
        explicit = entry.get("cadence", product.get("cadence"))
        axes = [_listed(entry.get(axis, spec.get(axis))) for axis in ("environment", "scope", "platforms")]
        for environment, scope, platform in itertools.product(*axes):
            tier, implied = TIERS.get(scope, (scope, None))
            cadence = tuple(explicit or implied or _DEFAULT_CADENCE)
            allowed = "True" in _listed(entry.get("allow_failure"))
            yield SuiteRow(
                spec.get("model", ""), product["test_case"][0], platform, environment, tier, cadence, allowed
            )


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(entry) for entry in value] if isinstance(value, list) else [str(value)]


def select(all_rows: Iterable[SuiteRow], selection: CiSelection, platforms: Collection[str]) -> tuple[SuiteRow, ...]:
    """Return the functional tests that a run starts; a tier does not include lower ones."""
    selected = {}
    for row in all_rows:
        in_cadence = selection.cadence is None or selection.cadence in row.cadence
        if in_cadence and (row.tier, row.environment) == (selection.scope, "dev") and row.platform in platforms:
            selected[row.platform, row.model, row.test_case] = row
    return tuple(row for _, row in sorted(selected.items(), reverse=True))
