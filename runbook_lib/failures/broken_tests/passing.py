"""How often a re-enabled test has passed in the CI of pull requests, and what that says about its failure rate.

A closed issue proves nothing: only runs do, and few of them prove little.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runbook_lib import display
from runbook_lib.pins.bump import Bump
from runbook_lib.text.recipes.rows import Target
from runbook_lib.world.github.ci_status import branch_of, labels_at, platform_of, wrong_tests
from runbook_lib.world.github.models import WorkflowJob
from runbook_lib.world.ports import Forge

#: A job runs its test so often with the label for functional tests, and stops at the first failure.
REPEATS = 5
_CONFIDENCE = 0.95
_MAX_RUNS = 20


@dataclass(frozen=True)
class PassingRuns:
    """The CI runs that a re-enabled test has passed and failed."""

    test: Target
    passed: int = 0
    failed: int = 0

    @property
    def bound(self) -> float:
        """The highest failure rate at which as many passes in a row are at least as likely as one in twenty."""
        return 1.0 - (1.0 - _CONFIDENCE) ** (1.0 / (REPEATS * self.passed)) if self.passed else 1.0

    @property
    def sentence(self) -> str:
        """The runs, and what they say."""
        if self.failed:
            return f"it failed in {self.failed} of {display.count(self.failed + self.passed, 'run')}"
        if not self.passed:
            return "no run yet: nothing shows that it passes"
        runs = f"{display.count(self.passed, 'passing run')} ({display.count(REPEATS * self.passed, 'repeat')})"
        return f"{runs}: it fails in at most {self.bound:.0%} of its repeats ({_CONFIDENCE:.0%} confidence)"


def look(github: Forge | None, bump: Bump, pulls: Iterable[int], tests: Iterable[Target]) -> tuple[PassingRuns, ...]:
    """Return how the functional tests among these ended in the finished CI runs of pull requests.

    A run that began without the labels of a bump tests less, or another image, and does not count.
    """
    functional = [test for test in tests if test.has_rows]
    runs: list[Sequence[WorkflowJob]] = []
    for number in pulls if functional else ():
        assert github is not None, "it has these pull requests"
        labels, events = github.pull(number).labels, github.labellings(number)
        for run in github.runs(branch_of(number))[:_MAX_RUNS]:
            wrong = wrong_tests(labels_at(labels, events, run.created), bump.image_type, bump.repository)
            if run.status == "completed" and not run.fork and not wrong:
                runs.append(github.jobs(run.id))
    found = []
    for test in functional:
        conclusions = [job.conclusion for jobs in runs for job in _jobs_of(test, jobs)]
        failed = conclusions.count("failure") + conclusions.count("timed_out")
        found.append(PassingRuns(test, conclusions.count("success"), failed))
    return tuple(found)


def _jobs_of(test: Target, jobs: Iterable[WorkflowJob]) -> list[WorkflowJob]:
    """Return the jobs of a test on its platform; a single job may hide its platform."""
    named = [job for job in jobs if job.name.partition(" - ")[0] == test.name]
    is_only = len(named) == 1 and not platform_of(named[0])
    return [job for job in named if is_only or platform_of(job) == test.platform]


def show(found: Iterable[PassingRuns]) -> display.View:
    """Show how often each test has passed; nothing without a test."""
    rows = [{"re-enabled test": str(each.test), "runs": each.sentence} for each in found]
    return display.table(rows) if rows else display.View("", "")
