"""The proposal of a bump: branch, commit, push, pull request and labels, and the parts that exist already."""

import re
from dataclasses import dataclass

from runbook_lib import display
from runbook_lib.bump import Bump
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.models import Pull
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.checkout import Checkout, slug_of
from runbook_lib.images import months
from runbook_lib.pins.plan import PinPlan
from runbook_lib.pins.repositories import LTS
from runbook_lib.records.statement import Identity
from runbook_lib.text.markdown import unlinked
from runbook_lib.workflow import lts_validation
from runbook_lib.workflow.bump_branch import BumpBranch, commit_titles
from runbook_lib.workflow.bump_plan import NO_PLAN, PlannedBump, plan_commit
from runbook_lib.workflow.pull_request_body import TEMPLATES, compose_body, fill_in, name_of, named_in, part


@dataclass(frozen=True)
class Proposal:
    """``plan`` is the bump on the commit where the branch diverged from its base, ``remaining`` the part its tip lacks.

    ``own_commits`` are those only on the branch; ``base_moved_by`` counts those only on the base.  ``pull`` is the
    bump's open pull request, and ``mine`` is true if its head is the branch that this bump pushes to.  ``template`` is
    the repository's template for new pull requests.
    """

    branch: BumpBranch
    planned: PlannedBump
    github: GitHub | None
    plan: PinPlan
    remaining: PinPlan
    own_commits: tuple[str, ...] = ()
    base_moved_by: int = 0
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
    def merges(self) -> bool:
        """True if the base will be merged into the branch."""
        return bool(self.base_moved_by and self.own_commits) and "merge-base" in self.bump.allow

    @property
    def message(self) -> str:
        """The commit message, without the sign-off; none of its lines can be mistaken for a trailer."""
        changes = self.remaining.changes or self.plan.changes
        lines = (unlinked(f"- {change.path}: {change.old} -> {change.new}") for change in changes)
        return "\n".join([self.bump.title, "", *dict.fromkeys(lines)])

    @property
    def body(self) -> str:
        """The pull request's new description.  Raises CannotTell if the current one cannot be updated."""
        if self.pull:
            return compose_body(self.pull.body, self.part)
        sentence = f"{unlinked(self.bump.title)}, in every place that names it."
        return compose_body(fill_in(self.template, sentence), self.part)

    def show(self) -> display.View:
        """Show a table of the branch, the pull request and its labels, and the full texts."""
        if self.nothing_to_do:
            return display.note(self.nothing_to_do)
        view = display.mapping(self._facts())
        if self.remaining.changes:
            view += display.code(f"{self.message}\n\nSigned-off-by: …", title="Commit message")
        if self.mine:
            view += display.code(self.part if self.pull else self.body, title="Pull request description")
        return view + display.notes(self.warnings, title="Warnings")

    def _facts(self) -> dict[str, str]:
        bump, branch, pull = self.bump, self.branch, self.pull
        on, off = bump.labels
        rows = {
            "branch": bump.branch,
            "starts at": f"{bump.base} {branch.base_commit[:10]}",
            "commit": "found: the branch has the complete bump",
            "push": f"{bump.remote} ({branch.checkout.remote_url(bump.remote, push=True)})",
            "pull request": "none yet: a draft will be opened",
            "title": bump.title,
            "from": self.head,
            "into": bump.base,
        }
        labels: frozenset[str] = frozenset()
        if branch.tip:
            rows["branch"] += f" (exists at {branch.tip[:10]})"
        if self.own_commits:
            rows["starts at"] = branch.start[:10]
        if self.remaining.changes:
            rows["commit"] = bump.title
        if pull:
            labels, head = pull.labels, f"{pull.head_owner}:{pull.head_ref}"
            rows |= {"pull request": f"#{pull.number} {pull.url}", "title": pull.title, "from": head}
        if self.github is None:
            rows["pull request"] = "unknown: GitHub could not be reached"
        return rows | {
            "labels": ", ".join(sorted(labels)) or "none",
            "labels to set": ", ".join(sorted(on - labels)),
            "labels to remove": ", ".join(sorted(off & labels)),
        }


def propose(branch: BumpBranch, planned: PlannedBump, github: GitHub | None) -> Proposal:
    """Read the branch, the base and the open pull requests, and return the work to be done.  Changes nothing."""
    bump, checkout, base = branch.bump, branch.checkout, branch.base_commit
    if bump.tag is None:
        return Proposal(branch, planned, github, NO_PLAN, NO_PLAN)
    tip = branch.tip or base
    fork = checkout.merge_base(tip, base) or base
    remaining = plan_commit(branch, tip)
    plan = plan_commit(branch, fork).for_cuda(planned.cuda)
    if not plan_commit(branch, base).changes:
        # The base already has the tag, from a squashed merge or from somebody else: the branch adds nothing.
        plan = NO_PLAN
    own_commits = commit_titles(checkout, f"{base}..{tip}")
    base_moved_by = len(commit_titles(checkout, f"{tip}..{base}"))
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
        github = None  # a run that publishes nothing continues without it
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
        branch, planned, github, plan, remaining, own_commits=tuple(own_commits), base_moved_by=base_moved_by,
        head=head, part=text, pull=pull, template="" if pull else _template(branch), warnings=tuple(warnings),
    )  # fmt: skip


def _template(branch: BumpBranch) -> str:
    try:
        texts = branch.checkout.read(TEMPLATES, branch.base_commit)
    except CannotTell:  # a symbolic link is not followed; the description works without a template
        return ""
    return next((text for text in texts.values() if text), "")


def head_of(checkout: Checkout, bump: Bump) -> str:
    """Return the pull request's head as ``owner:branch``, with the fork's owner if the remote is a fork."""
    repository = checkout.repository()
    url = checkout.remote_url(bump.remote, push=True) or ""
    # The folders of a remote on this machine do not name owners.
    local = re.match(r"(?:file:|[./~])", url) is not None and bump.remote == checkout.base_remote()
    slug = repository if local or not url else slug_of(url)
    return f"{slug.split('/')[0]}:{bump.branch}"


def is_mine(pull: Pull, head: str) -> bool:
    """Return whether a pull request comes from this branch.  Owner names on GitHub are case-insensitive."""
    owner, _, branch = head.partition(":")
    return (pull.head_owner.lower(), pull.head_ref) == (owner.lower(), branch)


def find_pull(github: GitHub, bump: Bump, head: str) -> Pull | None:
    """Return the open pull request for the bump: our own, else the oldest by somebody who may write to the repository.

    Anybody can open one with our branch name, title or marker, so those of strangers do not count.
    """
    if own := github.pulls(head=head, base=bump.base):
        return own[-1]
    return next((pull for pull in open_for(github, bump) if pull.author and github.may_write(pull.author)), None)


def open_for(github: GitHub, bump: Bump) -> tuple[Pull, ...]:
    """Return the open pull requests that look like the bump, whoever opened them, oldest first."""
    candidates = (pull for pull in github.pulls(base=bump.base) if is_for(pull, bump))
    return tuple(sorted(candidates, key=lambda pull: pull.number))


def is_for(pull: Pull, bump: Bump) -> bool:
    """Return whether a pull request into the same base is for this bump, judged by its marker, branch or title."""
    if name := named_in(pull.body):
        return name == name_of(bump)
    if pull.head_ref.startswith("bump/"):
        return pull.head_ref == bump.branch
    same_title = pull.title.strip().lower() == bump.title.lower()
    return same_title and (LTS in pull.labels) == (bump.image_type == "lts")
