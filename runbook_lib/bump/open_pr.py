"""Notebook 03-open-pr: a bump's branch, its commit and the labelled draft pull request, each created only once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from runbook_lib import display, notebooks
from runbook_lib.bump import branch_history, gitlab_tests, pins_step
from runbook_lib.bump.pins_step import COMPLETE, NO_PLAN, PlannedBump, plan_commit
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images import months
from runbook_lib.model import Check, Condition, Evidence, Next, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.plan import PinPlan
from runbook_lib.record.run_file import Identity
from runbook_lib.text.edits import diff, edited_paths
from runbook_lib.text.markdown import compose_body, render, unlinked
from runbook_lib.world.bump_branch import (
    BumpBranch,
    find_pull,
    head_of,
    is_mine,
    marked,
    named_in,
    open_for,
)
from runbook_lib.world.conditions.commits import BranchTip, Merged, Pushed
from runbook_lib.world.conditions.forge import Described, Labelled, PullKey, PullOpen
from runbook_lib.world.git.commits import list_commits, merged_tree
from runbook_lib.world.github.models import Pull
from runbook_lib.world.ports import Forge, World

NAME = notebooks.OPEN_PR


@dataclass(frozen=True)
class Work:
    """``plan`` is the bump on the commit where the branch diverged from its base, ``remaining`` the part its tip lacks.

    ``merges``: the base will be merged into the branch first.  ``awaits_round``: the branch has responses to CI, which
    are pushed together once all failures of that run are decided.
    """

    plan: PinPlan = NO_PLAN
    remaining: PinPlan = NO_PLAN
    merges: bool = False
    awaits_round: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class PullFacts:
    """The branch, its work, and the bump's open pull request, whose head is ``owner:branch``.

    ``part`` is our part of its description, ``body`` the description of a new one.  Of somebody else's pull request
    ``review`` covers its commits, None if they cannot be fetched, and ``missing`` are the pins that they do not move.
    """

    branch: BumpBranch
    planned: PlannedBump
    head: str
    work: Work = Work()
    pull: Pull | None = None
    part: str = ""
    body: str = ""
    review: branch_history.Review | None = None
    missing: tuple[str, ...] = ()

    @property
    def mine(self) -> bool:
        """True if this bump pushes to the pull request's branch, or there is no pull request yet."""
        return self.pull is None or is_mine(self.pull, self.head)


def look(world: World, bump: Bump) -> PullFacts:
    """Read the branch, the registry, the base and the open pull requests.  Raises RunbookError like ``plan_bump``."""
    branch = BumpBranch.look(world, bump)
    facts = PullFacts(branch, pins_step.plan_bump(branch), head_of(world.checkout, bump))
    if bump.tag is None:
        return facts
    work = _read_work(world, branch, facts.planned)
    pull, remarks = _find(world.github, bump, facts.head)
    facts = replace(facts, pull=pull, work=replace(work, warnings=(*work.warnings, *remarks)))
    if not work.plan.changes:
        return facts
    template = fill_in(_template(branch), f"{unlinked(bump.title)}, in every place that names it.")
    part = _part(branch, facts.planned, work.plan)
    facts = replace(facts, part=part, body=compose_body(template, part))
    if pull is None or facts.mine:
        return facts
    review = branch_history.review_pull(branch, pull, world.records, mine=False)
    missing = plan_commit(branch, pull.head_sha).changes if review else ()
    return replace(facts, review=review, missing=tuple(f"{change.path}:{change.line}" for change in missing))


def _read_work(world: World, branch: BumpBranch, planned: PlannedBump) -> Work:
    """Plan on the branch and on its base, which may have moved."""
    bump, checkout, base = branch.bump, branch.checkout, branch.base_commit
    tip = branch.tip or base
    own_commits = list_commits(checkout, base, tip)
    base_moved_by = len(list_commits(checkout, tip, base))
    merges = bool(base_moved_by and own_commits and bump.allowed("merge-base", base))
    # The base may have brought further pins, so the bump is planned on the merge.
    remaining = plan_commit(branch, merged_tree(checkout, tip, base) if merges else tip)
    plan = plan_commit(branch, base if merges else branch.fork).for_cuda(planned.cuda)
    if not plan_commit(branch, base).changes:
        # The base already has the tag, from a squashed merge or from somebody else: the branch adds nothing.
        plan = NO_PLAN
    warnings = [*branch.warnings, *plan.warnings]
    if base_moved_by and own_commits:
        advice = bump.decisions.advice("allow", "merge-base")
        how = f"CI tests the merge of both. To merge the base into the branch and plan again, {advice}."
        if merges:
            how = "It will be merged into the branch, and the bump planned again."
        moved = f"{bump.base} has moved by {base_moved_by} commits since the branch diverged at {branch.fork[:10]}"
        warnings.append(f"{moved}. {how}")
    pushed, awaits_round = branch.remote_tip, False
    if pushed and pushed != branch.start:
        awaits_round = branch_history.only_ci_answers(branch, pushed, branch.start, world.records)
    return Work(plan, remaining, merges, awaits_round, tuple(warnings))


