"""Notebook 03-open-pr: a bump's branch, its commit and the labelled draft pull request, each created only once."""

from dataclasses import dataclass, replace

from runbook_lib import display, notebooks
from runbook_lib.bump import branch_history, bump_plan, lts_validation
from runbook_lib.bump.bump_plan import NO_PLAN, PlannedBump, plan_commit
from runbook_lib.bump.pull_request_body import TEMPLATES, fill_in, part
from runbook_lib.checks import Check, Evidence, Next
from runbook_lib.decisions import Decision
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images import months
from runbook_lib.model import Condition, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.plan import PinChange, PinPlan
from runbook_lib.record.run_file import Identity
from runbook_lib.text.edits import diff, edited_paths
from runbook_lib.text.markdown import unlinked
from runbook_lib.text.sections import compose_body
from runbook_lib.world import bump_branch
from runbook_lib.world.bump_branch import BumpBranch, commit_titles
from runbook_lib.world.bump_pull import find_pull, head_of, is_mine, named_in, open_for
from runbook_lib.world.conditions.commits import BranchTip, Committed, Merged, Pushed
from runbook_lib.world.conditions.pulls import Described, Labelled, PullKey, PullOpen
from runbook_lib.world.git.commits import merged_tree
from runbook_lib.world.github.models import Pull
from runbook_lib.world.outside import World
from runbook_lib.world.ports import Forge

_COMPLETE = "the branch has the complete bump"

NAME = notebooks.OPEN_PR


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
    def decided(self) -> tuple[Decision, ...]:
        """The exception that permits the merge."""
        allowed = self.bump.allowed("merge-base", self.branch.base_commit) if self.merges else None
        return (allowed,) if allowed else ()

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


@dataclass(frozen=True)
class PullFacts:
    """The branch, the plan and the open pull request of a bump.

    ``remote_tip`` is the bump's branch on its remote.  ``awaits_round``: the branch has responses to CI, which are
    pushed together once all failures of that run are decided.  Of somebody else's pull request for the same bump:
    ``review`` covers its commits, None if they cannot be fetched, and ``missing`` are the pins that they do not move.
    """

    proposal: Proposal
    push_url: str = ""
    remote_tip: str | None = None
    awaits_round: bool = False
    review: branch_history.Review | None = None
    missing: tuple[PinChange, ...] = ()


def look(world: World, bump: Bump) -> PullFacts:
    """Read the branch, the registry, the base and the open pull requests.  Raises RunbookError like ``plan_bump``."""
    branch = bump_branch.look(world, bump)
    proposal = propose(branch, bump_plan.plan_bump(branch), world.github)
    if bump.tag is None or proposal.nothing_to_do:
        return PullFacts(proposal)
    if proposal.pull and not proposal.mine:
        review = branch_history.review_pull(branch, proposal.pull, world.records, mine=False)
        missing = bump_plan.plan_commit(branch, proposal.pull.head_sha).changes if review else ()
        return PullFacts(proposal, review=review, missing=missing)
    remote_tip, awaits_round = branch.remote_tip, False
    if remote_tip and remote_tip != branch.start:
        awaits_round = branch_history.only_ci_answers(branch, remote_tip, branch.start, world.records)
    url = world.checkout.remote_url(bump.remote, push=True) or ""
    return PullFacts(proposal, url, remote_tip, awaits_round)


def propose(branch: BumpBranch, planned: PlannedBump, github: Forge | None) -> Proposal:
    """Read the branch, the base and the open pull requests, and return the work to be done.  Changes nothing."""
    bump, checkout, base = branch.bump, branch.checkout, branch.base_commit
    if bump.tag is None:
        return Proposal(branch, planned, NO_PLAN, NO_PLAN)
    tip = branch.tip or base
    fork = checkout.merge_base(tip, base) or base
    own_commits = commit_titles(checkout, f"{base}..{tip}")
    base_moved_by = len(commit_titles(checkout, f"{tip}..{base}"))
    merges = bool(base_moved_by and own_commits and bump.allowed("merge-base", base))
    # The base may have brought further pins, so the bump is planned on the merge.
    remaining = plan_commit(branch, merged_tree(checkout, tip, base) if merges else tip)
    plan = plan_commit(branch, base if merges else fork).for_cuda(planned.cuda)
    if not plan_commit(branch, base).changes:
        # The base already has the tag, from a squashed merge or from somebody else: the branch adds nothing.
        plan = NO_PLAN
    warnings = [*branch.warnings, *plan.warnings]
    if base_moved_by and own_commits:
        advice = bump.decisions.advice("allow", "merge-base")
        how = f"CI tests the merge of both. To merge the base into the branch and plan again, {advice}."
        if merges:
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
    validation = lts_validation.describe(branch) if bump.image_type == "lts" else ()
    text = part(plan, bump, digests=digests, image=image, validation=validation, record="/".join(identity.parts))
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


