"""The plan of a bump on its branch, with what the registry says of the new image."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from runbook_lib import display
from runbook_lib.bump import Bump
from runbook_lib.checks import Check
from runbook_lib.clients.registry.client import FRESH, Image, Registry, verify_tag
from runbook_lib.display import View
from runbook_lib.errors import CannotTell, Refused, RunbookError, Unreachable
from runbook_lib.images.compare import ImageComparison, compare, merged
from runbook_lib.images.families import is_older
from runbook_lib.images.reference import ImageRef, Tag
from runbook_lib.pins import plan as pins
from runbook_lib.pins.check import check_pins
from runbook_lib.pins.plan import Change, Plan
from runbook_lib.workflow import bump_branch
from runbook_lib.workflow.bump_branch import BumpBranch

_NOTHING = Plan((), (), (), ())


@dataclass(frozen=True)
class PlannedBump:
    """The plan of a bump, and what the registry says of its image.  Empty for a bump without a tag.

    ``changes`` compares the image with the one that the base branch names, where the registry has both.
    """

    bump: Bump
    plan: Plan
    image: Image | None
    check: Check
    changes: ImageComparison | None = None

    def require(self) -> None:
        """Raise Refused where the registry has no such image, or could not be asked and this run publishes."""
        if self.bump.tag is None:
            raise Refused("No tag was given, so there is nothing to apply. Give one, such as -p tag 26.04-py3.")
        if self.check.status == "failed":
            raise Refused(f"The tag cannot be used: {self.check.detail}")
        if self.check.status == "skipped" and self.bump.publish and "unverified-tag" not in self.bump.allow:
            raise Refused(f"The tag {self.bump.tag} was not verified: {self.check.detail}", "unverified-tag")

    @property
    def platforms(self) -> list[dict[str, str]]:
        """The image for each platform: digest, size of the download in GB, and the versions that it names."""
        names = ("CUDA_VERSION", "CUDNN_VERSION", "NCCL_VERSION", "PYTORCH_VERSION", "CUDA_DRIVER_VERSION")
        return [
            {"platform": name, "digest": it.digest, "GB": f"{it.size / 1e9:.2f}"}
            | {variable: it.env.get(variable, "") for variable in names}
            for name, it in sorted((self.image.platforms if self.image else {}).items())
        ]

    def show_changes(self) -> View:
        """What the new image brings, component by component, and the variables of its environment that differ."""
        if self.changes is None:
            return display.note("There is nothing to compare: the registry does not have both images.")
        environment = display.table(merged(self.changes.environment()), empty="Its environment is the same.")
        return display.table(merged(self.changes.rows())) + environment

    @property
    def used_exceptions(self) -> dict[str, str]:
        """The named exceptions that this bump really needed, and why."""
        unverified = {"unverified-tag": self.check.detail} if self.check.status == "skipped" else {}
        older = [change for change in self.plan.changes if goes_back(self.bump, change)]
        used = unverified | ({"older-tag": f"{older[0].old} is newer than {older[0].new}."} if older else {})
        return {name: why for name, why in used.items() if name in self.bump.allow}


def plan_bump(branch: BumpBranch) -> PlannedBump:
    """Plan on the newest commit of the branch, and ask the registry for the image on each platform that the rows name.

    Raises Refused for a branch of the bump's name with other content.
    """
    bump, sites = branch.bump, branch.bump.repository.sites
    if bump.tag is None:
        return PlannedBump(bump, _NOTHING, None, Check("the image exists", "skipped", "No tag was given."))
    texts, on_base = branch.texts(sites.paths), branch.checkout.read(sites.paths, branch.base_commit)
    plan = pins.plan(texts, sites, bump.tag, bump.image_type, allow=bump.allow)
    _refuse_other_content(branch, plan)
    before = pins.plan(on_base, sites, bump.tag, bump.image_type, allow=bump.allow)
    _refuse_stale_branch(branch, before)
    # What is published rests on what the registry says now, not on what it said some minutes ago.
    age = 0.0 if bump.publish else FRESH
    with Registry.connect(ImageRef.parse(f"{sites.image}:{bump.tag}"), max_age=age) as registry:
        with ThreadPoolExecutor(1) as pool:  # side by side: a distant registry is waited for once
            old = pool.submit(_old_image, registry.again(), before, bump)
            check, image = verify_tag(registry, bump.tag, plan.platforms, sites.family)
        changes = _changes(old.result(), bump, image)
    if cuda := cuda_of(image):
        plan = pins.plan(texts, sites, bump.tag, bump.image_type, allow=bump.allow, cuda=cuda)
    return PlannedBump(bump, plan, image, check, changes)


def _old_image(registry: Registry, before: Plan, bump: Bump) -> tuple[str, Image] | None:
    """The image that the base names; None where there is no such image or no answer."""
    named = {_tag(bump, change.old) for change in before.changes}
    if len(named) != 1:
        return None
    (old,) = named
    try:
        there = registry.image(str(old))
    except (Unreachable, CannotTell):
        return None  # nothing depends on it; the check of the tag says what the registry said
    return (str(old), there) if there else None


def _changes(old: tuple[str, Image] | None, bump: Bump, image: Image | None) -> ImageComparison | None:
    return compare(old[1], image, (old[0], str(bump.tag))) if old and image else None


def _refuse_other_content(branch: BumpBranch, plan: Plan) -> None:
    """A branch that lacks the plan and holds commits, none of them the bump's, is somebody's own."""
    bump, checkout = branch.bump, branch.checkout
    own = bump_branch.commit_titles(checkout, f"{branch.base_commit}..{branch.start}")
    if plan.changes and own and bump.title not in own.values():
        listed = ", ".join(f"{commit[:10]} ({title})" for commit, title in list(own.items())[:3])
        raise Refused(
            f"The branch {bump.branch} in {checkout.path} has other content than this bump: {listed}. Nothing was "
            "changed. Delete or rename that branch, here and on the remote, then run again."
        )


def _refuse_stale_branch(branch: BumpBranch, base: Plan) -> None:
    """A roll-back must not take up the branch of the bump that it goes back to."""
    bump, checkout = branch.bump, branch.checkout
    back = any(goes_back(bump, change) for change in base.changes)
    if back and branch.tip and not checkout.is_ancestor(branch.base_commit, branch.start):
        raise Refused(
            f"The branch {bump.branch} lies in {checkout.path} from an earlier bump, and {bump.base} "
            "has gone on since. Nothing was changed. Delete that branch, here and on the remote, then run again."
        )


def finished(branch: BumpBranch) -> bool:
    """Whether the base branch names the tag already: the bump is merged, or was never needed."""
    if branch.bump.tag is None:
        return False
    sites = branch.bump.repository.sites
    try:
        texts = branch.checkout.read(sites.paths, branch.base_commit)
        return not pins.plan(texts, sites, branch.bump.tag, branch.bump.image_type, allow=branch.bump.allow).changes
    except RunbookError:
        return False  # the steps that plan say what is wrong


def cuda_of(image: Image | None) -> str | None:
    """The CUDA release (``13.2``) that the image has on every platform, where it tells."""
    versions = {it.env.get("CUDA_VERSION", "") for it in image.platforms.values()} if image else set()
    return ".".join(versions.pop().split(".")[:2]) or None if len(versions) == 1 else None


def _tag(bump: Bump, image: str) -> Tag:
    return bump.repository.sites.family.read(ImageRef.parse(image).tag or "")


def goes_back(bump: Bump, change: Change) -> bool:
    """Whether a change is to an older tag."""
    return is_older(_tag(bump, change.new), _tag(bump, change.old))


def pin_rows(branch: BumpBranch) -> list[dict[str, str]]:
    """Every pin of the base branch and of the bump's own, where that exists."""
    sites = branch.bump.repository.sites
    commits = {branch.bump.base: branch.base_commit} | ({branch.bump.branch: branch.start} if branch.tip else {})
    return [
        {"branch": name, "pin": verdict.site, "role": verdict.role, "image": verdict.image, "verdict": verdict.answer}
        for name, commit in commits.items()
        for verdict in check_pins(branch.checkout.read(sites.pin_paths, commit), sites)
    ]
