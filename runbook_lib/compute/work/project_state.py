"""The state of a checkout that is relevant for work with uv."""

import re
from dataclasses import dataclass

from runbook_lib.compute.work.pyproject import PYPROJECT, PythonProject
from runbook_lib.errors import CannotTell
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.commit_changes import list_files

LOCK = "uv.lock"
MCORE_SUBMODULE = "3rdparty/Megatron-LM"


@dataclass(frozen=True)
class ProjectState:
    """A checkout with a pyproject.toml.

    ``base`` is the tracked base branch, such as ``origin/main``, empty if it is not tracked.  ``uncommitted`` are
    pyproject.toml and uv.lock, if they differ from HEAD; ``unmerged`` are all files in conflict, and ``conflict_marks``
    are in uv.lock.  ``mcore_branch`` is the Megatron-Core branch that the submodule is pinned to, if known.
    """

    repository: str
    project: PythonProject
    base: str = "origin/main"
    uncommitted: frozenset[str] = frozenset()
    unmerged: tuple[str, ...] = ()
    conflict_marks: bool = False
    has_lock: bool = True
    missing_submodules: tuple[str, ...] = ()
    mcore_branch: str = ""
    files: frozenset[str] = frozenset()

    @property
    def lock_in_conflict(self) -> bool:
        """True if uv.lock is unmerged, or was committed with conflict markers."""
        return self.conflict_marks or LOCK in self.unmerged


def read_project_state(checkout: Checkout, repository: str, base: str = "main") -> ProjectState:
    """Read the state of a checkout; ``repository`` is ``owner/name``.

    Raises CannotTell without a pyproject.toml that uv manages.
    """
    text, lock = checkout.read([PYPROJECT, LOCK], "HEAD" if checkout.bare else None).values()
    if text is None:
        raise CannotTell(f"{checkout.path} has no {PYPROJECT}, so uv has nothing to work on.")
    project = PythonProject.parse(text)
    remote = checkout.base_remote()
    tracked = f"{remote}/{base}" if remote and checkout.tracked_tip(remote, base) else ""
    if checkout.bare:
        files = frozenset(list_files(checkout, "HEAD"))
        return ProjectState(repository, project, base=tracked, has_lock=lock is not None, files=files)
    files = frozenset(checkout.git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"))
    unmerged = checkout.git("diff", "--name-only", "--diff-filter=U", "-z").split("\0")
    missing = missing_submodules(checkout)
    return ProjectState(
        repository, project, tracked, frozenset(checkout.uncommitted([PYPROJECT, LOCK])),
        tuple(filter(None, unmerged)), re.search(r"(?m)^(?:<<<<<<<|>>>>>>>) ", lock or "") is not None,
        has_lock=lock is not None, missing_submodules=missing,
        mcore_branch="" if missing else _mcore_branch(checkout), files=files,
    )  # fmt: skip


def missing_submodules(checkout: Checkout) -> tuple[str, ...]:
    """Return the submodules that are not initialized, so that their folders are empty."""
    if checkout.read([".gitmodules"])[".gitmodules"] is None:
        return ()
    lines = checkout.git("submodule", "status").splitlines()
    return tuple(line[1:].split()[1] for line in lines if line.startswith("-"))


def _mcore_branch(checkout: Checkout) -> str:
    """Return the Megatron-Core branch whose pinned commit the submodule has, or an empty string."""
    pins = checkout.read([".dev.commit", ".main.commit"])
    if None in pins.values() or not (checkout.path / MCORE_SUBMODULE / ".git").exists():
        return ""
    head = checkout.git("-C", MCORE_SUBMODULE, "rev-parse", "HEAD")
    return next((path.split(".")[1] for path, text in pins.items() if text and text.strip() == head), "")
