"""A bump's branch: its commits here and on the remotes.

A bump is planned on a commit: the tip of its own branch once that exists, else the tip of the base branch.  The work
tree is neither read nor changed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from runbook_lib.errors import NoSuchBranch, Refused, Unreachable
from runbook_lib.pins.bump import Bump
from runbook_lib.text.lists import join_first
from runbook_lib.text.sanitize import visible
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.ports import ONLINE, Services, World


@dataclass(frozen=True)
class BumpBranch:
    """A bump's branch and its base: ``tip`` is its newest commit, None if the branch does not exist yet.

    ``start`` is the commit that plans start from: the tip, else the base's.  ``remote_tip`` is the branch's newest
    commit on its remote; None if it is not there, or could not be read.  ``services`` describe its image and test it.
    """

    checkout: Checkout
    bump: Bump
    base_remote: str
    base_commit: str
    start: str
    tip: str | None
    warnings: tuple[str, ...] = ()
    remote_tip: str | None = None
    services: Services = field(default=ONLINE, repr=False, compare=False)
    #: What ``pins_step`` has planned on it so far: the pins by commit, and the bump with its image by its tag.
    plans: dict[str, Any] = field(init=False, default_factory=dict, repr=False, compare=False)

    def texts(self, paths: Iterable[str]) -> dict[str, str | None]:
        """Return the files' contents at ``start``."""
        return self.checkout.read(paths, self.start)

    @property
    def fork(self) -> str:
        """The commit where the branch diverged from its base."""
        return self.checkout.merge_base(self.start, self.base_commit) or self.base_commit

    def describe(self) -> str:
        """Return a sentence about the commit that the plan starts from."""
        if self.tip is None:
            return f"Branch {self.bump.branch} will start at {self.bump.base} {self.base_commit[:10]}."
        return f"Branch {self.bump.branch} exists at {self.start[:10]}; the plan continues from there."


def look(world: World, bump: Bump) -> BumpBranch:
    """Return the branch like ``find``, read once in this run."""
    if bump.branch not in world.branches:
        world.branches[bump.branch] = find(world.checkout, bump, world.services)
    branch: BumpBranch = world.branches[bump.branch]
    if branch.bump != bump:  # its decisions were read again
        branch = world.branches[bump.branch] = replace(branch, bump=bump)
    return branch


def find(checkout: Checkout, bump: Bump, services: Services = ONLINE) -> BumpBranch:
    """Read the base branch and the bump's branch, here and on the remotes.  Does not move refs or edit anything.

    If the remote is unreachable, a preview or a local run uses the last fetched state, with a warning.
    Raises RunbookError for a base that does not exist, and Refused if this clone's branch and the remote's diverge.
    """
    remote = checkout.base_remote() or ""
    warnings: list[str] = []
    base = _newest(checkout, bump, remote, bump.base, warnings)
    if base is None:
        raise NoSuchBranch(f"Branch {bump.base!r} does not exist in {checkout.path}. Name an existing branch.")
    tip = pushed = None
    if bump.tag or bump.change_title:
        pushed = _remote_tip(checkout, bump, warnings)
        tip = _tip(checkout, bump, base, pushed, warnings)
    return BumpBranch(checkout, bump, remote, base, tip or base, tip, tuple(warnings), pushed, services)


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


def _tip(checkout: Checkout, bump: Bump, base: str, remote: str | None, warnings: list[str]) -> str | None:
    """Return the newest commit on the bump's branch; None if neither this clone nor the remote has the branch."""
    local = checkout.branch_tip(bump.branch)
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
    if not bump.publish and bump.remote not in checkout.remote_urls():
        return None
    try:
        return checkout.remote_tip(bump.remote, bump.branch)
    except Unreachable as error:
        if bump.publish:
            raise
        unknown = f"Whether {bump.branch} is on {bump.remote!r} is unknown."
        known = any(str(error) in warning for warning in warnings)  # of the base, on the same remote
        warnings.append(unknown if known else f"{error} {unknown}")
        return None


def commit_titles(checkout: Checkout, span: str) -> dict[str, str]:
    """Return the IDs and titles of the commits in ``span`` (``older..newer``), without merges, newest first."""
    log = checkout.git("log", "--no-merges", "--format=%H%x00%s", span, "--")
    return dict(line.split("\0", 1) for line in log.split("\n") if line)
