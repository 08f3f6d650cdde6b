"""Work with uv around git: a conflict in ``uv.lock``, and Megatron-Core's branch in Megatron-Bridge.  Pure.

Sources: Megatron-LM's ``skills/mcore-build-and-dependency``; Megatron-Bridge's ``skills/build-and-dependency`` and
``scripts/switch_mcore.sh``.
"""

from runbook_lib.containers.work.pyproject import PATH
from runbook_lib.containers.work.task import Step
from runbook_lib.containers.work.uv import LOCK, SUBMODULE, Tree, Work, commit, signing, submodules, usual
from runbook_lib.errors import Refused

SWITCH = "scripts/switch_mcore.sh"


def conflict(tree: Tree) -> Work:
    """Take the base branch's ``uv.lock``, lock again over one's own pyproject.toml, and let git go on.

    Raises Refused while pyproject.toml itself is in conflict: that is for a person to join.
    """
    in_conflict = tree.marks or LOCK in tree.unmerged
    if not in_conflict and not (tree.joining and tree.was_conflict):
        return Work(idle="uv.lock is not in conflict.")
    if PATH in tree.unmerged:
        raise Refused(
            f"{PATH} is in conflict as well. Join it by hand and `git add {PATH}`; then run again, and uv.lock is made "
            "of it."
        )
    take = Step(
        f"Take the {LOCK} of {tree.base}", ("git", "checkout", tree.theirs or tree.base, "--", LOCK), "host",
        "A lock that is joined by hand fits neither side. The base branch's is whole, so it is what to begin with.",
        keeps=(LOCK,),
    )  # fmt: skip
    lock = Step(
        "Lock again", ("uv", "lock"), "container",
        "uv keeps what is locked, and resolves what your pyproject.toml asks for beyond it.",
    )  # fmt: skip
    if in_conflict and not (tree.theirs or tree.base):
        raise Refused("The base branch is not known in this clone, so its uv.lock is not either: `git fetch` it first.")
    others = tuple(it for it in tree.unmerged if it != LOCK)
    steps = (*((take,) if in_conflict else ()), *submodules(tree), lock)
    if others:
        stage = Step("Stage it", ("git", "add", "--", LOCK), "host", "git then takes its conflict for resolved.")
        return Work((*steps, stage), after=f"Resolve {', '.join(others[:8])} as well, then let git go on.")
    return Work((*steps, *_go_on(tree)))


def _go_on(tree: Tree) -> tuple[Step, ...]:
    if not tree.joining:
        return commit(tree, (LOCK,), "build: lock again")
    stage = Step("Stage it", ("git", "add", "--", LOCK), "host", "git then takes its conflict for resolved.")
    if tree.joining == "merge":
        why = "Nothing else is in conflict, and the merge's own message stands."
        return (stage, Step("Conclude the merge", ("git", "commit", "--no-edit", *signing(tree)), "host", why))
    command = ("git", "-c", "core.editor=true", tree.joining, "--continue")
    why = "Should a later commit be in conflict again, git stops, and this task runs again."
    return (stage, Step(f"Go on with the {tree.joining}", command, "host", why))


def switch(tree: Tree, to: str) -> Work:
    """Switch Megatron-Bridge's Megatron-Core to its pinned ``dev`` or ``main``, and sync.

    Raises Refused where the checkout has no such script, and where uv.lock holds changes of one's own.
    """
    if SWITCH not in tree.files:
        raise Refused(f"The checkout has no {SWITCH}: branches of Megatron-Core are switched in Megatron-Bridge alone.")
    why = f"The script checks out the commit that .{to}.commit pins in {SUBMODULE}."
    steps = (*submodules(tree), Step(f"Switch Megatron-Core to {to}", ("bash", SWITCH, to), "host", why))
    if to == "dev":
        told = "On dev uv rewrites uv.lock. Do not commit that: switching back to main takes it away again."
        return Work(steps, usual(tree), locked=False, warnings=(told,))
    if LOCK in tree.changed:
        if PATH in tree.changed:
            raise Refused(
                "pyproject.toml and uv.lock have uncommitted changes, which are more than a sync on dev leaves behind. "
                "Commit or stash them, then run again."
            )
        why = "It was written by the sync on dev; with it --locked would be refused on main."
        restore = ("git", "restore", "--staged", "--worktree", "--", LOCK)
        steps = (*steps, Step("Take back the uv.lock that dev left", restore, "host", why, keeps=(LOCK,)))
    return Work(steps, usual(tree), locked=True)
