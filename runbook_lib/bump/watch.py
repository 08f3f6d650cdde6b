"""``runbook watch``: for each image, propose the newest tag that nothing holds back, once, as a draft pull request."""

import os
from dataclasses import dataclass, replace
from typing import Literal

from papermill.exceptions import PapermillExecutionError
from papermill.execute import execute_notebook

from runbook_lib import notebooks
from runbook_lib.bump import pins_step
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images.drivers import DRIVERS_VARIABLE, check_drivers, judge, listed_drivers
from runbook_lib.images.reference import ImageRef
from runbook_lib.pins import check
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.sites import PinnedImage
from runbook_lib.world import commands
from runbook_lib.world.bump_branch import BumpBranch, find_pull, head_of
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.machine import provenance
from runbook_lib.world.ports import Forge, Services

State = Literal["up to date", "waiting", "open", "new", "needs a person", "cannot tell"]


@dataclass(frozen=True)
class WatchResult:
    """The state of an image, and the newer ``tag`` that is proposed; ``sentence`` says why, or why not.

    *new*: not proposed yet, because this run did not publish.  *waiting*: every newer tag is held back.
    """

    state: State
    sentence: str
    tag: str = ""
    url: str = ""
    image: str = ""

    @property
    def exit_status(self) -> int:
        """0 if up to date, proposed or waiting; 1 if a person is needed; 2 if the image could not be compared."""
        return {"new": 1, "needs a person": 1, "cannot tell": 2}.get(self.state, 0)


def watch(checkout: Checkout, bump: Bump, services: Services) -> tuple[WatchResult, ...]:
    """Compare the pins of each image on the base branch with the registry, and propose a newer tag.

    ``bump`` has no tag.  Changes nothing unless it publishes.  An image that cannot be compared does not hide the
    others.
    """
    sites, results = bump.repository.sites, []
    moved = [site for site in sites.pins if site.lockstep and site.image_type == bump.image_type]
    for pinned in dict.fromkeys(map(sites.image_of, moved)):
        of_image = replace(bump, repository=replace(bump.repository, sites=sites.only(pinned)))
        try:
            found = _watch_image(checkout, of_image, pinned, services)
        except RunbookError as error:
            found = WatchResult("cannot tell", str(error))
        results.append(replace(found, image=pinned.name))
    if not results:
        raise CannotTell(f"{bump.repository.name} has no {bump.image_type} pins, so there is nothing to watch.")
    return tuple(results)


def _watch_image(checkout: Checkout, bump: Bump, pinned: PinnedImage, services: Services) -> WatchResult:
    branch, sites = BumpBranch.find(checkout, bump, services), bump.repository.sites
    verdicts = check.check_pins(checkout.read(sites.pin_paths, branch.base_commit), sites)
    tags = check.lockstep_tags(verdicts, bump.image_type).get(pinned.name, ())
    if not tags:
        raise CannotTell(f"{bump.base} has no readable {bump.image_type} pin, so nothing can be compared.")
    current = ", ".join(sorted(tags))
    if len(tags) > 1:
        sentence = f"The pins do not agree ({current}): `runbook check` lists them. Fix or bump them by hand."
        return WatchResult("needs a person", sentence)
    registry = services.registry(ImageRef.parse(f"{pinned.name}:{current}"))
    newer = pinned.family.newer_releases(pinned.family.read(current), registry.tags())
    github = services.forge(checkout.repository(), required=bump.publish) if newer else None
    held: list[str] = []
    for tag in newer:
        found = _propose(checkout, replace(bump, tag=tag), github, services)
        if found.state != "waiting":
            return replace(found, tag=str(tag), sentence=" ".join([found.sentence, *held]))
        held.append(f"{tag}: {found.sentence}")
    if held:
        return WatchResult("waiting", f"{current} stays. {' '.join(held)}")
    return WatchResult("up to date", f"{current} is the newest release.")


def _propose(checkout: Checkout, bump: Bump, github: Forge | None, services: Services) -> WatchResult:
    """Propose a tag; *waiting* if it is held, cannot be used, or was proposed before."""
    holds = bump.repository.holds
    if reason := holds.get(str(bump.tag)) or holds.get("*"):
        return WatchResult("waiting", f"It is held: {reason.rstrip('.')}.")
    if github and (proposed := _proposed(checkout, github, bump)):
        return proposed
    planned = pins_step.plan_bump(BumpBranch.find(checkout, bump, services))
    if planned.check.status == "failed":
        return WatchResult("waiting", planned.check.detail)
    if planned.check.status == "skipped":
        raise CannotTell(f"{bump.tag} could not be verified: {planned.check.detail}")
    if bump.publish and github:
        _open(checkout, bump)
        result = _proposed(checkout, github, bump)
        if result is None:
            raise RunbookError(f"{notebooks.OPEN_PR} opened no pull request: see its record.")
    else:
        unknown = "" if github else " Whether it is open already is unknown without a token for GitHub."
        plan = commands.command(notebooks.BUMP, bump, repo=str(checkout.path))
        sentence = f"Would open a draft pull request: {bump.title!r}. Add --publish.{unknown} The plan: {plan}"
        result = WatchResult("new", sentence)
    drivers = check_drivers(judge(planned.image, listed_drivers(os.environ.get(DRIVERS_VARIABLE, ""))))
    state: State = "needs a person" if drivers.status == "failed" else result.state
    return replace(result, state=state, sentence=f"{result.sentence} Drivers: {drivers.detail}")


def _proposed(checkout: Checkout, github: Forge, bump: Bump) -> WatchResult | None:
    """Return what became of the pull request for a tag; None if there is none.  A tag is proposed once."""
    head = head_of(checkout, bump)
    if pull := find_pull(github, bump, head):
        sentence = f"#{pull.number} by {pull.author} is open: continue with the bump notebook."
        return WatchResult("open", sentence, url=pull.url)
    if last := next(iter(github.pulls(head=head, base=bump.base, state="all")), None):
        if last.merged:
            sentence = f"#{last.number} was merged, but {bump.base} no longer has {bump.tag}: bump it again by hand."
        else:
            sentence = f"#{last.number} was closed without a merge. Reopen it to try again."
        return WatchResult("waiting", sentence)
    return None


def _open(checkout: Checkout, bump: Bump) -> None:
    """Run 03-open-pr with its record."""
    parameters = {
        "tag": bump.target, "repo": str(checkout.path), "image_type": bump.image_type, "base": bump.base,
        "remote": bump.remote, "mode": "publish",
    }  # fmt: skip
    notebook = provenance.ROOT / "runbooks" / f"{notebooks.OPEN_PR}.ipynb"
    try:
        execute_notebook(notebook, None, parameters, engine_name="runbook", progress_bar=False)
    except PapermillExecutionError as error:  # the engine has named the record
        raise RunbookError(str(error.evalue)) from error
