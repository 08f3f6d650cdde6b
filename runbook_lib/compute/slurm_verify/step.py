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
from runbook_lib.compute.slurm import follow as following
from runbook_lib.compute.slurm import rounds
from runbook_lib.compute.slurm.batch_files import TREE, JobArray
from runbook_lib.compute.slurm.outcome import MatrixOutcome
from runbook_lib.compute.slurm.site import read_site
from runbook_lib.compute.slurm_verify.facts import MatrixChoice, SlurmFacts, read_facts
from runbook_lib.errors import Refused, Unreachable
from runbook_lib.golden import plots, summary
from runbook_lib.golden.form import Judgement
from runbook_lib.model import Condition, Effect, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.system import files
from runbook_lib.text.lists import join_first
from runbook_lib.world import bump_branch
from runbook_lib.world.outside import World

#: Number of failed tests whose evidence is shown; the record has all.
_SHOWN = 20
_RETRY = "Run the same command again once Slurm responds: the jobs keep running, and the run will pick them up."


@dataclass(frozen=True)
class MatrixResults:
    """The outcomes of all submitted tests."""

    outcomes: tuple[MatrixOutcome, ...] = ()

    @property
    def judgements(self) -> list[Judgement]:
        """The verdict on each golden file that a test wrote."""
        return list(chain.from_iterable(outcome.judgements for outcome in self.outcomes))

    def names(self, *words: str) -> list[str]:
        """Return the tests with one of these outcomes."""
        return [str(outcome.now.entry.test) for word in words for outcome in self.outcomes if outcome.word == word]

    def show(self) -> display.View:
        """Show each test with its outcome, then the evidence of those that failed."""
        rows = [outcome.row for outcome in self.outcomes]
        shown = display.table(rows, empty="Nothing has been submitted yet.")
        failed = [outcome for outcome in self.outcomes if outcome.word in ("failed", "unknown") and outcome.failure]
        for outcome in failed[:_SHOWN]:
            shown += outcome.evidence()
        if len(failed) > _SHOWN:
            shown += display.note(f"… and {len(failed) - _SHOWN} more that failed; the record has all.")
        return shown

    def values(self) -> display.View:
        """Show the golden files that differ, starting with those that need a decision."""
        rows = summary.verdict_rows(self.judgements)
        return display.table(rows, empty="No golden value differs from the commit's.")


def read_results(
    facts: SlurmFacts, *, wait: bool = False, early: bool = False, sleep: Callable[[float], None] = time.sleep
) -> MatrixResults:
    """Return the outcomes of the submitted tests; with ``wait``, wait for all first.

    ``early`` ends tests whose golden values are complete.  Raises Unreachable if Slurm stays unreachable.
    """
    newest = rounds.newest(_submissions(facts))
    entries = [newest[chosen.test.name] for chosen in facts.tests if chosen.test.name in newest]
    if all(entry.job is None for entry in entries):
        return MatrixResults()
    expected = {chosen.test.name: facts.expected_names(chosen.test) for chosen in facts.tests}
    follower = following.Follower(facts.slurm, entries, expected, early=early)
    try:
        tests = following.follow(follower, wait=wait, sleep=sleep)
    except Unreachable as error:
        raise Unreachable(f"{error} {_RETRY}") from error
    return MatrixResults(tuple(facts.outcome(test) for test in tests))


def _submissions(facts: SlurmFacts) -> list[rounds.Submission]:
    """Return the arrays as they are written now, with the job IDs that only the queue had."""
    queued = {array.name: array.job for array in facts.submissions}
    return [replace(array, job=array.job or queued.get(array.name)) for array in rounds.read(facts.folder)]


