"""Notebooks 01-github-pin and 02-gitlab-pin: a bump's plan on its branch, and what the registry says of its image."""

import contextlib
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from runbook_lib import display
from runbook_lib.bump import sync_survey
from runbook_lib.decisions import Decision
from runbook_lib.errors import CannotTell, Refused, RunbookError, Unreachable
from runbook_lib.images import months
from runbook_lib.images.compare import ImageComparison, compare
from runbook_lib.images.reference import Image, ImageRef, Tag
from runbook_lib.model import Check, Evidence, Next, Outcome, Plan
from runbook_lib.notebooks import GITHUB_PIN, GITLAB_PIN, OPEN_PR
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.check import check_pins
from runbook_lib.pins.plan import PinChange, PinPlan, plan
from runbook_lib.pins.sites import Sites
from runbook_lib.text import edits
from runbook_lib.text.markdown import unlinked
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.conditions.commits import BranchTip, Committed
from runbook_lib.world.image_lookup import verify_tag
from runbook_lib.world.ports import Registry, Services, World

NO_PLAN = PinPlan((), (), (), ())
COMPLETE = "the branch has the complete bump"


#: The named exceptions that change the plan of the pins.
_OF_PINS = ("older-tag", "other-edition", "both-types")


@dataclass(frozen=True)
class PlannedBump:
    """The plan of a bump, and the registry's description of its image.  Empty for a bump without a tag.

    ``base_tag``: the tag on the base branch, if there is exactly one.  ``changes`` compares its image with the new
    one, if the registry has both.
    """

    bump: Bump
    plan: PinPlan
    image: Image | None
    check: Check
    changes: ImageComparison | None = None
    base_tag: Tag | None = None

    def require(self) -> None:
        """Raise Refused if the registry has no such image, or was unreachable and this run publishes."""
        if self.check.status == "failed":
            raise Refused(f"The tag cannot be used: {self.check.detail}")
        if self.check.status == "skipped" and self.bump.publish and not self.bump.allowed("unverified-tag"):
            raise Refused(f"The tag {self.bump.tag} was not verified: {self.check.detail}", exception="unverified-tag")

    @property
    def documented(self) -> tuple[Image, str] | None:
        """The image by its tag's documentation, and a sentence that cites it, if the registry could not be read."""
        if self.check.status != "skipped" or self.bump.tag is None:
            return None
        return months.documented_image(ImageRef.parse(f"{self.bump.repository.sites.image}:{self.bump.tag}"))

    @property
    def described(self) -> Image | None:
        """The image by the registry, or by the documentation of its tag; None if neither knows it."""
        return self.documented[0] if self.documented else self.image

    @property
    def cuda(self) -> str | None:
        """The CUDA release (``13.2``) of the image on every platform; None if unknown."""
        platforms = self.described.platforms.values() if self.described else ()
        versions = {platform.env.get("CUDA_VERSION", "") for platform in platforms}
        if len(versions) != 1:
            return None
        return ".".join(versions.pop().split(".")[:2]) or None

    @property
    def platforms(self) -> list[dict[str, str]]:
        """The image for each platform: digest, download size in GB, and reported versions."""
        shown = {
            "CUDA": "CUDA_VERSION", "cuDNN": "CUDNN_VERSION", "NCCL": "NCCL_VERSION", "PyTorch": "PYTORCH_VERSION",
            "driver": "CUDA_DRIVER_VERSION",
        }  # fmt: skip
        rows = []
        for name, platform in sorted(self.image.platforms.items()) if self.image else ():
            versions = {component: platform.env.get(variable, "") for component, variable in shown.items()}
            rows.append({"platform": name, "digest": platform.digest, "GB": f"{platform.size / 1e9:.2f}"} | versions)
        return rows

    @property
    def compared_months(self) -> tuple[str, str]:
        """The months of the current and the new image, each empty if there is none."""
        image = self.bump.repository.sites.image
        return months.month_of(image, str(self.base_tag)), months.month_of(image, str(self.bump.tag))

    @property
    def known_issues(self) -> list[months.KnownIssue]:
        """The published issues that are in the new image but not in the current one; all of them if that is unknown."""
        return months.new_issues(*self.compared_months)

    @property
    def decided(self) -> tuple[Decision, ...]:
        """The named exceptions that this bump actually needed."""
        changes = self.plan.changes
        needed = {
            "unverified-tag": self.check.status == "skipped",
            "older-tag": any(_goes_back(self.bump, change) for change in changes),
            "other-edition": bool(changes),
            "both-types": bool(changes),
        }
        return tuple(filter(None, (self.bump.allowed(what) for what, is_needed in needed.items() if is_needed)))


