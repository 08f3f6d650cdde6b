"""Notebook slurm-verify: recipe tests on a Slurm cluster, submitted, followed and judged.

Submissions are written to the commit's folder in the results folder, so that a later run of the notebook continues
them.  The record has the job IDs and the outcome of each test.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from runbook_lib import display, notebooks
from runbook_lib.checks import Check, Evidence, Next, Status
from runbook_lib.compute.slurm import jobs as slurm_jobs
from runbook_lib.compute.slurm.jobs import SlurmJob
from runbook_lib.compute.slurm.outcome import MatrixOutcome, conclude
from runbook_lib.compute.slurm.selection import BUMP
from runbook_lib.compute.slurm.site import read_site
from runbook_lib.compute.slurm_verify.facts import SlurmFacts, read_facts
from runbook_lib.errors import Unreachable
from runbook_lib.failures.failed_jobs import show_evidence
from runbook_lib.golden import summary
from runbook_lib.model import Condition, Effect, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.text.lists import join_first
from runbook_lib.world import bump_branch
from runbook_lib.world.machine import files
from runbook_lib.world.ports import World

#: Number of failed tests whose evidence is shown; the record has all.
_SHOWN = 20
_RETRY = "Run the same command again once Slurm responds: the jobs keep running, and the run will pick them up."


def read_outcomes(
    facts: SlurmFacts, *, wait: bool = False, early: bool = False, sleep: Callable[[float], None] = time.sleep
) -> list[MatrixOutcome]:
    """Return the outcomes of the submitted tests; with ``wait``, wait for all first.

    ``early`` ends tests whose golden values are complete.  Raises Unreachable if Slurm stays unreachable.
    """
    try:
        found = slurm_jobs.follow(facts.slurm, facts.submitted(), early=early, wait=wait, sleep=sleep)
    except Unreachable as error:
        raise Unreachable(f"{error} {_RETRY}") from error
    return list(map(conclude, found))


@dataclass(frozen=True)
class Submitted:
    """Each planned job was submitted, once, and the results folder has its ID."""

    facts: SlurmFacts
    leaves_machine = False

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        names = list(map(str, self.facts.new))
        return f"submit {display.count(len(names), 'test')} to Slurm: {join_first(names, 3)}"

    def holds(self, world: World) -> Check:
        """Read the results folder."""
        missing = join_first(list(map(str, self._left())), 5)
        detail = f"Not submitted, or its job ID is not written: {missing}." if missing else "Each once."
        return Check.of("the chosen tests were submitted", not missing, detail)

    def make_true(self, world: World) -> Iterator[Effect]:
        """Submit the jobs, except those that another run has submitted in the meantime.

        Raises Refused if Slurm rejects a job; accepted jobs stay.
        """
        facts = self.facts
        files.make_folder(facts.folder)
        with files.locked(facts.folder / "lock"):
            if not facts.tree.exists():  # later changes to the checkout have no effect
                facts.branch.checkout.archive(facts.branch.start, facts.tree)
            try:
                for job in slurm_jobs.submit(facts.slurm, self._left(), facts.texts):
                    yield Effect("slurm job", f"{job} ({job.name})", None, job.id)
            except Unreachable as error:
                raise Unreachable(f"{error} {_RETRY}") from error

    def _left(self) -> list[SlurmJob]:
        """Return the planned jobs without an ID."""
        folders = {job.folder for job in self.facts.attempts() if job.id is not None}
        return [job for job in self.facts.new if job.folder not in folders]


@dataclass(frozen=True)
class Cancelled:
    """None of the chosen tests of this commit waits or runs on Slurm."""

    facts: SlurmFacts
    leaves_machine = False
    sentence = "end all of these tests that are unfinished"

    def holds(self, world: World) -> Check:
        """Query the queue."""
        unfinished = slurm_jobs.unfinished(self.facts.slurm, self.facts.attempts())
        left = join_first(list(map(str, unfinished)), 5)
        return Check.of("no chosen test is left on Slurm", not left, left or "None is unfinished, or Slurm ends it.")

    def make_true(self, world: World) -> Iterator[Effect]:
        """Ask Slurm to end the unfinished tests."""
        unfinished = slurm_jobs.unfinished(self.facts.slurm, self.facts.attempts())
        slurm_jobs.cancel(self.facts.slurm, unfinished)
        listed = ", ".join(map(str, unfinished))
        yield Effect("cancel", f"{display.count(len(unfinished), 'test')} on Slurm: {listed}", None, "cancelled")


@dataclass(frozen=True)
class MatrixPassed:
    """Each submitted test passed, with the golden values of the commit.

    As in CI, a failed test needs a person's decision, so the run waits instead of failing.
    """

    facts: SlurmFacts
    wait: bool
    early: bool
    leaves_machine = False
    sentence = "follow the tests until they have ended"

    def holds(self, world: World) -> Check:
        """Query Slurm and read the results of the tests."""
        name, outcomes = "every test passed", read_outcomes(self.facts, early=self.early)
        words = [outcome.word for outcome in outcomes]
        if not words:
            return Check(name, "waiting", "No test has been submitted yet.", Next.again())
        counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        sentence, evidence = f"{display.count(len(words), 'test')} on Slurm: {counts}", _evidence(outcomes)
        left = ("failed", "unknown", "to be judged", "not over")
        listed = join_first([str(it.job) for word in left for it in outcomes if it.word == word], 5)
        if not listed:
            return Check(name, "passed", f"{sentence}.", evidence=evidence)
        if "not over" in words:
            following = Next.again("To follow the tests:", wait=True)
            status: Status = "failed" if self.wait else "waiting"  # followed, unless only read
            return Check(name, status, f"{sentence}; waiting for Slurm: {listed}", following, evidence)
        review = Next.again("Review the outcomes above. To submit the failed tests again:", jobs="failed")
        return Check(name, "waiting", f"{sentence}; waiting for a person to judge: {listed}", review, evidence)

    def make_true(self, world: World) -> Sequence[Effect]:
        """Follow the tests, and print each change of their state."""
        read_outcomes(self.facts, wait=self.wait, early=self.early, sleep=world.sleep)
        return ()


def _evidence(outcomes: Sequence[MatrixOutcome]) -> Evidence:
    """Return each test with its outcome, why the failed ones failed, and the golden files that differ."""
    rows = [outcome.row for outcome in outcomes]
    judgements = list(chain.from_iterable(outcome.judgements for outcome in outcomes))
    shown = display.table(rows)
    failed = [(it.failure, it.job.folder) for it in outcomes if it.failure and it.word in ("failed", "unknown")]
    for failure, folder in failed[:_SHOWN]:
        shown += show_evidence(failure) + display.note(f"Results: {folder}")
    if len(failed) > _SHOWN:
        shown += display.note(f"… and {len(failed) - _SHOWN} more that failed; the record has all.")
    values = display.table(summary.verdict_rows(judgements), empty="No golden value differs from the commit's.")
    tables = {"slurm tests": rows, "golden": summary.rows(summary.in_order(judgements))}
    return Evidence(tables=tables, shown=(shown, values))


@dataclass(frozen=True)
class SlurmVerify:
    """The step; ``site`` is a file that describes the cluster, ``tests`` are words that select tests.

    ``jobs`` is ``failed`` or ``all`` for those to submit once more, or ``cancel`` to end all.
    """

    site: str
    tests: str = BUMP
    jobs: str = ""
    wait: bool = False

    def look(self, world: World, bump: Bump) -> SlurmFacts:
        """Read the commit's tests, the results folder and the cluster.  Raises RunbookError like ``read_facts``."""
        return read_facts(bump_branch.look(world, bump), read_site(self.site), self.tests, self.jobs.strip())

    def plan(self, facts: SlurmFacts, bump: Bump) -> Plan[World]:
        """Plan the submission, or the end of all tests, and what the tests have to show."""
        shown, idle = (facts.show(),), facts.idle or ("" if bump.tag else "No tag was given, so nothing is submitted.")
        if idle:
            return Plan(Outcome(idle), shown, on_branch=False)
        conditions: list[Condition[World]] = []
        if self.jobs.strip() == "cancel":
            conditions.append(Cancelled(facts))
        elif facts.new:
            conditions.append(Submitted(facts))
        if conditions or facts.seen:
            conditions.append(MatrixPassed(facts, self.wait, bump.apply and facts.site.early))
        passed = Outcome("Every chosen test passed on Slurm.", Next.run(notebooks.OPEN_PR))
        done = passed if conditions else Outcome("No test has been submitted yet.")
        omitted = [f"Omitted: {join_first(names, 3)}. {reason}" for reason, names in facts.left_out.items()]
        inputs = {
            "head_commit": facts.branch.start, "results": str(facts.folder), "image_under_test": facts.site.image,
        }  # fmt: skip
        evidence = Evidence(inputs=inputs, warnings=(*facts.warnings, *omitted))
        return Plan(done, shown, tuple(conditions), evidence=evidence, on_branch=False)
