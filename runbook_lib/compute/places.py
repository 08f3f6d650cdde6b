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
            return engines.find(name)
    return None


PlaceName = Literal["inside", "local", "slurm", "apptainer", "host"]
#: The values of the notebook's parameter ``where``, with descriptions.
PLACES: Mapping[PlaceName, str] = TABLE["where"]
#: The folders in which the images and the recipes' scripts expect the checkout.
CHECKOUT_FOLDERS = {MEGATRON_LM.name: "/opt/megatron-lm", MEGATRON_BRIDGE.name: "/opt/Megatron-Bridge"}
#: Mount point of the host's uv cache, outside of root's home: Megatron-Bridge's image has another user.
CACHE = "/opt/uv-cache"
_MOUNTABLE = re.compile(r"/[^,:\x00-\x1f\x7f]*")
#: git does not trust a checkout that belongs to another user.
_TRUST = (("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "safe.directory"), ("GIT_CONFIG_VALUE_0", "*"))
_SRUN_HELP_SECONDS = 20.0


@dataclass(frozen=True)
class WorkPlace:
    """A way into an image from a machine, with a checkout of a repository mounted as its working folder.

    All paths are absolute.  ``cache`` is the host's folder with uv's cache, empty for none; ``also`` are folders that
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
        image, machine = self.image, self.machine
        digest = hashlib.sha256(self.checkout.encode("utf-8", "surrogateescape")).hexdigest()
        uv_run = () if image.kind == "alibaba" else ("uv", "run", "--no-sync")
        return {
            f"at_{self.name}": True, "sign": machine.container, "checkout": self.checkout, "inside": self.inside,
            "cache": self.cache, "sync_lock": f"{CACHE}/sync-{digest[:12]}.lock", "repository": self.repository.name,
            "bridge": self.repository.name == MEGATRON_BRIDGE.name, "lm": self.repository.name == MEGATRON_LM.name,
            "image": image.name, "alibaba": image.kind == "alibaba", "image_is_file": image.kind == "file",
            "host_slurm": self.name == "host" and machine.slurm and machine.system == "Linux",
            "many": self.allocation.nodes > 1, "nodes": str(self.allocation.nodes),
            "gpus": str(self.allocation.gpus or ""), "uv_run": uv_run, "uv_line": " ".join(uv_run),
        }  # fmt: skip

    def command(self, step: WorkStep) -> tuple[str, ...]:
        """Return the command that runs a step in the checkout's folder.

        A step that writes files does so as this user.  Raises Refused for an image that is a file and docker or podman,
        RunbookError for one that a cluster cannot pull.
        """
        variables = [f"{name}={value}" for name, value in step.env]
        if step.place == "host" or self.name in ("inside", "host"):
            return ("env", *variables, *step.command) if variables else step.command
        engine = self.machine.engine or Engine("docker")
        row = TABLE["places"][engine.name if self.name == "local" else self.name]
        keeps_user = step.terminal or self.image.kind == "alibaba"
        ids = {"uid": str(self.machine.uid), "gid": str(self.machine.gid)}
        wants_gpus = step.gpus and self.allocation.gpus > 0
        chosen = {
            "terminal": step.terminal, "headless": not step.terminal, "owner": not keeps_user, "gpus": wants_gpus
        }  # fmt: skip
        options = {name: expand(row.get(name, ""), ids) if on else () for name, on in chosen.items()}
        if wants_gpus and "--ipc=host" not in self.image.options:  # which implies the host's shared memory
            options["gpus"] += expand(row.get("own_memory", ""), {})
        own = {name for name, _ in step.env}
        trusted = [f"{name}={value}" for name, value in _TRUST if name not in own]
        caches = [f"UV_CACHE_DIR={CACHE}"] if self.cache and "UV_CACHE_DIR" not in own else []
        mounts = [row["mount"].format(outside=outside, within=within) for outside, within in self.mounts]
        return expand(row["command"], {
            **options, "command": step.command, "inside": self.inside,
            "allocation": tuple(self.allocation.options(gpus=step.gpus, terminal=step.terminal)),
            "mpi": ("--mpi=pmix",) if self.repository.name == MEGATRON_BRIDGE.name else (),
            "image_options": self.image.options, "image": self._address(engine), "mounts": tuple(mounts),
            "joined_mounts": ",".join(mounts),
            "variables": tuple(row["variable"].format(variable=it) for it in (*caches, *trusted, *variables)),
        })  # fmt: skip

    def _address(self, engine: Engine) -> str:
        if self.name == "local" and self.image.kind == "file":
            raise Refused(
                f"{self.image.name} is a file, which {engine.name} cannot run. Name the image, or use Slurm or "
                "apptainer."
            )
        if self.name == "slurm":
            return self.image.enroot_address
        return self.image.apptainer_address if self.name == "apptainer" else self.image.name

    def describe(self, step: WorkStep) -> str:
        """Return a phrase for the place where a step runs."""
        if step.place == "host" and self.name != "inside":
            return "on this machine, in the checkout"
        if self.name in ("inside", "host"):
            return PLACES[self.name]
        return f"inside {self.image.name}, {PLACES[self.name].removeprefix('in ')}"

    def require_container(self) -> None:
        """Raise Refused if steps that belong inside the image would run outside."""
        refusal = uv_refusal(self.machine)
        if self.name == "host":  # also inside some container, which need not be the image
            refusal = refusal or "This step belongs inside the image, and where=host names the machine itself."
            raise Refused(
                f"{refusal} Choose local (docker or podman), slurm or apptainer as where, or inside if this notebook "
                "runs in the image. For Slurm without containers, the task install syncs the shared worktree once."
            )
        if self.name == "inside" and refusal:
            raise Refused(f"This process is not inside a container: there is no sign of one. {refusal}")

    def obstacle(self, steps: Iterable[WorkStep], env: Mapping[str, str] = os.environ) -> str:
        """Return why these commands would fail here, as a sentence, as far as this is known before they run."""
        steps, machine, image = list(steps), self.machine, self.image
        available = {"local": machine.engine, "slurm": machine.slurm, "apptainer": machine.apptainer}
        if not available.get(self.name, True):
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
                return (
                    "srun has no option --container-image here: Pyxis is not installed. Ask the cluster's "
                    "administrators."
                )
        return ""

    def image_id(self) -> str:
        """Return the ID of an image that was built on this machine; empty for others, or if the engine lacks it."""
        if self.machine.engine is None or self.image.kind != "built":
            return ""
        return engines.image_id(self.machine.engine, self.image.name)

    def image_file(self) -> dict[str, str | bool]:
        """Return the facts about the image's file on shared storage: beside uv's cache, which nodes share.

        Its name has digits that identify the image, so it exists once.  An image with a mutable name and an unknown ID
        is imported again.
        """
        image, identity, folder = self.image, self.image_id(), Path(self.cache).parent
        if self.name == "apptainer":
            extension, source = "sif", image.apptainer_address
        elif image.kind == "built":
            engine = self.machine.engine
            extension, source = (
                "sqsh",
                f"{'podman' if engine and engine.name == 'podman' else 'dockerd'}://{image.name}",
            )
        else:
            extension, source = "sqsh", f"docker://{image.enroot_address}"
        file = folder / f"{image_file_stem(image, identity)}.{extension}"
        exists = file.is_file() and bool(identity or not image.is_mutable)
        return {
            "file": str(file), "draft": f"{file}.part", "source": source, "folder": str(folder),
            "folder_exists": folder.is_dir(), "file_exists": exists,
        }  # fmt: skip


def choose_place(name: str, machine: Machine) -> PlaceName:
    """Return the named place, or without a name the first that this machine has.  Raises RunbookError if unknown."""
    if name and name not in PLACES:
        raise RunbookError(f"where={name!r} is not one of {', '.join(PLACES)}. Choose one of them, or leave it empty.")
    if name:
        return cast(PlaceName, name)
    if machine.container:
        return "inside"
    if machine.engine is None and machine.slurm:
        return "slurm"
    return "apptainer" if machine.engine is None and machine.apptainer else "local"


def image_file_stem(image: WorkImage, identity: str) -> str:
    """Return a file name without extension that is the same for the same image and differs for any other.

    ``identity`` is the ID or the digest, ``sha256:…``.  If it is empty, the complete reference identifies the image.
    """
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", image.name.rpartition("/")[2]).strip("-.")[:100] or "image"
    digits = re.sub(r"[^0-9a-f]", "", identity.rpartition(":")[2])[:12]
    return f"{stem}-{digits or hashlib.sha256(image.name.encode()).hexdigest()[:12]}"