def _find(github: Forge | None, bump: Bump, head: str) -> tuple[Pull | None, list[str]]:
    """Return the bump's open pull request, with remarks on it and on those that are not used."""
    if github is None:
        return None, []
    try:
        pull = find_pull(github, bump, head)
        others = () if pull else open_for(github, bump)
    except RunbookError as error:
        if bump.publish:
            raise
        return None, [str(error)]
    if pull and not is_mine(pull, head):
        remark = f"#{pull.number} by {pull.author} is already open for this bump, and will be used: {pull.url}"
        return pull, [remark]
    return pull, [
        f"#{other.number} by {other.author} looks like this bump, and will not be used, because {other.author} is "
        f"not known to have write access to {github.repository}: {other.url}"
        for other in others
    ]


def _part(branch: BumpBranch, planned: PlannedBump, pins: PinPlan) -> str:
    """Return our part of the description."""
    bump = branch.bump
    platforms = planned.image.platforms if planned.image else {}
    image = f"{planned.changes.markdown()}\n" if planned.changes else ""
    # The bump's folder in the archive, not the run's, so that a second run does not change the text.
    identity = Identity(branch.checkout.repository(), bump.base, bump.image_type, bump.target, False)
    return describe(
        pins, bump, digests={name: platform.digest for name, platform in platforms.items()},
        image=image + months.markdown(planned.known_issues), validation=gitlab_tests.describe(branch),
        record="/".join(identity.parts),
    )  # fmt: skip


def _template(branch: BumpBranch) -> str:
    try:
        texts = branch.checkout.read(TEMPLATES, branch.base_commit)
    except CannotTell:  # a symbolic link is not followed; the description works without a template
        return ""
    return next((text for text in texts.values() if text), "")


def plan(facts: PullFacts, bump: Bump) -> Plan[World]:
    """Plan commit, push, pull request and labels.  Raises Refused for an image that cannot be used."""
    work, checks = facts.work, [facts.planned.check]
    if not work.plan.changes:
        nothing = f"{bump.base} already names {bump.tag}: there is nothing to propose."
        if bump.tag is None:
            nothing = "No tag was given, so nothing is proposed."
        return Plan(Outcome(nothing), (display.note(nothing),), evidence=Evidence(warnings=work.warnings))
    if bump.apply:
        facts.planned.require()
    if facts.mine and not work.remaining.edits:
        files = ", ".join(edited_paths(work.plan.edits))
        checks.append(Check(COMPLETE, "passed", f"{facts.branch.start[:10]}: {files}."))
    allowed = bump.allowed("merge-base", facts.branch.base_commit) if work.merges else None
    planned: Plan[World] = Plan(
        Outcome("The pull request is open with its labels.", Next.run(notebooks.RUN_CI)),
        (_show(facts),),
        checks=tuple(checks),
        evidence=Evidence(
            inputs={"base_commit": facts.branch.base_commit},
            tables={"changes": list(map(vars, work.plan.changes))},
            diff=diff(work.remaining.edits),
            decided=(allowed,) if allowed else (),
            warnings=work.warnings,
        ),
    )
    if facts.pull and not facts.mine:
        return _plan_other(planned, facts, facts.pull)
    return replace(planned, conditions=_own_conditions(facts))


