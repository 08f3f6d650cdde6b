"""Notebook work-inside: a task inside the image, with its commands for a checkout on this machine."""

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib.checks import Evidence, Next
from runbook_lib.compute import known_builds
from runbook_lib.compute.command_run import CommandRun
from runbook_lib.compute.places import Machine, WorkPlace, choose_place, detect_machine
from runbook_lib.compute.project import read_project_state
from runbook_lib.compute.slurm.site import Session, read_site
from runbook_lib.compute.tasks import TABLE, TASKS, TaskPlan, Values, WorkStep, make_step, plan_task, wrap_command
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.display import View, code, note, notes, rows, table
from runbook_lib.display import facts as show_facts
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.model import Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import Repository
from runbook_lib.world.outside import World

LOG = "work-inside.log"
_LAUNCHER = "torch.distributed.run"


@dataclass(frozen=True)
class WorkFacts:
    """The task's place, and its plan with the commands as they run there.  ``obstacle``: why they cannot."""

    place: WorkPlace
    plan: TaskPlan
    obstacle: str = ""

    @property
    def runnable(self) -> tuple[WorkStep, ...]:
        """The commands that need no terminal."""
        return tuple(step for step in self.plan.steps if not step.terminal)

    @property
    def next(self) -> str:
        """What is left for the user: the commands that need a terminal, and the task's own advice."""
        in_terminal = (step for step in self.plan.steps if step.terminal)
        actions = [f"In a terminal, in {self.place.checkout}: {step.line}" for step in in_terminal]
        return " ".join(filter(None, [*actions, self.plan.next]))

    def show(self) -> View:
        """Return each step with its place and reason, and all commands, ready to copy."""
        if self.plan.idle:
            return note(self.plan.idle)
        rows = []
        for number, step in enumerate(self.plan.steps, 1):
            where = self.place.describe(step)
            rows.append({"step": f"{number}. {step.title}", "where": where, "why": step.reason})
        lines = "\n".join(wrap_command(step.command) for step in self.plan.steps)
        shown = table(rows) + code(lines, title=f"Commands to run in {self.place.checkout}")
        remarks = (*self.place.image.warnings, *self.plan.warnings, self.plan.next)
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
        if self.task not in TASKS:
            raise RunbookError(f"task={self.task!r} is invalid. Choose one of {', '.join(TASKS)}.")
        takers = [name for name in TASKS if TABLE["tasks"][name].get("arguments")]
        if self.arguments.strip() and self.task not in takers:
            takes_some = f"{', '.join(takers)} do. Leave arguments empty."
            raise RunbookError(f"The task {self.task} takes no arguments; {takes_some}")
        site = read_site(self.site, world.checkout.path)
        place = self._place(world.checkout, bump, site.session)
        steps: tuple[WorkStep, ...] = ()
        needs_file = place.name == "slurm" and place.image.kind == "built" and place.machine.engine is not None
        if needs_file and self.task != "import":  # the cluster's nodes cannot read this machine's images
            file = place.image_file()
            steps = plan_task("import", {**place.values, **file}).steps
            place = replace(place, image=WorkImage.parse(str(file["file"])))
        plan = self._plan(world.checkout, bump, place)
        return _placed(place, replace(plan, steps=(*steps, *plan.steps)) if plan.steps else plan, site.session)

    def _place(self, checkout: Checkout, bump: Bump, session: Session) -> WorkPlace:
        repository, machine = bump.repository, self.machine or detect_machine()
        image = WorkImage.parse(self.image or default_image(repository, bump.image_type), session.region)
        name, path = choose_place(self.where, machine), str(checkout.path)
        cache = session.cache or _cache(name == "slurm", checkout.path)
        git = "" if checkout.bare else checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir")
        also = () if f"{git}/".startswith(f"{path}/") or not git else (git,)
        return WorkPlace(name, repository, image, path, machine, cache, also, session.allocation)

    def _plan(self, checkout: Checkout, bump: Bump, place: WorkPlace) -> TaskPlan:
        name, values, arguments = self.task, {**place.values}, self.arguments
        if name == "session" and arguments.strip():
            name = "session-synced"
        if name == "import":
            values |= place.image_file()
        elif name in ("run", "tests"):
            values |= run_values(arguments)
        if place.image.kind == "alibaba" and (name == "tests" or TABLE["tasks"][name].get("project")):
            warning, advice = TABLE["alibaba"]["warnings"][0], "Use the image that the project builds."
            raise Refused(f"uv is not used in {place.image.name}. {warning} {advice}")
        if not TABLE["tasks"][name].get("project"):
            return plan_task(name, values)
        state = read_project_state(checkout, bump.repository.name, bump.base)
        values |= state.values(bump.image_type)
        if name in ("install", "session-synced"):
            values |= state.install_values(arguments, bump.image_type)
        elif name == "add":
            values |= state.add_values(arguments)
        if values["host_slurm"]:  # git's own folder, so that the lock does not change the checkout
            values["host_lock"] = checkout.git("rev-parse", "--path-format=absolute", "--git-path", "uv-sync.lock")
        return plan_task(name, values)

    def plan(self, facts: WorkFacts, bump: Bump) -> Plan[World]:
        """Plan the commands that need no terminal, one after another."""
        name = self.task
        tasks = [{"task": task, "is": text, "chosen": task == name} for task, text in TASKS.items()]
        chosen = {"where": self.where, "image": self.image, "arguments": self.arguments, "site": self.site}
        inputs = {"task": name, "where": facts.place.name, "image": facts.place.image.name}
        steps = rows(facts.plan.steps, step="title", command="line", why="reason")
        planned: Plan[World] = Plan(
            Outcome(f"Done: {TASKS[name]}.", Next(facts.next)),
            (table(tasks), show_facts(**{key: value for key, value in chosen.items() if value}), facts.show()),
            evidence=Evidence(inputs, tables={"steps": steps}, warnings=facts.plan.warnings),
            on_branch=False,
        )
        if facts.plan.idle:
            return replace(planned, done=Outcome(f"Nothing to do: {facts.plan.idle}"))
        if not facts.runnable or (facts.obstacle and not bump.apply):
            shown = f"Shown: {TASKS[name]}. {facts.obstacle}".strip()
            return replace(planned, done=Outcome(shown, Next() if facts.runnable else Next(facts.next)))
        if bump.tag is None:
            again = Next.again(tag="26.04-py3", task=name, mode="publish")
            return replace(planned, done=Outcome(f"Shown: {TASKS[name]}. Without a tag nothing is run.", again))
        conditions = [CommandRun(step, LOG, facts.obstacle) for step in facts.runnable]
        return replace(planned, conditions=tuple(conditions))


