"""A sequence of notebooks run by another notebook, and that notebook's outcome."""

import contextlib
import itertools
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runbook_lib.checks import Check, Status
from runbook_lib.record import run_file
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner.execute import StepResult, run_job
from runbook_lib.runner.job import NotebookJob
from runbook_lib.text.notebook_file import BadParameter, NotebookSource
from runbook_lib.world.commands import command

if TYPE_CHECKING:
    from runbook_lib.display import View
    from runbook_lib.runner.kernel import Kernel

#: Seconds that a notebook may take to end after an interrupt: less than the calling notebook has.
GRACE = 5.0
#: The maximum rounds of CI in one run: each responds to something new, or is the last.
ROUNDS = 8
#: The kernel that the preview of a run has left to the run itself, with its modules imported.
_left_kernels: "list[Kernel]" = []


def run_notebooks(
    names: Sequence[str], /, *, ci_round: Sequence[str] = (), **parameters: Any
) -> tuple[StepResult, ...]:
    """Run these notebooks in order on one kernel, each with the parameters that it declares.

    A failed notebook stops the rest.  The notebooks in ``ci_round``, which are adjacent, run again whenever one of them
    has started a round of CI.  Prints the notebooks' output, indented, each result, and each warning once: a result has
    only those that no earlier one has.  The calling notebook's run is the parent of their records.  Raises BadParameter
    for a parameter that none of them declares.
    """
    parent, folder, is_preview = _calling_run()
    sources = [NotebookSource.read(folder / f"{name.removesuffix('.ipynb')}.ipynb") for name in names]
    jobs = []
    unknown = set(parameters)
    for source in sources:
        declared = {parameter.name for parameter in source.parameters}
        values = {name: value for name, value in parameters.items() if name in declared}
        jobs.append(NotebookJob.prepare(source, values, cwd=folder, parent=parent))
        unknown -= declared
    if unknown:
        raise BadParameter(f"None of the steps has a parameter {', '.join(sorted(unknown))}. Nothing was run.")
    results: list[StepResult] = []
    with contextlib.ExitStack() as stack:
        kernel = stack.enter_context(_kernel(jobs[0]))
        world = stack.enter_context(jobs[0].world())
        queue, rounds = list(jobs), 1
        while queue and (not results or results[-1].ok):
            job = queue.pop(0)
            result = run_job(job, kernel, world, _print_indented, grace=GRACE)
            known = {warning for earlier in results for warning in earlier.warnings}
            new = tuple(warning for warning in result.warnings if warning not in known)
            results.append(replace(result, warnings=new))
            print(*results[-1].lines(), sep="\n", flush=True)
            if not ci_round or job.source.name != ci_round[-1] or rounds == ROUNDS:
                continue
            if any(result.started_ci for result in results[-len(ci_round) :]):
                # A CI run named by a person belongs to the finished round.
                for job in reversed(jobs):
                    if job.source.name in ci_round:
                        values = {name: value for name, value in job.arguments.items() if name != "run_id"}
                        queue.insert(0, NotebookJob.prepare(job.source, values, cwd=folder, parent=parent))
                rounds += 1
        if is_preview and results[-1].ok:
            _left_kernels.append(kernel)
    for job in queue:
        results.append(StepResult(job.source.name, "not run", "An earlier step failed."))
        print(*results[-1].lines(), sep="\n", flush=True)
    return tuple(results)


@contextlib.contextmanager
def _kernel(job: NotebookJob) -> "Iterator[Kernel]":
    """Yield the kernel that a preview has left for the run, or a new one; close it unless this preview leaves it."""
    with contextlib.ExitStack() as stack:
        kernel = stack.enter_context(_left_kernels.pop() if _left_kernels else job.kernel())
        yield kernel
        if kernel in _left_kernels:
            stack.pop_all()


def _calling_run() -> tuple[str | None, Path, bool]:
    """Return the record ID and the folder of the notebook running in this process.

    The third value is True if it is the preview with which a run on the same kernel compares the plan that was shown.
    """
    if folder := os.environ.get("RUNBOOK_RECORD"):
        predicate = run_file.read(Path(folder))
        return predicate["id"], Path(predicate["launcher"]["folder"]), predicate["parent"] is not None
    return None, Path.cwd(), False


def _print_indented(_name: str, text: str) -> None:
    sys.stdout.write(textwrap.indent(text, "    "))
    sys.stdout.flush()


def conclude(step: StepRecord, results: Sequence[StepResult], additions: Sequence[Mapping[str, Any]] = ()) -> None:
    """Derive a notebook's outcome from the notebooks that it ran, and add it to its record.

    If a notebook ran in several rounds, its last result counts.  ``additions`` are the actions of apply after the
    notebooks' plans, in the form of ``StepRecord.would``.
    """
    results = tuple({result.notebook: result for result in results}.values())
    planned: dict[str, Mapping[str, Any]] = {}
    for result in results:
        step.check(Check(result.notebook, _status(result), result.summary))
        for name, url in result.links.items():
            step.link(name, url)
        for decision in result.decisions:
            step.decide(**decision)
    if warned := [result.notebook for result in results if result.warnings]:
        step.warn(f"Read the warnings of {', '.join(warned)}.")
    for effect in itertools.chain(*(result.planned for result in results), additions):
        planned[str(effect["sentence"])] = effect  # once, if several notebooks would do it together
    for effect in planned.values():
        step.would(**effect)
    if not results:
        step.done(
            "No step was run: steps need a tag, and run only headlessly (with Apply in the form, or papermill).",
            next=command(step.name, step.bump, tag="26.04-py3"),
        )
        return
    last = results[-1]
    waiting = next((result for result in results if result.state == "waiting"), None)
    is_preview = bool(planned) and not step.bump.apply
    if waiting is not None:
        sentence, action = f"{waiting.notebook}: {waiting.summary}", waiting.next
        if is_preview:
            sentence = f"Preview: would {'; '.join(planned)}. Now {sentence}"
            action = f"Run it: {command(step.name, step.bump, mode='publish')}"
        step.waiting(sentence, action)
    elif all(result.state == "previewed" for result in results):
        plan = f"nothing to change; apply checks whether the bump is ready to merge. {last.summary}"
        if planned:
            plan = f"would {'; '.join(planned)}."
        step.done(f"Preview: {plan}", f"Run it: {command(step.name, step.bump, mode='publish')}")
    else:
        step.done(last.summary, last.next)


def table(results: Sequence[StepResult]) -> "View":
    """Return a view of the notebooks and their results."""
    from runbook_lib import display

    return display.table(
        {
            "step": result.notebook,
            "outcome": display.mark(result.state, result.warnings),
            "result": result.summary,
            "next": result.next,
            "links": " ".join(result.links.values()),
        }
        for result in results
    )


def _status(result: StepResult) -> Status:
    if result.state == "done":
        return "passed"
    if result.state == "waiting":
        return "waiting"
    return "skipped" if result.ok or result.record is None else "failed"
