"""``runbook revert``: a pull request that reverts a merged bump, with the reason and when to try the tag again."""

import contextlib
from dataclasses import dataclass
from datetime import date

from runbook_lib.bump import Bump
from runbook_lib.clients.github.client import GitHub, once
from runbook_lib.clients.github.errors import NotAllowed
from runbook_lib.clients.github.models import Pull
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.linked_work_tree import linked_work_tree
from runbook_lib.images.reference import ImageRef
from runbook_lib.pins.check import check_pins
from runbook_lib.pins.watch_rules import Hold
from runbook_lib.workflow import bump_branch, fleet, holds, markdown_texts, proposal, pull_request, pull_request_body


@dataclass(frozen=True)
class RevertResult:
    """The reverted ``commit``, and the ``text`` and ``url`` of the pull request."""

    commit: str
    sentence: str
    text: str
    url: str = ""


def revert(checkout: Checkout, bump: Bump, reason: str, until: str = "") -> RevertResult:
    """Revert the commit that brought the tag to the base branch, and open the pull request, once.

    ``until`` is the day from which the tag is worth trying again, or a condition in words.
    Changes nothing without ``publish``.  Raises Refused if the base does not have the tag, or git cannot revert it.
    """
    if not reason.strip():
        raise RunbookError("A revert needs a reason, for watch and for the next reader: --reason TEXT.")
    branch = bump_branch.find(checkout, bump)
    github = pull_request.connect_github(checkout.repository(), bump)
    existing = holds.find_revert(github, checkout, bump) if github else None
    if not _has_tag(branch, branch.base_commit):
        if existing and existing.merged:
            return RevertResult("", f"#{existing.number} already reverts {bump.tag}.", "", existing.url)
        raise Refused(f"The {bump.image_type} pins of {bump.base} do not name {bump.tag}: there is nothing to revert.")
    commit = _bump_commit(branch)
    try:
        day = date.fromisoformat(until)
        hold, condition = Hold(str(bump.tag), reason, day), f"from {day} on"
    except ValueError:
        if until:
            reason = f"{reason} Worth trying again: {until}"
        hold, condition = Hold(str(bump.tag), reason), until
    values = {"reason": hold.reason, "until": hold.until, "condition": condition}
    text = markdown_texts.render("revert", commit=commit, bump=bump, **values)
    text = pull_request_body.marked(f"{text}\n\n{holds.mark(hold)}", bump, "revert")
    if not bump.publish or github is None:
        return RevertResult(commit, f"Would open a draft pull request that reverts {commit[:10]}. Add --publish.", text)
    if existing is None or existing.state != "open":
        existing = _open(github, branch, commit, text)
    body = pull_request_body.compose_body(existing.body, text, "revert")
    if body != existing.body:
        github.update_pull(existing.number, body)
    return RevertResult(commit, f"#{existing.number} reverts {commit[:10]}.", text, existing.url)


def _has_tag(branch: bump_branch.BumpBranch, commit: str) -> bool:
    """Return whether every pin of the bump's type names its tag in this commit."""
    return {image.tag for image in _images(branch, commit)} == {str(branch.bump.tag)}


def _images(branch: bump_branch.BumpBranch, commit: str) -> set[ImageRef]:
    sites = branch.bump.repository.sites
    verdicts = check_pins(branch.checkout.read(sites.pin_paths, commit), sites)
    return fleet.lockstep_images(verdicts).get(branch.bump.image_type, set())


def _bump_commit(branch: bump_branch.BumpBranch) -> str:
    """Return the commit that brought the tag to the base branch."""
    bump, checkout = branch.bump, branch.checkout
    images = _images(branch, branch.base_commit)
    since, commit = fleet.moved_since(checkout, branch.base_commit, bump.repository.sites, bump.image_type, images)
    if not commit or since.startswith("…"):
        history = f"The history of {bump.base} in {checkout.path} does not reach back to the bump to {bump.tag}."
        raise CannotTell(f"{history} Fetch the rest (git fetch --unshallow), then run again.")
    return commit


def _open(github: GitHub, branch: bump_branch.BumpBranch, commit: str, text: str) -> Pull:
    bump, checkout = branch.bump, branch.checkout
    title, name = f'Revert "{bump.title}"', holds.revert_branch(bump)
    _push(branch, commit, f"{title}\n\nThis reverts commit {commit}.", name)
    head = f"{proposal.head_of(checkout, bump).partition(':')[0]}:{name}"
    pull = once(
        lambda: next(iter(github.pulls(head=head, base=bump.base)), None),
        lambda: github.open_pull(title, head, bump.base, f"{text}\n", draft=True),
    )
    on, _ = bump.labels
    with contextlib.suppress(NotAllowed):  # a contributor's token: a maintainer sets the labels
        for label in sorted(on - pull.labels):
            github.add_label(pull.number, label)
    return pull


def _push(branch: bump_branch.BumpBranch, commit: str, message: str, name: str) -> None:
    """Push a branch that reverts a commit; if the remote already has the branch, it must be that revert."""
    bump, checkout = branch.bump, branch.checkout
    if tip := checkout.remote_tip(bump.remote, name):
        checkout.fetch(bump.remote, name)
        if _has_tag(branch, tip) or not checkout.is_ancestor(commit, tip):
            delete = f"git push {bump.remote} --delete {name}"
            raise Refused(f"Branch {name} on {bump.remote} is not a revert of {commit[:10]}. Delete it: {delete}")
        return
    with linked_work_tree(checkout, branch.base_commit, name) as tree:
        if checkout.branch_tip(name):
            tree.git("branch", "--quiet", "-D", name)  # left by a run that was killed before its push
        tree.switch(name, branch.base_commit)
        reverse = tree.revert(commit, message)
        if len(_images(branch, reverse)) != 1:
            raise Refused(f"Without {commit[:10]} the pins on {bump.base} do not agree. Revert the bump by hand.")
        tree.push(bump.remote, name, reverse)
