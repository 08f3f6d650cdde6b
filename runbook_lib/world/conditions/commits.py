"""Conditions on the bump's branch: what it contains, and that the remote has it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from runbook_lib.errors import Refused
from runbook_lib.model import Check, Effect, Evidence
from runbook_lib.text.edits import Edit, edited_paths, unapplied
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.commits import create_commit, merged_tree, move_branch, tree_with
from runbook_lib.world.ports import World

CommitKind = Literal["pins", "refresh", "quarantine", "reenable", "empty"]


@dataclass(frozen=True)
class BranchTip:
    """A branch as it was read: ``start`` is its newest commit, here or on the remote, or the base's if it is new."""

    branch: str
    start: str

    def read(self, checkout: Checkout) -> str:
        """Return the branch's newest commit now."""
        local = checkout.branch_tip(self.branch)
        return local if local and checkout.is_ancestor(self.start, local) else self.start

    def require_known(self, world: World) -> str:
        """Return the branch's newest commit.  Raises Refused unless it was read before, or made in this run."""
        tip, local = self.read(world.checkout), world.checkout.branch_tip(self.branch)
        is_behind = local is None or world.checkout.is_ancestor(local, tip)
        if not is_behind or tip not in {self.start, *world.changes.commits}:
            raise Refused(
                f"Branch {self.branch} has moved to {(local or tip)[:10]} since it was read at {self.start[:10]}. "
                "Nothing was changed.",
                "Run again to plan with it.",
            )
        return tip

    def advance(self, world: World, commit: str) -> list[Effect]:
        """Move the branch to a new commit on its newest one."""
        local = world.checkout.branch_tip(self.branch)
        before = self.read(world.checkout)
        move_branch(world.checkout, self.branch, commit, local)
        world.changes.commits.add(commit)
        effects = [Effect("commit", self.branch, before, commit)]
        if local is None:
            effects.insert(0, Effect("branch", self.branch, None, before))
        return effects


@dataclass(frozen=True)
class Committed:
    """The branch has these texts, from one commit of exactly these edits; without edits, a new commit of its tree.

    ``kind`` tells later runs what the commit is, apart from its message.
    """

    tip: BranchTip
    edits: tuple[Edit, ...]
    message: str
    name: str = "the branch has the planned contents"
    leaves_machine: bool = False
    kind: CommitKind = "pins"

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        files = {0: "nothing new", 1: "1 file"}.get(len(self.edits), f"{len(self.edits)} files")
        return f"commit {files} on branch {self.tip.branch}: {self.message.splitlines()[0]!r}"

    def holds(self, world: World) -> Check:
        """Compare the files on the branch with the planned texts."""
        commit = self.tip.read(world.checkout)
        if not self.edits:
            return Check.of(self.name, commit != self.tip.start, f"{commit[:10]}.")
        paths = edited_paths(self.edits)
        different = unapplied(self.edits, world.checkout.read(paths, commit))
        detail = f"{commit[:10]}: {', '.join(paths)}."
        if different:
            detail = f"At {commit[:10]} these files are not as planned: {', '.join(different)}."
        return Check.of(self.name, not different, detail, evidence=Evidence({"head_commit": commit}))

    def make_true(self, world: World) -> Sequence[Effect]:
        """Commit the edits.  Raises Refused if the branch or a file has changed since the plan was made."""
        parent = self.tip.require_known(world)
        tree = tree_with(world.checkout, parent, self.edits)
        world.journal.planned_commit(parent, tree, self.kind)
        return self.tip.advance(world, create_commit(world.checkout, tree, [parent], self.message))


@dataclass(frozen=True)
class Merged:
    """The branch contains a commit of its base branch."""

    tip: BranchTip
    base: str
    base_commit: str
    leaves_machine = False

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        return f"merge {self.base} at {self.base_commit[:10]} into branch {self.tip.branch}"

    def holds(self, world: World) -> Check:
        """Look for the base's commit among the branch's ancestors."""
        commit = self.tip.read(world.checkout)
        contained = world.checkout.is_ancestor(self.base_commit, commit)
        detail = f"{commit[:10]} {'contains' if contained else 'lacks'} {self.base_commit[:10]}."
        return Check.of(f"the branch contains {self.base}", contained, detail)

    def make_true(self, world: World) -> Sequence[Effect]:
        """Merge.  Raises Refused for a conflict, and if the branch has moved since it was read."""
        parent = self.tip.require_known(world)
        tree = merged_tree(world.checkout, parent, self.base_commit)
        message = f"Merge branch '{self.base}' into {self.tip.branch}"
        return self.tip.advance(world, create_commit(world.checkout, tree, [parent, self.base_commit], message))


@dataclass(frozen=True)
class Pushed:
    """The remote's branch is at the branch's newest commit; ``before`` is where the remote's was seen, if at all.

    ``follows``: the plan has a commit before it, without which it does not hold.
    """

    tip: BranchTip
    remote: str
    before: str | None
    follows: bool = False
    leaves_machine = True

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        return f"push branch {self.tip.branch} to {self.remote}"

    def holds(self, world: World) -> Check:
        """Read the remote's branch."""
        commit, there = self.tip.read(world.checkout), world.checkout.remote_tip(self.remote, self.tip.branch)
        if self.follows and commit == self.tip.start:
            return Check("the remote has the branch", "failed", f"The commit on {commit[:10]} has yet to be made.")
        place = there[:10] if there else "not there"
        return Check.of("the remote has the branch", there == commit, f"{self.remote}: {place}; here {commit[:10]}.")

    def make_true(self, world: World) -> Sequence[Effect]:
        """Push.  Raises Refused if the branch has moved since it was read, here or on the remote."""
        commit = self.tip.require_known(world)
        if self.before and not world.checkout.is_ancestor(self.before, commit):
            raise Refused(f"{self.remote} has {self.before[:10]}, which {commit[:10]} lacks: nothing was pushed.")
        world.checkout.push(self.remote, self.tip.branch, commit, replaces=self.before or "")
        world.changes.pushed[self.tip.branch] = commit
        return [Effect("push", f"{self.remote} {self.tip.branch}", self.before, commit)]
