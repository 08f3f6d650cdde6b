"""Inside the image on a cluster: Slurm with Pyxis, an environment that is synced once, images as files.  Pure.

Sources: Megatron-LM's ``skills/mcore-run-on-slurm`` and ``mcore-build-and-dependency``, Megatron-Bridge's
``skills/build-and-dependency``; Enroot's ``doc/cmd/import.md``.
"""

import hashlib
import re
from dataclasses import dataclass, replace

from runbook_lib.containers.engine import Engine
from runbook_lib.containers.work.image import Image, inspected
from runbook_lib.containers.work.local import CACHE, Container
from runbook_lib.containers.work.task import Step
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.pins.repositories import MEGATRON_BRIDGE

_WORD = re.compile(r"[A-Za-z0-9_][\w.+@=-]*")
_LIST = re.compile(rf"{_WORD.pattern}(?:,{_WORD.pattern})*")
_TIME = re.compile(r"(?:\d{1,4}-)?\d{1,4}(?::\d{2}){0,2}")
#: The image names its own environment in these, and uv would take that for the one to use.
_UNSET = ("env", "--unset=UV_PYTHON", "--unset=VIRTUAL_ENV")
#: $1 is the lock, the rest are options of `uv sync`.  The environment sees the PyTorch of the image, as its own does.
_SYNC = (
    'set -e; exec 9>"$1"; flock 9; shift; '
    'test -x "$UV_PROJECT_ENVIRONMENT/bin/python" || uv venv --system-site-packages "$UV_PROJECT_ENVIRONMENT"; '
    'exec uv sync "$@"'
)


@dataclass(frozen=True)
class Allocation:
    """What is asked of Slurm.  ``gpus`` are those of each node, ``time`` as ``--time`` takes it, "" for its default."""

    nodes: int = 1
    gpus: int = 8
    account: str = ""
    partition: str = ""
    time: str = ""

    def __post_init__(self) -> None:
        for name, value, form in (
            ("account", self.account, _WORD), ("partition", self.partition, _LIST), ("time", self.time, _TIME),
        ):  # fmt: skip
            if value and not form.fullmatch(value):
                raise RunbookError(f"{name}={value!r} cannot be what Slurm takes as its --{name}.")
        if self.nodes < 1 or self.gpus < 0:
            raise RunbookError(f"{self.nodes} nodes with {self.gpus} GPUs each cannot be allocated.")


def srun(container: Container, allocation: Allocation, step: Step, repository: str) -> tuple[str, ...]:
    """``srun`` of a step by Pyxis, one task a node.

    What it sets is set inside: of a variable that the image has, Pyxis keeps the image's value.  Raises RunbookError
    for an image that a cluster cannot have.
    """
    mounts = ",".join(f"{outside}:{inside}" for outside, inside in container.all_mounts)
    asked = {"account": allocation.account, "partition": allocation.partition, "time": allocation.time}
    variables = [f"{name}={value}" for name, value in (*container.variables, *step.env)]
    return (
        "srun", f"--nodes={allocation.nodes}", "--ntasks-per-node=1",
        *([f"--gpus-per-node={allocation.gpus}"] if step.gpus and allocation.gpus else []),
        *(f"--{name}={value}" for name, value in asked.items() if value),
        *(["--mpi=pmix"] if repository == MEGATRON_BRIDGE.name else []),
        f"--container-image={container.image.enroot}", f"--container-mounts={mounts}",
        f"--container-workdir={container.inside}", "--no-container-mount-home", *(["--pty"] if step.terminal else []),
        "env", *variables, *step.command,
    )  # fmt: skip


def environment(container: Container) -> tuple[tuple[str, str], ...]:
    """The variable that names the environment in the checkout, which all nodes see, in place of the image's own."""
    return (("UV_PROJECT_ENVIRONMENT", f"{container.inside}/.venv"),)


