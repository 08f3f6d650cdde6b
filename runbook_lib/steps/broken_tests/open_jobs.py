"""The failed jobs of a CI run that neither golden values nor quarantined tests explain."""

from collections import Counter
from collections.abc import Iterable, Sequence

from runbook_lib.bump import Bump
from runbook_lib.recipes import quarantine
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.steps.broken_tests.decide import Triage
from runbook_lib.text.edits import Edit
from runbook_lib.workflow.quarantines import recipe_texts, rows_of


def open_jobs(failures: Triage, edited: Iterable[Edit] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the jobs that block the push, and of the flaky ones that are only to run again.

    ``edited`` are the recipes that change before the push.
    """
    tests = {job.failure.job: job.test for job in failures.jobs}
    cases = [test.partition("/")[2] for test in tests.values() if test]
    decided = _quarantined_platforms(failures, cases, edited) if cases else Counter()
    # Jobs of one test have the same name on all platforms, and may fail for different causes: they are counted.
    unexplained = Counter(failures.undecided) - Counter({job: decided[test] for job, test in tests.items()})
    flaky = unexplained & Counter(
        job.failure.job for job in failures.jobs if job.failure.kind == "flaky infrastructure"
    )
    return tuple(sorted((unexplained - flaky).elements())), tuple(sorted(flaky.elements()))


def _quarantined_platforms(failures: Triage, cases: Sequence[str], edited: Iterable[Edit]) -> Counter[str]:
    """Count for each test the platforms on which the run's commit ran it and the branch does not."""
    run, branch = failures.run, failures.run.branch
    tested = rows_of(branch, cases, run.tested if branch.checkout.has(run.tested) else branch.start)
    texts = recipe_texts(branch, cases)
    for edit in edited:
        texts[edit.path] = edit.after
    now: list[RecipeRow] = []
    for path, text in texts.items():
        now += recipes.rows(path, text)
    stopped = _gating_tests(tested, run.bump) - _gating_tests(now, run.bump)
    return Counter(test for test, _ in stopped)


def _gating_tests(rows: Iterable[RecipeRow], bump: Bump) -> set[tuple[str, str]]:
    """Return the tests, each with a platform, that can fail CI."""
    tests = set()
    for row in rows:
        if quarantine.gating_scopes(row) and bump.image_type in row.environments and not row.allow_failure:
            tests |= {(f"{row.model}/{row.case}", platform) for platform in row.platforms}
    return tests
