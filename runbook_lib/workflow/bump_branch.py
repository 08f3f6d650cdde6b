"""A bump's branch: its commits here and on the remotes, and switching the checkout to it.

A bump is planned on a commit: the tip of its own branch once that exists, else the tip of the base branch.
Uncommitted changes in the work tree are never part of a plan; they are used only if they equal the plan.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from runbook_lib.bump import Bump
from runbook_lib.errors import NoSuchBranch, Refused, RunbookError, Unreachable
from runbook_lib.git import commit_changes, editable
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.plan import PinPlan
from runbook_lib.text.edits import Edit, edited_paths
from runbook_lib.text.lists import join_first
from runbook_lib.text.sanitize import visible


@dataclass(frozen=True)
class BumpBranch:
    """A bump's branch and its base: ``tip`` is its newest commit, None if the branch does not exist yet.

    ``start`` is the commit that plans start from: the tip, else the base's.
    """

    checkout: Checkout
    bump: Bump
    base_remote: str
    base_commit: str
    start: str
    tip: str | None
    warnings: tuple[str, ...] = ()
    #: The pin plans made so far, by commit; filled by ``bump_plan.plan_commit``.
    plans: dict[str, PinPlan] = field(init=False, default_factory=dict, repr=False, compare=False)

    def texts(self, paths: Iterable[str]) -> dict[str, str | None]:
        """Return the files' contents at ``start``."""
        return self.checkout.read(paths, self.start)

    @property
    def fork(self) -> str:
        """The commit where the branch diverged from its base."""
        return self.checkout.merge_base(self.start, self.base_commit) or self.base_commit

    @property
    def on_branch(self) -> bool:
        """True if the bump's branch is checked out."""
        return self.tip is not None and self.checkout.current_branch() == self.bump.branch

    def describe(self) -> str:
        """Return a sentence about the commit that the plan starts from."""
        if self.tip is None:
            return f"Branch {self.bump.branch} will start at {self.bump.base} {self.base_commit[:10]}."
        return f"Branch {self.bump.branch} exists at {self.start[:10]}; the plan continues from there."


def find(checkout: Checkout, bump: Bump) -> BumpBranch:
    """Read the base branch and the bump's branch, here and on the remotes.  Does not move refs or edit anything.

    If the remote is unreachable, a preview or a local run uses the last fetched state, with a warning.
    Raises RunbookError for a base that does not exist, and Refused if this clone's branch and the remote's diverge.
    """
    remote = checkout.base_remote() or ""
    warnings: list[str] = []
    base = _newest(checkout, bump, remote, bump.base, warnings)
    if base is None:
        raise NoSuchBranch(f"Branch {bump.base!r} does not exist in {checkout.path}. Name an existing branch.")
    tip = _tip(checkout, bump, base, warnings) if bump.tag or bump.change_title else None
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
        warnings.append(f"{error} Using {branch} as last fetched, at {known[:10]}.")
        return known


def _tip(checkout: Checkout, bump: Bump, base: str, warnings: list[str]) -> str | None:
    """Return the newest commit on the bump's branch; None if neither this clone nor the remote has the branch."""
    local, remote = checkout.branch_tip(bump.branch), _remote_tip(checkout, bump, warnings)
    if remote is None or remote == local:
        return local
    checkout.fetch(bump.remote, bump.branch)
    if local is None or checkout.is_ancestor(local, remote):
        listed = []
        for commit, title in commit_titles(checkout, f"{local or base}..{remote}").items():
            listed.append(f"{commit[:10]} {visible(title)[:80]!r}")  # whoever pushed it
        warnings.append(
            f"Branch {bump.branch} is taken from the remote {bump.remote!r}, with commits missing from this clone: "
            f"{join_first(listed, 5) or 'only merges'}."
        )
        return remote
    if not checkout.is_ancestor(remote, local):
        raise Refused(
            f"Branch {bump.branch} is at {local[:10]} here and at {remote[:10]} on the remote {bump.remote!r}, and "
            "the two have diverged. Decide which to keep, delete or rename the other, then run again."
        )
    return local


def _remote_tip(checkout: Checkout, bump: Bump, warnings: list[str]) -> str | None:
    remotes = checkout.remotes()
    try:
        if bump.remote in remotes:
            return checkout.remote_tip(bump.remote, bump.branch)
    except Unreachable as error:
        if bump.publish:
            raise
        warnings.append(str(error))
        return None
    if bump.publish:
        raise RunbookError(
            f"{checkout.path} has no remote named {bump.remote!r} to push to; it has "
            f"{', '.join(remotes) or 'none'}. Set remote to another name."
        )
    return None


def commit_titles(checkout: Checkout, span: str) -> dict[str, str]:
    """Return the IDs and titles of the commits in ``span`` (``older..newer``), without merges, newest first."""
    log = checkout.git("log", "--no-merges", "--format=%H%x00%s", span, "--")
    return dict(line.split("\0", 1) for line in log.split("\n") if line)


