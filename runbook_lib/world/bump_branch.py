"""A bump's branch and its pull request: their commits, our markers in the description, and the progress of CI.

A bump is planned on a commit: the tip of its own branch once that exists, else the tip of the base branch.  The work
tree is neither read nor changed.  Our parts of a description are between markers, invisible on GitHub.  An update
replaces only the text between them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from runbook_lib import display, notebooks
from runbook_lib.errors import NoSuchBranch, Refused, RunbookError, Unreachable
from runbook_lib.model import Next
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import LTS
from runbook_lib.text.lists import join_first
from runbook_lib.text.sanitize import visible
from runbook_lib.world.conditions.forge import login_of, wait_for_head
from runbook_lib.world.git.checkout import Checkout, slug_of
from runbook_lib.world.git.commits import list_commits
from runbook_lib.world.github.ci_status import CiStatus, branch_of, choose, judge, labels_at, wrong_tests
from runbook_lib.world.github.copy_pr_bot import command, commands, complaint, is_refused
from runbook_lib.world.github.models import Comment, LabelEvent, Pull, WorkflowJob, WorkflowRun
from runbook_lib.world.ports import ONLINE, Forge, Services, World

_BEGIN = re.compile(r"<!-- base-image-runbook:begin(?: (?P<bump>[^\s<>]+))? -->")
#: Our parts of a description, in the order in which they are created: the pins, the golden values, the quarantined
#: tests.
Section = Literal["", "golden-values", "broken-tests"]


@dataclass(frozen=True)
class BumpBranch:
    """A bump's branch and its base: ``tip`` is its newest commit, None if the branch does not exist yet.

    ``remote_tip`` is the branch's newest commit on its remote; None if it is not there, or could not be read.
    ``services`` describe its image and test it.
    """

    checkout: Checkout
    bump: Bump
    base_remote: str
    base_commit: str
    tip: str | None
    warnings: tuple[str, ...] = ()
    remote_tip: str | None = None
    services: Services = field(default=ONLINE, repr=False, compare=False)
    #: What ``pins_step`` has planned on it so far: the pins by commit, and the bump with its image by its tag.
    plans: dict[str, Any] = field(init=False, default_factory=dict, repr=False, compare=False)

    @classmethod
    def look(cls, world: World, bump: Bump) -> Self:
        """Return the branch like ``find``, read once in this run."""
        known = world.branches.get(bump.branch) or cls.find(world.checkout, bump, world.services)
        if known.bump != bump:  # its decisions were read again
            known = replace(known, bump=bump)
        world.branches[bump.branch] = known
        return known

    @classmethod
    def find(cls, checkout: Checkout, bump: Bump, services: Services = ONLINE) -> Self:
        """Read the base branch and the bump's branch, here and on the remotes.  Does not move refs or edit anything.

        If the remote is unreachable, a preview or a local run uses the last fetched state, with a warning.
        Raises RunbookError for a base that does not exist, and Refused if this clone's branch and the remote's diverge.
        """
        remote = checkout.base_remote() or ""
        warnings: list[str] = []
        base = _newest(checkout, bump, remote, warnings)
        if base is None:
            raise NoSuchBranch(f"Branch {bump.base!r} does not exist in {checkout.path}.", "Name an existing branch.")
        tip = pushed = None
        if bump.tag or bump.change_title:
            pushed = _remote_tip(checkout, bump, warnings)
            tip = _tip(checkout, bump, base, pushed, warnings)
        return cls(checkout, bump, remote, base, tip, tuple(warnings), pushed, services)

    @property
    def start(self) -> str:
        """The commit that plans start from: the branch's newest one, else the base's."""
        return self.tip or self.base_commit

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


def _newest(checkout: Checkout, bump: Bump, remote: str, warnings: list[str]) -> str | None:
    """Return the newest commit of the base branch; None if it does not exist."""
    branch = bump.base
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
        for commit in reversed(list_commits(checkout, local or base, remote)):
            listed.append(f"{commit.id[:10]} {visible(commit.title)[:80]!r}")  # whoever pushed it
        warnings.append(
            f"Branch {bump.branch} is taken from the remote {bump.remote!r}, with commits missing from this clone: "
            f"{join_first(listed, 5)}."
        )
        return remote
    if not checkout.is_ancestor(remote, local):
        raise Refused(
            f"Branch {bump.branch} is at {local[:10]} here and at {remote[:10]} on the remote {bump.remote!r}, and "
            "the two have diverged.",
            "Decide which to keep, delete or rename the other, then run again.",
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


def name_of(bump: Bump) -> str:
    """Return the name of a bump for use in a marker."""
    return f"{bump.base}/{bump.image_type}-{bump.target or 'none'}"


def named_in(body: str) -> str:
    """Return the bump named by the marker in a body; empty without a marker."""
    match = _BEGIN.search(body)
    return (match["bump"] or "") if match else ""


def marked(text: str, bump: Bump, section: Section) -> str:
    """Return a part enclosed in its section's markers."""
    name = f"base-image-runbook:{section}{':' * bool(section)}"
    return f"<!-- {name}begin {name_of(bump)} -->\n{text.strip()}\n<!-- {name}end -->"


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


def require_mine(pull: Pull, head: str) -> None:
    """Raise Refused if the pull request comes from somebody else's branch."""
    if not is_mine(pull, head):
        raise Refused(
            f"#{pull.number} is {pull.author}'s, on {pull.head_owner}:{pull.head_ref}: only they should "
            f"commit to it. Nothing was changed.",
            f"Notify them, or open a pull request against that branch: {pull.url}",
        )


