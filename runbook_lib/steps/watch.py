"""``runbook watch``: for each image, propose the newest tag that nothing holds back, once, as a draft pull request."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Literal

from runbook_lib import notebooks
from runbook_lib.bump import Bump
from runbook_lib.checks import Check
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.models import Pull
from runbook_lib.clients.registry.client import Registry
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.command import GitFailed
from runbook_lib.images import driver_check, families
from runbook_lib.images.reference import ImageRef
from runbook_lib.pins import check, watch_rules
from runbook_lib.pins.pins_file import SCHEMA
from runbook_lib.pins.repositories import Repository
from runbook_lib.pins.sites import PinnedImage
from runbook_lib.pins.watch_rules import WatchRules
from runbook_lib.runner import command_line, execute
from runbook_lib.system import provenance
from runbook_lib.text.user_file import load_schema
from runbook_lib.workflow import bump_branch, bump_plan, pull_request, repository
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.bump_pull import find_pull, head_of

State = Literal["up to date", "waiting", "open", "new", "needs a person", "cannot tell"]
_EXIT: Mapping[State, int] = {
    "up to date": 0, "waiting": 0, "open": 0, "new": 1, "needs a person": 1, "cannot tell": 2,
}  # fmt: skip


@dataclass(frozen=True)
class WatchOptions:
    """``cool_down`` overrides the rules' own; ``today`` is the day for which they are judged."""

    today: date
    image_type: str = "dev"
    base: str = "main"
    remote: str = "origin"
    pins: str = ""
    audit: str = ""
    cool_down: int | None = None
    publish: bool = False


@dataclass(frozen=True)
class WatchResult:
    """The pinned tag of an image, and the newer ``tag`` that is proposed; ``sentence`` says why, or why not.

    *new*: not proposed yet, because this run did not publish.  *waiting*: every newer tag is held back.
    """

    image: str
    image_type: str
    base: str
    state: State
    sentence: str = ""
    current: str = ""
    tag: str = ""
    url: str = ""

    @property
    def exit_status(self) -> int:
        """0 if up to date, proposed or waiting; 1 if a person is needed; 2 if the image could not be compared."""
        return _EXIT[self.state]


@dataclass(frozen=True)
class NewerTag:
    """A newer tag, as the bump that would move to it, and why it is ``held`` back, by a rule or by what is known of it.

    ``earlier`` is a pull request for it, open or merged; ``drivers`` is the check of the runners' drivers.
    """

    bump: Bump
    held: str = ""
    earlier: Pull | None = None
    drivers: Check | None = None


@dataclass(frozen=True)
class Opened:
    """The pull request that 03-open-pr opened, or None, and the line about that run."""

    pull: Pull | None
    line: str


@dataclass(frozen=True)
class WatchFacts:
    """An image's tags on the base branch, and its newer tags up to the first that nothing holds back, newest first.

    ``editions``: its pins are of several editions.  ``asked``: GitHub was asked for pull requests.  ``preview`` is the
    command that shows the plan.
    """

    pinned: PinnedImage
    bump: Bump
    tags: tuple[str, ...]
    editions: bool = False
    candidates: tuple[NewerTag, ...] = ()
    asked: bool = False
    preview: str = ""
    opened: Opened | None = None

    @property
    def proposal(self) -> NewerTag | None:
        """The tag to be proposed; None if all are held back, or one has a pull request."""
        last = self.candidates[-1] if self.candidates else None
        return last if last and not last.held and not last.earlier else None


def watch(checkout: Checkout, options: WatchOptions) -> tuple[WatchResult, ...]:
    """Compare the pins of each image on the base branch with the registry, and propose a newer tag.

    Changes nothing without ``publish``.  An image that cannot be compared does not hide the others.
    """
    known = repository.choose(checkout, options.pins)
    rules = _rules(checkout, known)
    if options.cool_down is not None:
        rules = replace(rules, cool_down=options.cool_down)
    moved = [site for site in known.sites.pins if site.lockstep and site.image_type == options.image_type]
    results = []
    for pinned in dict.fromkeys(map(known.sites.image_of, moved)):
        try:
            facts = look(checkout, known, pinned, rules, options)
            if facts.proposal and options.publish:
                facts = replace(facts, opened=_open(checkout, facts.proposal.bump, options))
            results.append(judge(facts))
        except RunbookError as error:
            image = WatchResult(pinned.name, options.image_type, options.base, "cannot tell", str(error))
            results.append(image)
    if not results:
        raise CannotTell(f"{known.name} has no {options.image_type} pins, so there is nothing to watch.")
    return tuple(results)


