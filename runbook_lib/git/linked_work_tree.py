"""A second work tree of a clone, for changes that must not touch the files and the branch that a person works on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runbook_lib.git.checkout import Checkout
from runbook_lib.system.files import locked

_NAME = "base-image-runbook-watch"


@contextmanager
def linked_work_tree(checkout: Checkout, commit: str, branch: str) -> Iterator[Checkout]:
    """Yield a work tree at ``commit`` with the refs and settings of the clone; it is removed afterwards.

    If the clone has ``branch`` checked out, which git allows only once, the clone itself is yielded.  A branch that was
    made there is deleted afterwards, if a remote has it.  One process at a time; remains of a killed one are removed.
    """
    folder = Path(checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir"))
    with locked(folder / f"{_NAME}.lock"):
        if checkout.current_branch() == branch:
            yield checkout
            return
        tree, existed = folder / _NAME, checkout.branch_tip(branch)
        _remove(checkout, tree)
        checkout.git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield Checkout.open(tree)
        finally:
            _remove(checkout, tree)
            if not existed and (tip := checkout.branch_tip(branch)) and _is_pushed(checkout, branch, tip):
                checkout.git("branch", "--quiet", "-D", branch)


def _remove(checkout: Checkout, tree: Path) -> None:
    if tree.exists():
        checkout.git("worktree", "remove", "--force", "--force", str(tree))
    checkout.git("worktree", "prune")


def _is_pushed(checkout: Checkout, branch: str, tip: str) -> bool:
    return any(checkout.remote_tip(remote, branch) == tip for remote in checkout.remotes())
