"""A task inside the image, described by its parameters: its commands for a checkout on this machine."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib.bump import Bump
from runbook_lib.containers import known_builds
from runbook_lib.containers.work import any_command, run, unit_tests, uv
from runbook_lib.containers.work.allocation import Allocation
from runbook_lib.containers.work.container import WorkContainer
from runbook_lib.containers.work.image import WorkImage
from runbook_lib.containers.work.image_file import image_id, plan_image_file
from runbook_lib.containers.work.machine import Machine, detect_machine, missing_prerequisite
from runbook_lib.containers.work.project_state import ProjectState, read_project_state
from runbook_lib.containers.work.target import TargetName, WorkTarget, choose_target, require_container, unavailability
from runbook_lib.containers.work.tasks import TASKS, WorkStep, make_step, parse_variables, wrap_command
from runbook_lib.display import View, code, facts, note, notes, table
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.repositories import Repository
from runbook_lib.recipes import workloads


@dataclass(frozen=True)
class WorkRequest:
    """The notebook's parameters; all but the task may be empty."""

    task: str = "session"
    where: str = ""
    image: str = ""
    tests: str = ""
    install: str = ""
    package: str = ""
    extra: str = ""
    cache: str = ""
    folder: str = ""
    slurm: str = ""
    region: str = ""
    env: str = ""
    command: str = ""

    def show(self) -> View:
        """Return a table of all tasks with the chosen one marked, and its parameters."""
        rows = [{"task": name, "is": text, "chosen": name == self.task} for name, text in TASKS.items()]
        parameters = {name: value for name, value in vars(self).items() if value and name != "task"}
        return table(rows) + (facts(**parameters) if parameters else notes([]))


@dataclass(frozen=True)
class WorkTask:
    """A task with its commands.  ``obstacle``: why they cannot be run from here; ``created_file``: an import's file."""

    request: WorkRequest
    target: WorkTarget
    plan: uv.WorkPlan
    commands: tuple[run.StepCommand, ...]
    obstacle: str = ""
    created_file: str = ""

    @property
    def runnable(self) -> tuple[run.StepCommand, ...]:
        """The commands that need no terminal."""
        return tuple(command for command in self.commands if not command.step.terminal)

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


def plan_task(checkout: Checkout, bump: Bump, request: WorkRequest, machine: Machine | None = None) -> WorkTask:
    """Return the task with its commands for this checkout and this machine.

    Raises RunbookError for an invalid parameter, Refused for a task that must not be run.
    """
    if request.task not in TASKS:
        raise RunbookError(f"task={request.task!r} is invalid. Choose one of {', '.join(TASKS)}.")
    target = _target(checkout, bump, request, machine or detect_machine())
    built_here = target.container.image.kind == "built" and target.machine.engine is not None
    steps: tuple[WorkStep, ...] = ()
    if target.name == "slurm" and built_here and request.task != "import":
        file = plan_image_file(target, request.folder)  # the cluster's nodes cannot read this machine's images
        target = replace(target, container=replace(target.container, image=WorkImage.parse(file.path)))
        steps = file.steps
    plan, created_file = _plan(checkout, bump, request, target)
    variables, planned = parse_variables(request.env), []
    if not plan.steps:
        steps = ()
    for step in (*steps, *plan.steps):
        if step.place == "container":
            step = replace(step, env=(*step.env, *variables))
        planned.append(step)
    steps = tuple(planned)
    if any(step.place == "container" for step in steps):
        require_container(target.name, target.machine)
        if target.name in ("local", "slurm", "apptainer") and not Path(target.container.cache).is_dir():
            steps = (make_step("cache-folder", path=target.container.cache), *steps)
    commands = tuple(run.StepCommand(step, target.command(step)) for step in steps)
    return WorkTask(request, target, plan, commands, _obstacle(target, commands), created_file)


def default_image(repository: Repository, image_type: str) -> str:
    """Return the name of the image that the notebook build-image builds."""
    build = known_builds.BUILDS.get(repository.name)
    name = build.name if build else repository.name.rpartition("/")[2].lower()
    return f"{name}:local-lts" if image_type == "lts" else f"{name}:local"


def _target(checkout: Checkout, bump: Bump, request: WorkRequest, machine: Machine) -> WorkTarget:
    repository = bump.repository
    image = WorkImage.parse(request.image or default_image(repository, bump.image_type), request.region)
    name = choose_target(request.where, machine)
    cache = _cache(request.cache, name, checkout.path)
    git = "" if checkout.bare else checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir")
    container = WorkContainer.create(repository, image, str(checkout.path), cache, git=git)
    return WorkTarget(name, container, machine, repository.name, Allocation.parse(request.slurm))


def _cache(folder: str, target: TargetName, checkout: Path) -> str:
    """Return the host's uv cache: the given folder, else uv's own, or on a cluster one visible to all nodes."""
    if folder:
        return str(Path(folder).expanduser().absolute())
    if target == "slurm":
        return str(checkout.parent / ".uv-cache")
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return os.environ.get("UV_CACHE_DIR") or str(user_cache / "uv")


