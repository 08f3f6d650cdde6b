"""Notebook work-inside: a task inside the image, with its commands for a checkout on this machine."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.compute.build_plan import default_tag
from runbook_lib.compute.command_run import CommandRun
from runbook_lib.compute.places import PLACES, Machine, WorkPlace, choose_place, detect_machine
from runbook_lib.compute.slurm.site import read_site
from runbook_lib.compute.tasks import TABLE, TASKS, TaskPlan, Values, make_step, plan_task, read_facts, split_words
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.model import Evidence, Next, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.ports import World

LOG = "work-inside.log"


@dataclass(frozen=True)
class WorkFacts:
    """The task's place, and its plan with the commands as they run there.  ``obstacle``: why they cannot."""

    place: WorkPlace
    plan: TaskPlan
    obstacle: str = ""

    def show(self) -> display.View:
        """Return each step with its place and reason, and all commands, ready to copy."""
        listed = []
        for number, step in enumerate(self.plan.steps, 1):
            where = "on this machine" if step.place == "host" else PLACES[self.place.name]
            listed.append({"step": f"{number}. {step.title}", "where": where, "why": step.reason})
        lines = "\n".join(step.line for step in self.plan.steps)
        shown = display.table(listed) + display.code(lines, title=f"Commands to run in {self.place.checkout}")
        remarks = (*self.place.image.warnings, *self.plan.warnings, self.plan.next, self.obstacle)
        return shown + display.notes(filter(None, remarks), title="To know")


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
            raise RunbookError(f"task={self.task!r} is invalid.", f"Choose one of {', '.join(TASKS)}.")
        if self.arguments.strip() and not TABLE["tasks"][self.task].get("arguments"):
            raise RunbookError(f"The task {self.task} takes no arguments.", "Leave arguments empty.")
        world.checkout.require_work_tree()
        place = self._place(world.checkout, bump)
        plan = self._plan(world.checkout, bump, place)
        steps = plan.steps
        if any(step.place == "container" for step in steps):
            if place.name == "here" and not place.machine.container:
                raise Refused(TABLE["refused"]["outside"])
            if place.name != "here" and not Path(place.cache).is_dir():
                steps = (make_step("cache-folder", place.values), *steps)
        placed = tuple(replace(step, command=place.command(step)) for step in steps)
        return WorkFacts(place, replace(plan, steps=placed), place.obstacle() if placed else "")

    def _place(self, checkout: Checkout, bump: Bump) -> WorkPlace:
        session, repository, machine = read_site(self.site).session, bump.repository, self.machine or detect_machine()
        image = WorkImage.parse(self.image or default_tag(repository, bump.image_type), session.region)
        name, path = choose_place(self.where, machine), str(checkout.path)
        user_cache = Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"))
        cache = os.environ.get("UV_CACHE_DIR") or str(user_cache / "uv")
        if name == "slurm":  # visible to all nodes
            cache = str(checkout.path.parent / ".uv-cache")
        git = checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir")
        also = () if f"{git}/".startswith(f"{path}/") else (git,)
        place = WorkPlace(name, repository, image, path, machine, session.cache or cache, also, session)
        if name == "slurm" and image.kind == "built" and self.task != "import":
            imported = place.image_file()  # the cluster's nodes cannot read this machine's images
            return replace(place, image=WorkImage(str(imported["file"]), "file")) if imported["file_exists"] else place
        return place

    def _plan(self, checkout: Checkout, bump: Bump, place: WorkPlace) -> TaskPlan:
        name, words = self.task, split_words(self.arguments)
        if name == "session" and words:
            name = "session-synced"
        needs_uv = TABLE["tasks"][name].get("project")
        if place.image.kind == "alibaba" and (name == "tests" or needs_uv):
            warning, advice = TABLE["alibaba"]["warnings"][0], "Use the image that the project builds."
            raise Refused(f"uv is not used in {place.image.name}. {warning}", advice)
        values = {**place.values, **command_values(words)}
        if name == "import":
            values |= place.image_file()
        if needs_uv:
            values |= read_facts(checkout, name, words, bump.base, bump.image_type)
        return plan_task(name, values)

    def plan(self, facts: WorkFacts, bump: Bump) -> Plan[World]:
        """Plan the commands that need no terminal, one after another."""
        place, plan, says = facts.place, facts.plan, TASKS[self.task]
        tasks = display.table([{"task": task, "is": TASKS[task], "chosen": task == self.task} for task in TASKS])
        evidence = Evidence({"where": place.name, "image": place.image.name}, warnings=plan.warnings)
        if plan.idle:
            return Plan(Outcome(f"Nothing to do: {plan.idle}"), (tasks,), evidence=evidence, on_branch=False)
        left = [f"In a terminal, in {place.checkout}: {step.line}" for step in plan.steps if step.terminal]
        done = Outcome(f"Done: {says}.", Next(" ".join(filter(None, [*left, plan.next]))))
        conditions = tuple(CommandRun(step, LOG, facts.obstacle) for step in plan.steps if not step.terminal)
        if not conditions:
            done = Outcome(f"Shown: {says}. {facts.obstacle}".strip(), done.next)
        elif facts.obstacle and not bump.apply:
            done, conditions = Outcome(f"Shown: {says}. {facts.obstacle}"), ()
        elif bump.tag is None:
            again = Next.again(tag="26.04-py3", task=self.task, mode="publish")
            done, conditions = Outcome(f"Shown: {says}. Without a tag nothing is run.", again), ()
        return Plan(done, (tasks, facts.show()), conditions, evidence=evidence, on_branch=False)


def command_values(words: tuple[str, ...]) -> Values:
    """Return the facts about a command to run, or about the tests to run."""
    program = words[0] if words else ""
    is_torchrun = program.rpartition("/")[2] == "torchrun"
    return {
        "words": words, "rest": words[1:], "launcher": program == "torch.distributed.run", "torchrun": is_torchrun,
        "tests": words or ("tests/unit_tests",),
    }  # fmt: skip