def plan_bump(branch: BumpBranch) -> PlannedBump:
    """Plan on the branch's newest commit, and query the registry for the image, both once per ``branch``.

    Raises Refused for a rollback to an image whose bump has left its branch.
    """
    if tag := branch.bump.target:
        if tag not in branch.plans:
            branch.plans[tag] = _plan_bump(branch)
        planned: PlannedBump = branch.plans[tag]
        return planned
    return PlannedBump(branch.bump, NO_PLAN, None, Check("the image exists", "skipped", "No tag was given."))


def _plan_bump(branch: BumpBranch) -> PlannedBump:
    bump, sites = branch.bump, branch.bump.repository.sites
    assert bump.tag is not None
    plan, base_plan = plan_commit(branch, branch.start), plan_commit(branch, branch.base_commit)
    _refuse_earlier_bump(branch, base_plan)
    tags = {_tag(bump, change.old) for change in base_plan.changes}
    base_tag = tags.pop() if len(tags) == 1 else None  # the base's pins may name several, or the new one
    registry = branch.services.registry(ImageRef.parse(f"{sites.image}:{bump.tag}"))
    with ThreadPoolExecutor(1) as pool:  # in parallel, because a distant registry is slow
        old_image = pool.submit(_base_image, registry, base_tag)
        needed: Collection[str] = plan.platforms
        if not needed and (pinned := old_image.result()):
            needed = pinned.platforms
        check, image = verify_tag(registry, bump.tag, needed, sites.family)
    old = old_image.result()
    if check.status == "failed" and image and not plan.platforms:
        fix = "If nothing is built for these, name the others under `platforms` in the pins file."
        check = replace(check, detail=f"{check.detail} {base_tag} has all of {' and '.join(sorted(needed))}. {fix}")
    changes = compare(old, image, (str(base_tag), str(bump.tag))) if old and image else None
    planned = PlannedBump(bump, plan, image, check, changes, base_tag)
    return replace(planned, plan=plan.for_cuda(planned.cuda))


def plan_commit(branch: BumpBranch, commit: str) -> PinPlan:
    """Return the pin plan for the files in a commit, which is read and planned once per ``branch``.

    Raises RunbookError like ``plan``.
    """
    bump, sites = branch.bump, branch.bump.repository.sites
    assert bump.tag is not None
    if commit not in branch.plans:
        texts = branch.checkout.read(sites.paths, commit)
        allow = frozenset(what for what in _OF_PINS if bump.allowed(what))
        digest = partial(_digest, branch.services, bump)
        branch.plans[commit] = plan(texts, sites, bump.tag, bump.image_type, allow=allow, digest_of_target=digest)
    planned: PinPlan = branch.plans[commit]
    return planned


def _digest(services: Services, bump: Bump) -> str:
    """Return the digest of the new image index, for pins that include a digest.

    Raises RunbookError if it is unknown.
    """
    reference = ImageRef.parse(f"{bump.repository.sites.image}:{bump.tag}")
    image = services.registry(reference).image(str(bump.tag))
    if image is None:
        raise CannotTell(
            f"The pins include a digest, but the registry has no image {reference}, so there is no new "
            "digest to write.",
            "Correct the tag.",
        )
    return image.digest


def _base_image(registry: Registry, tag: Tag | None) -> Image | None:
    """Return a tag's image; None without a tag, or if the registry does not have or describe it."""
    with contextlib.suppress(Unreachable, CannotTell):  # the check of the new tag reports the problem
        return registry.image(str(tag)) if tag else None
    return None


def _refuse_earlier_bump(branch: BumpBranch, base_plan: PinPlan) -> None:
    """Raise Refused for the branch of the bump to which a rollback returns."""
    bump, checkout = branch.bump, branch.checkout
    back = any(_goes_back(bump, change) for change in base_plan.changes)
    if back and branch.tip and not checkout.is_ancestor(branch.base_commit, branch.start):
        raise Refused(
            f"Branch {bump.branch} in {checkout.path} is from an earlier bump, and {bump.base} has moved since. "
            "Nothing was changed.",
            "Delete that branch, here and on the remote, then run again.",
        )


def commit_message(bump: Bump, plan: PinPlan) -> str:
    """Return the message of the commit that moves the pins; none of its lines can be mistaken for a trailer."""
    lines = (unlinked(f"- {change.path}: {change.old} -> {change.new}") for change in plan.changes)
    return "\n".join([bump.title, "", *dict.fromkeys(lines)])


def committed(branch: BumpBranch, plan: PinPlan) -> Committed:
    """Return the condition that the branch has the plan's edits, in one commit."""
    tip = BranchTip(branch.bump.branch, branch.start)
    return Committed(tip, plan.edits, commit_message(branch.bump, plan), COMPLETE)


def base_has_tag(branch: BumpBranch) -> bool:
    """Return whether the base branch already names the tag: the bump is merged, or was never needed."""
    if branch.bump.tag is None:
        return False
    try:
        return not plan_commit(branch, branch.base_commit).changes
    except RunbookError:
        return False  # the steps that plan report the problem