def _placed(place: WorkPlace, plan: TaskPlan, session: Session) -> WorkFacts:
    """Return a plan with its commands as they run in a place, and the site's variables set inside."""
    steps = [replace(it, env=(*it.env, *session.variables)) if it.place == "container" else it for it in plan.steps]
    if any(step.place == "container" for step in steps):
        place.require_container()
        if place.name != "here" and not Path(place.cache).is_dir():
            steps.insert(0, make_step("cache-folder", place.values))
    placed = tuple(replace(step, command=place.command(step)) for step in steps)
    return WorkFacts(place, replace(plan, steps=placed), place.obstacle(placed) if placed else "")


def default_image(repository: Repository, image_type: str) -> str:
    """Return the name of the image that the notebook build-image builds."""
    build = known_builds.BUILDS.get(repository.name)
    name = build.name if build else repository.name.rpartition("/")[2].lower()
    return f"{name}:local-lts" if image_type == "lts" else f"{name}:local"


def _cache(on_cluster: bool, checkout: Path) -> str:
    """Return the host's uv cache: uv's own, or on a cluster one visible to all nodes."""
    if on_cluster:
        return str(checkout.parent / ".uv-cache")
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return os.environ.get("UV_CACHE_DIR") or str(user_cache / "uv")


def run_values(text: str) -> Values:
    """Return the facts about a command, which is split into words like in a shell.  Raises RunbookError."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise RunbookError(f"arguments={text!r} cannot be read: {error}.") from error
    program = words[0] if words else ""
    is_torchrun = program.rpartition("/")[2] == "torchrun"
    return {
        "words": words, "rest": words[1:], "launcher": program == _LAUNCHER, "torchrun": is_torchrun,
        "tests": words or ("tests/unit_tests",),
    }  # fmt: skip
