"""Notebook work-inside: a task inside the image, with its commands for a checkout on this machine."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib.checks import Evidence, Next
from runbook_lib.compute import known_builds, smoke
from runbook_lib.compute.conditions import CommandRun
from runbook_lib.compute.slurm import site_file
from runbook_lib.compute.slurm.site import Session
from runbook_lib.compute.work import any_command, unit_tests, uv
from runbook_lib.compute.work.container import WorkContainer
from runbook_lib.compute.work.image import WorkImage
from runbook_lib.compute.work.image_file import image_id, plan_image_file
from runbook_lib.compute.work.machine import Machine, detect_machine, missing_prerequisite
from runbook_lib.compute.work.project_state import ProjectState, read_project_state
from runbook_lib.compute.work.run import StepCommand
from runbook_lib.compute.work.target import TargetName, WorkTarget, choose_target, require_container, unavailability
from runbook_lib.compute.work.tasks import TASKS, WorkStep, make_step, wrap_command
from runbook_lib.display import View, code, note, notes, rows, table
from runbook_lib.display import facts as show_facts
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.model import Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import Repository
from runbook_lib.recipes import workloads
from runbook_lib.world.outside import World

NOTEBOOK = "work-inside"
#: The tasks that take arguments.
_WITH_ARGUMENTS = ("session", "run", "tests", "install", "add")
LOG = "work-inside.log"


@dataclass(frozen=True)
class WorkFacts:
    """The task's place and commands.  ``obstacle``: why they cannot be run from here."""

    target: WorkTarget
    plan: uv.WorkPlan
    commands: tuple[StepCommand, ...]
    obstacle: str = ""

    @property
    def runnable(self) -> tuple[StepCommand, ...]:
        """The commands that need no terminal."""
        return tuple(command for command in self.commands if not command.step.terminal)

    @property
    def next(self) -> str:
        """What is left for the user: the commands that need a terminal, and the task's own advice."""
        checkout = self.target.container.checkout
        in_terminal = (command for command in self.commands if command.step.terminal)
        actions = [f"In a terminal, in {checkout}: {command.line}" for command in in_terminal]
        return " ".join(filter(None, [*actions, self.plan.next_action]))

    def show(self) -> View:
        """Return each step with its place and reason, and all commands, ready to copy."""
        if self.plan.no_change:
            return note(self.plan.no_change)
        rows = []
        for number, step in enumerate((command.step for command in self.commands), 1):
            place = self.target.describe_place(step)
            rows.append({"step": f"{number}. {step.title}", "where": place, "why": step.reason})
        container = self.target.container
        lines = "\n".join(wrap_command(command.words) for command in self.commands)
        shown = table(rows) + code(lines, title=f"Commands to run in {container.checkout}")
        remarks = (*container.image.warnings, *self.plan.warnings, self.plan.next_action)
        shown += notes(filter(None, remarks), title="To know")
        return shown + notes(filter(None, [self.obstacle]), title="Cannot be run from here")


