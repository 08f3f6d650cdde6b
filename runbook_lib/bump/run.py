"""A run of a notebook: carry out the plan of each step, show and record it, and close.

For each condition: show it, make it true where the mode allows it, and read it again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar

from IPython.display import Markdown
from IPython.display import display as show

from runbook_lib import display
from runbook_lib.bump import branch_history, policy
from runbook_lib.bump.run_ci import RunCi, push_round
from runbook_lib.errors import RunbookError
from runbook_lib.failures.step import BrokenTests
from runbook_lib.golden.step import GoldenStep
from runbook_lib.model import Check, Condition, Next, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.record import decisions
from runbook_lib.record.recorder import Recorder
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.github.models import NotAllowed
from runbook_lib.world.ports import ONLINE, Services, World

State = Literal["holds", "made", "would be made", "waits", "failed"]


@dataclass(frozen=True)
class Result:
    """The result of carrying out a condition: its state, and its last reading."""

    condition: Condition[World]
    state: State
    check: Check

    def as_json(self) -> dict[str, object]:
        """Return the condition for the record and for ``--json``."""
        return {
            "kind": type(self.condition).__name__,
            "sentence": self.condition.sentence,
            "publishes": self.condition.leaves_machine,
            "state": self.state,
            "found": self.check.detail,
        }


def carry_out(step: Recorder, plan: Plan[World], world: World, show: Callable[[object], object]) -> tuple[Result, ...]:
    """Show the plan, make its conditions true as far as the mode allows, and record the outcome.

    A condition is made true only if those before it hold.  Raises RunbookError if one cannot be made true.
    """
    for view in plan.shown:
        show(view)
    step.keep(plan.evidence)
    for question in plan.questions:
        step.decide(question)
    step.check(*plan.checks)
    results, is_stopped = list[Result](), False
    for condition in plan.conditions:
        if is_stopped:
            check = Check(condition.sentence, "waiting", "It waits for the one above.")
            results.append(Result(condition, "waits", check))
        else:
            results.append(_treat(step, condition, world))
        is_stopped = results[-1].state in ("waits", "failed")
    if results:
        rows = ({"shall hold": r.condition.sentence, "state": r.state, "found": r.check.detail} for r in results)
        show(display.table(rows))
    world.round = None if is_stopped else plan.round  # the plan decides tests only once its conditions hold
    for result in results:
        for found in result.check.evidence.shown:
            show(found)
        step.condition(result.as_json())
        check = result.check
        if result.state == "would be made":
            check = replace(check, status="skipped", detail=f"Not done: {result.condition.sentence}.")
        step.check(check)
        if result.check.status == "skipped":
            step.warn(result.check.detail)
    _conclude(step, plan, results)
    return tuple(results)


def _treat(step: Recorder, condition: Condition[World], world: World) -> Result:
    """Read one condition, and make it true if the mode allows it.

    Unless the run publishes, a service that cannot be read is no obstacle.
    """
    try:
        check = condition.holds(world)
    except RunbookError as error:
        if step.bump.publish or not condition.leaves_machine:
            raise
        check = Check(condition.sentence, "failed", str(error))
    if check.status in ("passed", "skipped"):
        return Result(condition, "holds", check)
    if check.status == "waiting":
        return Result(condition, "waits", check)
    if not (step.bump.publish if condition.leaves_machine else step.bump.apply):
        return Result(condition, "would be made", check)
    changed = False
    try:
        for effect in condition.make_true(world):  # each is recorded before the next one is made
            step.effect(effect)
            changed = True
    except NotAllowed as error:  # somebody with more permissions has to do it
        return Result(condition, "waits", Check(check.name, "waiting", str(error)))
    check = condition.holds(world)
    if check.status == "failed" and check.next and not changed:  # it was followed, and its time is up
        check = replace(check, status="waiting")
    states: dict[str, State] = {"passed": "made", "skipped": "made", "waiting": "waits"}
    return Result(condition, states.get(check.status, "failed"), check)


def _conclude(step: Recorder, plan: Plan[World], results: Sequence[Result]) -> None:
    """Record the outcome: what would be done, for what the step waits, or that it is done.

    Of several steps in one notebook the first that waits gives the outcome.
    """
    bump = step.bump
    if any(result.state == "failed" for result in results):  # the run fails, and names the check
        return
    would = [result.condition for result in results if result.state == "would be made"]
    for condition in would:
        step.would(condition.sentence, publish=condition.leaves_machine)
    waits = next((result for result in results if result.state == "waits"), None)
    if waits and not bump.apply:  # what follows is part of the preview
        for result in results[results.index(waits) + 1 :]:
            if result.condition.leaves_machine:
                step.would(f"{result.condition.sentence} (after: {waits.condition.sentence})", publish=True)
    waiting, first = plan.waiting, next((each for each in results if each.state in ("waits", "would be made")), None)
    if would:
        actions = f"would {'; '.join(each.sentence for each in would)}"
        if waiting:
            actions += f"; {waiting.sentence}"
        if not bump.apply:
            step.preview(actions, Next.again(mode="publish"))
            return
        waiting = Outcome(f"waiting for publish, which {actions}", Next.again(mode="publish"))
    if first and first.state == "waits":
        check = first.check
        waiting = Outcome(check.detail, check.next, check.for_ci)
        if not check.next:
            waiting = Outcome(f"waiting to {first.condition.sentence}", Next(check.detail))
    if step.step["state"] == "waiting":
        return
    told = step.step["outcome"]["sentence"]
    if waiting is None and plan.done.sentence:
        step.conclude("done", replace(plan.done, sentence=f"{told} {plan.done.sentence}".lstrip()))
    elif waiting is None and results:
        step.conclude("done", Outcome(results[-1].check.detail, results[-1].check.next))
    elif waiting and (bump.apply or plan.only_reads):
        step.conclude("waiting", waiting)
    elif waiting and not told:
        step.preview(waiting.sentence, waiting.next)


#: The maximum rounds of CI in one run: each responds to something new, or is the last.
ROUNDS = 8
#: What follows in a run that waits, for a preview.
_AFTER_CI = (
    "after each CI run, restart the jobs that infrastructure failed, or commit the golden values that drifted within "
    "tolerance and push all responses, which starts the next run (it never accepts values that are held back or "
    "declares a test broken unless a person has named them)"
)
F = TypeVar("F")


class Step(Protocol[F]):
    """A module or object that looks at the outside once, and plans from what it saw."""

    def look(self, world: World, bump: Bump) -> F:
        """Read what the step needs."""

    def plan(self, facts: F, bump: Bump) -> Plan[World]:
        """Plan, purely from the facts and the parameters."""


@dataclass
class Run:
    """One run of a notebook.  Its branch and forge are read when they are first needed.

    ``failure`` is the error of the step of a bump that failed; the steps after it are not run.
    """

    bump: Bump
    checkout: Checkout
    record: Recorder
    services: Services = ONLINE
    #: Closes the record.
    end: Callable[[], None] = lambda: None
    failure: RunbookError | None = None

    @cached_property
    def world(self) -> World:
        """The outside, as the steps see it: without GitHub if there is no token and this run publishes nothing."""
        github = self.services.forge(self.checkout.repository(), required=self.bump.publish)
        return World(
            self.checkout, github, self.record, self.services, self.record.records, folder=self.record.folder,
        )  # fmt: skip

    def step(self, step: Step[F], round: int = 1) -> None:
        """Show a step's plan, carry it out as far as the mode allows, and record it.

        Nothing is built on commits that the runbook did not make, or published with them, until a person has confirmed
        them.  Raises RunbookError if a condition cannot be made true; a bump shows and records it, and ends with it.
        """
        if not self.record.is_bump:
            self._carry_out(step)
            return
        name = getattr(step, "NAME", "") or self.record.step["name"]
        self.record.begin_step(name, round)
        if self.failure:
            sentence = f"Not run, because an earlier step failed: {self.failure}"
            self.record.conclude("not run", Outcome(sentence))
            show(display.note(sentence))
            return
        if self.bump.publish:  # others may change it meanwhile; a run that stays here may have no connection
            self.world.branches.clear()
        try:
            self._carry_out(step)
            self.record.raise_if_failed()
        except RunbookError as error:
            self.failure = error
            self.record.conclude("failed", Outcome(f"{name}: {error}"))
            show(display.note(f"✗ {error}"))

    def _carry_out(self, step: Step[F]) -> None:
        bump = replace(self.bump, decisions=decisions.again(self.bump.decisions))  # bound by earlier steps
        plan = step.plan(step.look(self.world, bump), bump)
        if plan.conditions and plan.on_branch:
            own = plan.on_branch
            branch = self.world.branches[own] if isinstance(own, str) else BumpBranch.look(self.world, bump)
            if branch.tip:
                plan = branch_history.apply_review(plan, branch_history.review(branch, branch.tip, self.record.records))
        plan = policy.with_fork(plan, self.checkout, bump)
        plan = replace(plan, questions=tuple(question.after(bump.decisions) for question in plan.questions))
        if bump.apply:
            decisions.bind(bump.decisions, plan.evidence.decided)
        decisions.keep(bump.decisions, self.record)
        results = carry_out(self.record, plan, self.world, show)
        if any(result.state == "made" for result in results):
            self.world.branches.clear()

    def rounds(self, run_ci: RunCi, golden: GoldenStep, failures: BrokenTests) -> None:
        """Run CI, judge its golden values and its failed tests, and push the responses, which start the next round.

        It ends when nothing is left to push, or a person or CI must decide.  A CI run named by a person belongs to
        the first round.
        """
        for round in range(1, ROUNDS + 1):
            before = len(self.record.steps)
            self._headed_step(run_ci, run_ci.NAME, round)
            self._headed_step(golden, golden.NAME, round)
            self.step(push_round, round)
            self._headed_step(failures, failures.NAME, round)
            self.step(push_round, round)
            golden, failures = replace(golden, run_id=""), replace(failures, run_id="")
            kinds = [effect["kind"] for step in self.record.steps[before:] for effect in step["effects"]]
            if "push" not in kinds and "rerun" not in kinds:
                break
        is_planned = any(step["planned"] for step in self.record.steps)
        if run_ci.wait and not self.bump.apply and is_planned and self.bump.repository.tests.golden:
            self.record.would(_AFTER_CI, publish=True)

    def _headed_step(self, step: Step[Any], name: str, round: int) -> None:
        show(Markdown(f"### Round {round}: {name}"))
        self.step(step, round)

    def close(self) -> None:
        """Show the record's outcome.  Raises RunbookError if a check or a step failed."""
        show(self.record.show())
        if self.failure:
            raise self.failure
        self.record.raise_if_failed()
        self.end()  # a failing cell ends the record with its message
