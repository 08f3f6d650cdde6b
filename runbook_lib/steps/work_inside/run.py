"""A task run inside the image on request, verified by reading the checkout again, and recorded."""

from pathlib import Path
from tempfile import TemporaryDirectory

from runbook_lib import display
from runbook_lib.bump import Bump
from runbook_lib.checks import Check
from runbook_lib.containers.work import pyproject, run
from runbook_lib.containers.work.project_state import LOCK, read_project_state
from runbook_lib.containers.work.tasks import TASKS
from runbook_lib.display import View
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner import command_line
from runbook_lib.steps.work_inside.task import WorkTask

NOTEBOOK = "work-inside"
LOG = "work-inside.log"


def carry_out(step: StepRecord, task: WorkTask, checkout: Checkout, bump: Bump) -> run.WorkResult | None:
    """With ``apply`` and a tag, run the commands that need no terminal, stopping at a failure; else return None.

    ``verify`` reports a failure after recording everything.  Raises Refused if the commands cannot be run from here.
    """
    if not bump.apply or bump.tag is None or not task.runnable:
        return None
    if task.obstacle:
        raise Refused(f"Nothing was run. {task.obstacle} Copy the commands shown above.")
    checkout.require_work_tree()
    with TemporaryDirectory(prefix="runbook-") as folder:
        result = run.run(task.runnable, checkout.path, Path(step.folder or folder) / LOG)
    for path, blob in result.saved:
        step.effect("kept", path, f"git blob {blob}", "")
    for command in result.commands:
        step.effect("command", command.step.title, "", command.line)
    return result


def verify(step: StepRecord, task: WorkTask, checkout: Checkout, bump: Bump, result: run.WorkResult | None) -> View:
    """Read the checkout again, and record what was done and what is left for the user to do."""
    step.add_inputs(task=task.request.task, where=task.target.name, image=task.target.container.image.name)
    step.warn(*task.plan.warnings)
    step.table("steps", display.rows(task.commands, step="step.title", command="line", why="step.reason"))
    if task.plan.no_change:
        step.done(f"Nothing to do: {task.plan.no_change}")
    elif result is None:
        _record_preview(step, task, bump)
    elif result.failure is not None:
        step.check(Check.of("every step succeeded", False, result.failure.message))
        title = f"The last lines of “{result.failure.command.step.title}”"
        lines = display.code("\n".join(result.failure.lines), title=title)
        return display.note(result.failure.message) + lines
    else:
        step.check(Check.of("every step succeeded", True, f"{display.count(len(result.commands), 'step')}."))
        step.check(*_checks(task, checkout, bump))
        step.done(f"Done: {TASKS[task.request.task]}.", _next_action(task))
    return display.note("The checks are in the record below.")


def _record_preview(step: StepRecord, task: WorkTask, bump: Bump) -> None:
    step.check(Check("every step succeeded", "skipped", "This is a preview, or every step needs a terminal."))
    description = TASKS[task.request.task]
    if task.obstacle or not task.runnable:
        summary = f"Shown: {description}. {task.obstacle}".strip()
        step.done(summary, "" if task.runnable else _next_action(task))
        return
    for command in task.runnable:
        title = command.step.title
        step.would(f"{title[:1].lower()}{title[1:]}: {command.line}")
    tag, name = str(bump.tag or "TAG"), task.request.task
    apply_command = command_line.command(NOTEBOOK, bump, tag=tag, task=name, apply=True)
    step.done(f"Preview: {description}, in {display.count(len(task.runnable), 'step')}.", apply_command)


def _next_action(task: WorkTask) -> str:
    checkout = task.target.container.checkout
    in_terminal = (command for command in task.commands if command.step.terminal)
    actions = [f"In a terminal, in {checkout}: {command.line}" for command in in_terminal]
    return " ".join(filter(None, [*actions, task.plan.next_action]))


def _checks(task: WorkTask, checkout: Checkout, bump: Bump) -> list[Check]:
    """Return checks of the task's effect on the checkout."""
    name = task.request.task
    if name == "import":
        return [Check.of("the image's file exists", Path(task.created_file).is_file(), task.created_file)]
    if name not in ("add", "lock", "conflict"):
        return []
    try:
        state = read_project_state(checkout, bump.repository.name, bump.base)
    except RunbookError as error:
        return [Check.of("pyproject.toml can be read", False, str(error))]
    intact = state.has_lock and not state.lock_in_conflict
    checks = [Check.of(f"{LOCK} exists without a conflict", intact, f"{LOCK} was read again.")]
    if name == "add":
        package = pyproject.parse_requirement(task.request.package).name
        places = ", ".join(state.project.where(package))
        uncommitted = ", ".join(sorted(state.uncommitted))
        checks.append(Check.of("the package is listed", bool(places), f"{package}: {places or 'nowhere'}."))
        checks.append(Check.of("both files are committed", not uncommitted, uncommitted or "They are."))
    return checks