def find_pull(github: Forge, bump: Bump, head: str) -> Pull | None:
    """Return the open pull request for the bump: our own, else the oldest by somebody who may write to the repository.

    Anybody can open one with our branch name, title or marker, so those of strangers do not count.
    """
    if own := github.pulls(head=head, base=bump.base):
        return own[-1]
    return next((pull for pull in open_for(github, bump) if pull.author and github.may_write(pull.author)), None)


def open_for(github: Forge, bump: Bump) -> tuple[Pull, ...]:
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


@dataclass(frozen=True)
class PullRequestState:
    """The state of the bump's pull request and its CI on GitHub.

    ``problem`` is the reason why GitHub could not be queried.  ``behind`` is the number of base commits that the head
    lacks, and ``me`` the token's login.  ``refused``: the head commit's deployment to CI was refused.
    """

    branch: BumpBranch
    github: Forge | None
    head_name: str
    pull: Pull | None = None
    comments: tuple[Comment, ...] = ()
    labellings: tuple[LabelEvent, ...] = ()
    behind: int = 0
    me: str = ""
    refused: bool = False
    problem: str = ""

    @property
    def bump(self) -> Bump:
        """The parameters of the bump."""
        return self.branch.bump

    @property
    def is_mine(self) -> bool:
        """True if the pull request comes from the bump's own branch."""
        return self.pull is not None and is_mine(self.pull, self.head_name)

    @property
    def authorized(self) -> tuple[Comment, ...]:
        """The comments that authorize CI for the head commit: our own, and those of people who may authorize it."""
        return commands(self.comments, self.pull.head_sha, self.me) if self.pull else ()

    def show(self) -> display.View:
        """Show the pull request, and the comment that would authorize its CI."""
        if self.pull is None:
            return display.note(self.problem or f"No pull request is open for {self.branch.bump.branch}.")
        comments = [f"{comment.author} at {comment.created:%Y-%m-%d %H:%M} UTC" for comment in self.authorized]
        rows = {
            "pull request": f"#{self.pull.number} {self.pull.url}",
            "head": self.pull.head_sha,
            "merge commit (what CI tests)": self.pull.merge_commit or "not computed yet",
            "base": f"{self.pull.base_ref}, {self.behind} commits ahead of the head",
            "labels": ", ".join(sorted(self.pull.labels)) or "none",
            "authorized": ", ".join(comments) or f"not yet: the comment will be {command(self.pull.head_sha)!r}",
        }
        return display.mapping(rows)


def read_state(branch: BumpBranch, github: Forge | None) -> PullRequestState:
    """Read the bump's pull request, with its comments and labels.  Changes nothing.

    A run that publishes nothing continues without GitHub.
    """
    bump = branch.bump
    if bump.tag is None or github is None:
        problem = "No tag was given." if bump.tag is None else "GitHub cannot be queried without a token."
        return PullRequestState(branch, github, "", problem=problem)
    state = PullRequestState(branch, github, head_of(branch.checkout, bump))
    try:
        if pull := find_pull(github, bump, state.head_name):
            pull = wait_for_head(github, pull.number, None, branch.services.sleep)
            comments = github.comments(pull.number)
            refused = is_refused(comments, pull.head_sha) or github.deployment_failed(pull.head_sha)
            state = replace(
                state, pull=pull, comments=comments, labellings=github.labellings(pull.number),
                behind=github.behind(pull.base_ref, pull.head_sha), me=login_of(github), refused=refused,
            )  # fmt: skip
    except RunbookError as error:
        if bump.publish:
            raise
        return replace(state, problem=str(error))
    return state


def run_of_head(pull: Pull, github: Forge, bump: Bump) -> WorkflowRun | None:
    """Return the run for the head commit; copy-pr-bot starts one by itself for a trusted author."""
    return choose(github.runs(branch_of(pull.number), pull.head_sha), pull.head_sha, bump.repository.ci.workflow)


def read_progress(state: PullRequestState, pull: Pull, github: Forge) -> CiStatus:
    """Return the current state of the head commit's CI run on GitHub."""
    head, bump = pull.head_sha, state.bump
    run = run_of_head(pull, github, bump)
    jobs: tuple[WorkflowJob, ...] = ()
    wrong = ""
    if run:
        jobs = github.jobs(run.id)
        wrong = wrong_tests(labels_at(pull.labels, state.labellings, run.created), bump.image_type, bump.repository)
    current = judge(run, jobs, head, wrong)
    if run and current.state == "failed" and not bump.repository.tests.golden:
        current = replace(current, next=Next(f"Read its failed jobs: {run.url}"))
    if current.state in ("passed", "useless"):
        return current
    comments = github.comments(pull.number)
    if is_refused(comments, head) or (current.state in ("none", "failed") and github.deployment_failed(head)):
        return replace(
            current, state="refused", sentence=f"waiting for another commit: copy-pr-bot could not deploy {head[:10]}",
            next=Next.run(notebooks.RUN_CI, "Push an empty commit, and authorize CI for it:"),
        )  # fmt: skip
    if run is not None:
        return current
    if code := complaint(comments, head, state.me):
        sentence = f"waiting for a maintainer: copy-pr-bot refused the command ({code})"
        advice = f'Ask a maintainer of {github.repository} to comment "{command(head)}" on {pull.url} (again).'
        return CiStatus("refused", None, (), sentence, Next(advice))
    if (newest := github.pull(pull.number)).head_sha != head:
        sentence = f"waiting: #{newest.number} has a newer head, {newest.head_sha[:10]}"
        return CiStatus("superseded", None, (), sentence, Next.again())
    if not commands(comments, head, state.me):
        return replace(
            current, sentence=f"waiting for a comment: none authorizes CI for {head[:10]} yet",
            next=Next.run(notebooks.RUN_CI, "Post that comment:", mode="publish"),
        )  # fmt: skip
    return current
