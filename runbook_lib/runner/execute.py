"""Headless execution of a notebook, and the record of the run."""

import contextlib
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.record import archive, journal
from runbook_lib.record.journal import CELL_REFERENCE
from runbook_lib.record.run_file import EXECUTED, State
from runbook_lib.records import run_view
from runbook_lib.records.status import RERUN
from runbook_lib.runner import notification
from runbook_lib.runner.job import NotebookJob
from runbook_lib.system import notify, startup
from runbook_lib.system.files import make_folder
from runbook_lib.text.notebook_file import NotebookSource
from runbook_lib.text.redact import Redactor

if TYPE_CHECKING:
    from runbook_lib.runner.kernel import Kernel

startup.skip_notebook_formats()

#: Seconds that a notebook may take to end by itself after an interrupt.
GRACE = 10.0

#: Receives the stream's name (stdout, stderr) and the text that cells print.
OnOutput = Callable[[str, str], None]


@dataclass(frozen=True)
class StepResult:
    """The result of a notebook's run.

    ``state`` is the record's, or ``not run`` after an earlier step has failed.  ``planned`` and ``decisions`` are in
    the form of ``StepRecord.would`` and ``StepRecord.decide``.
    """

    notebook: str
    state: State | str
    summary: str
    next: str = ""
    record: Path | None = None
    links: dict[str, str] = field(default_factory=dict)
    #: True if it started a round of CI by a push or by rerunning tests.
    started_ci: bool = False
    planned: tuple[dict[str, Any], ...] = ()
    decisions: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True unless the run failed; a waiting run has not failed."""
        return self.state in ("done", "waiting", "previewed")

    def lines(self) -> list[str]:
        """Return the result in one line, and a line for each warning."""
        from runbook_lib.display import WARNING, mark

        result = f"{mark(self.state, self.warnings)}  {self.notebook}: {' '.join(self.summary.split())}"
        return [result, *(f"    {WARNING} {' '.join(warning.split())}" for warning in self.warnings)]


@dataclass(frozen=True)
class _Ending:
    """The end of a run, according to its cells; with the state ``done`` the notebook provides both texts."""

    state: State
    sentence: str = ""
    error: Mapping[str, Any] | None = None


def execute(
    notebook: Path,
    parameters: Mapping[str, Any],
    output: Path | None = None,
    *,
    cell_timeout: float | None = None,
    on_output: OnOutput = lambda _name, _text: None,
    cwd: Path | None = None,
    start_timeout: int | None = None,
    hide_code: bool = False,
    shown: str = "",
) -> StepResult:
    """Run a notebook on its own kernel, with a record, and copy the executed notebook to ``output``.

    ``shown`` is the fingerprint of the plan that a person has seen (``RunView.fingerprint``): the notebook runs only if
    a preview, made while no other run can apply, still has that plan.  ``cell_timeout`` is in seconds per cell.
    ``on_output`` is called on another thread.  Raises BadParameter, before anything runs, for parameters that the
    notebook does not take, and RunbookError if the record cannot be written.  A failed notebook is a result, not an
    error.  Ctrl-C closes the record as interrupted and is raised again.
    """
    job = NotebookJob.prepare(
        NotebookSource.read(notebook.absolute()),
        parameters,
        cwd=cwd,
        limit=cell_timeout,
        outputs=(output,) if output else (),
        hide_code=hide_code,
    )
    for path in job.outputs:
        make_folder(path.parent)
    with contextlib.ExitStack() as stack:
        kernel = stack.enter_context(job.kernel(start_timeout))
        world = stack.enter_context(job.world())
        stack.enter_context(job.exclusive(world, lambda text: on_output("stderr", text)))
        if cell_timeout:
            world["RUNBOOK_CELL_LIMIT"] = str(cell_timeout)

        def require_shown_plan(record_id: str) -> None:
            on_output("stderr", "Computing the plan again: it must be the one that was shown.\n")
            values = dict(parameters) | {"mode": "preview"}
            preview = NotebookJob.prepare(job.source, values, cwd=cwd, limit=cell_timeout, parent=record_id)
            _require_plan(run_job(preview, kernel, world, lambda _name, _text: None), shown)

        before = require_shown_plan if shown else None
        return run_job(job, kernel, world, on_output, close_kernel=True, before=before)


def _require_plan(preview: StepResult, shown: str) -> None:
    if not preview.ok or preview.record is None:
        raise RunbookError(preview.summary)
    run = run_view.find_run(preview.record.parent, record=preview.record.name)
    if run is None or run.fingerprint != shown:
        raise Refused(
            "The plan has changed since it was shown, because the checkout, its remote or CI has changed. "
            "Nothing was done. Preview again."
        )


def run_job(
    job: NotebookJob,
    kernel: "Kernel",
    world: Mapping[str, str],
    on_output: OnOutput,
    *,
    grace: float = GRACE,
    close_kernel: bool = False,
    before: Callable[[str], None] | None = None,
) -> StepResult:
    """Open a record, run the notebook on this kernel, and close the record.

    ``before`` is called with the record's ID before the notebook runs, and can prevent that by raising RunbookError.
    The kernel is closed before the record if the run does not succeed, or with ``close_kernel``.
    """
    env = {**os.environ, **world}
    redactor = Redactor(env)
    folder = job.begin_record(env)
    interruption: KeyboardInterrupt | None = None
    try:
        if before is not None:
            before(folder.name)
        ending = _run_cells(job, kernel, {**world, "RUNBOOK_RECORD": str(folder)}, redactor, on_output, grace)
    except KeyboardInterrupt as error:
        interruption = error
        ending = _Ending("interrupted", "The run was cancelled.")
        with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C ends the wait
            kernel.interrupt(grace)
    except RunbookError as failure:
        ending = _Ending("failed", str(failure), {"cell": None, "name": type(failure).__name__})
    if close_kernel or ending.state != "done":
        kernel.close()  # nothing may be written to a closed record
    result = _close_record(job, folder, ending, redactor)
    if interruption is not None:
        raise interruption
    return result


def _run_cells(
    job: NotebookJob,
    kernel: "Kernel",
    env: Mapping[str, str],
    redactor: Redactor,
    on_output: OnOutput,
    grace: float,
) -> _Ending:
    from runbook_lib.runner import notebook as executed
    from runbook_lib.runner.kernel import CellFailed, CellTooSlow, KernelDied

    name = job.source.name
    notebook = executed.prepared(job.source, job.injected, hide_code=job.hide_code)
    save = executed.saver([Path(env["RUNBOOK_RECORD"]) / EXECUTED, *job.outputs], redactor)
    save(notebook)
    try:
        kernel.begin(env, job.cwd)
        startup.preload("nbconvert.exporters.templateexporter", "nh3")
        kernel.run(notebook, limit=job.limit, on_output=on_output, cell_done=save)
    except CellFailed as failure:
        return _failure(name, failure)
    except CellTooSlow as slow:
        kernel.interrupt(grace)  # so that the cell's child processes end too
        sentence = (
            f"Cell {slow.count} of {name} did not finish within {_period(job.limit)} and was stopped. If it needs more "
            f"time, raise the limit: --execution-timeout SECONDS. {RERUN}"
        )
        return _Ending("failed", sentence, {"cell": slow.count, "name": "TimeoutError", "message": sentence})
    except KernelDied as death:
        stderr = f" Its last output: {death.last_words}" if death.last_words else ""
        sentence = f"The kernel that ran {name} died: it was killed or ran out of memory.{stderr} {RERUN}"
        return _Ending("interrupted", sentence, {"cell": None, "name": "KernelDied", "message": death.last_words})
    return _Ending("done")


def _failure(name: str, failure: Any) -> _Ending:
    """Return the ending of a run with a failed cell."""
    error = {"cell": failure.count, "name": failure.name, "message": failure.message}
    cell = f"{name}, cell {failure.count}"
    if failure.name == "KeyboardInterrupt":  # somebody interrupted the kernel itself
        return _Ending("interrupted", f"The run was cancelled ({cell}).", error)
    if failure.is_runbook_error and CELL_REFERENCE.search(failure.message):
        return _Ending("failed", failure.message, error)
    if failure.is_runbook_error:
        return _Ending("failed", f"{failure.message} ({cell})", error)
    last_line = failure.message.strip().rpartition("\n")[2]
    return _Ending("failed", f"{cell} raised {failure.name}: {last_line}. The traceback is in the record.", error)


def _period(seconds: float) -> str:
    if seconds >= 120:
        return f"{math.ceil(seconds) / 60:.0f} minutes"
    return f"{math.ceil(seconds)} second{'s' * (math.ceil(seconds) != 1)}"


def _close_record(job: NotebookJob, folder: Path, ending: _Ending, redactor: Redactor) -> StepResult:
    state, sentence = ending.state, redactor.text(ending.sentence)
    if state == "done":
        state = journal.collect(journal.lines(folder)).state
    final = archive.close(folder, state, sentence, error=ending.error)
    archive.commit(folder)
    archive.close_dead(folder.parent)  # the records of steps whose kernel was closed with this one
    if job.parent is None and os.environ.get(notify.VARIABLE) and (warning := notification.after_run(folder)):
        print(warning, file=sys.stderr)
    outcome = final["outcome"]
    return StepResult(
        notebook=job.source.name,
        state=final["state"],
        summary=outcome["sentence"],
        next=outcome["next"],
        record=folder,
        links=final["links"],
        started_ci=any(effect["effect"] in ("push", "rerun") for effect in final["effects"]),
        planned=tuple(final["planned"]),
        decisions=tuple(final["decisions"]),
        warnings=tuple(final["warnings"]),
    )