@dataclass(frozen=True)
class WorkInside:
    """The step.  Its commands run in the checkout as it is: it needs the files checked out.

    ``arguments`` are those of the task, ``site`` is a file that describes the machine.
    """

    task: str = "session"
    where: str = ""
    image: str = ""
    arguments: str = ""
    site: str = ""
    machine: Machine | None = None

    def look(self, world: World, bump: Bump) -> WorkFacts:
        """Read the checkout and this machine, and return the task's commands.

        Raises RunbookError for an invalid parameter, Refused for a task that must not be run.
        """
        checkout = world.checkout
        if self.task not in TASKS:
            raise RunbookError(f"task={self.task!r} is invalid. Choose one of {', '.join(TASKS)}.")
        if self.arguments.strip() and self.task not in _WITH_ARGUMENTS:
            takers = ", ".join(_WITH_ARGUMENTS)
            raise RunbookError(f"The task {self.task} takes no arguments; {takers} do. Leave arguments empty.")
        site = site_file.read(self.site, checkout.path)
        target = self._target(checkout, bump, site.session)
        built_here = target.container.image.kind == "built" and target.machine.engine is not None
        steps: tuple[WorkStep, ...] = ()
        if target.name == "slurm" and built_here and self.task != "import":
            file = plan_image_file(target)  # the cluster's nodes cannot read this machine's images
            target = replace(target, container=replace(target.container, image=WorkImage.parse(file.path)))
            steps = file.steps
        work = _import(target) if self.task == "import" else self._plan(checkout, bump, target)
        planned = []
        for step in (*steps, *work.steps) if work.steps else ():
            if step.place == "container":
                step = replace(step, env=(*step.env, *site.session.variables))
            planned.append(step)
        if any(step.place == "container" for step in planned):
            require_container(target.name, target.machine)
            if target.name in ("local", "slurm", "apptainer") and not Path(target.container.cache).is_dir():
                planned.insert(0, make_step("cache-folder", path=target.container.cache))
        commands = tuple(StepCommand(step, target.command(step)) for step in planned)
        return WorkFacts(target, work, commands, _obstacle(target, commands))

    def _target(self, checkout: Checkout, bump: Bump, session: Session) -> WorkTarget:
        repository, machine = bump.repository, self.machine or detect_machine()
        image = WorkImage.parse(self.image or default_image(repository, bump.image_type), session.region)
        name = choose_target(self.where, machine)
        cache = session.cache or _cache(name, checkout.path)
        git = "" if checkout.bare else checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir")
        container = WorkContainer.create(repository, image, str(checkout.path), cache, git=git)
        return WorkTarget(name, container, machine, repository.name, session.allocation)

    def _plan(self, checkout: Checkout, bump: Bump, target: WorkTarget) -> uv.WorkPlan:
        """Return the plan of any task but an import."""
        image, repository = target.container.image, bump.repository
        if self.task == "demo":
            if image.kind != "alibaba":
                raise RunbookError(
                    "Only Alibaba's images include a benchmark. Set image to one, such as alibaba:25.05."
                )
            return uv.WorkPlan((make_step("benchmark"),))
        if self.task == "run":
            return uv.WorkPlan((any_command.plan_command(self.arguments, target),))
        if self.task == "train":
            if not (words := smoke.sanity(repository)):
                raise RunbookError(f"The guides of {repository.name} describe no training of five iterations.")
            return uv.WorkPlan((make_step("train", words=words),))
        if self.task == "session" and not self.arguments.strip():
            return _session(target)
        if refusal := image.uv_refusal():
            raise Refused(refusal)
        state = read_project_state(checkout, repository.name, bump.base)
        if self.task == "tests":
            return uv.WorkPlan((self._tests(checkout, bump, target, state),))
        plan = _with_sync(_UV_PLANS[self.task](state, self.arguments, bump), target, checkout)
        if self.task == "session":
            plan = replace(plan, steps=(*plan.steps, make_step("shell-synced", inside=target.container.inside)))
        return plan

    def _tests(self, checkout: Checkout, bump: Bump, target: WorkTarget, state: ProjectState) -> WorkStep:
        paths = sorted(path for path in state.files if unit_tests.RECIPE.fullmatch(path))
        tests: list[workloads.Workload] = []
        for path, text in checkout.read(paths, "HEAD" if checkout.bare else None).items():
            tests += workloads.read(path, text or "")
        gpus = target.allocation.gpus
        return unit_tests.plan_tests(
            self.arguments, bump.repository.name, tests, state.files, bump.image_type, gpus
        )  # fmt: skip

    def plan(self, facts: WorkFacts, bump: Bump) -> Plan[World]:
        """Plan the commands that need no terminal, one after another."""
        name = self.task
        tasks = [{"task": task, "is": text, "chosen": task == name} for task, text in TASKS.items()]
        chosen = {"where": self.where, "image": self.image, "arguments": self.arguments, "site": self.site}
        inputs = {"task": name, "where": facts.target.name, "image": facts.target.container.image.name}
        steps = rows(facts.commands, step="step.title", command="line", why="step.reason")
        planned: Plan[World] = Plan(
            Outcome(f"Done: {TASKS[name]}.", Next(facts.next)),
            (table(tasks), show_facts(**{key: value for key, value in chosen.items() if value}), facts.show()),
            evidence=Evidence(inputs, tables={"steps": steps}, warnings=facts.plan.warnings),
            on_branch=False,
        )
        if facts.plan.no_change:
            return replace(planned, done=Outcome(f"Nothing to do: {facts.plan.no_change}"))
        if not facts.runnable or (facts.obstacle and not bump.apply):
            shown = f"Shown: {TASKS[name]}. {facts.obstacle}".strip()
            return replace(planned, done=Outcome(shown, Next() if facts.runnable else Next(facts.next)))
        if bump.tag is None:
            again = Next.again(tag="TAG", task=name, mode="publish")
            return replace(planned, done=Outcome(f"Shown: {TASKS[name]}. Without a tag nothing is run.", again))
        conditions = [CommandRun(command, LOG, facts.obstacle) for command in facts.runnable]
        return replace(planned, conditions=tuple(conditions))


