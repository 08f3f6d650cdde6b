"""Tests as people name them, and the rows of recipes that run them.  Pure."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches

from runbook_lib.decisions import Decision
from runbook_lib.errors import Refused
from runbook_lib.text.recipes.file_names import FOLDER
from runbook_lib.text.recipes.rows import RecipeRow


@dataclass(frozen=True)
class Target:
    """A test case on a platform, in an environment; ``model`` is empty if the user did not give it.

    A unit test has the node ID of pytest as its ``case``, and runs on all platforms.  A test with a launch script has
    the name of its job, the path of its ``script``, and ``shelf``, the one to which a quarantine moves it.  ``issue``
    is the one that tracks the test, if the user named one.
    """

    case: str
    platform: str
    environment: str
    model: str = ""
    reason: str = ""
    issue: int = 0
    script: str = ""
    shelf: str = ""

    def __str__(self) -> str:
        platform = f"@{self.platform or '?'}" if self.has_rows else ""
        return f"{self.name}{platform} ({self.environment})"

    @property
    def name(self) -> str:
        """The test without its platform: ``model/case``, or a node ID."""
        return f"{self.model}/{self.case}" if self.model else self.case

    @property
    def is_unit_test(self) -> bool:
        """True for a node ID of pytest."""
        return "::" in self.case

    @property
    def has_rows(self) -> bool:
        """True for a functional test, which rows of recipes run."""
        return not (self.is_unit_test or self.script)

    @property
    def path(self) -> str:
        """The file or folder of the test."""
        if self.script:
            return self.script
        return self.case.partition("::")[0] if self.is_unit_test else f"{FOLDER}/{self.model}/{self.case}"

    def is_of(self, row: RecipeRow) -> bool:
        """Return True if a row runs the test; without a platform, on any."""
        named = row.case == self.case and self.model in ("", row.model)
        return named and self.environment in row.environments and self.platform in ("", *row.platforms)


def target_of(decision: Decision, environment: str) -> Target:
    """Return the test of a decision, ``case@platform``; the case may be preceded by its model.

    The platform may be left out, and is then empty.
    """
    if "::" in decision.subject:
        return Target(decision.subject, "", environment, "", decision.reason, decision.issue)
    path, _, platform = decision.subject.partition("@")
    model, _, case = path.rpartition("/")
    return Target(case, platform, environment, model, decision.reason, decision.issue)


def resolve(target: Target, rows: Iterable[RecipeRow]) -> Target:
    """Complete a test with its model and platform.  Raises Refused if no recipe has it, or it is ambiguous."""
    rows = list(rows)
    rows_of_case = [row for row in rows if row.case == target.case and target.model in ("", row.model)]
    variants: set[tuple[str, str]] = set()
    for row in rows_of_case:
        if target.environment in row.environments:
            variants.update(itertools.product([row.model], row.platforms))
    fitting = {(model, platform) for model, platform in variants if target.platform in ("", platform)}
    if not fitting:
        if rows_of_case:
            platforms = sorted({platform for _, platform in variants})
            hint = f"Its platforms there: {', '.join(platforms) or 'none'}."
        else:
            similar = get_close_matches(target.case, {row.case for row in rows}, 3)
            hint = f"Did you mean {' or '.join(similar) or 'another'}?"
        raise Refused(f"No recipe runs {target}. {hint} Nothing was changed.")
    if len(fitting) > 1:
        choices = ", ".join(f"{model}/{target.case}@{platform}" for model, platform in sorted(variants))
        raise Refused(f"{target} is ambiguous: {choices}. Name one of these. Nothing was changed.")
    ((model, platform),) = fitting
    return replace(target, platform=platform, model=model)
