"""What step 3 would do: branch, commit, push, pull request and labels, and what of it is there already."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from runbook_lib import display
from runbook_lib.bump import Bump
from runbook_lib.clients.github.ci_status import LTS
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.models import Pull
from runbook_lib.display import View
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.checkout import Checkout, slug_of
from runbook_lib.pins import plan
from runbook_lib.pins.plan import Plan
from runbook_lib.records.statement import Identity
from runbook_lib.text.markdown import unlinked
from runbook_lib.workflow.bump_branch import BumpBranch, commit_titles
from runbook_lib.workflow.bump_plan import PlannedBump, cuda_of
from runbook_lib.workflow.pull_request_body import TEMPLATES, compose_body, name_of, named_in, part

_NOTHING = Plan((), (), (), ())


@dataclass(frozen=True)
class Proposal:
    """``whole`` is the bump seen from where the branch left its base, ``missing`` what its tip still lacks.

    ``own`` are the commits that only the branch has; ``moved`` counts those that only the base has.  ``pull`` is the
    open pull request for the bump, and ``mine`` says whether its head is the branch that this bump pushes to.
    """

    branch: BumpBranch
    ahead: PlannedBump
    github: GitHub | None
    whole: Plan
    missing: Plan
    own: tuple[str, ...] = ()
    moved: int = 0
    head: str = ""
    part: str = ""
    pull: Pull | None = None
    warnings: tuple[str, ...] = ()

    @property
    def bump(self) -> Bump:
        """The parameters."""
        return self.branch.bump

    @property
    def mine(self) -> bool:
        """Whether this bump pushes to the branch of the pull request: true as long as there is none."""
        return self.pull is None or is_mine(self.pull, self.head)

    @property
    def idle(self) -> str:
        """Why there is nothing to propose; empty when there is something."""
        if self.bump.tag is None:
            return "No tag was given, so nothing is proposed."
        if not self.whole.changes:
            return f"{self.bump.base} already stands on {self.bump.tag}: there is nothing to propose."
        return ""

    @property
    def merges(self) -> bool:
        """Whether the base is merged into the branch."""
        return bool(self.moved and self.own) and "merge-base" in self.bump.allow

    @property
    def message(self) -> str:
        """The commit's message, without the sign-off; no line of it is taken for a trailer."""
        lines = (unlinked(f"- {it.path}: {it.old} -> {it.new}") for it in self.missing.changes or self.whole.changes)
        return "\n".join([self.bump.title, "", *dict.fromkeys(lines)])

    @property
    def body(self) -> str:
        """The pull request's text as it is to be.  Raises CannotTell where the present one cannot be renewed."""
        if self.pull is not None:
            return compose_body(self.pull.body, self.part)
        try:
            found = self.branch.checkout.read(TEMPLATES, self.branch.base_commit)
        except CannotTell:  # a template that is a link is not followed, and the text does without it
            found = {}
        return compose_body(next((text for text in found.values() if text), ""), self.part)

    def show(self) -> View:
        """Everything at a glance, and the texts in full."""
        if self.idle:
            return display.note(self.idle)
        shown = display.table({"what": name, "value": value} for name, value in self._facts().items())
        if self.missing.changes:
            shown += display.code(f"{self.message}\n\nSigned-off-by: …", title="Commit message")
        if self.mine:
            shown += display.code(self.part if self.pull else self.body, title="Text of the pull request")
        return shown + display.notes(self.warnings, title="Warnings")

    def _facts(self) -> dict[str, str]:
        bump, pull = self.bump, self.pull
        on, off = bump.labels
        exists = "" if self.branch.tip is None else f" (exists, at {self.branch.tip[:10]})"
        there = "not known: GitHub could not be asked" if self.github is None else "none yet: a draft is opened"
        return {
            "branch": f"{bump.branch}{exists}",
            "starts at": f"{bump.base} {self.branch.base_commit[:10]}" if not self.own else self.branch.start[:10],
            "commit": bump.title if self.missing.changes else "found: the branch holds the whole bump",
            "push": f"{bump.remote} ({self.branch.checkout.remote_url(bump.remote, push=True)})",
            "pull request": f"#{pull.number} {pull.url}" if pull else there,
            "title": pull.title if pull else bump.title,
            "from": f"{pull.head_owner}:{pull.head_ref}" if pull else self.head,
            "into": bump.base,
            "labels": ", ".join(sorted(pull.labels)) or "none" if pull else "none",
            "labels to set": ", ".join(sorted(on - (pull.labels if pull else frozenset()))),
            "labels to take off": ", ".join(sorted(off & (pull.labels if pull else frozenset()))),
        }


