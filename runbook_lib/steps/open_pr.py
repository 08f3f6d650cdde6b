"""Notebook 03-open-pr: a bump's branch, its commit and the labelled draft pull request, each created only once."""

from dataclasses import dataclass

from runbook_lib import display, notebooks
from runbook_lib.checks import Check
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.errors import NotAllowed
from runbook_lib.clients.github.models import Pull
from runbook_lib.errors import CannotTell
from runbook_lib.records.step_record import StepRecord
from runbook_lib.text.edits import edited_paths
from runbook_lib.workflow import branch_history, bump_branch, bump_plan, pull_request, pull_request_body
from runbook_lib.workflow.proposal import Proposal, is_mine, propose
from runbook_lib.workflow.pull_request import label_request, open_draft, wait_for_head

_PUBLISH = "Run again with -p apply True -p publish True."


@dataclass(frozen=True)
class OpenedPullRequest:
    """The branch and pull request after step 3.

    ``proposal`` is the one carried out: after a merge of the base it differs from the one shown earlier.
    ``label_request`` asks a maintainer for labels that this token may not set.  ``review`` covers the commits of the
    branch or of somebody else's pull request; it is None if there are none, or if they cannot be fetched.
    """

    proposal: Proposal
    commit: str | None = None
    pull: Pull | None = None
    label_request: str = ""
    review: branch_history.Review | None = None

    @property
    def unconfirmed(self) -> branch_history.Review | None:
        """The review, if a person has to confirm commits."""
        if self.review is None or not self.review.foreign:
            return None
        return self.review


def carry_out(step: StepRecord, proposal: Proposal) -> OpenedPullRequest:
    """With ``apply`` create the branch and commit; with ``publish`` push them, and open or update the pull request.

    Raises Refused if git or the remote refuses, and RunbookError if GitHub does.
    """
    bump = proposal.bump
    if proposal.nothing_to_do:
        step.report(proposal.nothing_to_do)
        return OpenedPullRequest(proposal)
    if not bump.apply:
        review = None  # a person can confirm the commits before anything is applied
        if not proposal.mine:
            review = _review_theirs(step, proposal)
        elif proposal.own_commits:
            review = branch_history.review(proposal.branch, proposal.branch.start, step.records)
            review.record(step)
        return OpenedPullRequest(proposal, review=review)
    proposal.planned.require()
    commit, review = None, None
    if proposal.mine:
        commit = _commit(step, proposal)
        if proposal.merges:
            proposal = _merge_base(step, proposal, commit)
            commit = _commit(step, proposal)
        review = branch_history.review(proposal.branch, commit, step.records)
        review.record(step)
    else:
        review = _review_theirs(step, proposal)
    if not bump.publish or proposal.github is None:
        step.add_inputs(head_commit=commit, base_commit=proposal.branch.base_commit)
        step.report("Skipped without publish: push, pull request, labels.")
        return OpenedPullRequest(proposal, commit, proposal.pull, review=review)
    if proposal.mine and review is not None:
        commit = _push(step, proposal, review)
        if commit is None:
            return OpenedPullRequest(proposal, review.head, proposal.pull, review=review)
    pull = _open_or_update(step, proposal, proposal.github)
    request = _set_labels(step, proposal.github, pull, proposal)
    pull = wait_for_head(proposal.github, pull.number, commit)
    step.link("pull request", pull.url)
    step.add_inputs(pull_request=pull.number, head_commit=pull.head_sha, merge_commit=pull.merge_commit)
    step.add_inputs(base_commit=proposal.branch.base_commit)
    return OpenedPullRequest(proposal, commit, pull, request, review)


def _commit(step: StepRecord, proposal: Proposal) -> str:
    """Return the branch's commit with the complete bump, creating it if necessary."""
    branch, name = proposal.branch, proposal.bump.branch
    if proposal.remaining.edits:
        return branch_history.make(step, branch, proposal.remaining.edits, proposal.message)
    step.report(f"Already done: {name} at {branch.start[:10]} has the complete bump.")
    if bump_branch.fast_forward(branch):
        step.effect("merge", name, None, branch.start)
        step.report(f"Fast-forwarded the local {name} to it.")
    return branch.start


def _review_theirs(step: StepRecord, proposal: Proposal) -> branch_history.Review | None:
    """Review the commits of somebody else's pull request, which is fetched without moving a ref."""
    assert proposal.pull is not None
    review = pull_request.review_pull(proposal.branch, proposal.pull, step.records, mine=False)
    if review is not None:
        review.record(step)
    return review


