"""Recipe tests on a Slurm cluster: submit, follow and judge them.

Submissions are written to the plan's folder in the results folder, so that a later run of the notebook continues
them.  The record has the job IDs and the outcome of each test.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain

from runbook_lib import display, notebooks
from runbook_lib.checks import Check
from runbook_lib.errors import Refused, Unreachable
from runbook_lib.golden import summary
from runbook_lib.golden.form import Judgement
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner import command_line
from runbook_lib.slurm import follow as following
from runbook_lib.slurm import submissions as rounds
from runbook_lib.slurm.batch_files import TREE
from runbook_lib.slurm.outcome import MatrixOutcome
from runbook_lib.steps.slurm_verify.plan import SlurmPlan
from runbook_lib.system import files
from runbook_lib.text.lists import join_first

#: Number of failed tests whose evidence is shown; the record has all.
_SHOWN = 20
_RETRY = "Run the same command again once Slurm responds: the jobs keep running, and the run will pick them up."
_CHECKS = ("the chosen tests were submitted", "every test passed", "no golden values need judgement")


@dataclass(frozen=True)
class MatrixResults:
    """The outcomes of all submitted tests."""

    outcomes: tuple[MatrixOutcome, ...] = ()

    @property
    def judgements(self) -> list[Judgement]:
        """The verdict on each golden file that a test wrote."""
        return list(chain.from_iterable(outcome.judgements for outcome in self.outcomes))

    @property
    def restarts(self) -> list[str]:
        """A sentence for each attempt before a test's last one."""
        return list(chain.from_iterable(following.earlier_attempts(outcome.now.entry) for outcome in self.outcomes))

    def names(self, word: str) -> list[str]:
        """Return the tests with this outcome."""
        return [str(outcome.now.entry.test) for outcome in self.outcomes if outcome.word == word]

    def show(self) -> display.View:
        """Show each test with its outcome, then the evidence of those that failed."""
        rows = [outcome.row for outcome in self.outcomes]
        shown = display.table(rows, empty="Nothing has been submitted yet.") + display.notes(self.restarts)
        failed = [outcome for outcome in self.outcomes if outcome.word in ("failed", "unknown")]
        for outcome in failed[:_SHOWN]:
            shown += _evidence(outcome)
        if len(failed) > _SHOWN:
            shown += display.note(f"… and {len(failed) - _SHOWN} more that failed; the record has all.")
        return shown

    def values(self) -> display.View:
        """Show the golden files that differ, starting with those that need a decision."""
        rows = summary.verdict_rows(self.judgements)
        return display.table(rows, empty="No golden value differs from the commit's.")


def _evidence(outcome: MatrixOutcome) -> display.View:
    failure = outcome.failure
    if failure is None:
        return display.View("", "")
    title = f"{failure.job}: {failure.kind}"
    if failure.where:
        title += f" ({failure.where.log}, line {failure.where.line})"
    sentences = [f"{name}: {value}" for name, value in failure.details.items() if name != "error"]
    sentences += [f"{pitfall.sign} {pitfall.cause} {pitfall.fix}" for pitfall in outcome.pitfalls]
    sentences.append(f"Results: {outcome.now.entry.folder}")
    return display.code("\n".join(failure.evidence), title=title) + display.notes(sentences)


def carry_out(step: StepRecord, plan: SlurmPlan, *, cancel: bool = False) -> SlurmPlan:
    """With ``apply`` and without ``cancel``, submit the arrays; return the plan with all submissions.

    Raises Refused if a problem prevents submissions or Slurm rejects an array; accepted arrays stay.
    """
    bump = plan.branch.bump
    if plan.idle or bump.tag is None:
        return plan
    image = ", ".join(plan.site.image_names)
    step.add_inputs(head_commit=plan.branch.start, results=str(plan.folder), image_under_test=image)
    omitted = [f"Omitted: {join_first(names, 3)}. {reason}" for reason, names in plan.left_out.items()]
    step.warn(*plan.warnings, *omitted)
    is_blocked = bool(plan.problems and plan.new_tests) and not cancel
    if not bump.apply:
        if cancel:
            step.would("end all of these tests that are unfinished")
        elif is_blocked:
            step.warn(*plan.problems)
        else:
            for array in plan.arrays:
                step.would(f"submit {display.count(len(array.tasks), 'test')} to Slurm as array {array.name}")
        return plan
    if is_blocked:
        raise Refused(" ".join(plan.problems))
    if not plan.arrays and not plan.submissions:
        return plan
    files.make_folder(plan.folder)
    with files.locked(plan.folder / "lock"):
        submissions = _write_jobs(plan)
        if plan.arrays and not cancel:
            submissions += _submit(step, plan)
    return replace(plan, submissions=submissions)


def _write_jobs(plan: SlurmPlan) -> tuple[rounds.Submission, ...]:
    """Write the job IDs that were only in the queue.  Raises Refused if another run submitted tests since the plan."""
    written = {array.name: array for array in rounds.read(plan.folder)}
    planned = {array.name: array.job for array in plan.submissions}
    if list(written) != list(planned) or any(written[name].job and not job for name, job in planned.items()):
        raise Refused(f"Another run has submitted tests to {plan.folder} in the meantime. Run again.")
    for name, job in planned.items():
        if job and written[name].job is None:
            written[name] = rounds.write_job(written[name], job)
    return tuple(written.values())


