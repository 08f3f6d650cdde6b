"""The search itself: run after run until there is a result, each recorded in the ledger before and after."""

from runbook_lib import display, notebooks
from runbook_lib.bisect.search import Conclusion, Point
from runbook_lib.checks import Check
from runbook_lib.errors import Refused
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner import command_line
from runbook_lib.steps.bisect_image import allocations, places
from runbook_lib.steps.bisect_image import plan as planning
from runbook_lib.steps.bisect_image.ledger import LEDGER, LedgerRun
from runbook_lib.steps.bisect_image.report import BisectResult
from runbook_lib.system import clock, files

_CHECK = "no run was paid for twice"


def carry_out(step: StepRecord, plan: planning.BisectPlan) -> BisectResult:
    """With ``apply`` run points until the search ends or waits for a job.  Raises Refused for a problem of the plan."""
    if plan.request is None or plan.place is None:
        return BisectResult(plan, None)
    step.add_inputs(**plan.request.inputs, ledger=str(plan.ledger.path))
    if plan.branch.bump.apply:
        if plan.problems:
            raise Refused(" ".join(plan.problems))
        files.make_folder(plan.folder)
        # A second process on the same search would submit the same runs, so this one locks the search until it ends.
        with files.locked(plan.folder / "lock", print):
            plan = planning.reread(plan)
            if isinstance(plan.place, allocations.SlurmPlace) and not plan.place.tree.exists():
                plan.branch.checkout.archive(plan.branch.start, plan.place.tree)
            if not plan.ledger.lines:
                images, sizes = plan.ledger.images, plan.ledger.sizes
                plan.ledger.add({"kind": "images", "version": 1, "images": images, "sizes": sizes})
            while _advance(step, plan):
                pass
            if isinstance(plan.place, allocations.SlurmPlace) and plan.ledger.pending is None:
                plan.place.release()
    answer = plan.advance()
    return BisectResult(plan, answer if isinstance(answer, Conclusion) else None)


def _advance(step: StepRecord, plan: planning.BisectPlan) -> bool:
    """Take one step of the search; return False when it is over or waiting for a job."""
    assert plan.request is not None
    assert plan.place is not None
    pending = plan.ledger.pending
    if pending is None:
        answer = plan.advance()
        if isinstance(answer, Point):
            pending = plan.new_run(answer)
            put_in = [f"{overlay.name} {overlay.requirement}" for overlay in plan.restored(answer)]
            plan.ledger.add({"kind": "submit", "at": clock.stamp(clock.now()), "overlay": put_in, **_line(pending)})
            step.effect("run", f"{pending.number}: {_name(answer)}", "", pending.image)
        elif answer.verdict == "tag only" and plan.ledger.overlays is None and answer.step:
            overlays, suspects = planning.compare_neighbours(plan, answer.step)
            plan.ledger.add({"kind": "components", "overlays": list(map(vars, overlays)), "suspects": suspects})
            return True
        else:
            return False
    restored = plan.restored(pending.point)
    end = plan.place.finish(pending, restored)
    if end is None:
        return False
    ended = places.judge(plan.request, pending, restored, end, plan.folder / "runs" / str(pending.number))
    plan.ledger.add({"kind": "end", "at": clock.stamp(clock.now()), **_line(ended)})
    shown = f"{ended.value:g}" if ended.value is not None else f"{ended.outcome}: {ended.reason}"
    print(f"Run {ended.number} of at most {plan.request.runs}: {_name(ended.point)}: {shown}")
    return True


def _line(run: LedgerRun) -> dict[str, object]:
    line = {**vars(run), "tag": run.point.tag, "restored": list(run.point.restored)}
    del line["point"]
    return line


def _name(point: Point) -> str:
    return " with the old ".join(filter(None, [point.tag, " and ".join(point.restored)]))


def verify(step: StepRecord, result: BisectResult) -> display.View:
    """Read the ledger again, and record the runs, the checks and the result."""
    request, plan = result.plan.request, result.plan
    if request is None:
        step.done(plan.idle)
        return display.note("There is nothing to verify.")
    plan = planning.reread(plan)
    runs = list(plan.ledger.runs.values())
    step.table("runs", [entry.row for entry in runs])
    step.store(LEDGER, "".join(f"{line}\n" for line in plan.ledger.lines))
    submitted = [line for line in plan.ledger.lines if '"kind": "submit"' in line]
    step.check(Check.of(_CHECK, len(submitted) == len(runs), f"{display.count(len(runs), 'run')} in the ledger."))
    within = len(runs) <= request.runs
    step.check(Check.of("the search stayed within its budget", within, f"{len(runs)} of {request.runs} runs."))
    again = command_line.command(step.name, plan.branch.bump, apply=True)
    if result.conclusion is not None and result.is_over:
        for suspect in result.suspects:
            step.warn(f"Remaining suspect: {suspect}.")
        if text := result.issue():
            step.store("upstream-issue.md", text)
        step.diff(result.edit_diff())
        step.add_inputs(bisect_result=result.sentence)
        step.done(result.sentence, notebooks.BROKEN_TESTS if result.conclusion.step else again)
    elif not plan.branch.bump.apply:
        if plan.problems:
            step.warn(*plan.problems)
        left = request.runs - len(runs)
        step.would(f"run up to {left} times {request.test or request.command} on {request.where}")
        step.done(f"Preview: up to {left} runs.", again)
    else:
        step.waiting(f"waiting for run {len(runs)} of the search", again)
    return display.note("The checks are in the record below.")
