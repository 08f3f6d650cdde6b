"""Work that belongs inside the image: its steps, and where this process stands.  Pure.

Both projects hold to it: build and develop inside containers, always by uv.  CUDA, PyTorch and what is compiled against
them come from the image; another machine resolves, builds and locks something else.
Sources: Megatron-LM's ``skills/mcore-build-and-dependency``, Megatron-Bridge's ``skills/build-and-dependency``.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from runbook_lib.containers.engine import Engine

#: Where a step runs: with the person's git and keys, or where CUDA and the environment are.
Where = Literal["host", "container"]

#: What can be done inside, as the notebook's parameter ``task`` names it.
TASKS: Mapping[str, str] = {
    "session": "a shell inside the image",
    "tests": "unit tests: a bucket, a file, a test, or a part of names",
    "import": "the image as a file that all nodes of a cluster read",
    "install": "extras and groups into the environment",
    "add": "a new dependency, on a branch of its own",
    "lock": "uv.lock anew over pyproject.toml",
    "conflict": "a conflict of git in uv.lock",
    "mcore-dev": "Megatron-Bridge on Megatron-Core's dev",
    "mcore-main": "Megatron-Bridge back on Megatron-Core's main",
    "hooks": "the hooks of pre-commit, installed",
    "hooks-run": "the hooks of pre-commit, run over all files",
    "lint": "the style, checked",
    "format": "the style, mended",
    "demo": "the benchmark that Alibaba's image brings",
}

_WIDE = 110
#: Files of every container: of Docker; of Podman and Buildah; of Enroot, which Pyxis starts (its ``src/runtime.sh``).
SIGNS = ("/.dockerenv", "/run/.containerenv", "/.lock")
#: Variables: systemd's convention, which Podman follows; Apptainer's and Singularity's; that of NGC's PyTorch images,
#: which every way to run them passes on.
_VARIABLES = ("container", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "NVIDIA_PYTORCH_VERSION")


@dataclass(frozen=True)
class Step:
    """One command of a sequence.  ``where`` is where it runs, ``why`` a whole sentence.

    ``gpus``: it needs them.  ``terminal``: it needs a person's terminal, so it is only shown.  ``env`` holds what it
    sets, by name.  ``keeps`` are files that it writes over: what they hold goes into git's store before.
    """

    title: str
    command: tuple[str, ...]
    where: Where
    why: str
    gpus: bool = False
    terminal: bool = False
    env: tuple[tuple[str, str], ...] = ()
    keeps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Here:
    """The machine of this process.  ``container`` is the sign that it is inside of one, empty outside.

    ``system`` is as ``platform.system()`` names it; ``uid`` and ``gid`` own the files that it writes.
    """

    container: str = ""
    system: str = "Linux"
    engine: Engine | None = None
    slurm: bool = False
    apptainer: bool = False
    uid: int = 0
    gid: int = 0


def container_sign(env: Mapping[str, str], exists: Callable[[str], bool]) -> str:
    """The sign by which a process with this environment is inside a container, or empty."""
    for path in SIGNS:
        if exists(path):
            return path
    return next((f"${name}" for name in _VARIABLES if env.get(name)), "")


def why_not(here: Here) -> str:
    """Why uv work is refused on this machine itself, a whole sentence; empty inside a container."""
    if here.container:
        return ""
    if here.system == "Darwin":
        return (
            "uv is not run on macOS: uv.lock is for Linux and names CUDA wheels, which do not exist for macOS, so what "
            "would be locked or installed here is not what CI uses."
        )
    if here.system != "Linux":
        return f"uv is not run on {here.system}: uv.lock is for Linux and names CUDA wheels."
    return (
        "uv is not run on this machine itself: CUDA, PyTorch and what is compiled against them come from the image, "
        "and another release of uv would write uv.lock in another form. Inside the container it finds both."
    )


def line(command: tuple[str, ...]) -> str:
    """The command as it can be pasted into a shell."""
    return shlex.join(command)


def folded(command: tuple[str, ...]) -> str:
    """The same, a long one over several lines, none broken within a word."""
    rows = [""]
    for word in map(shlex.quote, command):
        if rows[-1] and len(rows[-1]) + len(word) >= _WIDE:
            rows.append(f"    {word}")
        else:
            rows[-1] += f" {word}" if rows[-1] else word
    return " \\\n".join(rows)
