"""``runbook watch``: for each image, propose the newest tag that nothing holds back, once, as a draft pull request."""

import os
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Literal

from papermill.exceptions import PapermillExecutionError
from papermill.execute import execute_notebook

from runbook_lib import notebooks
from runbook_lib.bump import bump_plan
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images import driver_check, families
from runbook_lib.images.reference import ImageRef
from runbook_lib.pins import check, watch_rules
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.pins_file import SCHEMA
from runbook_lib.pins.repositories import Repository
from runbook_lib.pins.sites import PinnedImage
from runbook_lib.pins.watch_rules import WatchRules
from runbook_lib.text.user_file import load_schema
from runbook_lib.world import bump_branch, commands, repository
from runbook_lib.world.bump_pull import find_pull, head_of
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.github.models import Pull
from runbook_lib.world.machine import provenance
from runbook_lib.world.ports import Forge, Services

State = Literal["up to date", "waiting", "open", "new", "needs a person", "cannot tell"]


@dataclass(frozen=True)
class WatchOptions:
    """``today`` is the day for which the rules are judged."""

    today: date
    services: Services = field(repr=False)
    image_type: str = "dev"
    base: str = "main"
    remote: str = "origin"
    publish: bool = False


@dataclass(frozen=True)
class WatchResult:
    """The state of an image, and the newer ``tag`` that is proposed; ``sentence`` says why, or why not.

    *new*: not proposed yet, because this run did not publish.  *waiting*: every newer tag is held back.
    """

    image: str
    state: State
    sentence: str
    tag: str = ""
    url: str = ""

    @property
    def exit_status(self) -> int:
        """0 if up to date, proposed or waiting; 1 if a person is needed; 2 if the image could not be compared."""
        return {"new": 1, "needs a person": 1, "cannot tell": 2}.get(self.state, 0)


def watch(checkout: Checkout, options: WatchOptions) -> tuple[WatchResult, ...]:
    """Compare the pins of each image on the base branch with the registry, and propose a newer tag.

    Changes nothing without ``publish``.  An image that cannot be compared does not hide the others.
    """
    known = repository.choose(checkout)
    rules = _rules(checkout, known)
    moved = [site for site in known.sites.pins if site.lockstep and site.image_type == options.image_type]
    results = []
    for pinned in dict.fromkeys(map(known.sites.image_of, moved)):
        try:
            results.append(_watch_image(checkout, known, pinned, rules, options))
        except RunbookError as error:
            results.append(WatchResult(pinned.name, "cannot tell", str(error)))
    if not results:
        raise CannotTell(f"{known.name} has no {options.image_type} pins, so there is nothing to watch.")
    return tuple(results)


def _watch_image(
    checkout: Checkout, known: Repository, pinned: PinnedImage, rules: WatchRules, options: WatchOptions
) -> WatchResult:
    branch, sites = bump_branch.find(checkout, _bump(options, known)), known.sites.only(pinned)
    verdicts = check.check_pins(checkout.read(sites.pin_paths, branch.base_commit), sites)
    tags = check.lockstep_tags(verdicts, branch.bump.image_type).get(pinned.name, ())
    if not tags:
        raise CannotTell(f"{options.base} has no readable {options.image_type} pin, so nothing can be compared.")
    current = ", ".join(sorted(tags))
    if any(site.edition for site in sites.pins):
        sentence = f"Pins of several editions ({current}) are bumped by hand, each edition to a tag of its own."
        return WatchResult(pinned.name, "needs a person", sentence)
    if len(tags) > 1:
        sentence = f"The pins do not agree ({current}). Fix them first: `runbook check` lists them."
        return WatchResult(pinned.name, "needs a person", sentence)
    image = replace(ImageRef.parse(pinned.name), tag=current)
    with options.services.registry(image) as registry:
        newer = families.newer_releases(pinned.family, pinned.family.read(current), registry.tags())
    if not newer:
        return WatchResult(pinned.name, "up to date", f"{current} is the newest release.")
    held: list[str] = []
    for tag in newer:
        reason = _hold(image.with_tag(tag), rules, options)
        if not reason:
            bump = _bump(options, known, ":".join(filter(None, [pinned.short, str(tag)])))
            found = _propose(checkout, bump, pinned.name, options)
            if found.state != "waiting":
                return replace(found, tag=str(tag), sentence=" ".join([found.sentence, *held]))
            reason = found.sentence
        held.append(f"{tag}: {reason}")
    return WatchResult(pinned.name, "waiting", f"{current} stays. {' '.join(held)}")


