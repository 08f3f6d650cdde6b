"""Tests of the recipes run on a Slurm cluster: planned, submitted, followed, judged.

What was submitted lies in the folder for results, below a folder named after the commit: a run that is started again
takes it up, whatever became of the one before.  The record names the job ids, and keeps the outcome of each test.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib import display, notebooks
from runbook_lib.checks import Check
from runbook_lib.display import View
from runbook_lib.errors import Refused, Unreachable
from runbook_lib.golden import summary
from runbook_lib.golden.judge import Judgement
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner import command_line
from runbook_lib.slurm import follow as slurm_follow
from runbook_lib.slurm import submissions
from runbook_lib.slurm.batch_files import TREE
from runbook_lib.slurm.follow import Follower
from runbook_lib.slurm.outcome import MatrixOutcome
from runbook_lib.slurm.submissions import Submission
from runbook_lib.steps.slurm_verify import plan
from runbook_lib.steps.slurm_verify.plan import Plan, expected_names
from runbook_lib.system import atomic_files, locks

#: Outcomes whose evidence is shown; the record has those of all.
_SHOWN = 20
_IDLE = (
    "No folder for results was given, so nothing is planned. Give one that all nodes see as results, or a site file."
)
_LATER = "Run the same command again when it answers: what was submitted goes on without it, and is taken up."
_DONE = ("passed", "drifted")
_CHECKS = ("the chosen tests were submitted", "every test passed", "golden values need no judgement")


@dataclass(frozen=True)
class Found:
    """What became of the tests."""

    outcomes: tuple[MatrixOutcome, ...] = ()

    @property
    def judged(self) -> tuple[Judgement, ...]:
        """The verdict on each golden file that was left."""
        return tuple(one for it in self.outcomes for one in it.judgements)

    @property
    def begun_anew(self) -> tuple[str, ...]:
        """What became of attempts that do not count, as sentences."""
        return tuple(told for it in self.outcomes for told in slurm_follow.earlier_attempts(it.now.entry))

    def show(self) -> View:
        """Each test with its outcome, then the evidence of those that failed."""
        shown = display.table((it.row for it in self.outcomes), empty="Nothing was submitted yet.")
        shown += display.notes(self.begun_anew)
        failed = [it for it in self.outcomes if it.failure is not None and it.word == "failed"]
        for it in failed[:_SHOWN]:
            failure = it.failure
            if failure is None:
                continue
            where = f" ({failure.where.log}, line {failure.where.line})" if failure.where else ""
            shown += display.code("\n".join(failure.evidence), title=f"{failure.job}: {failure.kind}{where}")
            told = [f"{name}: {value}" for name, value in failure.details.items() if name != "error"]
            told += [f"{pitfall.sign} {pitfall.cause} {pitfall.mend}" for pitfall in it.pitfalls]
            shown += display.notes([*told, f"Results: {it.now.entry.folder}"])
        if len(failed) > _SHOWN:
            shown += display.note(f"… and {len(failed) - _SHOWN} more that failed; the record holds all.")
        return shown

    def values(self) -> View:
        """The golden files that differ, what must be seen first."""
        rows = summary.verdict_rows(self.judged)
        return display.table(rows, empty="No golden value differs from those of the commit.")


def carry_out(
    step: StepRecord, planned: Plan, *, cancel: bool = False, say: Callable[[str], object] = print
) -> Plan:  # fmt: skip
    """Submit what is new; with ``apply`` only, and not where all is to end.

    Raises Refused where a problem keeps everything from being submitted, and where Slurm does not take an array: what
    it took of the others stays.
    """
    bump, branch = planned.branch.bump, planned.branch
    if planned.idle or bump.tag is None:
        return planned
    step.add_inputs(head_commit=branch.start, results=str(planned.base), image_under_test=planned.site.image)
    step.warn(*planned.warnings, *(f"Left out: {tests}. {why}" for tests, why in planned.left_out))
    if not bump.apply and cancel:
        step.would("end all of these tests that are not over")
    elif not bump.apply:
        step.warn(*(planned.problems if planned.fresh else ()))
        for it in planned.arrays if not planned.problems else ():
            step.would(f"submit {display.count(len(it.tasks), 'test')} to Slurm as the array {it.name}")
    elif planned.problems and planned.fresh and not cancel:
        raise Refused(" ".join(planned.problems))
    if not bump.apply or not (planned.arrays or planned.before):
        return planned
    atomic_files.make_folder(planned.base)
    with locks.locked(planned.base / "lock"):
        atomic_files.close_to_others(planned.base)
        before = _noted(planned)
        made = () if cancel else _submitted(step, planned, say)
    return replace(planned, before=before + made)


def _noted(planned: Plan) -> tuple[Submission, ...]:
    """What was submitted before, with the ids noted that the queue alone had."""
    now, then = submissions.read(planned.base), planned.before
    if [it.name for it in now] != [it.name for it in then] or any(
        it.job is not None and old.job is None for it, old in zip(now, then, strict=True)
    ):
        raise Refused(f"Another run has submitted tests to {planned.base} in the meantime. Run again.")
    return tuple(
        submissions.write_job(it, old.job) if it.job is None and old.job is not None else it
        for it, old in zip(now, then, strict=True)
    )


def _submitted(step: StepRecord, planned: Plan, say: Callable[[str], object]) -> tuple[Submission, ...]:
    if not planned.arrays:
        return ()
    number = submissions.next_round(planned.base)
    if planned.site.image:
        _pack(planned, planned.base / str(number))
    made = submissions.write_round(planned.base, number, planned.arrays)
    try:
        return slurm_follow.submit(planned.slurm, made, lambda it: _tell(step, it), say=say)
    except Unreachable as error:
        raise Unreachable(f"{error} {_LATER}") from error
    except Refused:
        submissions.discard_round(planned.base, number)
        raise


def _tell(step: StepRecord, submitted: Submission) -> None:
    tests = f"{submitted.name} ({display.count(len(submitted.entries), 'test')})"
    step.effect("slurm job", tests, None, submitted.job)


def _pack(planned: Plan, folder: Path) -> None:
    """Lay down the commit that is tested, which a checkout that goes on can no longer change."""
    atomic_files.make_folder(folder)
    draft = folder / f".{TREE}.tmp"
    planned.branch.checkout.git("archive", "--format=tar", f"--output={draft}", planned.branch.start)
    try:
        draft.chmod(0o600)
        draft.replace(folder / TREE)
    except OSError as error:
        raise atomic_files.cannot_write(folder / TREE, error) from error


def follow(
    step: StepRecord, planned: Plan, *, wait: bool = False, early: bool = False, cancel: bool = False,
    say: Callable[[str], object] = print, sleep: Callable[[float], None] = time.sleep,
) -> Found:  # fmt: skip
    """Where the chosen tests stand; with ``wait`` when all are over.  A preview never waits.

    With ``apply`` only: ``early`` ends each as soon as its golden values are there, ``cancel`` all that are not over.
    Raises Unreachable when Slurm stays away.
    """
    entries = [
        entry for it in planned.chosen if (entry := submissions.newest(planned.before).get(it.test.name)) is not None
    ]
    acts = planned.branch.bump.apply
    if cancel and acts and not planned.idle:
        _cancel(step, planned)
    if planned.idle or not any(it.job is not None for it in entries):
        return Found()
    expected = {it.test.name: expected_names(planned, it.test) for it in planned.chosen}
    follower = Follower(planned.slurm, entries, expected, early=early and acts, notes=acts)
    try:
        tests = slurm_follow.follow(follower, wait=wait and acts, sleep=sleep, say=say)
    except Unreachable as error:
        raise Unreachable(f"{error} {_LATER}") from error
    jobs = {it.name: it.job for it in planned.before}
    step.table("slurm jobs", [{"array": name, "job": job} for name, job in jobs.items()])
    return Found(tuple(plan.outcome(planned, now) for now in tests))


def _cancel(step: StepRecord, planned: Plan) -> None:
    """End what Slurm still has of the chosen tests, in whichever round, and of this bump's other folders."""
    names = {it.test.name for it in planned.chosen}
    every = [entry for it in planned.before for entry in it.entries if entry.test.name in names]
    chosen = (
        slurm_follow.unfinished(planned.slurm.queue(), [*every, *planned.elsewhere]) if every else planned.elsewhere
    )
    if chosen:
        planned.slurm.cancel((it.job or 0, it.index) for it in chosen)
        listed = ", ".join(it.test.name for it in chosen)
        step.effect("cancel", f"{display.count(len(chosen), 'test')} on Slurm: {listed}", None, "cancelled")


