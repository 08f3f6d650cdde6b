"""Carries a task inside the image out on request, verifies it by reading the checkout again, and tells the record."""

from pathlib import Path

from runbook_lib import display
from runbook_lib.bump import Bump
from runbook_lib.checks import Check
from runbook_lib.containers.work import inspect, pyproject, run
from runbook_lib.containers.work.run import Done
from runbook_lib.containers.work.task import TASKS
from runbook_lib.containers.work.uv import LOCK
from runbook_lib.display import View
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.records.step_record import Step
from runbook_lib.runner import command_line
from runbook_lib.steps.work_inside.task import Task
from runbook_lib.system.temporary import TemporaryFolder

NOTEBOOK = "work-inside"
LOG = "work-inside.log"


def carry_out(step: Step, task: Task, checkout: Checkout, bump: Bump) -> Done | None:
    """With ``apply`` and a tag run the commands that need no terminal, up to the first that fails; else nothing.

    A failure is told by ``verify``, after all is recorded.  Raises Refused where they cannot be run from here.
    """
    if not bump.apply or bump.tag is None or not task.runnable:
        return None
    if task.lacking:
        raise Refused(f"Nothing was run. {task.lacking} They are shown above, to copy.")
    checkout.require_work_tree()
    if step.folder is not None:
        done = run.run(task.runnable, checkout.path, step.folder / LOG)
    else:
        with TemporaryFolder() as folder:
            done = run.run(task.runnable, checkout.path, folder / LOG)
    for path, blob in done.kept:
        step.effect("kept", path, f"git blob {blob}", "")
    for command in done.commands:
        step.effect("command", command.step.title, "", command.line)
    return done


def verify(step: Step, task: Task, checkout: Checkout, bump: Bump, done: Done | None) -> View:
    """Read the checkout again, and tell the record what was done and what is left to a person."""
    step.given(task=task.wish.task, where=task.place.name, image=task.place.container.image.name)
    step.warn(*task.work.warnings)
    step.table("steps", [{"step": it.step.title, "command": it.line, "why": it.step.why} for it in task.commands])
    what = TASKS[task.wish.task]
    if task.work.idle:
        step.done(f"Nothing to do: {task.work.idle}")
    elif done is None:
        _previewed(step, task, bump, what)
    else:
        step.check(Check.of("every step ended well", done.failure is None, _told(done)))
        if done.failure is None:
            step.check(*_checks(task, checkout, bump))
            step.done(f"Done: {what}.", _next(task))
    if done is not None and done.failure is not None:
        lines = display.code(
            "\n".join(done.failure.lines), title=f"The last lines of “{done.failure.command.step.title}”"
        )
        return display.note(done.failure.sentence) + lines
    return display.note("The checks are in the record below.")


def _previewed(step: Step, task: Task, bump: Bump, what: str) -> None:
    step.check(Check("every step ended well", "skipped", "This is a preview, or all of it needs a terminal."))
    for command in task.runnable if not task.lacking else ():
        step.would(f"{_small(command.step.title)}: {command.line}")
    if not task.runnable:
        step.done(f"Shown: {what}. {task.lacking}".strip(), _next(task))
    elif task.lacking:
        step.done(f"Shown: {what}. {task.lacking}")
    else:
        tag = str(bump.tag) if bump.tag else "TAG"
        how = command_line.command(NOTEBOOK, bump, tag=tag, task=task.wish.task, apply=True)
        step.done(f"Preview: {what}, in {display.count(len(task.runnable), 'step')}.", how)


def _next(task: Task) -> str:
    pasted = [f"In a terminal, in {task.place.container.checkout}: {it.line}" for it in task.shown_only]
    return " ".join([*pasted, *([task.work.after] * bool(task.work.after))])


def _told(done: Done) -> str:
    return done.failure.sentence if done.failure else f"{display.count(len(done.commands), 'step')}."


def _checks(task: Task, checkout: Checkout, bump: Bump) -> list[Check]:
    """What the task was to bring about, read again."""
    wish = task.wish
    if wish.task == "import":
        return [Check.of("the image's file is there", Path(task.made).is_file(), task.made)]
    if wish.task not in ("add", "lock", "conflict"):
        return []
    try:
        tree = inspect.tree(checkout, bump.repository.name, bump.base)
    except RunbookError as error:
        return [Check.of("pyproject.toml can be read", False, str(error))]
    whole = not tree.marks and LOCK not in tree.unmerged
    checks = [
        Check.of("uv.lock is whole", tree.lock and whole, "It has no conflict." if whole else "It is in conflict.")
    ]
    if wish.task == "add":
        name = pyproject.package_name(wish.package)
        where = ", ".join(tree.project.where(name))
        checks.append(Check.of("the package is listed", bool(where), f"{name}: {where or 'nowhere'}."))
        clean = not tree.changed
        checks.append(Check.of("both files are committed", clean, ", ".join(sorted(tree.changed)) or "They are."))
    return checks


def _small(title: str) -> str:
    return title[:1].lower() + title[1:]
