"""The branch of a bump: its commits here and on the remotes, and how the checkout gets onto it.

A bump is planned on commits: on its own branch once that exists, else on the newest commit of the base branch.
What lies uncommitted in the work tree is never part of a plan; it is only taken up when it equals the plan.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from runbook_lib.bump import Bump
from runbook_lib.errors import NoSuchBranch, Refused, RunbookError, Unreachable
from runbook_lib.git import editable
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.plan import PinPlan
from runbook_lib.text.edits import Edit
from runbook_lib.text.sanitize import visible


@dataclass(frozen=True)
class BumpBranch:
    """``start`` is the commit that plans are made from; ``tip`` the branch's own, None before there is a branch."""

    checkout: Checkout
    bump: Bump
    base_remote: str
    base_commit: str
    start: str
    tip: str | None
    warnings: tuple[str, ...] = ()
    #: The plans of the pins that were made so far, by commit: filled by ``bump_plan.plan_commit``.
    plans: dict[str, PinPlan] = field(init=False, default_factory=dict, repr=False, compare=False)

    def texts(self, paths: Iterable[str]) -> dict[str, str | None]:
        """The files as the plan's commit has them."""
        return self.checkout.read(paths, self.start)

    @property
    def on_branch(self) -> bool:
        """Whether the bump's branch is checked out."""
        return self.tip is not None and self.checkout.current_branch() == self.bump.branch

    def describe(self) -> str:
        """One sentence on where planning starts."""
        if self.tip is None:
            return f"The branch {self.bump.branch} will start at {self.bump.base} {self.base_commit[:10]}."
        return f"The branch {self.bump.branch} exists, at {self.start[:10]}; the plan goes on from there."


def find(checkout: Checkout, bump: Bump) -> BumpBranch:
    """Look at the base branch and the bump's branch, here and on the remotes.  Moves no ref and edits nothing.

    Where the remote cannot be asked a preview or a local run goes on from what was last fetched, with a warning.
    Raises RunbookError for a base that does not exist, and Refused where this clone's branch and the remote's differ.
    """
    remote = checkout.base_remote() or ""
    warnings: list[str] = []
    base = _newest(checkout, bump, remote, bump.base, warnings)
    if base is None:
        raise NoSuchBranch(
            f"The branch {bump.base!r} does not exist in {checkout.path}. Give the name of a branch that it has."
        )
    tip = _branch(checkout, bump, base, warnings) if bump.tag else None
    return BumpBranch(checkout, bump, remote, base, tip or base, tip, tuple(warnings))


def _newest(checkout: Checkout, bump: Bump, remote: str, branch: str, warnings: list[str]) -> str | None:
    if not remote:
        return checkout.branch_tip(branch)
    try:
        return checkout.fetch(remote, branch)
    except Unreachable as error:
        known = checkout.tracked_tip(remote, branch) or checkout.branch_tip(branch)
        if bump.publish or known is None:
            raise
        warnings.append(f"{error} Going on from {branch} as it was last seen here, at {known[:10]}.")
        return known


def _branch(checkout: Checkout, bump: Bump, base: str, warnings: list[str]) -> str | None:
    here = checkout.branch_tip(bump.branch)
    there = None
    if bump.remote in checkout.remotes():
        try:
            there = checkout.remote_tip(bump.remote, bump.branch)
        except Unreachable as error:
            if bump.publish:
                raise
            warnings.append(str(error))
    elif bump.publish:
        raise RunbookError(
            f"{checkout.path} has no remote named {bump.remote!r} to push to; it has "
            f"{', '.join(checkout.remotes()) or 'none'}. Give another as remote."
        )
    if there and there != here:
        checkout.fetch(bump.remote, bump.branch)
        if here is None or checkout.is_ancestor(here, there):
            warnings.append(_taken_over(checkout, bump, here or base, there))
            return there
        if not checkout.is_ancestor(there, here):
            raise Refused(
                f"The branch {bump.branch} holds {here[:10]} here and {there[:10]} on the remote {bump.remote!r}, and "
                "neither contains the other. Keep the one you want: delete or rename the other, then run again."
            )
    return here


def _taken_over(checkout: Checkout, bump: Bump, here: str, there: str) -> str:
    """What this clone gets with the remote's branch: whoever pushed it."""
    listed = [
        f"{commit[:10]} {visible(title)[:80]!r}"
        for commit, title in commit_titles(checkout, f"{here}..{there}").items()
    ]
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    return (
        f"The branch {bump.branch} is taken over from the remote {bump.remote!r}, with what this clone lacks: "
        f"{', '.join(listed[:5]) or 'merges alone'}{more}."
    )


def commit_titles(checkout: Checkout, span: str) -> dict[str, str]:
    """The ids and titles of the commits in ``span`` (``older..newer``), merges left out, newest first."""
    listed = checkout.git("log", "--no-merges", "--format=%H%x00%s", span, "--")
    return {commit: title for commit, _, title in (line.partition("\0") for line in listed.split("\n")) if commit}


