"""Runs the notebooks headlessly, and owns the records of their runs."""

import contextlib
import math
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runbook_lib.checks import Check, Status
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.records import archive, run_view, step_record
from runbook_lib.records.chain import Ledger, read_predicate
from runbook_lib.records.statement import CELL_REFERENCE, EXECUTED, Identity, State, collect
from runbook_lib.runner import command_line
from runbook_lib.runner.job import Job
from runbook_lib.runner.parameters import BadParameter, Source
from runbook_lib.system.atomic_files import make_folder
from runbook_lib.text.redact import Redactor

if TYPE_CHECKING:
    from runbook_lib.display import View
    from runbook_lib.runner.kernel import Kernel

# jsonschema, which validates notebooks, checks these formats if it can: the first takes it nearly two seconds to load,
# and the second imports arrow.  No notebook contains an address or a duration.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
sys.modules.setdefault("isoduration", None)  # type: ignore[arg-type]

#: Seconds for a notebook to end by itself after an interruption; the one that runs steps waits for its steps in turn.
_GRACE, _GRACE_OF_STEPS = 10.0, 5.0
#: So many rounds of CI are gone through in one run: each answers something new, or is the last.
ROUNDS = 8

Hear = Callable[[str, str], None]


@dataclass(frozen=True)
class StepResult:
    """How a notebook's run ended.  ``state`` is a record's, or ``not run`` for one that a failure before it stopped."""

    notebook: str
    state: State | str
    summary: str
    next: str = ""
    record: Path | None = None
    links: dict[str, str] = field(default_factory=dict)
    #: Whether it began another round of CI, by a push or by running tests again.
    begun: bool = False
    #: What a preview would do, and what only a person can decide, as ``StepRecord`` takes them.
    planned: tuple[dict[str, Any], ...] = ()
    decisions: tuple[dict[str, str], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the run ended well, which includes that it waits for something."""
        return self.state in ("done", "waiting", "previewed")

    @property
    def line(self) -> str:
        """The result in one line."""
        from runbook_lib.display import MARKS

        return f"{MARKS[self.state]}  {self.notebook}: {' '.join(self.summary.split())}"


def execute(
    notebook: Path,
    parameters: Mapping[str, Any],
    output: Path | None = None,
    *,
    cell_timeout: float | None = None,
    parent: str | None = None,
    heard: Hear | None = None,
    cwd: Path | None = None,
    start_timeout: int | None = None,
    hide_code: bool = False,
    shown: str = "",
) -> StepResult:
    """Run one notebook on a kernel of its own, with a record.  ``output`` gets the executed notebook too.

    ``shown`` is the fingerprint of the plan that a person was shown (``follow.Run.fingerprint``): nothing is applied
    unless a preview, made once nobody else can apply, still has that plan.  ``cell_timeout`` is in seconds a cell.
    ``heard`` gets the name and the text of what cells print, from another thread.  Raises BadParameter, before anything
    runs, for parameters that the notebook does not take, and RunbookError when the record cannot be kept.  A notebook
    that fails is a result, not an error; Ctrl-C closes the record as cancelled and is raised again.
    """
    job = Job.prepare(
        Source.read(notebook.absolute()),
        parameters,
        cwd=cwd,
        limit=cell_timeout,
        parent=parent,
        outputs=(output,) if output else (),
        hide_code=hide_code,
    )
    for path in job.outputs:
        make_folder(path.parent)
    with contextlib.ExitStack() as stack:
        kernel = stack.enter_context(job.kernel(start_timeout))
        world = stack.enter_context(job.world())
        hear = heard or _nobody
        stack.enter_context(job.alone(world, lambda text: hear("stderr", text)))
        if cell_timeout:
            world["RUNBOOK_CELL_LIMIT"] = str(cell_timeout)

        def hold(record_id: str) -> None:
            preview = dict(parameters) | {name: False for name in ("apply", "publish") if name in job.resolved}
            again = Job.prepare(job.source, preview, cwd=cwd, limit=cell_timeout, parent=record_id)
            _require_same(_perform(again, kernel, world, hear, grace=_GRACE), shown)

        return _perform(job, kernel, world, hear, grace=_GRACE, last=True, first=hold if shown else None)


def steps(names: Sequence[str], /, *, again: Sequence[str] = (), **parameters: Any) -> tuple[StepResult, ...]:
    """Run these notebooks, one after the other, on one more kernel; each gets the parameters that it declares.

    A step that fails stops the rest.  Those of ``again`` stand together, and are run once more whenever one of them has
    begun another round of CI.  Prints what they print, indented, and a line as each ends.
    Called by a notebook, whose run is their parent.
    """
    parent, folder = _caller()
    sources = [Source.read(folder / (name if name.endswith(".ipynb") else f"{name}.ipynb")) for name in names]
    declared = {parameter.name for source in sources for parameter in source.parameters}
    if unknown := sorted(parameters.keys() - declared):
        raise BadParameter(f"None of the steps has a parameter {', '.join(unknown)}. Nothing was run.")
    jobs = []
    for source in sources:
        takes = {parameter.name for parameter in source.parameters}
        given = {name: value for name, value in parameters.items() if name in takes}
        jobs.append(Job.prepare(source, given, cwd=folder, parent=parent))
    results: list[StepResult] = []
    with contextlib.ExitStack() as stack:
        kernel = stack.enter_context(jobs[0].kernel())
        world = stack.enter_context(jobs[0].world())
        queue, rounds = list(jobs), 1
        while queue and (not results or results[-1].ok):
            job = queue.pop(0)
            results.append(_perform(job, kernel, world, _indented, grace=_GRACE_OF_STEPS))
            print(results[-1].line, flush=True)
            round_ended = job.source.name == (again or ("",))[-1]
            if round_ended and rounds < ROUNDS and any(it.begun for it in results[-len(again) :]):
                # A run that a person named belongs to the round that has just ended.
                queue[:0] = [it.without("run_id") for it in jobs if it.source.name in again]
                rounds += 1
    for job in queue:
        results.append(StepResult(job.source.name, "not run", "A step before it did not end well."))
        print(results[-1].line, flush=True)
    return tuple(results)


def conclude(
    step: step_record.StepRecord, results: Sequence[StepResult], following: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Take the outcome of a notebook from the steps that it ran: what the first unfinished one waits for, or done.

    Of a notebook that ran in several rounds the last one counts.  ``following`` is what a preview would do after all
    that its steps plan, in the same form.
    """
    results = tuple({result.notebook: result for result in results}.values())
    for result in results:
        step.check(Check(result.notebook, _status(result), result.summary))
        for name, url in result.links.items():
            step.link(name, url)
        for decision in result.decisions:
            step.decide(**decision)
    # What two steps do together each of them announces.
    planned = {str(it["sentence"]): it for it in (*(it for result in results for it in result.planned), *following)}
    for it in planned.values():
        step.would(**it)
    if not results:
        step.done(
            "No step was run: they need a tag, and run headlessly (by Apply in the form, or papermill).",
            next=command_line.command(step.name, step.bump, tag="26.04-py3"),
        )
    waiting = next((result for result in results if result.state == "waiting"), None)
    if waiting is not None:
        step.waiting(f"{waiting.notebook}: {waiting.summary}", waiting.next)
    elif all(result.state == "previewed" for result in results) and results:
        step.done(
            f"Preview: would {'; '.join(planned)}." if planned else f"Preview: nothing to do. {results[-1].summary}",
            _applied(step),
        )
    elif results:
        step.done(results[-1].summary, results[-1].next)


def _applied(step: step_record.StepRecord) -> str:
    """How to do what a preview has shown; bump applies unless it is told not to."""
    return f"Run it without -p apply False: {command_line.command(step.name, step.bump, apply=True)}"


def table(results: Sequence[StepResult]) -> "View":
    """The steps with their outcome, to look at."""
    from runbook_lib import display

    return display.table(
        {
            "step": result.notebook,
            "outcome": display.MARKS[result.state],
            "found": result.summary,
            "next": result.next,
            "links": " ".join(result.links.values()),
        }
        for result in results
    )


def papermill(argv: Sequence[str] | None = None) -> int:
    """The environment's ``papermill`` command: papermill's own, which runs our notebooks through ``execute``."""
    from runbook_lib.runner.papermill import main

    return main(sys.argv[1:] if argv is None else list(argv))


def _status(result: StepResult) -> Status:
    if result.state in ("done", "waiting"):
        return "passed" if result.state == "done" else "waiting"
    return "skipped" if result.ok or result.record is None else "failed"


def _caller() -> tuple[str | None, Path]:
    """Record and folder of the notebook that runs in this process."""
    if folder := os.environ.get("RUNBOOK_RECORD"):
        predicate = read_predicate(Path(folder))
        return predicate["id"], Path(predicate["launcher"]["folder"])
    return None, Path.cwd()


def _require_same(now: StepResult, shown: str) -> None:
    if not now.ok or now.record is None:
        raise RunbookError(now.summary)
    preview = run_view.find_run(now.record.parent, record=now.record.name)
    if preview is None or preview.fingerprint != shown:
        raise Refused(
            "What Apply would do is not what was shown any more: the checkout, its remote or CI has changed since. "
            "Nothing was done. Preview again."
        )


def _nobody(_name: str, _text: str) -> None:
    """Hears nothing: what cells print is in the record."""


def _indented(_name: str, text: str) -> None:
    sys.stdout.write(textwrap.indent(text, "    "))
    sys.stdout.flush()


def _perform(
    job: Job,
    kernel: "Kernel",
    world: Mapping[str, str],
    heard: Hear,
    *,
    grace: float,
    last: bool = False,
    first: Callable[[str], None] | None = None,
) -> StepResult:
    """Run the notebook and keep its record; ``last`` ends the kernel before that is closed, as any bad end does.

    ``first`` is called with the record's id before the notebook is run, and may refuse that.
    """
    env = {**os.environ, **world}
    redactor = Redactor(env)
    # Its names are those of the archive's folders too.
    identity = Identity.from_json(redactor.data(job.identity(env).as_json()))
    predicate = redactor.data(job.opening(identity, env))
    with Ledger.locked(job.audit.joinpath(*identity.parts)) as ledger:
        archive.close_dead(ledger)
        folder = ledger.open(predicate["id"], predicate)
    interrupted: KeyboardInterrupt | None = None
    try:
        if first is not None:
            first(folder.name)
        seen = {**world, "RUNBOOK_RECORD": str(folder)}
        state, sentence, error = _run_cells(job, kernel, seen, redactor, heard, grace)
    except KeyboardInterrupt as interruption:
        interrupted, state, sentence, error = interruption, "cancelled", "The run was cancelled.", None
        with contextlib.suppress(KeyboardInterrupt):  # a second time: then without waiting
            kernel.interrupt(grace)
    except RunbookError as failure:
        state, sentence, error = "failed", str(failure), {"cell": None, "name": type(failure).__name__}
    if last or state != "done":
        kernel.close()  # nothing is written to a closed record
    result = _close(job, folder, predicate, (state, redactor.text(sentence), redactor.data(error)))
    if interrupted is not None:
        raise interrupted
    return result


def _run_cells(
    job: Job, kernel: "Kernel", env: Mapping[str, str], redactor: Redactor, heard: Hear, grace: float
) -> tuple[State, str, dict[str, Any] | None]:
    """State, sentence and error as the run decides them; ``done`` leaves both to the notebook."""
    from runbook_lib.runner import notebook as executed
    from runbook_lib.runner.kernel import CellFailed, CellTooSlow, KernelDied

    name = job.source.name
    notebook = executed.prepared(job.source, job.injected, hide_code=job.hide_code)
    save = executed.saver([Path(env["RUNBOOK_RECORD"]) / EXECUTED, *job.outputs], redactor)
    save(notebook)
    try:
        kernel.begin(env, job.cwd)
        kernel.run(notebook, limit=job.limit, heard=heard, cell_done=save)
    except CellFailed as failure:
        fault = {"cell": failure.count, "name": failure.name, "message": failure.message}
        where = f"{name}, cell {failure.count}"
        if failure.name == "KeyboardInterrupt":  # somebody has interrupted the kernel itself
            return "cancelled", f"The run was cancelled ({where}).", fault
        if failure.told:
            told = failure.message if CELL_REFERENCE.search(failure.message) else f"{failure.message} ({where})"
            return "failed", told, fault
        last = failure.message.strip().splitlines()[-1:] or [""]
        return "failed", f"{where} raised {failure.name}: {last[0]}. The traceback is in the record.", fault
    except CellTooSlow as slow:
        kernel.interrupt(grace)  # what the cell has started ends with it
        seconds = math.ceil(job.limit)
        limit = f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds} second{'s' * (seconds != 1)}"
        sentence = (
            f"Cell {slow.count} of {name} did not end within {limit} and was stopped. If it only needs longer, give a "
            "longer limit: --execution-timeout SECONDS. Run the same command again: what was done is found and kept."
        )
        return "failed", sentence, {"cell": slow.count, "name": "TimeoutError", "message": sentence}
    except KernelDied as death:
        words = f" Its last words: {death.last_words}" if death.last_words else ""
        sentence = (
            f"The kernel that ran {name} died: it was killed, or memory ran out.{words} "
            "Run the same command again: what was done is found and kept."
        )
        return "killed", sentence, {"cell": None, "name": "KernelDied", "message": death.last_words}
    return "done", "", None


def _close(
    job: Job, folder: Path, predicate: Mapping[str, Any], ending: tuple[State, str, dict[str, Any] | None]
) -> StepResult:
    from runbook_lib.records.pages.run import write_report

    state, sentence, error = ending
    contributed = collect(step_record.contributions(folder))
    if state == "done":
        state = contributed.state
        if state == "incomplete":
            sentence = f"{job.source.name} ended without saying what it did: it never called context.open_record."
    final = archive.final_predicate(predicate, contributed, state, sentence, error=error)
    write_report(folder, final)
    with Ledger.locked(folder.parent) as ledger:
        archive.close_dead(ledger)  # steps whose kernel was ended with this one's
        ledger.close(folder.name, final)
    if job.parent is None:
        from runbook_lib.records.pages.index import write_index

        write_index(job.audit)
    outcome = final["outcome"]
    begun = any(effect["effect"] in ("push", "rerun") for effect in final["effects"])
    return StepResult(
        job.source.name, state, outcome["sentence"], outcome["next"], folder, final["links"], begun,
        tuple(final["planned"]), tuple(final["decisions"]),
    )  # fmt: skip
