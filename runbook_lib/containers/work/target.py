"""Where a task is done: which way into the image this machine has, and how each step of a task reads then.  Pure."""

from dataclasses import dataclass
from typing import Literal

from runbook_lib.containers.engine import Engine
from runbook_lib.containers.work import local, pyxis, task
from runbook_lib.containers.work.local import Container
from runbook_lib.containers.work.pyxis import Allocation
from runbook_lib.containers.work.task import Here, Step
from runbook_lib.errors import Refused, RunbookError

PlaceName = Literal["inside", "local", "slurm", "apptainer", "host"]
PLACES: dict[str, str] = {
    "inside": "in the container that this runs in",
    "local": "in a container of docker or podman on this machine",
    "slurm": "on a cluster, by Slurm with Pyxis",
    "apptainer": "in a container of apptainer on this machine",
    "host": "on this machine itself",
}


@dataclass(frozen=True)
class Place:
    """A way into the image.  ``lacking`` says why it cannot be used from here; the commands are shown all the same."""

    name: PlaceName
    container: Container
    here: Here
    repository: str
    allocation: Allocation
    lacking: str = ""

    def words(self, step: Step) -> tuple[str, ...]:
        """The words that run a step, from the checkout's folder.  Raises Refused where the place cannot run it."""
        if step.where == "host" or self.name in ("inside", "host"):
            return local.direct(step)
        if self.name == "slurm":
            return pyxis.srun(self.container, self.allocation, step, self.repository)
        if self.name == "apptainer":
            return local.apptainer_exec(self.container, step)
        alien = step.terminal or self.container.image.kind == "alibaba"
        return local.engine_run(
            self.container, self.here.engine or Engine("docker"), step, None if alien else self.here
        )

    def where(self, step: Step) -> str:
        """Where a step runs, in words."""
        if step.where == "host" and self.name != "inside":
            return "on this machine, in the checkout"
        if step.where == "host" or self.name in ("inside", "host"):
            return PLACES[self.name]
        return f"inside {self.container.image.name}, {PLACES[self.name].partition(' ')[2]}"


def choose(wanted: str, here: Here) -> PlaceName:
    """The place that a person names, or the first that this machine has.  Raises RunbookError for an unknown one."""
    if wanted in ("inside", "local", "slurm", "apptainer", "host"):
        return wanted  # type: ignore[return-value]
    if wanted:
        raise RunbookError(f"where={wanted!r} is none of {', '.join(PLACES)}. Name one, or leave it empty.")
    if here.container:
        return "inside"
    if here.engine is None and here.slurm:
        return "slurm"
    return "apptainer" if here.engine is None and here.apptainer else "local"


def require(name: PlaceName, here: Here) -> None:
    """Raise Refused where steps that belong inside the image are asked for elsewhere."""
    if name == "host" and (why := task.why_not(here)):
        raise Refused(
            f"{why} Choose local (docker or podman), slurm or apptainer as where, or run this notebook inside the "
            "container. For Slurm without containers, the task install syncs the shared worktree once."
        )
    if name == "inside" and not here.container:
        raise Refused(f"This does not run inside a container: it has none of the signs of one. {task.why_not(here)}")


def lacking(name: PlaceName, here: Here, *, gpus: bool) -> str:
    """Why a place cannot be used from here, a whole sentence; empty where it can."""
    if name == "local" and here.engine is None:
        return "Neither docker nor podman works on this machine: run the commands on one where they do."
    if name == "slurm" and not here.slurm:
        return "There is no srun on this machine: run the commands on the cluster's login node."
    if name == "apptainer" and not here.apptainer:
        return "apptainer is not on this machine: run the commands on one that has it."
    if gpus and here.system != "Linux" and name == "local":
        return f"Containers on {here.system} reach no GPU: run the commands on a Linux machine that has some."
    return ""
