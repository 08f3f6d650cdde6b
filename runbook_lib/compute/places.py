"""This machine and the places where a task can run: each step's command there, and why it cannot run there.

``tasks.toml`` has the command of each place.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from runbook_lib.compute import engine as engines
from runbook_lib.compute.engine import Engine
from runbook_lib.compute.slurm.site import Session
from runbook_lib.compute.tasks import TABLE, Values, WorkStep, expand, holds
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, Repository

#: What proves a container: a file of Docker; of Podman and Buildah; of Enroot, which Pyxis starts; a variable of
#: systemd's convention, which Podman follows; of Apptainer and Singularity; and of NGC's PyTorch images.
_SIGNS = (
    "/.dockerenv", "/run/.containerenv", "/.lock", "$container", "$APPTAINER_CONTAINER", "$SINGULARITY_CONTAINER",
    "$NVIDIA_PYTORCH_VERSION",
)  # fmt: skip

PlaceName = Literal["here", "local", "slurm"]
#: The values of the notebook's parameter ``where``, with descriptions.
PLACES: Mapping[PlaceName, str] = TABLE["where"]
#: Mount point of the host's uv cache, outside of root's home: Megatron-Bridge's image has another user.
_CACHE = TABLE["variables"]["UV_CACHE_DIR"]


@dataclass(frozen=True)
class Machine:
    """The machine of this process.  ``container`` is the sign that it is a container, empty outside."""

    container: str = ""
    engine: Engine | None = None
    slurm: bool = False


def detect_machine() -> Machine:
    """Return the capabilities of this machine.  Docker and podman count only if they work; buildah only builds."""
    sign, engine = container_sign(), None
    with suppress(RunbookError):
        engine = None if sign else engines.find()
    return Machine(sign, engine if engine != "buildah" else None, shutil.which("srun") is not None)


def container_sign() -> str:
    """Return the file or the variable that proves that this process is inside a container, or an empty string."""
    for sign in _SIGNS:
        if os.environ.get(sign[1:]) if sign.startswith("$") else os.path.exists(sign):
            return sign
    return ""


def choose_place(name: str, machine: Machine) -> PlaceName:
    """Return the named place, or without a name the first that this machine has.  Raises RunbookError if unknown."""
    if name:
        if name not in PLACES:
            expected = ", ".join(PLACES)
            raise RunbookError(f"where={name!r} is not one of {expected}.", "Choose one of them, or leave it empty.")
        return cast(PlaceName, name)
    if machine.container:
        return "here"
    return "slurm" if machine.engine is None and machine.slurm else "local"


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
    session: Session = field(default_factory=Session)

    @property
    def inside(self) -> str:
        """The mount point of the checkout: the folder in which the images and the recipes' scripts expect it."""
        name = self.repository.name
        return "/opt/megatron-lm" if name == MEGATRON_LM.name else f"/opt/{name.rpartition('/')[2]}"

    @property
    def mounts(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a path on the host and its mount point."""
        mounts = ((self.checkout, self.inside), (self.cache, _CACHE), *zip(self.also, self.also, strict=True))
        return tuple(mount for mount in mounts if mount[0])

    @property
    def values(self) -> Values:
        """The facts about the place, for the table of tasks."""
        image, machine, name, session = self.image, self.machine, self.repository.name, self.session
        digest = hashlib.sha256(self.checkout.encode("utf-8", "surrogateescape")).hexdigest()
        uv_run = () if image.kind == "alibaba" else ("uv", "run", "--no-sync")
        return {
            "inside_already": self.name == "here" and bool(machine.container), "at_slurm": self.name == "slurm",
            "host_slurm": self.name == "here" and not machine.container and machine.slurm, "sign": machine.container,
            "checkout": self.checkout, "inside": self.inside, "cache": self.cache, "repository": name,
            "sync_lock": f"{_CACHE}/sync-{digest[:12]}.lock", "bridge": name == MEGATRON_BRIDGE.name,
            "lm": name == MEGATRON_LM.name, "image": image.name, "alibaba": image.kind == "alibaba",
            "image_is_file": image.kind == "file", "many": session.nodes > 1,
            "nodes": str(session.nodes), "gpus": str(session.gpus_per_node or ""), "uv_run": uv_run,
            "uv_line": " ".join(uv_run), "account": session.account, "partition": session.partition,
            "time": session.time,
        }  # fmt: skip

    def command(self, step: WorkStep) -> tuple[str, ...]:
        """Return the command that runs a step in the checkout's folder.

        A step that writes files does so as this user.  Raises Refused for an image that is a file and docker or podman,
        RunbookError for one that a cluster cannot pull.
        """
        env = step.env if step.place == "host" else {**step.env, **self.session.env}
        if step.place == "host" or self.name == "here":
            return ("env", *(f"{name}={env[name]}" for name in env), *step.command) if env else step.command
        engine, image = self.machine.engine or "docker", self.image
        if self.name == "local" and image.kind == "file":
            raise Refused(f"{image.name} is a file, which {engine} cannot run.", "Name the image, or use Slurm.")
        row = TABLE["places"][engine if self.name == "local" else "slurm"]
        session, at_once = self.session, step.gpus and not step.terminal
        values = {
            **self.values, "terminal": step.terminal, "on_gpus": step.gpus and session.gpus_per_node > 0,
            "step_nodes": str(session.nodes if at_once else 1), "uid": str(os.getuid()), "gid": str(os.getgid()),
        }  # fmt: skip
        chosen = [text for when, text in row["options"].items() if holds(when, values)]
        mounts = [row["mount"].format(outside=outside, within=within) for outside, within in self.mounts]
        variables = {**TABLE["variables"], **env}
        return expand(row["command"], {
            **values, "command": step.command, "options": expand(" ".join(chosen), values), "mounts": mounts,
            "joined_mounts": ",".join(mounts), "image": image.enroot_address if self.name == "slurm" else image.name,
            "variables": [row["variable"].format(variable=f"{it}={variables[it]}") for it in variables],
        })  # fmt: skip

    def obstacle(self) -> str:
        """Return why no command can be run in this place, as a sentence, as far as this is known before."""
        if not {"local": self.machine.engine, "slurm": self.machine.slurm}.get(self.name, True):
            return str(TABLE["missing"][self.name])
        if self.name == "local" and self.image.kind == "built" and not self.image_id():
            return f"{self.image.name} is not on this machine: build it first (build-image), or name another image."
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
        engine = "podman" if self.machine.engine == "podman" else "dockerd"
        source = f"{engine}://{image.name}" if image.kind == "built" else f"docker://{image.enroot_address}"
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", image.name.rpartition("/")[2]).strip("-.")[:100] or "image"
        digits = identity.rpartition(":")[2] or hashlib.sha256(image.name.encode()).hexdigest()
        file = folder / f"{stem}-{digits[:12]}.sqsh"
        is_known = bool(identity) or image.kind != "built"
        return {
            "file": str(file), "draft": f"{file}.part", "source": source, "folder": str(folder),
            "folder_exists": folder.is_dir(), "file_exists": file.is_file() and is_known,
        }  # fmt: skip
