"""Notebook 03-open-pr: a bump's branch, its commit and the labelled draft pull request, each created only once."""

from dataclasses import dataclass, replace

from runbook_lib import display, notebooks
from runbook_lib.bump import Bump
from runbook_lib.checks import Check, Evidence
from runbook_lib.model import Condition, Outcome, Plan
from runbook_lib.pins.plan import PinChange
from runbook_lib.text.edits import diff, edited_paths
from runbook_lib.workflow import branch_history, bump_branch, bump_plan, pull_request
from runbook_lib.workflow.bump_pull import named_in
from runbook_lib.workflow.proposal import Proposal, propose
from runbook_lib.world.conditions.commits import BranchTip, Committed, Merged, Pushed
from runbook_lib.world.conditions.pulls import Described, Labelled, PullKey, PullOpen
from runbook_lib.world.outside import World

_COMPLETE = "the branch has the complete bump"


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
        review = pull_request.review_pull(branch, proposal.pull, world.records, mine=False)
        missing = bump_plan.plan_commit(branch, proposal.pull.head_sha).changes if review else ()
        return PullFacts(proposal, review=review, missing=missing)
    remote_tip, awaits_round = branch.remote_tip, False
    if remote_tip and remote_tip != branch.start:
        awaits_round = branch_history.only_ci_answers(branch, remote_tip, branch.start, world.records)
    url = world.checkout.remote_url(bump.remote, push=True) or ""
    return PullFacts(proposal, url, remote_tip, awaits_round)


def plan(facts: PullFacts, bump: Bump) -> Plan[World]:
    """Plan commit, push, pull request and labels.  Raises Refused for an image that cannot be used."""
    proposal = facts.proposal
    if proposal.nothing_to_do:
        shown = display.note(proposal.nothing_to_do)
        return Plan(Outcome(proposal.nothing_to_do), (shown,), evidence=Evidence(warnings=proposal.warnings))
    if bump.apply:
        proposal.planned.require()
    planned: Plan[World] = Plan(
        Outcome("The pull request is open with its labels.", notebooks.RUN_CI),
        (_show(facts),),
        checks=(proposal.planned.check,),
        evidence=Evidence(
            inputs={"base_commit": proposal.branch.base_commit},
            tables={"changes": list(map(vars, proposal.plan.changes))},
            diff=diff(proposal.remaining.edits),
            exceptions={"merge-base": f"{bump.base} has moved."} if proposal.merges else {},
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
        return replace(plan, waiting=Outcome(sentence, "Run again."))
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