def _submit(step: StepRecord, plan: SlurmPlan) -> tuple[rounds.Submission, ...]:
    number = rounds.next_round(plan.folder)
    if plan.site.image_names:  # an archive of the tested commit: later changes to the checkout do not affect the jobs
        folder = plan.folder / str(number)
        files.make_folder(folder)
        plan.branch.checkout.archive(plan.branch.start, folder / TREE)

    def report(array: rounds.Submission) -> None:
        target = f"{array.name} ({display.count(len(array.entries), 'test')})"
        step.effect("slurm job", target, None, array.job)

    arrays = rounds.write_round(plan.folder, number, plan.arrays)
    try:
        return following.submit(plan.slurm, arrays, report)
    except Unreachable as error:
        raise Unreachable(f"{error} {_RETRY}") from error
    except Refused:
        rounds.discard_round(plan.folder, number)
        raise


def follow(
    step: StepRecord, plan: SlurmPlan, *, wait: bool = False, early: bool = False, cancel: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> MatrixResults:  # fmt: skip
    """Return the outcomes of the submitted tests; with ``wait``, wait for all first.  A preview never waits.

    With ``apply``, ``early`` ends each test as soon as its golden values are complete, and ``cancel`` ends all.
    Raises Unreachable if Slurm stays unreachable.
    """
    if plan.idle:
        return MatrixResults()
    apply = plan.branch.bump.apply
    if cancel and apply:
        _cancel(step, plan)
    newest = rounds.newest(plan.submissions)
    entries = [newest[chosen.test.name] for chosen in plan.tests if chosen.test.name in newest]
    if all(entry.job is None for entry in entries):
        return MatrixResults()
    expected = {chosen.test.name: plan.expected_names(chosen.test) for chosen in plan.tests}
    follower = following.Follower(plan.slurm, entries, expected, early=early and apply, notes=apply)
    try:
        tests = following.follow(follower, wait=wait and apply, sleep=sleep)
    except Unreachable as error:
        raise Unreachable(f"{error} {_RETRY}") from error
    step.table("slurm jobs", display.rows(plan.submissions, array="name", job="job"))
    return MatrixResults(tuple(plan.outcome(test) for test in tests))


def _cancel(step: StepRecord, plan: SlurmPlan) -> None:
    """End the chosen tests in all rounds, and this bump's tests in other folders."""
    names = {chosen.test.name for chosen in plan.tests}
    entries = list(plan.elsewhere)
    for array in plan.submissions:
        entries += [entry for entry in array.entries if entry.test.name in names]
    unfinished = entries and following.unfinished(plan.slurm.queue(), entries)
    if unfinished:
        plan.slurm.cancel((entry.job or 0, entry.index) for entry in unfinished)
        listed = ", ".join(entry.test.name for entry in unfinished)
        step.effect("cancel", f"{display.count(len(unfinished), 'test')} on Slurm: {listed}", None, "cancelled")


def verify(step: StepRecord, plan: SlurmPlan, results: MatrixResults) -> None:
    """Record each test's outcome, and the overall state."""
    open_point, next_action = _unsubmitted(step, plan)
    if not results.outcomes or plan.branch.bump.tag is None:
        sentence = open_point or "No test has been submitted yet."
        step.check(*Check.each(_CHECKS, "skipped", sentence))
        step.done(sentence, next_action)
        return
    step.table("slurm tests", [outcome.row for outcome in results.outcomes])
    step.warn(*results.restarts)
    step.table("golden", summary.rows(summary.in_order(results.judgements)))
    words = [outcome.word for outcome in results.outcomes]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    submitted = {outcome.now.entry.test.name for outcome in results.outcomes}
    missing = [str(chosen.test) for chosen in plan.tests if chosen.test.name not in submitted]
    failed = results.names("failed") + results.names("unknown")
    unjudged, running = results.names("to be judged"), results.names("not over")
    # As in CI, a failed test needs a person's decision, so the run waits instead of failing.
    for name, pending, detail in (
        (_CHECKS[0], missing, f"{len(words)} of {len(plan.tests)} were submitted. {open_point}".rstrip()),
        (_CHECKS[1], failed + running, f"{counts}."),
        (_CHECKS[2], unjudged, f"{display.count(len(results.judgements), 'file')} compared."),
    ):
        if pending:
            detail += f" Open: {join_first(pending, 5)}."
        step.check(Check.of(name, not pending, detail, "waiting"))
    sentence = f"{display.count(len(words), 'test')} on Slurm: {counts}"
    if running:
        sentence += "; waiting for Slurm"
        next_action = next_action or "Run slurm-verify again, with -p wait True to follow the tests."
    elif failed or unjudged:
        sentence += "; waiting for a person to judge"
        next_action = next_action or "Review the outcomes above; `-r again failed` resubmits the failed tests."
    sentence = f"{sentence}. {open_point}".rstrip()
    if running or failed or unjudged or open_point:
        step.waiting(sentence.removesuffix("."), next_action)
    else:
        step.done(sentence, notebooks.OPEN_PR)


def _unsubmitted(step: StepRecord, plan: SlurmPlan) -> tuple[str, str]:
    """Return why some chosen tests are not submitted, and the next action; empty strings if all are."""
    bump = plan.branch.bump
    if plan.idle or bump.tag is None:
        return plan.idle or "No tag was given, so nothing is submitted.", ""
    if plan.problems:
        return f"Nothing can be submitted: {' '.join(plan.problems)}", ""
    if plan.arrays and not bump.apply:
        tests = display.count(sum(len(array.tasks) for array in plan.arrays), "test")
        sentence = f"Preview: {tests} would be submitted, in {display.count(len(plan.arrays), 'array')}"
        if plan.left_out:
            sentence += f"; {sum(map(len, plan.left_out.values()))} cannot run"
        return f"{sentence}. {plan.canary}".rstrip(), command_line.command(step.name, step.bump, apply=True)
    return plan.canary, ""