def look(
    checkout: Checkout, known: Repository, pinned: PinnedImage, rules: WatchRules, options: WatchOptions
) -> WatchFacts:
    """Read the pins, the registry, the pull requests and the plan of the tag that would be proposed."""
    bump = _bump(options, known)
    tags = tuple(sorted(_pinned_tags(bump_branch.find(checkout, bump), pinned)))
    editions = any(site.edition for site in known.sites.only(pinned).pins)
    facts = WatchFacts(pinned, bump, tags, editions)
    if editions or len(tags) > 1:
        return facts
    image = replace(ImageRef.parse(pinned.name), tag=tags[0])
    with Registry.connect(image) as registry:
        newer = families.newer_releases(pinned.family, pinned.family.read(tags[0]), registry.tags())
    candidates: list[NewerTag] = []
    asked = False
    for tag in newer:
        candidate = NewerTag(_bump(options, known, ":".join(filter(None, [pinned.short, str(tag)]))))
        reason = _hold(image.with_tag(tag), rules, options.today)
        if not reason:
            github = pull_request.connect_github(checkout.repository(), candidate.bump)
            candidate, asked = _look_at(checkout, github, candidate), github is not None
        candidates.append(replace(candidate, held=reason or candidate.held))
        if not candidates[-1].held:
            break
    preview = ""
    if candidates:
        preview = command_line.command(notebooks.BUMP, candidates[-1].bump, repo=str(checkout.path))
    return replace(facts, candidates=tuple(candidates), asked=asked, preview=preview)


def _look_at(checkout: Checkout, github: GitHub | None, candidate: NewerTag) -> NewerTag:
    """Return a candidate that no rule holds back with its pull request, or with the checks of its image."""
    bump = candidate.bump
    if github:
        head = head_of(checkout, bump)
        pull = find_pull(github, bump, head)
        if pull := pull or next(iter(github.pulls(head=head, base=bump.base, state="all")), None):
            closed = f"#{pull.number} was closed without a merge. Reopen it to try again."
            is_closed = pull.state == "closed" and not pull.merged
            return replace(candidate, held=closed if is_closed else "", earlier=pull)
    planned = bump_plan.plan_bump(bump_branch.find(checkout, bump))
    if planned.check.status == "failed":
        return replace(candidate, held=planned.check.detail)
    if planned.check.status == "skipped":
        raise CannotTell(f"{bump.tag} could not be verified: {planned.check.detail}")
    drivers = driver_check.check(planned.image, os.environ.get(driver_check.VARIABLE, ""))
    return replace(candidate, drivers=drivers)


def judge(facts: WatchFacts) -> WatchResult:
    """Return what becomes of an image, purely from the facts."""
    bump, current = facts.bump, ", ".join(facts.tags)
    result = WatchResult(facts.pinned.name, bump.image_type, bump.base, "needs a person", current=current)
    if facts.editions:
        sentence = f"Pins of several editions ({current}) are bumped by hand, each edition to a tag of its own."
        return replace(result, sentence=sentence)
    if len(facts.tags) > 1:
        sentence = f"The pins do not agree ({current}). Fix them first: `runbook check` lists them."
        return replace(result, sentence=sentence)
    if not facts.candidates:
        return replace(result, state="up to date", sentence=f"{current} is the newest release.")
    held = " ".join(f"{each.bump.tag}: {each.held}" for each in facts.candidates if each.held)
    last = facts.candidates[-1]
    if last.held:
        return replace(result, state="waiting", sentence=f"{current} stays. {held}")
    result = replace(result, tag=str(last.bump.tag))
    result = _judge_earlier(result, last.earlier, bump) if last.earlier else _judge_proposal(result, facts, last)
    return replace(result, sentence=f"{result.sentence} {held}".rstrip())


def _judge_earlier(result: WatchResult, pull: Pull, bump: Bump) -> WatchResult:
    if pull.merged:
        sentence = f"#{pull.number} was merged, but {bump.base} no longer has {result.tag}. Set a hold that says why."
        return replace(result, sentence=sentence, url=pull.url)
    sentence = f"#{pull.number} by {pull.author} is open: continue with the bump notebook."
    return replace(result, state="open", sentence=sentence, url=pull.url)


