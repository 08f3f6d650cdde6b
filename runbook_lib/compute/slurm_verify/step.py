"""Notebook slurm-verify: recipe tests on a Slurm cluster, submitted, followed and judged.

Submissions are written to the commit's folder in the results folder, so that a later run of the notebook continues
them.  The record has the job IDs and the outcome of each test.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from runbook_lib import display, notebooks
from runbook_lib.checks import Check, Evidence, Next
from runbook_lib.compute.slurm import jobs as slurm_jobs
from runbook_lib.compute.slurm.jobs import SlurmJob
from runbook_lib.compute.slurm.outcome import MatrixOutcome, conclude
from runbook_lib.compute.slurm.selection import BUMP, expected_names
from runbook_lib.compute.slurm.site import read_site
from runbook_lib.compute.slurm_verify.facts import SlurmFacts, read_facts
from runbook_lib.errors import Refused, Unreachable
from runbook_lib.golden import plots, summary
from runbook_lib.model import Condition, Effect, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.system import files
from runbook_lib.text.lists import join_first
from runbook_lib.world import bump_branch
from runbook_lib.world.outside import World

#: Number of failed tests whose evidence is shown; the record has all.
_SHOWN = 20
_RETRY = "Run the same command again once Slurm responds: the jobs keep running, and the run will pick them up."


def read_outcomes(
    facts: SlurmFacts, *, wait: bool = False, early: bool = False, sleep: Callable[[float], None] = time.sleep
) -> list[MatrixOutcome]:
    """Return the outcomes of the submitted tests; with ``wait``, wait for all first.

    ``early`` ends tests whose golden values are complete.  Raises Unreachable if Slurm stays unreachable.
    """
    expected = {entry.test.name: expected_names(entry.test, facts.texts) for entry in facts.tests}
    try:
        tests = slurm_jobs.follow(facts.slurm, facts.submitted(), expected, early=early, wait=wait, sleep=sleep)
    except Unreachable as error:
        raise Unreachable(f"{error} {_RETRY}") from error
    return [conclude(test, facts.texts) for test in tests]


@dataclass(frozen=True)
class Submitted:
    """Each planned job was submitted, once, and the results folder has its ID.  ``obstacle`` prevents submissions."""

    facts: SlurmFacts
    obstacle: str = ""
    leaves_machine = False

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        names = [str(job.test) for job, _ in self.facts.new]
        return f"submit {display.count(len(names), 'test')} to Slurm: {join_first(names, 3)}"

    def holds(self, world: World) -> Check:
        """Read the results folder."""
        folders = {job.folder for job in self.facts.attempts() if job.id is not None}
        missing = [str(job.test) for job, _ in self.facts.new if job.folder not in folders]
        detail = f"Not submitted, or its job ID is not written: {join_first(missing, 5)}." if missing else "Each once."
        return Check.of("the chosen tests were submitted", not missing and not self.obstacle, detail)

    def make_true(self, world: World) -> Iterator[Effect]:
        """Submit the jobs, except those that another run has submitted in the meantime.

        Raises Refused if a problem prevents that, or if Slurm rejects a job; accepted jobs stay.
        """
        if self.obstacle:
            raise Refused(self.obstacle)
        facts = self.facts
        files.make_folder(facts.folder)
        with files.locked(facts.folder / "lock"):
            if facts.site.image and not facts.tree.exists():  # later changes to the checkout have no effect
                facts.branch.checkout.archive(facts.branch.start, facts.tree)
            folders = {job.folder for job in facts.attempts() if job.id is not None}
            left = [(job, texts) for job, texts in facts.new if job.folder not in folders]
            try:
                for job in slurm_jobs.submit(facts.slurm, left):
                    yield Effect("slurm job", f"{job.test} ({job.name})", None, job.id)
            except Unreachable as error:
                raise Unreachable(f"{error} {_RETRY}") from error


@dataclass(frozen=True)
class Cancelled:
    """None of the chosen tests of this commit runs on Slurm; those that Slurm was asked to end count."""

    facts: SlurmFacts
    leaves_machine = False
    sentence = "end all of these tests that are unfinished"
    _asked: set[str] = field(default_factory=set, compare=False, repr=False)

    def holds(self, world: World) -> Check:
        """Query the queue."""
        left = [str(job.test) for job in self._unfinished()]
        detail = join_first(left, 5) if left else "None is unfinished, or Slurm ends it."
        return Check.of("no chosen test is left on Slurm", not left, detail)

    def make_true(self, world: World) -> Iterator[Effect]:
        """Ask Slurm to end the unfinished tests."""
        unfinished = self._unfinished()
        slurm_jobs.cancel(self.facts.slurm, unfinished)
        self._asked.update(job.name for job in unfinished)
        listed = ", ".join(job.test.name for job in unfinished)
        yield Effect("cancel", f"{display.count(len(unfinished), 'test')} on Slurm: {listed}", None, "cancelled")

    def _unfinished(self) -> list[SlurmJob]:
        jobs = slurm_jobs.unfinished(self.facts.slurm, self.facts.attempts())
        return [job for job in jobs if job.name not in self._asked]


@dataclass(frozen=True)
class MatrixPassed:
    """Each submitted test passed, with the golden values of the commit; ``open_point``: why others are missing.

    As in CI, a failed test needs a person's decision, so the run waits instead of failing.
    """

    facts: SlurmFacts
    open_point: str
    wait: bool
    early: bool
    leaves_machine = False
    sentence = "follow the tests until they have ended"

    def holds(self, world: World) -> Check:
        """Query Slurm and read the results of the tests."""
        name, outcomes = "every test passed", read_outcomes(self.facts, early=self.early)
        words = [outcome.word for outcome in outcomes]
        if not words:
            return Check(name, "waiting", self.open_point or "No test has been submitted yet.", Next.again())
        counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        sentence, next_action = f"{display.count(len(words), 'test')} on Slurm: {counts}", Next()
        left = ("failed", "unknown", "to be judged", "not over")
        names = [str(outcome.now.job.test) for word in left for outcome in outcomes if outcome.word == word]
        if "not over" in words:
            sentence += "; waiting for Slurm"
            next_action = Next.again("To follow the tests:", wait=True)
        elif names:
            sentence += "; waiting for a person to judge"
            next_action = Next.again("Review the outcomes above. To submit the failed tests again:", jobs="failed")
        elif self.open_point:
            next_action = Next.again()
        if names:
            sentence += f": {join_first(names, 5)}"
        detail, evidence = f"{sentence}. {self.open_point}".rstrip(), _evidence(outcomes)
        if not next_action:
            return Check(name, "passed", detail, evidence=evidence)
        is_followed = "not over" in words and self.wait
        return Check(name, "failed" if is_followed else "waiting", detail.removesuffix("."), next_action, evidence)

    def make_true(self, world: World) -> Sequence[Effect]:
        """Follow the tests, and print each change of their state."""
        read_outcomes(self.facts, wait=self.wait, early=self.early, sleep=world.sleep)
        return ()


def _evidence(outcomes: Sequence[MatrixOutcome]) -> Evidence:
    """Return each test with its outcome, why the failed ones failed, and the golden files that differ."""
    rows, judgements = (
        [outcome.row for outcome in outcomes],
        list(chain.from_iterable(it.judgements for it in outcomes)),
    )
    shown = display.table(rows)
    failed = [outcome for outcome in outcomes if outcome.word in ("failed", "unknown")]
    for outcome in failed[:_SHOWN]:
        shown += outcome.evidence()
    if len(failed) > _SHOWN:
        shown += display.note(f"… and {len(failed) - _SHOWN} more that failed; the record has all.")
    values = display.table(summary.verdict_rows(judgements), empty="No golden value differs from the commit's.")
    tables = {"slurm tests": rows, "golden": summary.rows(summary.in_order(judgements))}
    return Evidence(tables=tables, shown=(shown, values, plots.drift(judgements)))


@dataclass(frozen=True)
class SlurmVerify:
    """The step; ``site`` is a file that describes the cluster, ``tests`` are words that select tests.

    ``jobs`` names those to submit once more, is ``failed`` for all that did not pass, or ``cancel`` to end all.
    """

    site: str
    tests: str = BUMP
    jobs: str = ""
    wait: bool = False

    def look(self, world: World, bump: Bump) -> SlurmFacts:
        """Read the commit's tests, the results folder and the cluster.  Raises RunbookError like ``read_facts``."""
        again = "" if self._cancels else self.jobs
        return read_facts(bump_branch.look(world, bump), read_site(self.site, world.checkout.path), self.tests, again)

    @property
    def _cancels(self) -> bool:
        return self.jobs.strip() == "cancel"

    def plan(self, facts: SlurmFacts, bump: Bump) -> Plan[World]:
        """Plan the submission, or the end of all tests, and what the tests have to show."""
        planned: Plan[World] = Plan(
            Outcome("Every chosen test passed on Slurm.", Next.run(notebooks.OPEN_PR)), (facts.show(),), on_branch=False
        )
        if facts.idle or bump.tag is None:
            return replace(planned, done=Outcome(facts.idle or "No tag was given, so nothing is submitted."))
        problem = "" if self._cancels else " ".join(facts.problems)
        open_point = f"Nothing can be submitted: {problem}" if problem else ""
        conditions: list[Condition[World]] = []
        if self._cancels:
            conditions.append(Cancelled(facts))
        elif problem and bump.apply:
            conditions.append(Submitted(facts, problem))
        elif facts.new and not problem:
            conditions.append(Submitted(facts))
        is_submitting = bool(facts.new and conditions and not self._cancels)
        if is_submitting or any(job.id or self._cancels for job in facts.seen):
            conditions.append(MatrixPassed(facts, open_point, self.wait, bump.apply and facts.site.early))
        done = planned.done if conditions else Outcome(open_point or "No test has been submitted yet.")
        omitted = [f"Omitted: {join_first(names, 3)}. {reason}" for reason, names in facts.left_out.items()]
        prevented = facts.problems if problem and not bump.apply else ()
        inputs = {
            "head_commit": facts.branch.start, "results": str(facts.folder), "image_under_test": facts.site.image,
        }  # fmt: skip
        evidence = Evidence(inputs=inputs, warnings=(*facts.warnings, *omitted, *prevented))
        return replace(planned, done=done, conditions=tuple(conditions), evidence=evidence)
