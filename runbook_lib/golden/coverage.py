"""The golden files used by recipes, and the reason for each that a run on GitHub cannot refresh.

A recipe row represents every combination of its environments, scopes and platforms.  Scopes map to tiers, of which
GitHub runs only L0 and L1.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from runbook_lib import notebooks
from runbook_lib.golden.match_artifacts import FunctionalTestJob
from runbook_lib.text.recipes.file_names import GoldenFileName
from runbook_lib.text.recipes.rows import RecipeRow

#: GitHub's tiers by scope; all other scopes run on GitLab, or only when named.
GITHUB = {"mr-github-slim": "L0", "mr-github": "L1", "L0": "L0", "L1": "L1"}
Kind = Literal["covered", "gitlab", "gb200", "quarantined", "no recipe", "not produced"]
#: What refreshes a golden file that the run did not cover.
COMMANDS: Mapping[Kind, str] = {
    "gitlab": f"internal-ci with -r tests SCOPE, and then {notebooks.GOLDEN_VALUES} with -r source gitlab",
    "gb200": "have a maintainer comment /ok to test for the commit, then run this step again",
    "quarantined": "none: fix the test and re-enable it first",
    "no recipe": "none: no recipe runs it",
}
#: The cadence of a scope that only GitLab runs.
ON_GITLAB = {"nightly": "nightly", "L2": "nightly", "weekly": "weekly", "L3": "weekly"}


@dataclass(frozen=True)
class Coverage:
    """A golden file and the scopes that refresh it.  If it is not covered, ``reason`` says why."""

    file: str
    scopes: tuple[str, ...]
    platform: str
    kind: Kind
    reason: str = ""

    @property
    def covered(self) -> bool:
        """True if the run produced it, or confirmed it."""
        return self.kind == "covered"


def golden_files(row: RecipeRow) -> Iterator[str]:
    """Yield the golden files that a row's tests compare with; a ``_2nd`` file belongs to the test too."""
    for environment, platform in itertools.product(row.environments, row.platforms):
        yield f"{row.model}/{row.case}/golden_values_{environment}_{platform}.json"


def is_on_github(row: RecipeRow) -> bool:
    """Return True if GitHub runs a row's tests."""
    return any(scope.value in GITHUB for scope in row.scopes)


def compared_files(
    jobs: Iterable[FunctionalTestJob], rows: Sequence[RecipeRow], files: Collection[str], environment: str
) -> set[str]:
    """Return the golden files with which these jobs compared their values.

    On GitHub the jobs of a test have one name on all platforms.  GB200's come last: they run only for maintainers.
    """
    compared: set[str] = set()
    counts = Counter((job.model, job.test_case, job.platform) for job in jobs)
    for (model, case, platform), count in counts.items():
        golden: set[str] = set()
        for row in rows:
            if (row.model, row.case) == (model, case) and (platform or is_on_github(row)):
                golden.update(file for file in golden_files(row) if f"_{environment}_{platform}" in file)
        compared.update(sorted(golden, key=lambda file: "gb200" in file)[:count])
    return compared | ({file.replace(".json", "_2nd.json") for file in compared} & set(files))


def coverage(
    files: Iterable[str], rows: Iterable[RecipeRow], refreshed: Iterable[str], environment: str
) -> list[Coverage]:
    """Return the golden files of an image type, sorted by name, and for each if the ``refreshed`` files cover it."""
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
        if file in refreshed:
            result.append(Coverage(file, scopes, name.platform, "covered"))
        else:
            result.append(Coverage(file, scopes, name.platform, *_reason(scopes, name.platform)))
    return result


def _reason(scopes: tuple[str, ...], platform: str) -> tuple[Kind, str]:
    if not scopes:
        return "no recipe", "no recipe uses it"
    if not GITHUB.keys().isdisjoint(scopes):
        if "gb200" in platform:
            return "gb200", "GB200 runs only for maintainers, and only if the repository allows it"
        return "not produced", "the run produced none"
    if all(scope.endswith(("-broken", "-disabled")) or scope in ("flaky", "deprecated") for scope in scopes):
        return "quarantined", "quarantined: runs only when its scope is named"
    scope = _pipeline_scope(scopes)
    if scope in ON_GITLAB.values():
        return "gitlab", f"runs {scope}, in GitLab only"
    return "gitlab", f"GitHub never runs the scope {scope}; GitLab does"


def _pipeline_scope(scopes: Sequence[str]) -> str:
    """Return the scope by which a pipeline on GitLab runs a test of these scopes."""
    return next((ON_GITLAB[scope] for scope in scopes if scope in ON_GITLAB), scopes[0])


def coverage_rows(coverage: Iterable[Coverage], commands: Mapping[Kind, str] = COMMANDS) -> list[dict[str, object]]:
    """Return the number of golden files covered, and those not covered by reason and scope, with what to do."""
    files = list(coverage)
    if not files:
        return []
    missing = [each for each in files if not each.covered]
    counts = Counter((each.reason, ", ".join(each.scopes), each.platform, each.kind) for each in missing)
    covered = {"golden files": len(files) - len(missing), "scopes": "", "platform": "", "why": "covered", "next": ""}
    rows: list[dict[str, object]] = [covered]
    for (reason, scopes, platform, kind), count in sorted(counts.items()):
        action = commands.get(kind, notebooks.BROKEN_TESTS).replace("SCOPE", _pipeline_scope(scopes.split(", ")))
        rows.append({"golden files": count, "scopes": scopes, "platform": platform, "why": reason, "next": action})
    return rows
