"""This machine: the container that it may be, and the programs that can start one."""

import os
import platform
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from runbook_lib.compute import run
from runbook_lib.compute.engine import Engine
from runbook_lib.errors import RunbookError

#: Files of every container: of Docker; of Podman and Buildah; of Enroot, which Pyxis starts (its ``src/runtime.sh``).
CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv", "/.lock")
#: Variables: systemd's convention, which Podman follows; Apptainer's and Singularity's; and that of NGC's PyTorch
#: images, which is set regardless of how they are run.
CONTAINER_VARIABLES = ("container", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "NVIDIA_PYTORCH_VERSION")


@dataclass(frozen=True)
class Machine:
    """The machine of this process.

    ``container`` is the sign that this process is inside a container, empty outside; ``system`` comes from
    ``platform.system()``; ``uid`` and ``gid`` own the files that it writes.
    """

    container: str = ""
    system: str = "Linux"
    engine: Engine | None = None
    slurm: bool = False
    apptainer: bool = False
    uid: int = 0
    gid: int = 0


def detect_machine() -> Machine:
    """Return the capabilities of this machine.  Docker and podman count only if they work; buildah only builds."""
    sign = container_sign(os.environ, os.path.exists)
    engine = None if sign else _working_engine()
    slurm, apptainer = (shutil.which(name) is not None for name in ("srun", "apptainer"))
    return Machine(sign, platform.system(), engine, slurm, apptainer, os.getuid(), os.getgid())


def container_sign(env: Mapping[str, str], exists: Callable[[str], bool]) -> str:
    """Return the file or the variable that proves that this process is inside a container, or an empty string."""
    for path in CONTAINER_FILES:
        if exists(path):
            return path
    for name in CONTAINER_VARIABLES:
        if env.get(name):
            return f"${name}"
    return ""


def uv_refusal(machine: Machine) -> str:
    """Return why uv must not run on this machine itself, as a sentence; an empty string inside a container."""
    if machine.container:
        return ""
    if machine.system != "Linux":
        system = "macOS" if machine.system == "Darwin" else machine.system
        return (
            f"uv is not run on {system}: uv.lock is for Linux and requires CUDA wheels, which do not exist for it, so "
            "the packages locked or installed here would differ from those in CI."
        )
    return (
        "uv is not run on this machine itself: CUDA, PyTorch and packages compiled against them come from the image, "
        "and a different release of uv would write uv.lock in a different format. The container has both."
    )


def _working_engine() -> Engine | None:
    for name in ("docker", "podman"):
        with suppress(RunbookError):
            return run.find(name)
    return None