def _tag(bump: Bump, image: str) -> Tag:
    return bump.repository.sites.family.read(ImageRef.parse(image).tag or "")


def _goes_back(bump: Bump, change: PinChange) -> bool:
    return _tag(bump, change.new).is_older(_tag(bump, change.old))


def check_other_type(branch: BumpBranch, before: str, after: str) -> Check:
    """Check that the commit ``after`` has the pins of the other image type as ``before`` has them.

    Skipped if ``both-types`` is allowed, which moves both.
    """
    bump, sites = branch.bump, branch.bump.repository.sites
    image_type = bump.repository.other_type(bump.image_type)
    if image_type is None:
        return Check("no other pin is touched", "skipped", f"All pins in {bump.repository.name} are of one image type.")
    name = f"the {image_type} pins are untouched"
    if bump.allowed("both-types"):
        return Check(name, "skipped", "both-types is allowed.")
    old, new = (_images(branch.checkout.read(sites.pin_paths, at), sites, image_type) for at in (before, after))
    detail = "; ".join(f"{pin} names {image}" for pin, image in sorted(old ^ new))
    return Check.of(name, not detail, detail or f"{len(new)} pins as on {bump.base}.")


def _images(texts: Mapping[str, str | None], sites: Sites, image_type: str) -> set[tuple[str, str]]:
    """Return the lockstep pins of this type, each with its image."""
    pins = (pin for pin in check_pins(texts, sites) if pin.role == f"lockstep {image_type}")
    return {(f"{pin.path} ({pin.selector})", pin.image) for pin in pins}


@dataclass(frozen=True)
class PinFacts:
    """The bump's branch, and the plan on its newest commit with the registry's answer.

    ``rows`` are the present pins.
    """

    branch: BumpBranch
    planned: PlannedBump
    rows: list[dict[str, str]]


@dataclass(frozen=True)
class PinStep:
    """The step that shows the pins of one CI.

    All pins move in one commit, so that no commit has only some of them: the first of the two steps makes it, and the
    second one finds it.
    """

    NAME: str
    ci: Literal["github", "gitlab"]

    def look(self, world: World, bump: Bump) -> PinFacts:
        """Read the branch and the registry.  Raises RunbookError like ``plan_bump``."""
        branch = BumpBranch.look(world, bump)
        planned = plan_bump(branch)
        pins = sync_survey.survey(branch.checkout, [branch.start], repository=bump.repository)
        return PinFacts(branch, planned, pins.rows())

    def plan(self, facts: PinFacts, bump: Bump) -> Plan[World]:
        """Plan the commit.  Raises Refused for an image that cannot be used, unless this is a preview."""
        branch, planned = facts.branch, facts.planned
        part = planned.plan.part(self.ci)
        evidence = Evidence(
            inputs={
                "base_commit": branch.base_commit,
                "plan_from": branch.start,
                "digest": planned.image and planned.image.digest,
            },
            tables={"changes": list(map(vars, planned.plan.changes))},
            diff=edits.diff(planned.plan.edits),
            decided=planned.decided,
            warnings=(*branch.warnings, *part.warnings),
        )
        if bump.tag is None:
            done = Outcome("No tag was given, so nothing is planned.", Next.again(tag="26.04-py3"))
            shown = display.note(f"{done.sentence} {done.next}") + display.table(facts.rows)
            return Plan(done, (shown,), evidence=evidence)
        if reason := self._inapplicable(bump, planned.plan):
            return Plan(Outcome(reason), (display.note(reason),), evidence=evidence)
        if bump.apply:
            planned.require()
        no_change = f"All pins of this step are already at {bump.tag}: nothing to change."
        shown = display.note(branch.describe()) + display.diff(edits.diff(part.edits), empty=no_change)
        place = bump.branch if branch.tip or part.edits else bump.base
        return Plan(
            Outcome(f"All pins of this step are at {bump.tag} on {place}.", Next.run(OPEN_PR)),
            (shown,),
            conditions=(committed(branch, planned.plan),) if planned.plan.edits else (),
            checks=(planned.check,),  # the plan has proven that no other pin moves
            evidence=evidence,
        )

    def _inapplicable(self, bump: Bump, plan: PinPlan) -> str:
        """Return why the repository or this branch has no pin that the step could move; empty if it has one."""
        if reason := bump.repository.inapplicable(self.NAME):
            return reason
        reads_gitlab = self.ci == "gitlab"
        if reads_gitlab in {reader == "gitlab" for reader in plan.readers}:
            return ""
        reader = "that GitLab reads" if reads_gitlab else "outside GitLab"
        return f"Not applicable: {bump.base} has no {bump.image_type} pin {reader}."


github = PinStep(GITHUB_PIN, "github")
gitlab = PinStep(GITLAB_PIN, "gitlab")
