"""This machine and the places where a task can run: each step's command there, and why it cannot run there.

``tasks.toml`` has the command of each place.
"""

import hashlib
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from runbook_lib.compute import engine as engines
from runbook_lib.compute.allocation import Allocation
from runbook_lib.compute.engine import Engine
from runbook_lib.compute.tasks import TABLE, Values, WorkStep, expand
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, Repository
from runbook_lib.system.subprocess_lines import output_of

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
    uid: int = 0
    gid: int = 0


def detect_machine() -> Machine:
    """Return the capabilities of this machine.  Docker and podman count only if they work; buildah only builds."""
    sign, engine = container_sign(os.environ, os.path.exists), None
    for name in () if sign else ("podman", "docker"):
        with suppress(RunbookError):
            engine = engines.find(name)
    return Machine(sign, platform.system(), engine, shutil.which("srun") is not None, os.getuid(), os.getgid())


def container_sign(env: Mapping[str, str], exists: Callable[[str], bool]) -> str:
    """Return the file or the variable that proves that this process is inside a container, or an empty string."""
    signs = [path for path in CONTAINER_FILES if exists(path)]
    signs += [f"${name}" for name in CONTAINER_VARIABLES if env.get(name)]
    return next(iter(signs), "")


PlaceName = Literal["here", "local", "slurm"]
#: The values of the notebook's parameter ``where``, with descriptions.
PLACES: Mapping[PlaceName, str] = TABLE["where"]
#: The folders in which the images and the recipes' scripts expect the checkout.
CHECKOUT_FOLDERS = {MEGATRON_LM.name: "/opt/megatron-lm", MEGATRON_BRIDGE.name: "/opt/Megatron-Bridge"}
#: Mount point of the host's uv cache, outside of root's home: Megatron-Bridge's image has another user.
CACHE = TABLE["variables"]["UV_CACHE_DIR"]
_MOUNTABLE = re.compile(r"/[^,:\x00-\x1f\x7f]*")
_SRUN_HELP_SECONDS = 20.0