@dataclass(frozen=True)
class Submitted:
    """Each planned array has a job on Slurm, and the results folder has the ID of every job.

    The list of arrays is written before the first submission, and each ID right after it, so an interrupted one is
    found again, by the array's name in the queue.  ``obstacle`` prevents submissions.
    """

    facts: SlurmFacts
    arrays: tuple[JobArray, ...]
    obstacle: str = ""
    leaves_machine = False

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        if not self.arrays:
            return "write the IDs of jobs that only Slurm's queue has"
        tests = display.count(sum(len(array.tasks) for array in self.arrays), "test")
        return f"submit {tests} to Slurm as array {' and '.join(array.name for array in self.arrays)}"

    def holds(self, world: World) -> Check:
        """Read the results folder."""
        wanted = {array.name for array in self.arrays} | {array.name for array in self.facts.submissions if array.job}
        missing = sorted(wanted - {array.name for array in rounds.read(self.facts.folder) if array.job})
        detail = "Each array once."
        if missing:
            detail = f"Not submitted, or its job ID is not written: {', '.join(missing)}."
        return Check.of("the chosen tests were submitted", not missing and not self.obstacle, detail)

    def make_true(self, world: World) -> Iterator[Effect]:
        """Write the job IDs that only the queue has, then submit the arrays.

        Raises Refused if a problem prevents that, if another run has submitted tests in the meantime, or if Slurm
        rejects an array; accepted arrays stay.
        """
        if self.obstacle:
            raise Refused(self.obstacle)
        folder, planned = self.facts.folder, self.facts.submissions
        files.make_folder(folder)
        with files.locked(folder / "lock"):
            written = rounds.read(folder)
            jobs = {array.name: array.job for array in planned}
            if [*jobs] != [it.name for it in written] or any(it.job and not jobs[it.name] for it in written):
                raise Refused(f"Another run has submitted tests to {folder} in the meantime. Run again.")
            for array in written:
                if array.job is None and (job := jobs[array.name]):
                    rounds.write_job(array, job)
            if self.arrays:
                yield from self._submit()

    def _submit(self) -> Iterator[Effect]:
        facts = self.facts
        number = rounds.next_round(facts.folder)
        if facts.site.image_names:  # an archive of the tested commit: later changes to the checkout have no effect
            folder = facts.folder / str(number)
            files.make_folder(folder)
            facts.branch.checkout.archive(facts.branch.start, folder / TREE)
        try:
            for array in rounds.write_round(facts.folder, number, self.arrays):
                target = f"{array.name} ({display.count(len(array.tests), 'test')})"
                yield Effect("slurm job", target, None, following.submit(facts.slurm, array).job)
        except Unreachable as error:
            raise Unreachable(f"{error} {_RETRY}") from error
        except Refused:
            rounds.discard_round(facts.folder, number)
            raise