def only_ci_answers(checkout: Checkout, bump: Bump, pushed: str, tip: str) -> bool:
    """Return whether ``tip`` adds only responses to the pushed commit's CI run, which are waiting to be pushed.

    The responses of one round are pushed together, because each push costs a complete run.
    """
    if not checkout.has(pushed) or not checkout.is_ancestor(pushed, tip):
        return False
    waiting = commit_titles(checkout, f"{pushed}..{tip}").values()
    return bool(waiting) and bump.round_titles.issuperset(waiting)


def apply_edits(branch: BumpBranch, edits: Sequence[Edit]) -> list[Edit]:
    """Switch the checkout to the bump's branch and write the edits that the files do not have yet.

    Returns the edits written now.  On an error the checkout is restored.
    Refused if a file to be edited has uncommitted changes other than the plan's, or git has no committer identity.
    """
    checkout, bump = branch.checkout, branch.bump
    checkout.require_work_tree()
    if not edits:
        return []
    checkout.identity()  # git would report a missing identity only after the files are written
    paths = edited_paths(edits)
    editable.require(checkout, paths)
    checkout.clear(paths)
    applied = uncommitted_edits(checkout, edits)
    previous, head = checkout.current_branch(), checkout.resolve("HEAD")
    new_branch = checkout.branch_tip(bump.branch) is None
    try:
        _put_aside(checkout, bump, applied)
        switch_to(branch)
        texts = checkout.read(paths)
        missing = [edit for edit in edits if texts[edit.path] != edit.after]
        checkout.apply(missing)
    except (RunbookError, KeyboardInterrupt):
        if checkout.current_branch() != previous:
            checkout.git("switch", "--quiet", *([previous] if previous else ["--detach", head]))
        if new_branch and checkout.branch_tip(bump.branch) == branch.start:
            checkout.git("branch", "--quiet", "-D", bump.branch)
        at_head = checkout.read(edited_paths(applied), "HEAD")
        checkout.apply([edit for edit in applied if at_head[edit.path] == edit.before])
        raise
    return missing


def fast_forward(branch: BumpBranch) -> bool:
    """Fast-forward the bump's branch, if it is checked out, to its remote; return whether it was behind.

    The remote is ahead if a run in another checkout has pushed.  Uncommitted files are no obstacle if they match the
    remote's; git refuses others.
    """
    checkout, local = branch.checkout, branch.checkout.branch_tip(branch.bump.branch)
    if local is None or local == branch.start or not branch.on_branch or not checkout.is_ancestor(local, branch.start):
        return False
    changed = commit_changes.changed_paths(checkout, local, branch.start)
    dirty = checkout.uncommitted(changed) if changed else []
    texts, remote, at_head = checkout.read(dirty), branch.texts(dirty), checkout.read(dirty, "HEAD")
    equal = [path for path in dirty if texts[path] == remote[path] and at_head[path] is not None]
    if equal:
        checkout.git("restore", "--staged", "--worktree", "--source=HEAD", "--", *equal)
    checkout.git("merge", "--quiet", "--ff-only", branch.start)
    return True


def switch_to(branch: BumpBranch) -> None:
    """Check out the bump's branch, creating it at ``branch.start`` if necessary."""
    checkout, bump = branch.checkout, branch.bump
    local = checkout.branch_tip(bump.branch)
    if checkout.current_branch() != bump.branch:
        checkout.switch(bump.branch, None if local else branch.start)
    if local and local != branch.start and checkout.is_ancestor(local, branch.start):
        checkout.git("merge", "--quiet", "--ff-only", branch.start)


def _put_aside(checkout: Checkout, bump: Bump, applied: Sequence[Edit]) -> None:
    """Undo edits already applied, so that git can switch branches; they are written again immediately afterwards."""
    if not applied or checkout.current_branch() == bump.branch:
        return
    at_head = checkout.read(edited_paths(applied), "HEAD")
    tracked = [path for path, text in at_head.items() if text is not None]
    for path in at_head.keys() - set(tracked):
        checkout.git("rm", "--quiet", "--cached", "--ignore-unmatch", "--", path)
        (checkout.path / path).unlink()
    if tracked:
        checkout.git("restore", "--staged", "--worktree", "--source=HEAD", "--", *tracked)


def uncommitted_edits(checkout: Checkout, edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits already present, uncommitted, in the work tree.  Refused if a file has other changes."""
    if not edits or checkout.bare:
        return []
    dirty = set(checkout.uncommitted(edited_paths(edits)))
    texts = checkout.read(dirty)
    foreign = [edit.path for edit in edits if edit.path in dirty and texts[edit.path] != edit.after]
    if foreign:
        raise Refused(
            f"{', '.join(foreign)} in {checkout.path} has uncommitted changes that are not part of this bump, "
            "so nothing was changed. Commit, stash or undo them, then run again."
        )
    return [edit for edit in edits if edit.path in dirty]