def plan(facts: PullFacts, bump: Bump) -> Plan[World]:
    """Plan commit, push, pull request and labels.  Raises Refused for an image that cannot be used."""
    proposal = facts.proposal
    if proposal.nothing_to_do:
        shown = display.note(proposal.nothing_to_do)
        return Plan(Outcome(proposal.nothing_to_do), (shown,), evidence=Evidence(warnings=proposal.warnings))
    if bump.apply:
        proposal.planned.require()
    planned: Plan[World] = Plan(
        Outcome("The pull request is open with its labels.", Next.run(notebooks.RUN_CI)),
        (_show(facts),),
        checks=(proposal.planned.check,),
        evidence=Evidence(
            inputs={"base_commit": proposal.branch.base_commit},
            tables={"changes": list(map(vars, proposal.plan.changes))},
            diff=diff(proposal.remaining.edits),
            decided=proposal.decided,
            warnings=proposal.warnings,
        ),
    )
    return _plan_own(planned, facts) if proposal.mine else _plan_other(planned, facts)


def _plan_own(plan: Plan[World], facts: PullFacts) -> Plan[World]:
    """Add the conditions on the bump's own branch and pull request."""
    proposal = facts.proposal
    checks = plan.checks
    if not proposal.remaining.edits:
        files = ", ".join(edited_paths(proposal.plan.edits))
        checks = (*checks, Check(_COMPLETE, "passed", f"{proposal.branch.start[:10]}: {files}."))
    return replace(plan, checks=checks, conditions=_own_conditions(facts))


def _plan_other(plan: Plan[World], facts: PullFacts) -> Plan[World]:
    """Add the conditions on somebody else's pull request: labels, and our part of the description if it has one."""
    pull = facts.proposal.pull
    assert pull is not None
    if facts.review is None:
        sentence = f"waiting for git: #{pull.number} cannot be fetched, so its commits cannot be reviewed"
        return replace(plan, waiting=Outcome(sentence, Next.again()))
    places = ", ".join(f"{change.path}:{change.line}" for change in facts.missing)
    detail = f"Not at {facts.proposal.bump.tag}: {places}." if places else f"{pull.head_sha[:10]}."
    key = PullKey(f"{pull.head_owner}:{pull.head_ref}", pull.base_ref)
    labelled = Labelled(key, *facts.proposal.bump.labels, head=pull.head_sha)
    conditions: tuple[Condition[World], ...] = (labelled,)
    if named_in(pull.body):  # otherwise somebody else wrote the description
        conditions = (Described(key, facts.proposal.part), labelled)
    complete = Check.of(_COMPLETE, not places, detail)
    plan = replace(plan, conditions=conditions, checks=(*plan.checks, complete))
    return branch_history.apply_review(plan, facts.review)


def _own_conditions(facts: PullFacts) -> tuple[Condition[World], ...]:
    """Return the conditions on the bump's branch and its pull request."""
    proposal, bump = facts.proposal, facts.proposal.bump
    tip, key = BranchTip(bump.branch, proposal.branch.start), PullKey(proposal.head, bump.base)
    conditions: list[Condition[World]] = []
    if proposal.merges:
        conditions.append(Merged(tip, bump.base, proposal.branch.base_commit))
    if proposal.remaining.edits:
        message = bump_plan.commit_message(bump, proposal.remaining)
        conditions.append(Committed(tip, proposal.remaining.edits, message, _COMPLETE))
    if not facts.awaits_round:
        conditions.append(Pushed(tip, bump.remote, facts.remote_tip, follows=bool(conditions)))
    conditions.append(PullOpen(key, bump.remote, bump.title, "" if proposal.pull else proposal.body))
    conditions.append(Described(key, proposal.part))
    conditions.append(Labelled(key, *bump.labels))
    return tuple(conditions)


def _show(facts: PullFacts) -> display.View:
    """Show a table of the branch, the pull request and its labels, and the full texts."""
    proposal, bump, pull = facts.proposal, facts.proposal.bump, facts.proposal.pull
    branch = proposal.branch
    rows = {
        "branch": bump.branch,
        "starts at": f"{bump.base} {branch.base_commit[:10]}",
        "push": f"{bump.remote} ({facts.push_url})",
        "pull request": "none yet: a draft will be opened",
        "title": bump.title,
        "from": proposal.head,
        "into": bump.base,
    }
    if branch.tip:
        rows["starts at"] = f"{bump.branch} {branch.start[:10]}"
    if pull:
        rows |= {
            "pull request": f"#{pull.number} {pull.url}",
            "title": pull.title,
            "from": f"{pull.head_owner}:{pull.head_ref}",
            "labels": ", ".join(sorted(pull.labels)) or "none",
        }
    view = display.mapping(rows)
    if proposal.remaining.changes:
        message = bump_plan.commit_message(bump, proposal.remaining)
        view += display.code(f"{message}\n\nSigned-off-by: …", title="Commit message")
    if proposal.mine:
        view += display.code(proposal.part if pull else proposal.body, title="Pull request description")
    return view