def default_image(repository: Repository, image_type: str) -> str:
    """Return the name of the image that the notebook build-image builds."""
    build = known_builds.BUILDS.get(repository.name)
    name = build.name if build else repository.name.rpartition("/")[2].lower()
    return f"{name}:local-lts" if image_type == "lts" else f"{name}:local"


def _cache(target: TargetName, checkout: Path) -> str:
    """Return the host's uv cache: uv's own, or on a cluster one visible to all nodes."""
    if target == "slurm":
        return str(checkout.parent / ".uv-cache")
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return os.environ.get("UV_CACHE_DIR") or str(user_cache / "uv")


def _obstacle(target: WorkTarget, commands: tuple[StepCommand, ...]) -> str:
    image = target.container.image
    if not commands:
        return ""
    if reason := unavailability(target.name, target.machine, gpus=any(command.step.gpus for command in commands)):
        return reason
    if target.name == "local" and image.kind == "built" and not image_id(target):
        return f"{image.name} is not on this machine: build it first (build-image), or name another image."
    return missing_prerequisite(image, [command.words for command in commands])


#: The uv tasks, with the function that plans each from the state of the checkout and the task's arguments.
_UV_PLANS: Mapping[str, Callable[[ProjectState, str, Bump], uv.WorkPlan]] = {
    "session": lambda state, names, bump: uv.install(state, names, bump.image_type),
    "install": lambda state, names, bump: uv.install(state, names, bump.image_type),
    "add": lambda state, package, bump: uv.add(state, package),
    "lock": lambda state, _, bump: uv.lock(state),
    "conflict": lambda state, _, bump: uv.resolve_conflict(state),
    "mcore-dev": lambda state, _, bump: uv.switch_mcore(state, "dev"),
    "mcore-main": lambda state, _, bump: uv.switch_mcore(state, "main"),
    "hooks": lambda state, _, bump: uv.hooks(state, run=False),
    "hooks-run": lambda state, _, bump: uv.hooks(state, run=True),
    "lint": lambda state, _, bump: uv.lint(state, fix=False),
    "format": lambda state, _, bump: uv.lint(state, fix=True),
}


def _with_sync(plan: uv.WorkPlan, target: WorkTarget, checkout: Checkout) -> uv.WorkPlan:
    """Return the plan with a sync of this container's environment, or of one in the checkout, which is kept.

    Raises Refused if the cache is not on shared storage, where the lock for such a sync must be.
    """
    if plan.sync is None:
        return plan
    machine, container = target.machine, target.container
    options = ("--locked", *plan.sync) if plan.locked else plan.sync
    if target.name == "inside":
        return replace(plan, steps=(*plan.steps, make_step("sync-here", options=options)))
    if target.name == "host" and machine.slurm and machine.system == "Linux" and plan.locked:
        # git's own folder, so that the lock does not change the checkout
        lock = checkout.git("rev-parse", "--path-format=absolute", "--git-path", "uv-sync.lock")
        step = make_step("sync-host", lock=lock, options=options)
    else:
        step = make_step("sync-once", lock=container.sync_lock, options=options, inside=container.inside)
    warnings = tuple(warning for warning in plan.warnings if "/opt/venv" not in warning)
    return replace(plan, steps=(*plan.steps, step), warnings=warnings)


def _session(target: WorkTarget) -> uv.WorkPlan:
    container = target.container
    if target.name == "inside":
        sign = target.machine.container
        return uv.WorkPlan(no_change=f"This already runs inside a container ({sign}): open a terminal in JupyterLab.")
    if target.name == "slurm":
        return uv.WorkPlan((make_step("shell-slurm"),))
    return uv.WorkPlan((make_step("shell", checkout=container.checkout, inside=container.inside),))


def _import(target: WorkTarget) -> uv.WorkPlan:
    file = plan_image_file(target)
    next_action = f"Use it: image={file.path}"
    if not file.steps:
        return uv.WorkPlan(no_change=f"{file.path} already exists, made from this same image. {next_action}")
    steps, parent = file.steps, Path(file.path).parent
    if not parent.is_dir():
        steps = (make_step("image-folder", path=str(parent)), *steps)
    return uv.WorkPlan(steps, next_action=next_action)