def _judge_proposal(result: WatchResult, facts: WatchFacts, proposed: NewerTag) -> WatchResult:
    opened, drivers = facts.opened, proposed.drivers
    assert drivers is not None
    if opened is None:
        unknown = "" if facts.asked else " Whether it is open already is unknown without a token for GitHub."
        sentence = f"Would open a draft pull request: {proposed.bump.title!r}. Add --publish.{unknown}"
        result = replace(result, state="new", sentence=f"{sentence} The plan: {facts.preview}")
    elif opened.pull is None:
        result = replace(result, sentence=opened.line)
    else:
        sentence = f"Opened #{opened.pull.number}: continue with the bump notebook."
        result = replace(result, state="open", sentence=sentence, url=opened.pull.url)
    state = "needs a person" if drivers.status == "failed" else result.state
    return replace(result, state=state, sentence=f"{result.sentence} Drivers: {drivers.detail}")


def _pinned_tags(branch: BumpBranch, pinned: PinnedImage) -> set[str]:
    """Return the tags that the image's pins have on the base branch."""
    bump, sites = branch.bump, branch.bump.repository.sites.only(pinned)
    tags = set()
    for verdict in check.check_pins(branch.checkout.read(sites.pin_paths, branch.base_commit), sites):
        if verdict.image and verdict.role == f"lockstep {bump.image_type}":
            tags.add(ImageRef.parse(verdict.image).tag or "")
    if not tags:
        raise CannotTell(f"{bump.base} has no readable {bump.image_type} pin, so nothing can be compared.")
    return tags


def _bump(options: WatchOptions, known: Repository, tag: str = "") -> Bump:
    return Bump.parse(
        tag=tag, image_type=options.image_type, base=options.base, remote=options.remote,
        apply=options.publish, publish=options.publish, repository=known,
    )  # fmt: skip


def _rules(checkout: Checkout, known: Repository) -> WatchRules:
    """Return the rules in the pins file, or for built-in pins those in the watch file."""
    if known.origin:
        return known.watch
    text = checkout.read([watch_rules.FILE], "HEAD" if checkout.bare else None)[watch_rules.FILE]
    return watch_rules.parse(text or "", load_schema("runbook_lib.pins", SCHEMA))


def _hold(image: ImageRef, rules: WatchRules, today: date) -> str:
    """Return why the rules hold a tag back today; empty if they do not."""
    if reason := rules.hold(image.tag or ""):
        return f"It is held: {reason.rstrip('.')}."
    if not rules.cool_down:
        return ""
    with Registry.connect(image) as registry:
        described = registry.image(image.tag or "")
    if described is None or described.built is None:
        raise CannotTell(
            f"{image} does not say when it was built, so its cool-down cannot be judged. Set a hold for it, or "
            "cool-down 0."
        )
    end = described.built + timedelta(days=rules.cool_down)
    if today >= end:
        return ""
    return f"It was built on {described.built}, and the {rules.cool_down}-day cool-down ends on {end}."


def _open(checkout: Checkout, bump: Bump, options: WatchOptions) -> Opened:
    """Run 03-open-pr, which makes the conditions of its plan true and keeps their record, and find the pull request.

    A branch that it made here is removed once the remote has it: whoever continues the bump takes it from there.
    """
    parameters = {
        "tag": bump.target, "repo": str(checkout.path), "image_type": bump.image_type, "base": bump.base,
        "remote": bump.remote, "pins": options.pins, "audit": options.audit, "apply": True, "publish": True,
    }  # fmt: skip
    was_here = checkout.branch_tip(bump.branch) is not None
    ran = execute.execute(provenance.ROOT / "runbooks" / f"{notebooks.OPEN_PR}.ipynb", parameters)
    line = f"{ran.lines()[0]} Record: {ran.record}"
    if not ran.ok:
        raise RunbookError(line)
    if not was_here:
        _remove_pushed(checkout, bump)
    github = pull_request.connect_github(checkout.repository(), bump)
    return Opened(find_pull(github, bump, head_of(checkout, bump)) if github else None, line)


def _remove_pushed(checkout: Checkout, bump: Bump) -> None:
    """Remove the bump's branch from the clone if the remote's is the same; git keeps one that is checked out."""
    tip = checkout.branch_tip(bump.branch)
    if tip and tip == checkout.remote_tip(bump.remote, bump.branch):
        with contextlib.suppress(GitFailed):
            checkout.git("branch", "--quiet", "--delete", "--force", bump.branch)