def _bump(options: WatchOptions, known: Repository, tag: str = "") -> Bump:
    return Bump.parse(
        tag=tag, image_type=options.image_type, base=options.base, remote=options.remote,
        mode="publish" if options.publish else "preview", repository=known,
    )  # fmt: skip


def _rules(checkout: Checkout, known: Repository) -> WatchRules:
    """Return the rules in the pins file, or for built-in pins those in the watch file."""
    if known.origin:
        return known.watch
    text = checkout.read([watch_rules.FILE], "HEAD" if checkout.bare else None)[watch_rules.FILE]
    return watch_rules.parse(text or "", load_schema("runbook_lib.pins", SCHEMA))


def _hold(image: ImageRef, rules: WatchRules, options: WatchOptions) -> str:
    """Return why the rules hold a tag back today; empty if they do not."""
    if reason := rules.hold(image.tag or ""):
        return f"It is held: {reason.rstrip('.')}."
    if not rules.cool_down:
        return ""
    with options.services.registry(image) as registry:
        described = registry.image(image.tag or "")
    if described is None or described.built is None:
        raise CannotTell(
            f"{image} does not say when it was built, so its cool-down cannot be judged.",
            "Set a hold for it, or cool-down 0.",
        )
    end = described.built + timedelta(days=rules.cool_down)
    if options.today >= end:
        return ""
    return f"It was built on {described.built}, and the {rules.cool_down}-day cool-down ends on {end}."


def _propose(checkout: Checkout, bump: Bump, image: str, options: WatchOptions) -> WatchResult:
    """Propose a tag that no rule holds back; *waiting* if it is not to be proposed."""
    github = options.services.forge(checkout.repository(), required=bump.publish)
    if github and (earlier := _earlier(checkout, github, bump, image)):
        return earlier
    branch = bump_branch.find(checkout, bump, options.services)
    planned = bump_plan.plan_bump(branch)
    if planned.check.status == "failed":
        return WatchResult(image, "waiting", planned.check.detail)
    if planned.check.status == "skipped":
        raise CannotTell(f"{bump.tag} could not be verified: {planned.check.detail}")
    if options.publish and github:
        result = _open(checkout, github, bump, image)
    else:
        unknown = "" if github else " Whether it is open already is unknown without a token for GitHub."
        plan = commands.command(notebooks.BUMP, bump, repo=str(checkout.path))
        sentence = f"Would open a draft pull request: {bump.title!r}. Add --publish.{unknown} The plan: {plan}"
        result = WatchResult(image, "new", sentence)
    drivers = driver_check.check(planned.image, os.environ.get(driver_check.VARIABLE, ""))
    state: State = "needs a person" if drivers.status == "failed" else result.state
    return replace(result, state=state, sentence=f"{result.sentence} Drivers: {drivers.detail}")


def _earlier(checkout: Checkout, github: Forge, bump: Bump, image: str) -> WatchResult | None:
    """Return what an earlier pull request means for a tag; None if there is none."""
    head = head_of(checkout, bump)
    if pull := find_pull(github, bump, head):
        return _of_pull(pull, image)
    last = next(iter(github.pulls(head=head, base=bump.base, state="all")), None)
    if last is None:
        return None
    if last.merged:
        sentence = f"#{last.number} was merged, but {bump.base} no longer has {bump.tag}. Set a hold that says why."
        return WatchResult(image, "needs a person", sentence, url=last.url)
    return WatchResult(image, "waiting", f"#{last.number} was closed without a merge. Reopen it to try again.")


def _of_pull(pull: Pull, image: str) -> WatchResult:
    sentence = f"#{pull.number} by {pull.author} is open: continue with the bump notebook."
    return WatchResult(image, "open", sentence, url=pull.url)


def _open(checkout: Checkout, github: Forge, bump: Bump, image: str) -> WatchResult:
    """Run 03-open-pr with its record, and return the pull request."""
    parameters = {
        "tag": bump.target, "repo": str(checkout.path), "image_type": bump.image_type, "base": bump.base,
        "remote": bump.remote, "mode": "publish",
    }  # fmt: skip
    notebook = provenance.ROOT / "runbooks" / f"{notebooks.OPEN_PR}.ipynb"
    try:
        execute_notebook(notebook, None, parameters, engine_name="runbook", progress_bar=False)
    except PapermillExecutionError as error:  # the engine has named the record
        raise RunbookError(str(error.evalue)) from error
    pull = find_pull(github, bump, head_of(checkout, bump))
    if pull is None:
        raise RunbookError(f"{notebooks.OPEN_PR} opened no pull request: see its record.")
    return _of_pull(pull, image)
