"""The places where a task can run: the ways into the image from this machine, and each step's command.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, cast

from runbook_lib.compute.engine import Engine
from runbook_lib.compute.work.allocation import Allocation
from runbook_lib.compute.work.container import (
    WorkContainer,
    apptainer_command,
    direct_command,
    engine_command,
    slurm_command,
)
from runbook_lib.compute.work.machine import Machine, uv_refusal
from runbook_lib.compute.work.tasks import WorkStep
from runbook_lib.errors import Refused, RunbookError

TargetName = Literal["inside", "local", "slurm", "apptainer", "host"]
TARGETS: Mapping[TargetName, str] = {
    "inside": "in the container that this runs in",
    "local": "in a container of docker or podman on this machine",
    "slurm": "on a cluster, by Slurm with Pyxis",
    "apptainer": "in a container of apptainer on this machine",
    "host": "on this machine itself",
}


@dataclass(frozen=True)
class WorkTarget:
    """A way into the image from a machine, for a checkout of a repository (``owner/name``)."""

    name: TargetName
    container: WorkContainer
    machine: Machine
    repository: str
    allocation: Allocation

    def command(self, step: WorkStep) -> tuple[str, ...]:
        """Return the command that runs a step in the checkout's folder.  Raises Refused if this is not possible."""
        if step.place == "host" or self.name in ("inside", "host"):
            return direct_command(step)
        if self.name == "slurm":
            return slurm_command(self.container, self.allocation, step, self.repository)
        if not self.allocation.gpus:
            step = replace(step, gpus=False)
        if self.name == "apptainer":
            return apptainer_command(self.container, step)
        owner = (self.machine.uid, self.machine.gid)
        keeps_user = step.terminal or self.container.image.kind == "alibaba"
        return engine_command(
            self.container, self.machine.engine or Engine("docker"), step, None if keeps_user else owner
        )

    def describe_place(self, step: WorkStep) -> str:
        """Return a phrase for the place where a step runs."""
        if step.place == "host" and self.name != "inside":
            return "on this machine, in the checkout"
        if self.name in ("inside", "host"):
            return TARGETS[self.name]
        return f"inside {self.container.image.name}, {TARGETS[self.name].removeprefix('in ')}"


def choose_target(name: str, machine: Machine) -> TargetName:
    """Return the named target, or without a name the first that this machine has.  Raises RunbookError if unknown."""
    if name in TARGETS:
        return cast(TargetName, name)
    if name:
        raise RunbookError(f"where={name!r} is not one of {', '.join(TARGETS)}. Choose one of them, or leave it empty.")
    if machine.container:
        return "inside"
    if machine.engine is None and machine.slurm:
        return "slurm"
    if machine.engine is None and machine.apptainer:
        return "apptainer"
    return "local"


def require_container(name: TargetName, machine: Machine) -> None:
    """Raise Refused if steps that belong inside the image would run outside."""
    refusal = uv_refusal(machine)
    if name == "host":  # also inside some container, which need not be the image
        refusal = refusal or "This step belongs inside the image, and where=host names the machine itself."
        raise Refused(
            f"{refusal} Choose local (docker or podman), slurm or apptainer as where, or inside if this notebook "
            "runs in the image. For Slurm without containers, the task install syncs the shared worktree once."
        )
    if name == "inside" and refusal:
        raise Refused(f"This process is not inside a container: there is no sign of one. {refusal}")


def unavailability(name: TargetName, machine: Machine, *, gpus: bool) -> str:
    """Return why a target cannot be used from this machine, as a sentence; an empty string if it can."""
    if name == "local" and machine.engine is None:
        return "Neither docker nor podman works on this machine: run the commands on one where they do."
    if name == "slurm" and not machine.slurm:
        return "srun is not installed on this machine: run the commands on the cluster's login node."
    if name == "apptainer" and not machine.apptainer:
        return "apptainer is not installed on this machine: run the commands on one that has it."
    if name == "local" and gpus and machine.system != "Linux":
        return f"Containers on {machine.system} cannot use GPUs: run the commands on a Linux machine with GPUs."
    return ""
