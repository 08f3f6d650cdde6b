"""What work inside the image begins with: this machine, and the state of the checkout."""

import os
import platform
import posixpath
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from runbook_lib.containers import run
from runbook_lib.containers.engine import Engine
from runbook_lib.containers.work import task
from runbook_lib.containers.work.image import Image
from runbook_lib.containers.work.pyproject import PATH, Project
from runbook_lib.containers.work.task import Here
from runbook_lib.containers.work.uv import LOCK, SUBMODULE, Tree
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.command import GitFailed

#: Seconds that ``srun --help`` may take.
_LIMIT = 20.0
_OPERATIONS: tuple[tuple[str, Literal["merge", "rebase", "cherry-pick"]], ...] = (
    ("MERGE_HEAD", "merge"), ("rebase-merge", "rebase"), ("rebase-apply", "rebase"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
)  # fmt: skip


def here(env: Mapping[str, str] = os.environ) -> Here:
    """The machine of this process; engines are asked whether they work."""
    sign = task.container_sign(env, os.path.exists)
    path = env.get("PATH", "")
    return Here(
        sign, platform.system(), None if sign else _engine(env),
        shutil.which("srun", path=path) is not None, shutil.which("apptainer", path=path) is not None,
        os.getuid(), os.getgid(),
    )  # fmt: skip


def lacking(image: Image, commands: Iterable[Sequence[str]], env: Mapping[str, str] = os.environ) -> str:
    """Why commands would fail on this machine, a whole sentence, where that can be seen before; else empty.

    An image's file that one of them makes need not be there.
    """
    every, path = [tuple(it) for it in commands], env.get("PATH", "")
    made = {it[-1] for it in every if it[0] == "mv"}
    programs = {it[0] for it in every}
    inside = any(image.name in word for it in every for word in it)
    if inside and image.kind == "file" and image.name not in made and not Path(image.name).is_file():
        return f"{image.name} does not exist on this machine: make it first (task import), or name another image."
    if "enroot" in programs and shutil.which("enroot", path=path) is None:
        return "enroot is not on this machine: install it, or run the commands where it is."
    if "srun" in programs and (srun := shutil.which("srun", path=path)) and not _pyxis(srun):
        return "srun knows no --container-image here, so Pyxis is not installed: ask those who run the cluster."
    return ""


def _pyxis(srun: str) -> bool:
    """Whether ``srun`` takes a container's image; one that does not answer is believed to."""
    try:
        done = subprocess.run(
            [srun, "--help"], capture_output=True, timeout=_LIMIT, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return done.returncode != 0 or b"--container-image" in done.stdout


def _engine(env: Mapping[str, str]) -> Engine | None:
    """The first that runs containers; buildah only builds them."""
    for name in ("docker", "podman"):
        try:
            return run.find(name, env)
        except RunbookError:
            continue
    return None


def tree(checkout: Checkout, repository: str, base: str = "main") -> Tree:
    """The checkout as plans of uv work see it; ``repository`` is ``owner/name``.

    Raises CannotTell without a pyproject.toml of uv's.
    """
    text, lock = checkout.read([PATH, LOCK], "HEAD" if checkout.bare else None).values()
    if text is None:
        raise CannotTell(f"{checkout.path} has no {PATH}, so there is nothing for uv to do.")
    project = Project.read(text)
    remote = checkout.base_remote()
    tracked = checkout.tracked_tip(remote, base) if remote else None
    known = f"{remote}/{base}" if tracked else ""
    if checkout.bare:
        listed = checkout.git("ls-tree", "-r", "--name-only", "-z", "HEAD").split("\0")
        return Tree(repository, project, base=known, lock=lock is not None, files=frozenset(listed))
    listed = checkout.git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    joining, other = _joining(checkout)
    theirs = other if other and tracked and checkout.is_ancestor(other, tracked) else tracked or ""
    missing = _missing(checkout, project)
    return Tree(
        repository, project,
        branch=checkout.current_branch() or "",
        branches=frozenset(checkout.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").split()),
        base=known,
        theirs=theirs,
        changed=frozenset(checkout.uncommitted([PATH, LOCK])),
        head=checkout.read([PATH], "HEAD")[PATH] or "",
        unmerged=tuple(filter(None, checkout.git("diff", "--name-only", "--diff-filter=U", "-z").split("\0"))),
        joining=joining,
        was_conflict=bool(joining) and bool(checkout.git("ls-files", "--resolve-undo", "--", LOCK)),
        marks=lock is not None and re.search(r"(?m)^(?:<<<<<<<|>>>>>>>) ", lock) is not None,
        lock=lock is not None,
        missing=missing,
        mcore="" if missing else _mcore(checkout),
        files=frozenset(listed),
    )  # fmt: skip


def _joining(checkout: Checkout) -> tuple[Literal["", "merge", "rebase", "cherry-pick"], str]:
    """The operation of git that is not done, and the commit that is joined with one's own."""
    folder = Path(checkout.git("rev-parse", "--absolute-git-dir"))
    for name, operation in _OPERATIONS:
        if (folder / name).exists():
            file = folder / name / "onto" if (folder / name).is_dir() else folder / name
            text = file.read_text("ascii", "replace").split() if file.is_file() else []
            return operation, text[0] if text and re.fullmatch(r"[0-9a-f]{40,64}", text[0]) else ""
    return "", ""


def _missing(checkout: Checkout, project: Project) -> tuple[str, ...]:
    """The submodules from which the project takes packages, and that are not initialized."""
    wanted = [posixpath.normpath(path) for path in project.paths.values()]
    if not wanted or not (checkout.path / ".gitmodules").is_file():
        return ()
    try:
        listed = checkout.git("config", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    except GitFailed:  # it lists none
        return ()
    known = {line.partition(" ")[2] for line in listed.splitlines()}
    return tuple(it for it in wanted if it in known and not (checkout.path / it / PATH).is_file())


def _mcore(checkout: Checkout) -> str:
    """The branch of Megatron-Core whose pinned commit the submodule stands on, or empty."""
    pins = checkout.read([".dev.commit", ".main.commit"])
    if None in pins.values() or not (checkout.path / SUBMODULE / ".git").exists():
        return ""
    head = checkout.git("-C", SUBMODULE, "rev-parse", "HEAD")
    return next((path.split(".")[1] for path, text in pins.items() if text and text.strip() == head), "")
