"""The proposal of a bump: branch, commit, push, pull request and labels, and the parts that exist already."""

from dataclasses import dataclass

from runbook_lib.bump import Bump
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.models import Pull
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.commits import merged_tree
from runbook_lib.images import months
from runbook_lib.pins.plan import PinPlan
from runbook_lib.records.statement import Identity
from runbook_lib.text.markdown import unlinked
from runbook_lib.text.sections import compose_body
from runbook_lib.workflow import lts_validation
from runbook_lib.workflow.bump_branch import BumpBranch, commit_titles
from runbook_lib.workflow.bump_plan import NO_PLAN, PlannedBump, plan_commit
from runbook_lib.workflow.bump_pull import find_pull, head_of, is_mine, open_for
from runbook_lib.workflow.pull_request_body import TEMPLATES, fill_in, part


@dataclass(frozen=True)
class Proposal:
    """``plan`` is the bump on the commit where the branch diverged from its base, ``remaining`` the part its tip lacks.

    ``merges``: the base will be merged into the branch first.  ``head`` is the pull request's as ``owner:branch``,
    ``part`` our part of its description, ``pull`` the bump's open pull request, and ``template`` the repository's for
    new ones.
    """

    branch: BumpBranch
    planned: PlannedBump
    plan: PinPlan
    remaining: PinPlan
    merges: bool = False
    head: str = ""
    part: str = ""
    pull: Pull | None = None
    template: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def bump(self) -> Bump:
        """The parameters."""
        return self.branch.bump

    @property
    def mine(self) -> bool:
        """True if this bump pushes to the pull request's branch, or there is no pull request yet."""
        return self.pull is None or is_mine(self.pull, self.head)

    @property
    def nothing_to_do(self) -> str:
        """The reason why there is nothing to propose; empty otherwise."""
        if self.bump.tag is None:
            return "No tag was given, so nothing is proposed."
        if not self.plan.changes:
            return f"{self.bump.base} already names {self.bump.tag}: there is nothing to propose."
        return ""

    @property
    def body(self) -> str:
        """The pull request's new description.  Raises CannotTell if the current one cannot be updated."""
        if self.pull:
            return compose_body(self.pull.body, self.part)
        sentence = f"{unlinked(self.bump.title)}, in every place that names it."
        return compose_body(fill_in(self.template, sentence), self.part)


def propose(branch: BumpBranch, planned: PlannedBump, github: GitHub | None) -> Proposal:
    """Read the branch, the base and the open pull requests, and return the work to be done.  Changes nothing."""
    bump, checkout, base = branch.bump, branch.checkout, branch.base_commit
    if bump.tag is None:
        return Proposal(branch, planned, NO_PLAN, NO_PLAN)
    tip = branch.tip or base
    fork = checkout.merge_base(tip, base) or base
    own_commits = commit_titles(checkout, f"{base}..{tip}")
    base_moved_by = len(commit_titles(checkout, f"{tip}..{base}"))
    merges = bool(base_moved_by and own_commits) and "merge-base" in bump.allow
    # The base may have brought further pins, so the bump is planned on the merge.
    remaining = plan_commit(branch, merged_tree(checkout, tip, base) if merges else tip)
    plan = plan_commit(branch, base if merges else fork).for_cuda(planned.cuda)
    if not plan_commit(branch, base).changes:
        # The base already has the tag, from a squashed merge or from somebody else: the branch adds nothing.
        plan = NO_PLAN
    warnings = [*branch.warnings, *plan.warnings]
    if base_moved_by and own_commits:
        how = "CI tests the merge of both; to merge the base into the branch and plan again, add allow=merge-base."
        if "merge-base" in bump.allow:
            how = "It will be merged into the branch, and the bump planned again."
        moved = f"{bump.base} has moved by {base_moved_by} commits since the branch diverged at {fork[:10]}"
        warnings.append(f"{moved}. {how}")
    head = head_of(checkout, bump)
    pull: Pull | None = None
    others: tuple[Pull, ...] = ()
    try:
        if github:
            pull = find_pull(github, bump, head)
            others = () if pull else open_for(github, bump)
    except RunbookError as error:
        if bump.publish:
            raise
        warnings.append(str(error))
    if pull and not is_mine(pull, head):
        warnings.append(f"#{pull.number} by {pull.author} is already open for this bump, and will be used: {pull.url}")
    for other in others:
        warnings.append(
            f"#{other.number} by {other.author} looks like this bump, and will not be used, because {other.author} is "
            f"not known to have write access to {checkout.repository()}: {other.url}"
        )
    platforms = planned.image.platforms if planned.image else {}
    digests = {name: platform.digest for name, platform in platforms.items()}
    image = f"{planned.changes.markdown()}\n" if planned.changes else ""
    image += months.markdown(planned.known_issues)
    # The bump's folder in the archive, not the run's, so that a second run does not change the text.
    identity = Identity(checkout.repository(), bump.base, bump.image_type, bump.target, False)
    record, validation = "/".join(identity.parts), lts_validation.describe(branch)
    text = part(plan, bump, digests=digests, image=image, validation=validation, record=record)
    return Proposal(
        branch, planned, plan, remaining, merges, head, text, pull,
        template="" if pull else _template(branch), warnings=tuple(warnings),
    )  # fmt: skip


def _template(branch: BumpBranch) -> str:
    try:
        texts = branch.checkout.read(TEMPLATES, branch.base_commit)
    except CannotTell:  # a symbolic link is not followed; the description works without a template
        return ""
    return next((text for text in texts.values() if text), "")