def sync_once(container: Container, options: tuple[str, ...], *, locked: bool = True) -> Step:
    """Make and fill the environment in the shared checkout, by one task and under a lock.  One node is enough.

    Raises Refused without a cache on shared storage, where the lock stands.
    """
    if not container.cache:
        raise Refused(
            "The environment in the checkout needs uv's cache, where its lock stands: name a folder as cache."
        )
    own = hashlib.sha256(container.checkout.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    words = ("--locked",) * locked + options
    return Step(
        "Sync the environment once", (*_UNSET, "bash", "-c", _SYNC, "sync", f"{CACHE}/sync-{own}.lock", *words),
        "container",
        "The image's own /opt/venv ends with its container, so this one lasts in the checkout, where all nodes see it. "
        "One task syncs it before any job and holds a lock meanwhile: where every node runs uv sync, one removes what "
        "another reads. Afterwards use `uv run --no-sync`.",
        env=environment(container),
    )  # fmt: skip


def on_host_sync(lock: str, options: tuple[str, ...]) -> Step:
    """Sync ``.venv`` in the shared worktree itself, for a cluster whose jobs run without a container.

    ``lock`` is a file on the same storage.
    """
    return Step(
        "Sync the environment once",
        ("flock", lock, "uv", "sync", "--locked", *options),
        "host",
        "Jobs without a container use .venv in the shared worktree. It is synced once before the first is submitted: "
        "else every job builds it anew, and nodes race. The lock keeps a second person out meanwhile.",
    )  # fmt: skip


def session(step: Step, container: Container, *, shared: bool) -> Step:
    """The shell of a session; ``shared`` where an environment in the checkout was synced for it."""
    if not shared:
        why = "Nothing is synced: the image brings its environment at /opt/venv. Run by `uv run --no-sync` in there."
        return replace(step, why=why)
    why = "It uses the environment in the checkout that was synced before. Run by `uv run --no-sync` in there."
    return replace(step, command=(*_UNSET, *step.command), why=why, env=(*step.env, *environment(container)))


def imported(
    image: Image, folder: str, identity: str, engine: Engine | None, *, there: bool
) -> tuple[str, tuple[Step, ...]]:
    """The ``.sqsh`` file of an image in a folder on shared storage, and the steps that make it; none where it is there.

    ``identity`` is the image's id or digest, of which the file's name tells; ``there`` whether that file exists.  An
    image whose tag moves and whose identity is not known is imported again.  Raises Refused for a file.
    """
    if image.kind == "file":
        raise Refused(f"{image.name} is a file already: name it as image of a session.")
    path = f"{folder.rstrip('/')}/{inspected(image, identity)}"
    if there and (identity or not image.moves):
        return path, ()
    daemon = "podman" if engine is not None and engine.name == "podman" else "dockerd"
    source = f"{daemon}://{image.name}" if image.kind == "built" else f"docker://{image.enroot}"
    return path, _made(path, ("enroot", "import", "--output", f"{path}.part", source), "Enroot")


def built_sif(image: Image, folder: str, identity: str, *, there: bool) -> tuple[str, tuple[Step, ...]]:
    """The same for apptainer: a ``.sif`` file, from the engine's image or from its registry."""
    if image.kind == "file":
        raise Refused(f"{image.name} is a file already: name it as image of a session.")
    path = f"{folder.rstrip('/')}/{inspected(image, identity).removesuffix('.sqsh')}.sif"
    if there and (identity or not image.moves):
        return path, ()
    source = f"docker-daemon:{image.name}" if image.kind == "built" else f"docker://{image.name}"
    return path, _made(path, ("apptainer", "build", "--force", f"{path}.part", source), "Apptainer")


def _made(path: str, command: tuple[str, ...], program: str) -> tuple[Step, ...]:
    draft = f"{path}.part"
    return (
        Step("Clear an import that was cut off", ("rm", "-f", "--", draft), "host",
             f"{program} does not go on with a file that an earlier import left half written."),
        Step("Import the image", command, "host", "All nodes read this one file, and none pulls the image again."),
        Step("Put it in its place", ("mv", "--", draft, path), "host",
             "Only a whole import gets the name that sessions use; its digits tell the image, so it is made once."),
    )  # fmt: skip
