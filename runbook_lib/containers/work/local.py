"""The command that runs something inside the image on this machine: docker, podman, apptainer.  Pure.

Source of the options: Megatron-Bridge's ``skills/build-and-dependency`` (24 GB of shared memory, memory that may be
locked without limit, a stack of 64 MB, the host's uv cache) and Megatron-LM's ``skills/mcore-build-and-dependency``.
"""

import re
from dataclasses import dataclass, replace

from runbook_lib.containers.engine import Engine
from runbook_lib.containers.work.image import Image
from runbook_lib.containers.work.task import Here, Step
from runbook_lib.errors import Refused
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, Repository

#: Where the images and the scripts of the recipes expect the checkout.
FOLDERS = {MEGATRON_LM.name: "/opt/megatron-lm", MEGATRON_BRIDGE.name: "/opt/Megatron-Bridge"}
#: The host's uv cache, in a place that every user of a container may enter: /root and its .cache are for root alone,
#: and Megatron-Bridge's image has another user.
CACHE = "/opt/uv-cache"
_LIMITS = ("--shm-size=24g", "--ulimit=memlock=-1", "--ulimit=stack=67108864")
_PATH = re.compile(r"/[^,:\x00-\x1f\x7f]*")


@dataclass(frozen=True)
class Container:
    """An image with a checkout mounted as its working folder.  Paths are absolute.

    ``inside`` is where the checkout is mounted, ``cache`` the host's folder of uv's cache, "" for none.  ``mounts`` are
    further pairs of a path outside and inside.
    """

    image: Image
    checkout: str
    inside: str
    cache: str = ""
    mounts: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        wrong = [f"{path!r}" for pair in self.all_mounts for path in pair if not _PATH.fullmatch(path)]
        if wrong:
            raise Refused(
                f"These paths cannot be mounted: {', '.join(wrong)}. A path to mount is absolute and has no comma, "
                "colon or control character; put the checkout elsewhere."
            )

    @property
    def all_mounts(self) -> tuple[tuple[str, str], ...]:
        """All pairs of a path outside and inside."""
        cache = ((self.cache, CACHE),) if self.cache else ()
        return ((self.checkout, self.inside), *cache, *self.mounts)

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """What is set inside: where uv's cache is, and that git trusts a checkout of another user."""
        cache = (("UV_CACHE_DIR", CACHE),) if self.cache else ()
        trust = ("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "safe.directory"), ("GIT_CONFIG_VALUE_0", "*")
        return (*cache, *trust)


def of(repository: Repository, image: Image, checkout: str, cache: str = "", *, git: str = "") -> Container:
    """The container for a checkout of a repository.  ``git`` is its git directory, where that lies elsewhere.

    Raises Refused for paths that cannot be mounted.
    """
    inside = FOLDERS.get(repository.name, f"/opt/{repository.name.rpartition('/')[2]}")
    # The .git file of a work tree names the folder by its path outside.
    mounts = ((git, git),) if git and not f"{git}/".startswith(f"{checkout}/") else ()
    return Container(image, checkout, inside, cache, mounts)


def engine_run(container: Container, engine: Engine, step: Step, here: Here | None = None) -> tuple[str, ...]:
    """``docker run`` or ``podman run`` of a step.  Without ``here`` as the image's own user, as a session wants it.

    With ``here``, files in the checkout come to belong to its user.  Raises Refused for buildah, and for a file.
    """
    if engine.name == "buildah":
        raise Refused("buildah builds images, and this runs in one: install docker or podman for that.")
    if container.image.kind == "file":
        raise Refused(
            f"{container.image.name} is a file, which {engine.name} cannot run. Name the image, or use Slurm or "
            "apptainer."
        )
    host = any(it == "--ipc=host" for it in container.image.options)
    limits = [it for it in _LIMITS if step.gpus and not (host and it.startswith("--shm"))]  # --ipc=host brings its own
    variables = [*container.variables, *step.env]
    return (
        engine.name, *engine.options, "run", "--rm", *(["--interactive", "--tty"] if step.terminal else []),
        *_own_options(engine, step), *_user(engine, here), *limits, *container.image.options,
        *(f"--volume={outside}:{inside}" for outside, inside in container.all_mounts),
        *(f"--env={name}={value}" for name, value in variables),
        f"--workdir={container.inside}", container.image.name, *step.command,
    )  # fmt: skip


def _own_options(engine: Engine, step: Step) -> tuple[str, ...]:
    if engine.name == "docker":
        # Its init hands signals on, so that a container ends with its command; podman's is not always installed.
        return (*([] if step.terminal else ["--init"]), *(["--gpus=all"] if step.gpus else []))
    # Podman names devices as the Container Device Interface does; SELinux would keep them, and the mounts, from it.
    return (*(["--device=nvidia.com/gpu=all"] if step.gpus else []), "--security-opt=label=disable")


def _user(engine: Engine, here: Here | None) -> tuple[str, ...]:
    if here is None:
        return ()
    # Root in a rootless container is the person outside.
    user = f"{here.uid}:{here.gid}" if engine.name == "docker" else "0:0"
    return (f"--user={user}", "--env=HOME=/tmp")


def apptainer_exec(container: Container, step: Step) -> tuple[str, ...]:
    """``apptainer exec`` of a step, or its shell: GPUs by --nv, never the person's home nor variables.

    The limits are the host's: there is neither a limit of shared memory nor one to set.
    """
    image = container.image
    source = image.name if image.kind == "file" else f"docker-daemon:{image.name}"
    if image.kind not in ("file", "built"):
        source = f"docker://{image.name}"
    return (
        "apptainer", "exec", *(["--nv"] if step.gpus else []), "--cleanenv", "--no-home", "--writable-tmpfs",
        *(f"--bind={outside}:{inside}" for outside, inside in container.all_mounts),
        *(f"--env={name}={value}" for name, value in (*container.variables, *step.env)),
        f"--pwd={container.inside}", source, *step.command,
    )  # fmt: skip


def direct(step: Step) -> tuple[str, ...]:
    """A step inside this very container, or on this machine."""
    return (*(["env", *(f"{name}={value}" for name, value in step.env)] if step.env else []), *step.command)


def session(container: Container) -> Step:
    """A shell inside the image, with all GPUs."""
    return Step(
        "Open a shell inside the image", ("bash",), "container",
        f"{container.checkout} is mounted as {container.inside}, so what you edit here is what runs there; uv's cache "
        "is the host's, so that wheels are not fetched again.",
        gpus=True, terminal=True,
    )  # fmt: skip


def demo(step: Step) -> Step:
    """The benchmark that Alibaba's image has built in, in place of a shell."""
    return replace(
        step, title="Run the image's own benchmark",
        command=("ljperf", "benchmark", "--model", "deepspeed/llama3-8b"),
        why="Alibaba's image shows by it that GPUs, network and shared memory are there.", terminal=False,
    )  # fmt: skip
