"""The commands that run a step in a container of docker, podman, apptainer, or Slurm with Pyxis.  Pure.

Sources of the options: Megatron-Bridge's ``skills/build-and-dependency`` (24 GB of shared memory, no limit on locked
memory, a stack of 64 MB, the host's uv cache), Megatron-LM's ``skills/mcore-build-and-dependency`` and
``skills/mcore-run-on-slurm``.
"""

import hashlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from runbook_lib.compute.engine import Engine
from runbook_lib.compute.work.allocation import Allocation
from runbook_lib.compute.work.image import WorkImage
from runbook_lib.compute.work.tasks import WorkStep
from runbook_lib.errors import Refused
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, Repository

#: The folders in which the images and the recipes' scripts expect the checkout.
CHECKOUT_FOLDERS = {MEGATRON_LM.name: "/opt/megatron-lm", MEGATRON_BRIDGE.name: "/opt/Megatron-Bridge"}
#: Mount point of the host's uv cache, outside of root's home: Megatron-Bridge's image has another user.
CACHE = "/opt/uv-cache"
_LIMITS = ("--ulimit=memlock=-1", "--ulimit=stack=67108864")
_SHARED_MEMORY = "--shm-size=24g"
_MOUNTABLE = re.compile(r"/[^,:\x00-\x1f\x7f]*")
#: git does not trust a checkout that belongs to another user.
_TRUST = (("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "safe.directory"), ("GIT_CONFIG_VALUE_0", "*"))


@dataclass(frozen=True)
class WorkContainer:
    """An image with a checkout mounted as its working folder.  All paths are absolute.

    ``inside`` is the mount point of the checkout, ``cache`` the host's folder with uv's cache, empty for none.
    ``git_folder`` is the checkout's git directory if that is elsewhere: the .git file of a work tree names it by its
    path on the host.
    """

    image: WorkImage
    checkout: str
    inside: str
    cache: str = ""
    git_folder: str = ""

    @classmethod
    def create(
        cls, repository: Repository, image: WorkImage, checkout: str, cache: str = "", *, git: str = ""
    ) -> "WorkContainer":
        """Return the container for a checkout whose git directory is ``git``.

        Raises Refused for paths that cannot be mounted.
        """
        inside = CHECKOUT_FOLDERS.get(repository.name, f"/opt/{repository.name.rpartition('/')[2]}")
        if f"{git}/".startswith(f"{checkout}/"):
            git = ""
        container = cls(image, checkout, inside, cache, git)
        paths = itertools.chain.from_iterable(container.mounts)
        if wrong := [repr(path) for path in paths if not _MOUNTABLE.fullmatch(path)]:
            raise Refused(
                f"These paths cannot be mounted: {', '.join(wrong)}. A path to mount is absolute and has no comma, "
                "colon or control character; move the checkout elsewhere."
            )
        return container

    @property
    def mounts(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a path on the host and its mount point."""
        mounts = ((self.checkout, self.inside), (self.cache, CACHE), (self.git_folder, self.git_folder))
        return tuple(mount for mount in mounts if mount[0])

    @property
    def sync_lock(self) -> str:
        """The path, inside the container, of the lock for syncing the checkout's environment, in uv's cache."""
        digest = hashlib.sha256(self.checkout.encode("utf-8", "surrogateescape")).hexdigest()
        return f"{CACHE}/sync-{digest[:12]}.lock"

    def variables(self, step: WorkStep) -> tuple[str, ...]:
        """Return the variables to set inside the container for a step, as ``NAME=value``."""
        variables = dict((*_TRUST, *step.env))
        if self.cache:
            variables = {"UV_CACHE_DIR": CACHE, **variables}
        return tuple(f"{name}={value}" for name, value in variables.items())


def engine_command(
    container: WorkContainer, engine: Engine, step: WorkStep, owner: tuple[int, int] | None = None
) -> tuple[str, ...]:
    """Return ``docker run`` or ``podman run`` of a step.

    With ``owner``, a user and a group ID, new files in the checkout belong to that user; without it the image's own
    user runs the step, as a session expects.  Raises Refused for buildah, and for an image that is a file.
    """
    image = container.image
    if engine.name == "buildah":
        raise Refused("buildah only builds images. Install docker or podman to run something in one.")
    if image.kind == "file":
        raise Refused(
            f"{image.name} is a file, which {engine.name} cannot run. Name the image, or use Slurm or apptainer."
        )
    return (
        engine.name, *engine.options, "run", "--rm",
        *_engine_options(engine, step, owner, image.options), *image.options,
        *(f"--volume={outside}:{inside}" for outside, inside in container.mounts),
        *(f"--env={variable}" for variable in container.variables(step)),
        f"--workdir={container.inside}", image.name, *step.command,
    )  # fmt: skip


def _engine_options(
    engine: Engine, step: WorkStep, owner: tuple[int, int] | None, image_options: tuple[str, ...]
) -> Iterator[str]:
    is_docker = engine.name == "docker"
    if step.terminal:
        yield from ("--interactive", "--tty")
    elif is_docker:
        yield "--init"  # forwards signals, so that a container ends with its command; podman's is not always installed
    if step.gpus:
        # Podman uses the device names of the Container Device Interface.
        yield "--gpus=all" if is_docker else "--device=nvidia.com/gpu=all"
    if not is_docker:
        yield "--security-opt=label=disable"  # SELinux would deny access to the devices and to the mounts
    if owner is not None:
        # Root in a rootless container is the user outside.
        yield f"--user={owner[0]}:{owner[1]}" if is_docker else "--user=0:0"
        yield "--env=HOME=/tmp"
    if step.gpus:
        if "--ipc=host" not in image_options:  # which implies the host's shared memory
            yield _SHARED_MEMORY
        yield from _LIMITS


def apptainer_command(container: WorkContainer, step: WorkStep) -> tuple[str, ...]:
    """Return ``apptainer exec`` of a step, without the user's home and variables.

    Shared memory and limits are the host's; apptainer has no options for them.
    """
    return (
        "apptainer", "exec", *(["--nv"] if step.gpus else []), "--cleanenv", "--no-home", "--writable-tmpfs",
        *(f"--bind={outside}:{inside}" for outside, inside in container.mounts),
        *(f"--env={variable}" for variable in container.variables(step)),
        f"--pwd={container.inside}", container.image.apptainer_address, *step.command,
    )  # fmt: skip


def slurm_command(container: WorkContainer, allocation: Allocation, step: WorkStep, repository: str) -> tuple[str, ...]:
    """Return ``srun`` of a step with Pyxis, one task per node if the step is one for GPUs, else one task.

    Variables are set by ``env`` inside, because Pyxis does not override variables that the image sets.
    Raises RunbookError for an image that a cluster cannot pull.
    """
    mounts = ",".join(f"{outside}:{inside}" for outside, inside in container.mounts)
    return (
        "srun", *allocation.options(gpus=step.gpus, terminal=step.terminal),
        *(["--mpi=pmix"] if repository == MEGATRON_BRIDGE.name else []),
        f"--container-image={container.image.enroot_address}", f"--container-mounts={mounts}",
        f"--container-workdir={container.inside}", "--no-container-mount-home", *(["--pty"] if step.terminal else []),
        "env", *container.variables(step), *step.command,
    )  # fmt: skip


def direct_command(step: WorkStep) -> tuple[str, ...]:
    """Return a step's command for the current container, or for this machine."""
    if not step.env:
        return step.command
    return ("env", *(f"{name}={value}" for name, value in step.env), *step.command)