def propose(branch: BumpBranch, ahead: PlannedBump, github: GitHub | None) -> Proposal:
    """Look at the branch, the base and the open pull requests; changes nothing."""
    bump, checkout = branch.bump, branch.checkout
    if bump.tag is None:
        return Proposal(branch, ahead, github, _NOTHING, _NOTHING)
    tip = branch.tip or branch.base_commit
    fork = checkout.merge_base(tip, branch.base_commit) or branch.base_commit
    plans = {commit: planned(branch, ahead, commit) for commit in {tip, fork, branch.base_commit}}
    missing = plans[tip]
    own = commit_titles(checkout, f"{branch.base_commit}..{tip}")
    # Where the base has the tag already, by a squashed merge or by other hands, the branch has nothing to offer.
    whole = plans[fork] if plans[branch.base_commit].changes else _NOTHING
    moved = len(commit_titles(checkout, f"{tip}..{branch.base_commit}"))
    warnings = [*branch.warnings, *whole.warnings, *_moved(bump, moved, fork, bool(own))]
    digests = {name: it.digest for name, it in ahead.image.platforms.items()} if ahead.image else {}
    head = head_of(checkout, bump)
    pull, github = _found(github, bump, head, warnings)
    if pull and not is_mine(pull, head):
        warnings.append(f"#{pull.number} by {pull.author} is open for this bump already, and is used: {pull.url}")
    image = ahead.changes.markdown() if ahead.changes else ""
    text = part(whole, bump, digests=digests, image=image, record=_folder(checkout, bump))
    return Proposal(branch, ahead, github, whole, missing, tuple(own), moved, head, text, pull, tuple(warnings))


def planned(branch: BumpBranch, ahead: PlannedBump, commit: str) -> Plan:
    """The plan on the texts of a commit."""
    bump, sites = branch.bump, branch.bump.repository.sites
    assert bump.tag is not None
    texts = branch.checkout.read(sites.paths, commit)
    return plan.plan(texts, sites, bump.tag, bump.image_type, allow=bump.allow, cuda=cuda_of(ahead.image))


def head_of(checkout: Checkout, bump: Bump) -> str:
    """``owner:branch`` that the pull request comes from: the fork's owner, where the remote is a fork's."""
    repository = checkout.repository()
    url = checkout.remote_url(bump.remote, push=True) or ""
    # The folder names of a remote on this machine say nothing of owners.
    local = re.match(r"(?:file:|[./~])", url) is not None and bump.remote == checkout.base_remote()
    return f"{(repository if local or not url else slug_of(url)).split('/')[0]}:{bump.branch}"


def is_mine(pull: Pull, head: str) -> bool:
    """Whether a pull request comes from this branch.  GitHub's names of owners know no case."""
    owner, _, branch = head.partition(":")
    return (pull.head_owner.lower(), pull.head_ref) == (owner.lower(), branch)


def find_pull(github: GitHub, bump: Bump, head: str) -> Pull | None:
    """The open pull request for the bump: our own, else anybody's, the oldest first."""
    if own := github.pulls(head=head, base=bump.base):
        return own[-1]
    others = (pull for pull in github.pulls(base=bump.base) if is_for(pull, bump))
    return min(others, key=lambda pull: pull.number, default=None)


def is_for(pull: Pull, bump: Bump) -> bool:
    """Whether a pull request into the same base is for this bump: by its marker, its branch or its title."""
    if named := named_in(pull.body):
        return named == name_of(bump)
    if pull.head_ref.startswith("bump/"):
        return pull.head_ref == bump.branch
    same = pull.title.strip().lower() == bump.title.lower()
    return same and (LTS in pull.labels) == (bump.image_type == "lts")


def _found(github: GitHub | None, bump: Bump, head: str, warnings: list[str]) -> tuple[Pull | None, GitHub | None]:
    """What is open; a run that publishes nothing goes on without GitHub, warned."""
    if github is None:
        return None, None
    try:
        return find_pull(github, bump, head), github
    except RunbookError as error:
        if bump.publish:
            raise
        warnings.append(str(error))
        return None, None


def _moved(bump: Bump, moved: int, fork: str, branched: bool) -> Sequence[str]:
    if not moved:
        return ()
    how = (
        "It is merged into the branch, and the bump planned again."
        if "merge-base" in bump.allow
        else "CI tests the merge of both; to merge it into the branch and plan again, add allow=merge-base."
    )
    return (f"{bump.base} has moved by {moved} commits since {fork[:10]}, where the branch left it. {how}",) * branched


def _folder(checkout: Checkout, bump: Bump) -> str:
    """The bump's folder in the archive: of the bump, not of this run, so that running again changes no text."""
    return "/".join(Identity(checkout.repository(), bump.base, bump.image_type, str(bump.tag), practice=False).parts)