def _obstacle(target: WorkTarget, commands: tuple[run.StepCommand, ...]) -> str:
    image = target.container.image
    if not commands:
        return ""
    if reason := unavailability(target.name, target.machine, gpus=any(command.step.gpus for command in commands)):
        return reason
    if target.name == "local" and image.kind == "built" and not image_id(target):
        return f"{image.name} is not on this machine: build it first (build-image), or name another image."
    return missing_prerequisite(image, [command.words for command in commands])


def _plan(checkout: Checkout, bump: Bump, request: WorkRequest, target: WorkTarget) -> tuple[uv.WorkPlan, str]:
    """Return the plan of the task, and the file that it creates."""
    image = target.container.image
    if request.task == "import":
        return _import(request, target)
    if request.task == "demo":
        if image.kind != "alibaba":
            raise RunbookError("Only Alibaba's images include a benchmark. Set image to one, such as alibaba:25.05.")
        return uv.WorkPlan((make_step("benchmark"),)), ""
    if request.task == "run":
        return uv.WorkPlan((any_command.plan_command(request.command, target),)), ""
    if request.task == "session":
        return _session(checkout, bump, request, target), ""
    if refusal := image.uv_refusal():
        raise Refused(refusal)
    state = read_project_state(checkout, bump.repository.name, bump.base)
    if request.task == "tests":
        return uv.WorkPlan((_tests(checkout, bump, request, target, state),)), ""
    plan = _UV_PLANS[request.task](state, request, bump)
    return _with_sync(plan, target, checkout), ""


#: The uv tasks, with the function that plans each.
_UV_PLANS: Mapping[str, Callable[[ProjectState, WorkRequest, Bump], uv.WorkPlan]] = {
    "install": lambda state, request, bump: uv.install(state, request.install, bump.image_type),
    "add": lambda state, request, bump: uv.add(state, request.package, request.extra),
    "lock": lambda state, request, bump: uv.lock(state),
    "conflict": lambda state, request, bump: uv.resolve_conflict(state),
    "mcore-dev": lambda state, request, bump: uv.switch_mcore(state, "dev"),
    "mcore-main": lambda state, request, bump: uv.switch_mcore(state, "main"),
    "hooks": lambda state, request, bump: uv.hooks(state, run=False),
    "hooks-run": lambda state, request, bump: uv.hooks(state, run=True),
    "lint": lambda state, request, bump: uv.lint(state, fix=False),
    "format": lambda state, request, bump: uv.lint(state, fix=True),
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


def _session(checkout: Checkout, bump: Bump, request: WorkRequest, target: WorkTarget) -> uv.WorkPlan:
    container = target.container
    if target.name == "inside":
        sign = target.machine.container
        return uv.WorkPlan(no_change=f"This already runs inside a container ({sign}): open a terminal in JupyterLab.")
    warnings: tuple[str, ...] = ()
    nodes = target.allocation.nodes
    if target.name == "slurm" and nodes > 1:
        shell = f"The shell opens on the first of the {nodes} nodes only; on the others it exits immediately."
        warnings = (f"{shell} One node is enough for a session. The task named run starts a command on all nodes.",)
    if request.install.strip():
        state = read_project_state(checkout, bump.repository.name, bump.base)
        plan = _with_sync(uv.install(state, request.install, bump.image_type), target, checkout)
        steps = (*plan.steps, make_step("shell-synced", inside=container.inside))
        return replace(plan, steps=steps, warnings=(*plan.warnings, *warnings))
    if target.name == "slurm":
        return uv.WorkPlan((make_step("shell-slurm"),), warnings=warnings)
    return uv.WorkPlan((make_step("shell", checkout=container.checkout, inside=container.inside),))


def _tests(checkout: Checkout, bump: Bump, request: WorkRequest, target: WorkTarget, state: ProjectState) -> WorkStep:
    paths = sorted(path for path in state.files if unit_tests.RECIPE.fullmatch(path))
    rows: list[workloads.Workload] = []
    for path, text in checkout.read(paths, "HEAD" if checkout.bare else None).items():
        rows += workloads.read(path, text or "")
    buckets = unit_tests.read_buckets(rows)
    gpus = target.allocation.gpus
    return unit_tests.plan_tests(request.tests, bump.repository.name, buckets, state.files, bump.image_type, gpus)


def _import(request: WorkRequest, target: WorkTarget) -> tuple[uv.WorkPlan, str]:
    file = plan_image_file(target, request.folder)
    next_action = f"Use it: image={file.path}"
    if not file.steps:
        return uv.WorkPlan(no_change=f"{file.path} already exists, made from this same image. {next_action}"), file.path
    steps, folder = file.steps, Path(file.path).parent
    if not folder.is_dir():
        steps = (make_step("image-folder", path=str(folder)), *steps)
    return uv.WorkPlan(steps, next_action=next_action), file.path