@dataclass(frozen=True)
class WorkPlace:
    """A way into an image from a machine, with a checkout of a repository mounted as its working folder.

    ``cache`` is the folder of uv's cache, mounted too, and visible to all nodes of a cluster.  The folders in ``also``
    are mounted at their own path, such as a git directory outside of the checkout, whose .git file names it.
    """

    name: PlaceName
    repository: Repository
    image: WorkImage
    checkout: str
    machine: Machine = field(default_factory=Machine)
    cache: str = ""
    also: tuple[str, ...] = ()
    allocation: Allocation = field(default_factory=Allocation)

    def __post_init__(self) -> None:
        paths = [path for mount in self.mounts for path in mount]
        if wrong := [repr(path) for path in paths if not _MOUNTABLE.fullmatch(path)]:
            raise Refused(
                f"These paths cannot be mounted: {', '.join(wrong)}. A path to mount is absolute and has no comma, "
                "colon or control character; move the checkout elsewhere."
            )

    @property
    def inside(self) -> str:
        """The mount point of the checkout."""
        name = self.repository.name
        return CHECKOUT_FOLDERS.get(name, f"/opt/{name.rpartition('/')[2]}")

    @property
    def mounts(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a path on the host and its mount point."""
        mounts = ((self.checkout, self.inside), (self.cache, CACHE), *zip(self.also, self.also, strict=True))
        return tuple(mount for mount in mounts if mount[0])

    @property
    def values(self) -> Values:
        """The facts about the place, for the table of tasks."""
        image, machine, name = self.image, self.machine, self.repository.name
        digest = hashlib.sha256(self.checkout.encode("utf-8", "surrogateescape")).hexdigest()
        uv_run = () if image.kind == "alibaba" else ("uv", "run", "--no-sync")
        is_host = self.name == "here" and not machine.container
        return {
            "inside_already": self.name == "here" and bool(machine.container), "at_slurm": self.name == "slurm",
            "host_slurm": is_host and machine.slurm and machine.system == "Linux", "sign": machine.container,
            "checkout": self.checkout, "inside": self.inside, "cache": self.cache, "repository": name,
            "sync_lock": f"{CACHE}/sync-{digest[:12]}.lock", "bridge": name == MEGATRON_BRIDGE.name,
            "lm": name == MEGATRON_LM.name, "image": image.name, "alibaba": image.kind == "alibaba",
            "image_is_file": image.kind == "file", "many": self.allocation.nodes > 1,
            "nodes": str(self.allocation.nodes), "gpus": str(self.allocation.gpus or ""), "uv_run": uv_run,
            "uv_line": " ".join(uv_run),
        }  # fmt: skip

    def command(self, step: WorkStep) -> tuple[str, ...]:
        """Return the command that runs a step in the checkout's folder.

        A step that writes files does so as this user.  Raises Refused for an image that is a file and docker or podman,
        RunbookError for one that a cluster cannot pull.
        """
        if step.place == "host" or self.name == "here":
            variables = [f"{name}={value}" for name, value in step.env]
            return ("env", *variables, *step.command) if variables else step.command
        engine = self.machine.engine or Engine("docker")
        row = TABLE["places"][engine.name if self.name == "local" else "slurm"]
        has_gpus = step.gpus and self.allocation.gpus > 0
        chosen = {
            "terminal": step.terminal, "headless": not step.terminal, "gpus": has_gpus,
            "owner": not step.terminal and self.image.kind != "alibaba",
            "own_memory": has_gpus and "--ipc=host" not in self.image.options,  # which implies the host's memory
        }  # fmt: skip
        ids = {"uid": str(self.machine.uid), "gid": str(self.machine.gid)}
        mounts = [row["mount"].format(outside=outside, within=within) for outside, within in self.mounts]
        set_inside = TABLE["variables"] | dict(step.env)
        return expand(row["command"], {
            **{name: expand(row.get(name, ""), ids) if on else () for name, on in chosen.items()},
            "command": step.command, "inside": self.inside, "mounts": tuple(mounts), "joined_mounts": ",".join(mounts),
            "allocation": tuple(self.allocation.options(gpus=step.gpus, terminal=step.terminal)),
            "mpi": ("--mpi=pmix",) if self.repository.name == MEGATRON_BRIDGE.name else (),
            "image_options": self.image.options, "image": self._address(engine),
            "variables": tuple(row["variable"].format(variable=f"{it}={set_inside[it]}") for it in set_inside),
        })  # fmt: skip

    def _address(self, engine: Engine) -> str:
        if self.name == "slurm":
            return self.image.enroot_address
        if self.image.kind == "file":
            raise Refused(f"{self.image.name} is a file, which {engine.name} cannot run. Name the image, or use Slurm.")
        return self.image.name

    def describe(self, step: WorkStep) -> str:
        """Return a phrase for the place where a step runs."""
        if step.place == "host" and not self.machine.container:
            return "on this machine, in the checkout"
        if self.name == "here":
            return PLACES["here"]
        return f"inside {self.image.name}, {PLACES[self.name].removeprefix('in ')}"

    def require_container(self) -> None:
        """Raise Refused if steps that belong inside the image would run outside."""
        if self.name != "here" or self.machine.container:
            return
        refusal = TABLE["refusals"]["Linux" if self.machine.system == "Linux" else "other"]
        system = "macOS" if self.machine.system == "Darwin" else self.machine.system
        raise Refused(f"{refusal.format(system=system)} {TABLE['refusals']['advice']}")

    def obstacle(self, steps: Iterable[WorkStep], env: Mapping[str, str] = os.environ) -> str:
        """Return why these commands would fail here, as a sentence, as far as this is known before they run."""
        steps, machine, image = list(steps), self.machine, self.image
        if not {"local": machine.engine, "slurm": machine.slurm}.get(self.name, True):
            return str(TABLE["missing"][self.name])
        if self.name == "local" and machine.system != "Linux" and any(step.gpus for step in steps):
            return f"Containers on {machine.system} cannot use GPUs: run the commands on a Linux machine with GPUs."
        if self.name == "local" and image.kind == "built" and not self.image_id():
            return f"{image.name} is not on this machine: build it first (build-image), or name another image."
        words = [word for step in steps for word in step.command]
        is_created = any(step.command[0] == "mv" and step.command[-1] == image.name for step in steps)
        is_missing = image.kind == "file" and not is_created and not Path(image.name).is_file()
        if is_missing and any(image.name in word for word in words):
            return f"{image.name} does not exist on this machine: create it (task import), or name another image."
        if any(step.command[0] == "srun" for step in steps):
            options = output_of(["srun", "--help"], env, _SRUN_HELP_SECONDS)
            if options and "--container-image" not in options:
                return str(TABLE["missing"]["pyxis"])
        return ""

    def image_id(self) -> str:
        """Return the ID of an image that was built on this machine; empty for others, or if the engine lacks it."""
        if self.machine.engine is None or self.image.kind != "built":
            return ""
        return engines.image_id(self.machine.engine, self.image.name)

    def image_file(self) -> dict[str, str | bool]:
        """Return the facts about the image's file on shared storage: beside uv's cache, which nodes share.

        Its name has digits that identify the image, by its ID or else its name, so it exists once.
        """
        image, identity, folder = self.image, self.image_id(), Path(self.cache).parent
        engine = "podman" if self.machine.engine and self.machine.engine.name == "podman" else "dockerd"
        source = f"{engine}://{image.name}" if image.kind == "built" else f"docker://{image.enroot_address}"
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", image.name.rpartition("/")[2]).strip("-.")[:100] or "image"
        digits = re.sub(r"[^0-9a-f]", "", identity.rpartition(":")[2])[:12]
        file = folder / f"{stem}-{digits or hashlib.sha256(image.name.encode()).hexdigest()[:12]}.sqsh"
        is_known = bool(identity) or image.kind != "built"
        return {
            "file": str(file), "draft": f"{file}.part", "source": source, "folder": str(folder),
            "folder_exists": folder.is_dir(), "file_exists": file.is_file() and is_known,
        }  # fmt: skip


def choose_place(name: str, machine: Machine) -> PlaceName:
    """Return the named place, or without a name the first that this machine has.  Raises RunbookError if unknown."""
    if name and name not in PLACES:
        raise RunbookError(f"where={name!r} is not one of {', '.join(PLACES)}. Choose one of them, or leave it empty.")
    if name:
        return cast(PlaceName, name)
    if machine.container:
        return "here"
    return "slurm" if machine.engine is None and machine.slurm else "local"