def _plan_other(plan: Plan[World], facts: PullFacts, pull: Pull) -> Plan[World]:
    """Add the conditions on somebody else's pull request: labels, and our part of the description if it has one."""
    if facts.review is None:
        sentence = f"waiting for git: #{pull.number} cannot be fetched, so its commits cannot be reviewed"
        return replace(plan, waiting=Outcome(sentence, Next.again()))
    bump, places = facts.branch.bump, ", ".join(facts.missing)
    detail = f"Not at {bump.tag}: {places}." if places else f"{pull.head_sha[:10]}."
    key = PullKey(f"{pull.head_owner}:{pull.head_ref}", pull.base_ref)
    labelled = Labelled(key, *bump.labels, head=pull.head_sha)
    conditions: tuple[Condition[World], ...] = (labelled,)
    if named_in(pull.body):  # otherwise somebody else wrote the description
        conditions = (Described(key, facts.part), labelled)
    complete = Check.of(COMPLETE, not places, detail)
    plan = replace(plan, conditions=conditions, checks=(*plan.checks, complete))
    return branch_history.apply_review(plan, facts.review)


def _own_conditions(facts: PullFacts) -> tuple[Condition[World], ...]:
    """Return the conditions on the bump's branch and its pull request."""
    branch, bump, work = facts.branch, facts.branch.bump, facts.work
    tip, key = BranchTip(bump.branch, branch.start), PullKey(facts.head, bump.base)
    conditions: list[Condition[World]] = []
    if work.merges:
        conditions.append(Merged(tip, bump.base, branch.base_commit))
    if work.remaining.edits:
        conditions.append(pins_step.committed(branch, work.remaining))
    if not work.awaits_round:
        conditions.append(Pushed(tip, bump.remote, branch.remote_tip, follows=bool(conditions)))
    conditions.append(PullOpen(key, bump.remote, bump.title, "" if facts.pull else facts.body))
    conditions.append(Described(key, facts.part))
    conditions.append(Labelled(key, *bump.labels))
    return tuple(conditions)


def _show(facts: PullFacts) -> display.View:
    """Show a table of the branch, the pull request and its labels, and the full texts."""
    branch, bump, pull = facts.branch, facts.branch.bump, facts.pull
    rows = {
        "branch": branch.describe(),
        "pull request": f"#{pull.number} {pull.url}" if pull else "none yet: a draft will be opened",
        "title": pull.title if pull else bump.title,
        "from": f"{pull.head_owner}:{pull.head_ref}" if pull else facts.head,
        "into": bump.base,
        "labels": ", ".join(sorted(pull.labels if pull else ())) or "none",
    }
    view = display.mapping(rows)
    if facts.work.remaining.changes:
        message = pins_step.commit_message(bump, facts.work.remaining)
        view += display.code(f"{message}\n\nSigned-off-by: …", title="Commit message")
    if facts.mine:
        view += display.code(facts.part if pull else facts.body, title="Pull request description")
    return view


#: The paths where GitHub searches for a pull request template, in this order.
TEMPLATES = (
    ".github/pull_request_template.md", ".github/PULL_REQUEST_TEMPLATE.md", "pull_request_template.md",
    "PULL_REQUEST_TEMPLATE.md", "docs/pull_request_template.md", "docs/PULL_REQUEST_TEMPLATE.md",
)  # fmt: skip


def fill_in(template: str, sentence: str) -> str:
    """Return a repository's template with the common parts of every bump filled in, and the rest unchanged.

    That is the ``sentence`` on the change in place of the comment below the first heading that has one, and that no
    issue is linked.  What the boxes ask is for a person to answer.
    """
    comment = r"[ \t]*<!--[^\n]*-->[ \t]*(?=\r?$)"
    template = re.sub(rf"(?m)^(#[^\n]*\n){comment}", lambda match: match[1] + sentence, template, count=1)
    return re.sub(rf"(?mi)^(linked issue:){comment}", r"\1 none", template)


def describe(
    plan: PinPlan, bump: Bump, *, digests: Mapping[str, str], record: str, image: str = "",
    validation: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return our part, with its markers: the changed pins, digests (platform → digest), warnings, the record.

    ``image`` lists the changes in the new image, as Markdown; ``validation`` has the steps that validate an LTS bump.
    """
    other_type = "" if bump.allowed("both-types") else bump.repository.other_type(bump.image_type)
    text = render(
        "pins", plan=plan, bump=bump, other_type=other_type, digests=digests, image=image, validation=validation,
        record=record,
    )  # fmt: skip
    return marked(text, bump, "")