@dataclass(frozen=True)
class Cancelled:
    """None of the chosen tests of this commit runs on Slurm; those that Slurm was asked to end count."""

    facts: SlurmFacts
    leaves_machine = False
    sentence = "end all of these tests that are unfinished"
    _asked: set[tuple[str, int]] = field(default_factory=set, compare=False, repr=False)

    def holds(self, world: World) -> Check:
        """Query the queue."""
        left = [entry for entry in self._unfinished() if (entry.array.name, entry.index) not in self._asked]
        detail = join_first([str(entry.test) for entry in left], 5) if left else "None is unfinished, or Slurm ends it."
        return Check.of("no chosen test is left on Slurm", not left, detail)

    def make_true(self, world: World) -> Iterator[Effect]:
        """Ask Slurm to end the unfinished tests."""
        unfinished = self._unfinished()
        following.cancel(self.facts.slurm, unfinished)
        self._asked.update((entry.array.name, entry.index) for entry in unfinished)
        listed = ", ".join(entry.test.name for entry in unfinished)
        yield Effect("cancel", f"{display.count(len(unfinished), 'test')} on Slurm: {listed}", None, "cancelled")

    def _unfinished(self) -> Sequence[rounds.RoundTest]:
        names = {chosen.test.name for chosen in self.facts.tests}
        here = [entry for array in _submissions(self.facts) for entry in array.entries if entry.test.name in names]
        return following.unfinished(self.facts.slurm.queue(), here) if here else ()


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
        name, results = "every test passed", read_results(self.facts, early=self.early)
        words = [outcome.word for outcome in results.outcomes]
        if not words:
            return Check(name, "waiting", self.open_point or "No test has been submitted yet.", Next.again())
        counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        sentence = f"{display.count(len(words), 'test')} on Slurm: {counts}"
        left, running = results.names("failed", "unknown", "to be judged", "not over"), results.names("not over")
        next_action = Next.again() if self.open_point else Next()
        if running:
            sentence += "; waiting for Slurm"
            next_action = Next.again("To follow the tests:", wait=True)
        elif left:
            sentence += "; waiting for a person to judge"
            next_action = Next.again("Review the outcomes above. To submit the failed tests again:", jobs="failed")
        if left:
            sentence += f": {join_first(left, 5)}"
        detail, evidence = f"{sentence}. {self.open_point}".rstrip(), self._evidence(results)
        if not next_action:
            return Check(name, "passed", detail, evidence=evidence)
        is_followed = bool(running) and self.wait
        return Check(name, "failed" if is_followed else "waiting", detail.removesuffix("."), next_action, evidence)

    def make_true(self, world: World) -> Sequence[Effect]:
        """Follow the tests, and print each change of their state."""
        read_results(self.facts, wait=self.wait, early=self.early, sleep=world.sleep)
        return ()

    def _evidence(self, results: MatrixResults) -> Evidence:
        tables = {
            "slurm jobs": display.rows(_submissions(self.facts), array="name", job="job"),
            "slurm tests": [outcome.row for outcome in results.outcomes],
            "golden": summary.rows(summary.in_order(results.judgements)),
        }
        shown = (results.show(), results.values(), plots.drift(results.judgements))
        return Evidence(tables=tables, shown=shown)


@dataclass(frozen=True)
class SlurmVerify:
    """The step; ``site`` is a file that describes the cluster."""

    site: str
    choice: MatrixChoice
    wait: bool = False

    def look(self, world: World, bump: Bump) -> SlurmFacts:
        """Read the commit's tests, the results folder and the cluster.  Raises RunbookError like ``read_facts``."""
        return read_facts(bump_branch.look(world, bump), read_site(self.site, world.checkout.path), self.choice)

    def plan(self, facts: SlurmFacts, bump: Bump) -> Plan[World]:
        """Plan the submission, or the end of all tests, and what the tests have to show."""
        known, problem = facts.obstacles, " ".join(facts.obstacles.problems)
        planned: Plan[World] = Plan(
            Outcome("Every chosen test passed on Slurm.", Next.run(notebooks.OPEN_PR)), (facts.show(), facts.files()),
            on_branch=False,
        )  # fmt: skip
        if known.idle or bump.tag is None:
            return replace(planned, done=Outcome(known.idle or "No tag was given, so nothing is submitted."))
        open_point = f"Nothing can be submitted: {problem}" if problem else ""
        is_blocked = bool(problem and facts.new.tests) and not self.choice.cancel
        arrays = () if self.choice.cancel or is_blocked else facts.new.arrays
        conditions: list[Condition[World]] = []
        if arrays or (bump.apply and (facts.submissions or is_blocked)):
            conditions.append(Submitted(facts, arrays, problem if is_blocked else ""))
        if self.choice.cancel:
            conditions.append(Cancelled(facts))
        submitted = rounds.newest(facts.submissions)
        if arrays or any(chosen.test.name in submitted for chosen in facts.tests):
            conditions.append(MatrixPassed(facts, open_point, self.wait, bump.apply and facts.site.early))
        done = planned.done if conditions else Outcome(open_point or "No test has been submitted yet.")
        omitted = [f"Omitted: {join_first(names, 3)}. {reason}" for reason, names in facts.left_out.items()]
        prevented = known.problems if is_blocked and not bump.apply else ()
        evidence = Evidence(
            inputs={
                "head_commit": facts.branch.start, "results": str(facts.folder),
                "image_under_test": ", ".join(facts.site.image_names),
            },
            warnings=(*known.warnings, *omitted, *prevented),
        )  # fmt: skip
        return replace(planned, done=done, conditions=tuple(conditions), evidence=evidence)
