"""The state of a checkout that is relevant for work with uv."""

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

from runbook_lib.compute.work.pyproject import PYPROJECT, PythonProject
from runbook_lib.errors import CannotTell
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.command import GitFailed
from runbook_lib.git.commit_changes import list_files

LOCK = "uv.lock"
MCORE_SUBMODULE = "3rdparty/Megatron-LM"
#: Files and folders of git's own that mark an unfinished operation, with its name.
_OPERATIONS = {
    "MERGE_HEAD": "merge", "rebase-merge": "rebase", "rebase-apply": "rebase", "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}  # fmt: skip


@dataclass(frozen=True)
class ProjectState:
    """A checkout with a pyproject.toml.

    ``base`` is the tracked base branch, such as ``origin/main``, empty if it is not tracked; ``base_commit`` the commit
    that has that branch's uv.lock.  ``uncommitted`` are pyproject.toml and uv.lock, if they differ from HEAD;
    ``committed_text`` is pyproject.toml there.  ``unmerged`` are all files in conflict, ``operation`` is the git
    operation that waits for them; ``lock_was_in_conflict`` in this operation, and ``conflict_marks`` are in uv.lock.
    ``mcore_branch`` is the Megatron-Core branch that the submodule is pinned to, if known.
    """

    repository: str
    project: PythonProject
    branch: str = ""
    branches: frozenset[str] = frozenset()
    base: str = "origin/main"
    base_commit: str = ""
    uncommitted: frozenset[str] = frozenset()
    committed_text: str = ""
    unmerged: tuple[str, ...] = ()
    operation: str = ""
    lock_was_in_conflict: bool = False
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
    tip = checkout.tracked_tip(remote, base) if remote else None
    tracked = f"{remote}/{base}" if tip else ""
    if checkout.bare:
        files = frozenset(list_files(checkout, "HEAD"))
        return ProjectState(repository, project, base=tracked, has_lock=lock is not None, files=files)
    files = frozenset(checkout.git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"))
    branches = frozenset(checkout.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").split())
    unmerged = checkout.git("diff", "--name-only", "--diff-filter=U", "-z").split("\0")
    operation, joined_commit = _operation(checkout)
    base_commit = tip or ""
    if joined_commit and tip and checkout.is_ancestor(joined_commit, tip):
        base_commit = joined_commit
    missing = _missing_submodules(checkout, project)
    return ProjectState(
        repository, project, checkout.current_branch() or "", branches, tracked, base_commit,
        uncommitted=frozenset(checkout.uncommitted([PYPROJECT, LOCK])),
        committed_text=checkout.read([PYPROJECT], "HEAD")[PYPROJECT] or "",
        unmerged=tuple(filter(None, unmerged)), operation=operation,
        lock_was_in_conflict=bool(operation) and bool(checkout.git("ls-files", "--resolve-undo", "--", LOCK)),
        conflict_marks=re.search(r"(?m)^(?:<<<<<<<|>>>>>>>) ", lock or "") is not None, has_lock=lock is not None,
        missing_submodules=missing, mcore_branch="" if missing else _mcore_branch(checkout), files=files,
    )  # fmt: skip


def _operation(checkout: Checkout) -> tuple[str, str]:
    """Return the unfinished git operation, and the commit that it joins with the current branch."""
    git_dir = Path(checkout.git("rev-parse", "--absolute-git-dir"))
    mark = next((name for name in _OPERATIONS if (git_dir / name).exists()), None)
    if mark is None:
        return "", ""
    operation, path = _OPERATIONS[mark], git_dir / mark
    commits: list[str] = []
    for file in (path, path / "onto"):
        if file.is_file():
            commits = re.findall(r"\A\s*([0-9a-f]{40,64})\b", file.read_text("ascii", "replace"))
    return operation, "".join(commits)


def _missing_submodules(checkout: Checkout, project: PythonProject) -> tuple[str, ...]:
    """Return the submodules that provide packages for the project and are not initialized."""
    if not project.paths or not (checkout.path / ".gitmodules").is_file():
        return ()
    try:
        listing = checkout.git("config", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    except GitFailed:  # the file lists no submodule
        return ()
    submodules = {line.partition(" ")[2] for line in listing.splitlines()}
    missing = []
    for path in map(posixpath.normpath, project.paths.values()):
        if path in submodules and not (checkout.path / path / PYPROJECT).is_file():
            missing.append(path)
    return tuple(missing)


def _mcore_branch(checkout: Checkout) -> str:
    """Return the Megatron-Core branch whose pinned commit the submodule has, or an empty string."""
    pins = checkout.read([".dev.commit", ".main.commit"])
    if None in pins.values() or not (checkout.path / MCORE_SUBMODULE / ".git").exists():
        return ""
    head = checkout.git("-C", MCORE_SUBMODULE, "rev-parse", "HEAD")
    return next((path.split(".")[1] for path, text in pins.items() if text and text.strip() == head), "")