def _merge_base(step: StepRecord, proposal: Proposal, commit: str) -> Proposal:
    """Merge the base into the branch and plan again, because the base may have brought further pins."""
    branch, bump = proposal.branch, proposal.bump
    bump_branch.switch_to(branch)
    merged = branch.checkout.merge(branch.base_commit, f"Merge branch '{bump.base}' into {bump.branch}")
    step.effect("merge", bump.branch, commit, merged)
    step.allowed("merge-base", f"{bump.base} had moved by {proposal.base_moved_by} commits.")
    step.report(f"Merged {bump.base} at {branch.base_commit[:10]} into {bump.branch}: {merged[:10]}.")
    return propose(bump_branch.find(branch.checkout, bump), proposal.planned, proposal.github)


def _push(step: StepRecord, proposal: Proposal, review: branch_history.Review) -> str | None:
    """Push the branch and return the remote's commit; None if a commit on the branch must be confirmed first."""
    bump, checkout, commit = proposal.bump, proposal.branch.checkout, review.head
    remote_commit = checkout.remote_tip(bump.remote, bump.branch)
    if remote_commit == commit:
        step.report(f"Already done: {bump.remote} has {commit[:10]}.")
        return commit
    if remote_commit and bump_branch.only_ci_answers(checkout, bump, remote_commit, commit):
        step.report(
            f"{bump.remote} has {remote_commit[:10]}. The commits after it respond to its CI run, and are pushed "
            "together once all of that run's failures are decided."
        )
        return remote_commit
    if review.foreign:
        step.report(f"Not pushed: {bump.branch} contains a commit that the runbook did not make.")
        return None
    branch_history.push(step, review, remote_commit)
    return commit


def _open_or_update(step: StepRecord, proposal: Proposal, github: GitHub) -> Pull:
    """Return the open pull request with our part of its description updated, or a new draft if there is none."""
    bump, pull = proposal.bump, proposal.pull
    if pull is None:
        pull = open_draft(step, github, bump, proposal.head, proposal.body)
    else:
        step.report(f"Already open: #{pull.number} by {pull.author}: {pull.url}")
    if not proposal.mine and not pull_request_body.named_in(pull.body):
        return pull  # somebody else wrote the description
    try:
        body = github.public(pull_request_body.compose_body(pull.body, proposal.part))
        if body != pull.body:
            github.update_pull(pull.number, body)
            step.effect("pull request", f"#{pull.number} text", pull.body, body, url=pull.url)
            step.report("Updated our part of its description.")
    except (CannotTell, NotAllowed) as error:
        step.warn(str(error))
    return pull


def _set_labels(step: StepRecord, github: GitHub, pull: Pull, proposal: Proposal) -> str:
    """Set the labels that select the tests, remove those that prevent them, and read the labels again.

    Returns a request to a maintainer if this token may not change labels, empty if they are right.
    """
    required, forbidden = proposal.bump.labels
    before = github.labels(pull.number)
    changes = dict.fromkeys(sorted(required - before), True) | dict.fromkeys(sorted(forbidden & before), False)
    if not changes:
        return ""
    errors: list[str] = []
    for name, wanted in changes.items():
        try:
            if wanted:
                github.add_label(pull.number, name)
            else:
                github.remove_label(pull.number, name)
        except NotAllowed as error:  # a contributor's token, or somebody else changed the label first
            errors.append(str(error))
            continue
        step.effect("label", f"#{pull.number} {name}", not wanted, wanted, url=pull.url)
        step.report(f"{'Set' if wanted else 'Removed'} the label {name!r}.")
    after = github.labels(pull.number)
    request = label_request(pull, sorted(required - after), sorted(forbidden & after), github.repository)
    if request:
        step.warn(*errors)
    return request


def verify(step: StepRecord, opened: OpenedPullRequest) -> None:
    """Read the branch and the pull request again, and record the checks and the outcome."""
    proposal, bump = opened.proposal, opened.proposal.bump
    step.warn(*proposal.warnings)
    step.table("changes", map(vars, proposal.plan.changes))
    if proposal.nothing_to_do:
        step.done(proposal.nothing_to_do)
        return
    step.check(*_branch_checks(opened), *_pull_checks(opened))
    number = f"#{opened.pull.number}" if opened.pull else "the draft pull request"
    if not bump.apply:
        _plan_effects(step, proposal)
        state = f"#{proposal.pull.number} is open" if proposal.pull else "would open a draft pull request"
        step.done(f"Preview: {state}, {bump.title!r} into {bump.base}.", "Run again with -p apply True.")
    elif opened.unconfirmed:
        step.waiting(opened.unconfirmed.waiting, opened.unconfirmed.next)
    elif opened.pull and opened.review is None:
        step.waiting(f"waiting for git: {number} cannot be fetched, so its commits cannot be reviewed", "Run it again.")
    elif not bump.publish:
        step.waiting("waiting for publish, which pushes the branch and opens the pull request", _PUBLISH)
    elif opened.label_request:
        step.waiting(f"waiting for a maintainer to set the labels of {number}", opened.label_request)
    else:
        url = opened.pull.url if opened.pull else ""
        step.done(f"{number} is open with its labels: {url}", notebooks.RUN_CI)


