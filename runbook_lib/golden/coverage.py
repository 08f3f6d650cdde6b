"""The golden files used by recipes, and the reason for each that a run on GitHub cannot refresh.

A recipe row represents every combination of its environments, scopes and platforms.  Scopes map to tiers, of which
GitHub runs only L0 and L1.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from runbook_lib import notebooks
from runbook_lib.text.recipes.file_names import GoldenFileName
from runbook_lib.text.recipes.rows import RecipeRow

#: GitHub's tiers by scope; all other scopes run on GitLab, or only when named.
GITHUB = {"mr-github-slim": "L0", "mr-github": "L1", "L0": "L0", "L1": "L1"}
Kind = Literal["covered", "gitlab", "gb200", "quarantined", "no recipe", "not produced"]
#: Why the run did not cover a golden file, and what refreshes it; SCOPE is the scope by which a pipeline runs its test.
_WHY: Mapping[Kind, tuple[str, str]] = {
    "covered": ("covered", ""),
    "gitlab": (
        "runs SCOPE, in GitLab only",
        f"internal-ci with -r tests SCOPE, and then {notebooks.GOLDEN_VALUES} with -r source gitlab",
    ),
    "gb200": (
        "GB200 runs only for maintainers, and only if the repository allows it",
        "have a maintainer comment /ok to test for the commit, then run this step again",
    ),
    "quarantined": ("quarantined: runs only when its scope is named", "none: fix the test and re-enable it first"),
    "no recipe": ("no recipe uses it", "none: no recipe runs it"),
    "not produced": ("the run produced none", notebooks.BROKEN_TESTS),
}
#: The cadence of a scope that only GitLab runs.
ON_GITLAB = {"nightly": "nightly", "L2": "nightly", "weekly": "weekly", "L3": "weekly"}


@dataclass(frozen=True)
class Coverage:
    """A golden file, the scopes that refresh it, and whether the run produced or confirmed it."""

    file: str
    scopes: tuple[str, ...]
    platform: str
    kind: Kind


def golden_files(row: RecipeRow) -> Iterator[str]:
    """Yield the golden files that a row's tests compare with; a ``_2nd`` file belongs to the test too."""
    for environment, platform in itertools.product(row.environments, row.platforms):
        yield f"{row.model}/{row.case}/golden_values_{environment}_{platform}.json"


def coverage(
    files: Iterable[str], rows: Iterable[RecipeRow], refreshed: Iterable[str], environment: str
) -> list[Coverage]:
    """Return the golden files of an image type, sorted by name, each with whether the ``refreshed`` files cover it."""
    scopes_by_file: dict[str, set[str]] = {}
    for row in rows:
        for file in golden_files(row):
            scopes_by_file.setdefault(file, set()).update(scope.value for scope in row.scopes)
    refreshed = set(refreshed)
    result = []
    for file in sorted(files):
        name = GoldenFileName.of_path(file)
        if name is None or name.environment != environment:
            continue
        scopes = tuple(sorted(scopes_by_file.get(file.replace("_2nd.json", ".json"), ())))
        kind: Kind = "covered" if file in refreshed else _missing(scopes, name.platform)
        result.append(Coverage(file, scopes, name.platform, kind))
    return result


def _missing(scopes: tuple[str, ...], platform: str) -> Kind:
    if not scopes:
        return "no recipe"
    if not GITHUB.keys().isdisjoint(scopes):
        return "gb200" if "gb200" in platform else "not produced"
    if all(scope.endswith(("-broken", "-disabled")) or scope in ("flaky", "deprecated") for scope in scopes):
        return "quarantined"
    return "gitlab"


def coverage_rows(coverage: Iterable[Coverage]) -> list[dict[str, object]]:
    """Return the number of golden files covered, and those not covered by reason and scope, with what to do."""
    counts = Counter(map(_place, coverage))
    rows: list[dict[str, object]] = []
    for (_, scopes, platform, kind), count in sorted(counts.items()):
        # The scope by which a pipeline on GitLab runs a test of these scopes.
        names = scopes.split(", ")
        scope = next((ON_GITLAB[name] for name in names if name in ON_GITLAB), names[0])
        why, action = (text.replace("SCOPE", scope) for text in _WHY[kind])
        rows.append({"golden files": count, "scopes": scopes, "platform": platform, "why": why, "next": action})
    return rows


def _place(coverage: Coverage) -> tuple[bool, str, str, Kind]:
    """Return the row that counts a file; all covered files are in the first row."""
    if coverage.kind == "covered":
        return False, "", "", coverage.kind
    return True, ", ".join(coverage.scopes), coverage.platform, coverage.kind