def verify(step: StepRecord, planned: Plan, found: Found) -> View:
    """Tell the record what became of each test, and where it all stands."""
    bump = planned.branch.bump
    if planned.idle or bump.tag is None or not found.outcomes:
        why, next = _nothing(step, planned)
        step.check(*(Check(name, "skipped", why) for name in _CHECKS))
        step.done(why, next)
        return display.note("The checks are in the record below.")
    step.table("slurm tests", [it.row for it in found.outcomes])
    step.warn(*found.begun_anew)
    step.table("golden", summary.rows(summary.in_order(found.judged)))
    words = [it.word for it in found.outcomes]
    told = ", ".join(f"{words.count(it)} {it}" for it in dict.fromkeys(words))
    there = {it.now.entry.test.name for it in found.outcomes}
    missing = [str(it.test) for it in planned.chosen if it.test.name not in there]
    bad = [str(it.now.entry.test) for it in found.outcomes if it.word == "failed"]
    held = [one.file for it in found.outcomes if it.word == "to be judged" for one in it.judgements]
    submitted = f"{len(found.outcomes)} of {len(planned.chosen)}."
    # As with CI, a red test is for a person to judge: the run waits, and does not fail.
    step.check(
        Check(
            _CHECKS[0],
            "waiting" if missing else "passed",
            f"{submitted} Without {_listed(missing)}" if missing else submitted,
        ),
        Check(
            _CHECKS[1],
            "passed" if not bad and "not over" not in words else "waiting",
            f"{told}. {_listed(bad)}".strip(),
        ),
        Check(
            _CHECKS[2], "waiting" if held else "passed", _listed(held) or f"{len(found.judged)} files were looked at."
        ),
    )
    sentence = f"{display.count(len(words), 'test')} on Slurm: {told}"
    if "not over" in words:
        step.waiting(f"{sentence}; waiting for Slurm", "Run slurm-verify again, with -p wait True to follow it.")
    elif bad or held:
        step.waiting(
            f"{sentence}; waiting for a person to judge", "Look at the outcomes above; -r again failed reruns."
        )
    else:
        step.done(f"{sentence}.", notebooks.OPEN_PR if all(it in _DONE for it in words) else "")
    return display.note("The checks are in the record below.")


def _nothing(step: StepRecord, planned: Plan) -> tuple[str, str]:
    """Why no test was found, and what goes on from there."""
    bump = planned.branch.bump
    if planned.idle or bump.tag is None:
        return planned.idle or "No tag was given, so nothing is submitted.", ""
    if planned.problems and planned.fresh and not bump.apply:
        return f"Apply would be refused. {' '.join(planned.problems)}", ""
    if planned.arrays and not bump.apply:
        tests = display.count(sum(len(it.tasks) for it in planned.arrays), "test")
        held = f"; {len(planned.held)} cannot run" if planned.held else ""
        told = f"Preview: {tests} would be submitted, in {display.count(len(planned.arrays), 'array')}{held}."
        return told, command_line.command(step.name, step.bump, apply=True)
    return "Nothing runs yet.", ""


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}." if names else ""