def _plan_effects(step: StepRecord, proposal: Proposal) -> None:
    """Record what apply would do."""
    bump, pull = proposal.bump, proposal.pull
    if proposal.merges:
        step.would(f"merge {bump.base} into branch {bump.branch}")
    if proposal.remaining.edits:
        step.would(f"commit {display.count(len(proposal.remaining.edits), 'file')} together: {bump.title!r}")
    if not proposal.mine:
        return
    if pull is None:
        step.would(f"push the branch to {bump.remote} and open a draft pull request into {bump.base}", publish=True)
    elif proposal.remaining.edits or proposal.merges:
        step.would(f"push the branch to {bump.remote}, for #{pull.number}", publish=True)
    required, forbidden = bump.labels
    labels = pull.labels if pull else frozenset()
    if missing := required - labels:
        step.would(f"set the label {', '.join(sorted(missing))}", publish=True)
    if superfluous := forbidden & labels:
        step.would(f"remove the label {', '.join(sorted(superfluous))}", publish=True)


def _branch_checks(opened: OpenedPullRequest) -> list[Check]:
    proposal, bump, commit, review = opened.proposal, opened.proposal.bump, opened.commit, opened.review
    complete, own = "the branch has the complete bump", "every commit is the runbook's own or confirmed"
    if not bump.apply:
        return Check.each((complete, own), "skipped", "This is a preview.")
    if opened.commit is not None and opened.unconfirmed:  # their effect on the pins is checked once they are confirmed
        return Check.each((complete, own), "waiting", f"{opened.unconfirmed.waiting}.")
    branch = proposal.branch
    if review is None:
        assert opened.pull is not None
        return Check.each((complete, own), "waiting", f"#{opened.pull.number} could not be fetched.")
    commit = review.head
    missing = [f"{change.path}:{change.line}" for change in bump_plan.plan_commit(branch, commit).changes]
    detail = f"{commit[:10]}: {', '.join(edited_paths(proposal.plan.edits))}."
    if missing:
        detail = f"Not at {bump.tag}: {', '.join(missing)}."
    commits = display.count(len(review.commits), "commit")
    if review.confirmed:
        commits += f", {len(review.confirmed)} of them confirmed by a person"
    own_check = Check(own, "passed", f"{commits}.")
    if review.foreign:
        own_check = Check(own, "waiting", f"{review.waiting}.")
    return [Check.of(complete, not missing, detail), own_check]


def _pull_checks(opened: OpenedPullRequest) -> list[Check]:
    proposal, bump, github = opened.proposal, opened.proposal.bump, opened.proposal.github
    is_open, head, labels = "the pull request is open", "its head is the bump's commit", "its labels select the tests"
    if github is None or opened.pull is None or not bump.publish:
        reason = "Nothing was published." if bump.apply else "This is a preview."
        return Check.each((is_open, head, labels), "skipped", reason)
    if opened.unconfirmed and opened.commit != opened.pull.head_sha:
        return Check.each((is_open, head, labels), "waiting", "Nothing was pushed.")
    pull = github.pull(opened.pull.number)
    state = f"#{pull.number}: {'draft' if pull.draft else 'ready for review'}, {pull.state}, into {pull.base_ref}."
    checks = [Check.of(is_open, pull.state == "open" and pull.base_ref == bump.base, state)]
    if is_mine(pull, proposal.head):
        checks.append(Check.of(head, opened.commit in (None, pull.head_sha), f"{pull.head_sha[:10]}."))
    else:
        checks.append(Check(head, "skipped", f"{pull.head_sha[:10]}, on {pull.head_owner}:{pull.head_ref}."))
    required, forbidden = bump.labels
    names = f"{', '.join(sorted(pull.labels)) or 'none'}."
    if opened.label_request:
        checks.append(Check(labels, "skipped", f"{names} A maintainer must set them."))
    else:
        checks.append(Check.of(labels, required <= pull.labels and not forbidden & pull.labels, names))
    return checks