def only_ci_answers(checkout: Checkout, bump: Bump, sent: str, tip: str) -> bool:
    """Whether ``tip`` adds to the commit that was pushed nothing but answers to its CI run, which wait for their push.

    Those of one round go in one push, since each push costs a whole run.
    """
    if not checkout.has(sent) or not checkout.is_ancestor(sent, tip):
        return False
    waiting = commit_titles(checkout, f"{sent}..{tip}").values()
    return bool(waiting) and bump.round_titles.issuperset(waiting)


def apply_edits(branch: BumpBranch, edits: Sequence[Edit]) -> list[Edit]:
    """Put the checkout onto the bump's branch and write the edits; what is already there is left alone.

    Returns the edits that were written now.  On an error the checkout is put back as it was.
    Refused when a file to be edited has uncommitted changes other than the plan's.
    """
    checkout, bump = branch.checkout, branch.bump
    checkout.require_work_tree()
    if not edits:
        return []
    editable.require(checkout, [edit.path for edit in edits])
    checkout.clear(edit.path for edit in edits)
    there = uncommitted_edits(checkout, edits)
    before, head = checkout.current_branch(), checkout.resolve("HEAD")
    fresh = checkout.branch_tip(bump.branch) is None
    try:
        _put_aside(checkout, bump, there)
        switch_to(branch)
        found = checkout.read([edit.path for edit in edits])
        missing = [edit for edit in edits if found[edit.path] != edit.after]
        checkout.apply(missing)
    except (RunbookError, KeyboardInterrupt):
        if checkout.current_branch() != before:
            checkout.git("switch", "--quiet", *([before] if before else ["--detach", head]))
        if fresh and checkout.branch_tip(bump.branch) == branch.start:
            checkout.git("branch", "--quiet", "-D", bump.branch)
        at_head = checkout.read([edit.path for edit in there], "HEAD")
        checkout.apply([edit for edit in there if at_head[edit.path] == edit.before])
        raise
    return missing


def fast_forward(branch: BumpBranch) -> bool:
    """Take the bump's branch, where it is checked out, on to what its remote has; whether it was behind.

    As another checkout's run pushed it.  Uncommitted files that are so already are no obstacle; others are git's to
    refuse.
    """
    checkout, here = branch.checkout, branch.checkout.branch_tip(branch.bump.branch)
    if here in (None, branch.start) or not branch.on_branch or not checkout.is_ancestor(str(here), branch.start):
        return False
    changed = checkout.git("diff", "--name-only", "--no-renames", "-z", str(here), branch.start).split("\0")
    dirty = checkout.uncommitted([path for path in changed if path]) if any(changed) else []
    found, wanted, known = checkout.read(dirty), branch.texts(dirty), checkout.read(dirty, "HEAD")
    same = [path for path in dirty if found[path] == wanted[path] and known[path] is not None]
    if same:
        checkout.git("restore", "--staged", "--worktree", "--source=HEAD", "--", *same)
    checkout.git("merge", "--quiet", "--ff-only", branch.start)
    return True


def switch_to(branch: BumpBranch) -> None:
    """Check out the bump's branch, made at the branch's start where there is none."""
    checkout, bump = branch.checkout, branch.bump
    here = checkout.branch_tip(bump.branch)
    if checkout.current_branch() != bump.branch:
        checkout.switch(bump.branch, None if here else branch.start)
    if here and here != branch.start and checkout.is_ancestor(here, branch.start):
        checkout.git("merge", "--quiet", "--ff-only", branch.start)


def _put_aside(checkout: Checkout, bump: Bump, present: Sequence[Edit]) -> None:
    """Undo what already equals the plan, or git would not switch branches; it is written again right after."""
    if present and checkout.current_branch() != bump.branch:
        known = checkout.read([edit.path for edit in present], "HEAD")
        tracked = [path for path, text in known.items() if text is not None]
        for path in known.keys() - set(tracked):
            checkout.git("rm", "--quiet", "--cached", "--ignore-unmatch", "--", path)
            (checkout.path / path).unlink()
        if tracked:
            checkout.git("restore", "--staged", "--worktree", "--source=HEAD", "--", *tracked)


def uncommitted_edits(checkout: Checkout, edits: Sequence[Edit]) -> list[Edit]:
    """The edits that already lie uncommitted in the work tree.  Refused when a file holds other changes."""
    dirty = set(checkout.uncommitted([edit.path for edit in edits])) if edits and not checkout.bare else set()
    found = checkout.read(dirty)
    foreign = [edit.path for edit in edits if edit.path in dirty and found[edit.path] != edit.after]
    if foreign:
        raise Refused(
            f"{', '.join(foreign)} in {checkout.path} has uncommitted changes that are not this bump's, "
            "so nothing was changed. Commit, stash or undo them, then run again."
        )
    return [edit for edit in edits if edit.path in dirty]
